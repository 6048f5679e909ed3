/* The weight store: which memory holds which layer. Embedding, head and some of the layers are in RAM; the others stay
 * on disk, in the pack, and come through a ring of layers ahead of each sweep (engine/disk/layer_ring.h). */
#ifndef NJ_ENGINE_MODEL_WEIGHTS_H
#define NJ_ENGINE_MODEL_WEIGHTS_H

#include <stdbool.h>

#include "engine/disk/layer_ring.h"
#include "engine/model/pack.h"
#include "kernels/device.h"

struct nj_layer_weights {
    const float *attention_norm, *feed_forward_norm; /* [width] */
    const float *query_bias, *key_bias, *value_bias; /* [rows of the matrix]; NULL: the model has none */
    struct nj_matrix query, key, value, attention_output, gate, up, down;
};

struct nj_weights;

struct nj_weights_options {
    int32_t disk_layers; /* 0 .. layers: so many stay on disk, with RAM layers spread evenly between them */
    enum nj_reader_kind reader;
};

/* Whether this one of `layers` layers stays on disk if `disk_layers` of them do. */
bool weights_layer_is_on_disk(int32_t layer, int32_t layers, int32_t disk_layers);

/* What weights take with so many layers on disk; known before there is a pack. */
struct nj_weights_memory {
    uint64_t fixed_bytes; /* embedding, output norm and head */
    uint64_t layer_bytes; /* layers in RAM */
    uint64_t ring_bytes;  /* what the other layers come through */
    uint64_t disk_bytes;  /* read in each sweep */
};
/* NJ_BAD_DATA as pack_check_tensors says. */
int weights_plan_memory(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, int32_t disk_layers,
                        struct nj_weights_memory *out, struct nj_error *error);

/* Reads what belongs in RAM into buffers of the device. The pack outlives the weights. */
struct nj_weights *weights_load(struct nj_pack *pack, const struct nj_hyperparameters *shape, struct nj_device *device,
                                const struct nj_weights_options *options, struct nj_error *error);
/* Weights of the same kinds and widths that mean nothing, for measuring rates before there is a pack: `layers` layers
 * of the model's, and as many rows of the embedding and the head as `vocabulary` says (at most the model's). */
struct nj_weights *weights_create_blank(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape,
                                        int32_t layers, int32_t vocabulary, struct nj_device *device,
                                        struct nj_error *error);
void weights_destroy(struct nj_weights *weights);

/* A sweep takes the layers in order, each until it is given back; layers on disk are there only in between. Those in
 * RAM may be taken out of order and outside of sweeps. If another sweep certainly follows this one, its first layers
 * on disk are read as soon as there is room. */
void weights_begin_sweep(struct nj_weights *weights, bool another_follows);
/* Whether the layer is on disk, so that what is taken of it is not there for long. */
bool weights_layer_is_passing(const struct nj_weights *weights, int32_t layer);
/* Whether taking the layer does not wait for the disk. */
bool weights_layer_is_ready(struct nj_weights *weights, int32_t layer);
/* NULL: NJ_INTERRUPTED as *cancel became non-zero, or the layer cannot be read or is damaged. A layer on disk is
 * checked when it is first taken. */
const struct nj_layer_weights *weights_take_layer(struct nj_weights *weights, int32_t layer, const atomic_int *cancel,
                                                  struct nj_error *error);
void weights_give_back_layer(struct nj_weights *weights, int32_t layer);
/* After an abandoned sweep the next one begins anew. */
void weights_end_sweep(struct nj_weights *weights, bool is_completed);

/* What has been read for sweeps; zeros if no layer is on disk. */
struct nj_ring_counts weights_ring_counts(const struct nj_weights *weights);

const struct nj_matrix *weights_embedding(const struct nj_weights *weights);
const struct nj_matrix *weights_head(const struct nj_weights *weights); /* the embedding if tied */
const float *weights_output_norm(const struct nj_weights *weights);     /* [width] */

#endif
