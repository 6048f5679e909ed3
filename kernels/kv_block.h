/* Sizes of one layer's part of a KV block, and where in it things lie (layout: kernels/operations.h). */
#ifndef NJ_KERNELS_KV_BLOCK_H
#define NJ_KERNELS_KV_BLOCK_H

#include "kernels/operations.h"

/* CUDA kernels find their way with the same functions. */
#if defined(__CUDACC__)
#define NJ_KV_INLINE static inline __host__ __device__
#else
#define NJ_KV_INLINE static inline
#endif

enum { NJ_KV_QUAD = 4 };

NJ_KV_INLINE int64_t kv_q8_quads(int64_t head_width)
{
    return (head_width + NJ_KV_QUAD - 1) / NJ_KV_QUAD;
}

NJ_KV_INLINE int64_t kv_q8_groups(int64_t head_width)
{
    return (head_width + NJ_GROUP_COLS - 1) / NJ_GROUP_COLS;
}

/* Bytes of one KV head in one layer of a block: a multiple of 4. */
NJ_KV_INLINE int64_t kv_head_bytes(enum nj_kv_type type, int64_t head_width)
{
    if (type == NJ_KV_Q8) {
        int64_t scales = kv_q8_groups(head_width) + 1;
        return NJ_KV_BLOCK_TOKENS *
               (kv_q8_quads(head_width) * NJ_KV_QUAD + head_width + scales * (int64_t)sizeof(float));
    }
    return 2 * NJ_KV_BLOCK_TOKENS * head_width * (type == NJ_KV_F16 ? 2 : 4);
}

/* One KV head of a Q8 block. */
struct nj_kv_q8_head {
    int8_t *keys;        /* [quads][64][4] */
    float *key_scales;   /* [groups][64] */
    int8_t *values;      /* [16][head_width][4] */
    float *value_scales; /* [64] */
};

/* `block`: this layer's part of a block. */
NJ_KV_INLINE struct nj_kv_q8_head kv_q8_head(char *block, int64_t head_width, int64_t kv_head)
{
    char *keys = block + kv_head * kv_head_bytes(NJ_KV_Q8, head_width);
    char *key_scales = keys + kv_q8_quads(head_width) * NJ_KV_QUAD * NJ_KV_BLOCK_TOKENS;
    char *values = key_scales + kv_q8_groups(head_width) * NJ_KV_BLOCK_TOKENS * (int64_t)sizeof(float);
    char *value_scales = values + head_width * NJ_KV_BLOCK_TOKENS;
    struct nj_kv_q8_head head;
    head.keys = (int8_t *)keys;
    head.key_scales = (float *)key_scales;
    head.values = (int8_t *)values;
    head.value_scales = (float *)value_scales;
    return head;
}

/* Indices into `keys` and `values` of dimension `d` at position `slot` of the block. */
NJ_KV_INLINE int64_t kv_q8_key_index(int64_t d, int64_t slot)
{
    return (d / NJ_KV_QUAD * NJ_KV_BLOCK_TOKENS + slot) * NJ_KV_QUAD + d % NJ_KV_QUAD;
}

NJ_KV_INLINE int64_t kv_q8_value_index(int64_t head_width, int64_t d, int64_t slot)
{
    return (slot / NJ_KV_QUAD * head_width + d) * NJ_KV_QUAD + slot % NJ_KV_QUAD;
}

#endif
