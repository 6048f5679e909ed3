/* The weight store: which memory holds which layer. In this version every section of the pack is in RAM. */
#ifndef NJ_ENGINE_MODEL_WEIGHTS_H
#define NJ_ENGINE_MODEL_WEIGHTS_H

#include "engine/model/pack.h"
#include "kernels/device.h"

struct nj_layer_weights {
    const float *attention_norm, *feed_forward_norm; /* [width] */
    const float *query_bias, *key_bias, *value_bias; /* [rows of the matrix]; NULL: the model has none */
    struct nj_matrix query, key, value, attention_output, gate, up, down;
};

struct nj_weights;

/* Reads the whole pack into buffers of the device. */
struct nj_weights *weights_load(struct nj_pack *pack, const struct nj_hyperparameters *shape, struct nj_device *device,
                                struct nj_error *error);
/* Weights of the same kinds and widths that mean nothing, for measuring rates before there is a pack: `layers` layers
 * of the model's, and as many rows of the embedding and the head as `vocabulary` says (at most the model's). */
struct nj_weights *weights_create_blank(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape,
                                        int32_t layers, int32_t vocabulary, struct nj_device *device,
                                        struct nj_error *error);
void weights_destroy(struct nj_weights *weights);

const struct nj_layer_weights *weights_layer(const struct nj_weights *weights, int layer);
const struct nj_matrix *weights_embedding(const struct nj_weights *weights);
const struct nj_matrix *weights_head(const struct nj_weights *weights); /* the embedding if tied */
const float *weights_output_norm(const struct nj_weights *weights);     /* [width] */

#endif
