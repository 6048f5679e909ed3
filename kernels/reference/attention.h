/* What attention needs of a KV type: scores and weighted values of one KV head of one block. */
#ifndef NJ_KERNELS_REFERENCE_ATTENTION_H
#define NJ_KERNELS_REFERENCE_ATTENTION_H

#include "kernels/operations.h"

struct reference_kv_head {
    const struct nj_kv_layer *kv;
    char *block; /* this layer's part */
    int64_t index;
    int64_t valid; /* positions 0 .. valid - 1 of the block are read, 1 to 64 */
};

/* score[j] of a query head q [head_width] with key j, not yet scaled. */
void reference_score_float(const struct reference_kv_head *head, const float *q, float *score);
void reference_score_q8(const struct reference_kv_head *head, const float *q, float *score);

/* out[d], d < head_width: the values of the block weighted with p[valid]. */
void reference_weigh_float(const struct reference_kv_head *head, const float *p, float *out);
void reference_weigh_q8(const struct reference_kv_head *head, const float *p, float *out);

#endif
