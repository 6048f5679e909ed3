/* Architectures are rows of a table of traits; the shape of one model is a struct of hyperparameters. */
#ifndef NJ_ENGINE_MODEL_ARCHITECTURE_H
#define NJ_ENGINE_MODEL_ARCHITECTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/formats/gguf.h"
#include "kernels/operations.h"

struct nj_architecture {
    const char *name; /* general.architecture */
    enum nj_rope_kind rope;
    bool has_attention_biases; /* queries, keys and values have one; required where true, refused where not */
};

/* NULL: not supported. */
const struct nj_architecture *architecture_find(struct nj_text name);
const struct nj_architecture *architecture_at(int index); /* NULL past the end */

/* Everything here has been checked: positive, within the limits below, consistent with each other. */
struct nj_hyperparameters {
    const struct nj_architecture *architecture;
    int32_t layers;       /* <= 1,024 */
    int32_t width;        /* embedding length, a multiple of 32, <= 65,536 */
    int32_t feed_forward; /* a multiple of 32, <= 1,048,576 */
    int32_t heads;        /* <= 1,024; a multiple of kv_heads */
    int32_t kv_heads;
    int32_t head_width; /* even, <= 512; heads * head_width is a multiple of 32 */
    int32_t rotated;    /* rope dimensions, even, <= head_width */
    int32_t context;    /* tokens, <= 16,777,216 */
    int32_t vocabulary; /* rows of the embedding, <= 4,194,304 */
    float norm_epsilon;
    double rope_base;
    double rope_scale;    /* linear scaling: angles are divided by it; 1 if none */
    bool tied_embeddings; /* no output.weight: the head is the embedding */
};

/* Reads and checks them; refuses (NJ_BAD_DATA) what is missing, out of range, or not supported (an unknown
 * architecture or rope scaling type, by name). */
int hyperparameters_read(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error);

#endif
