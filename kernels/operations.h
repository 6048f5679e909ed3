/* The operations a sweep is made of: one argument structure each.
 *
 * All pointers are device addresses (for the CPU: plain memory), borrowed until the launch has run.
 * Matrices of activations are row-major, one row per token, float32 unless said otherwise. Counts are
 * in elements, strides in elements unless the name ends in `_bytes`. The arithmetic of each operation
 * is defined in docs/arithmetic.md and implemented plainly in kernels/reference. */
#ifndef NJ_KERNELS_OPERATIONS_H
#define NJ_KERNELS_OPERATIONS_H

#include "kernels/matrix.h"

enum { NJ_KV_BLOCK_TOKENS = 64, NJ_MOST_HEAD_WIDTH = 512, NJ_LOGIT_TILE = 4096 };

/* int8 activations: for row t and group g of 32 columns, x = d[t * groups + g] * q[t * cols + k].
 * sum is the exact sum of the group's 32 q. A group that holds a non-finite value gets d = NaN, q = 0. */
struct nj_q8 {
    int8_t *q;    /* [rows][cols], in [-127, 127] */
    float *d;     /* [rows][cols / 32] */
    int32_t *sum; /* [rows][cols / 32] */
};

/* An activation in either or both forms; the unused form is NULL. Integer matrix kinds read q8, float
 * kinds read f32. With f32 only, integer kinds are dequantised: the test-only float path. */
struct nj_activation {
    float *f32; /* [rows][cols] */
    struct nj_q8 q8;
};

/* The tokens of one sweep. */
struct nj_token_batch {
    int64_t count;
    const int32_t *token;    /* [count] */
    const int32_t *position; /* [count] position in its sequence, from 0 */
    const int32_t *sequence; /* [count] row of `blocks` */
    const int32_t *blocks;   /* [sequences][blocks_stride] KV block number of each 64 positions */
    int64_t blocks_stride;
};

enum nj_kv_type { NJ_KV_F16, NJ_KV_Q8, NJ_KV_F32 /* test-only */ };

/* One layer of the KV cache. A block holds the KV heads one after the other (kernels/kv_block.h has sizes and places).
 *
 * F16 and F32: keys [head_width][64] (transposed: lanes of a register hold positions), then values [64][head_width].
 *
 * Q8, with quads = ceil(head_width / 4) and groups = ceil(head_width / 32):
 *   int8_t keys[quads][64][4]         byte i of a quad is dimension 4 * quad + i; bytes past head_width are never read
 *   float key_scales[groups][64]
 *   int8_t values[16][head_width][4]  byte i of a quad is position 4 * quad + i
 *   float value_scales[64]
 * Four neighbours of the direction that is summed over lie together, and 32-bit lanes hold positions (keys) or
 * dimensions (values): what the int16 products of AVX2, the byte products of VNNI and the B fragments of int8
 * tensor-core instructions all read without a shuffle.
 *
 * What a block holds at positions that were not written since it was taken is of no meaning: any bits. */
struct nj_kv_layer {
    enum nj_kv_type type;
    char *base;                 /* this layer's part of block 0 */
    int64_t block_stride_bytes; /* from one block's part to the next's */
    int32_t kv_heads;
    int32_t head_width; /* at most NJ_MOST_HEAD_WIDTH */
};

struct nj_embed_args {
    struct nj_matrix table; /* rows = vocabulary */
    const int32_t *token;   /* [count], each in [0, table.rows) */
    int64_t count;
    float *out; /* [count][table.cols] */
};

struct nj_rms_norm_args {
    const float *x;           /* [..][width] */
    const int32_t *row_index; /* [count] rows of x to read, or NULL for 0..count-1 */
    int64_t count, width;
    const float *weight; /* [width] */
    float epsilon;
    struct nj_activation out; /* [count][width] */
};

struct nj_quantize_args {
    const float *x; /* [count][width] */
    int64_t count, width;
    struct nj_activation out; /* f32, where present, is a copy; it may equal x */
};

struct nj_silu_mul_args {
    const float *gate, *up; /* [count][width] */
    int64_t count, width;
    struct nj_activation out;
};

/* y = W x + bias, or y = y + (W x + bias), for up to three matrices over the same x (query, key, value; gate, up). */
struct nj_matmul_output {
    struct nj_matrix w;
    const float *bias; /* [w.rows], or NULL: nothing is added */
    float *y;          /* [count][y_stride] */
    int64_t y_stride;
    int accumulate;
};

struct nj_matmul_args {
    struct nj_activation x;
    int64_t count; /* tokens */
    int outputs;   /* 1..3; all have the same cols */
    struct nj_matmul_output output[3];
};

/* Rotation angles of a batch, once per sweep: cos and sin of position * inverse_frequency[i]. */
struct nj_rope_angles_args {
    const int32_t *position;         /* [count] */
    const double *inverse_frequency; /* [half] */
    int64_t count, half;             /* half = rotated dimensions / 2 */
    float *cos, *sin;                /* [count][half] */
};

enum nj_rope_kind {
    NJ_ROPE_ADJACENT, /* pairs (2i, 2i+1): llama as GGUF stores it */
    NJ_ROPE_HALVES    /* pairs (i, i + half): "neox" */
};

/* Rotates queries in place, rotates keys, and stores keys and values in the cache. For Q8 both also go through the
 * Walsh-Hadamard transform. */
struct nj_rope_store_args {
    struct nj_token_batch batch;
    enum nj_rope_kind kind;
    int64_t half;
    const float *cos, *sin; /* [count][half] */
    int32_t heads;
    float *q;       /* [count][heads * head_width] */
    const float *k; /* [count][kv_heads * head_width] */
    const float *v; /* [count][kv_heads * head_width] */
    struct nj_kv_layer kv;
};

/* Causal attention of every token over positions 0..position of its sequence, as stored. */
struct nj_attention_args {
    struct nj_token_batch batch;
    int32_t heads; /* a multiple of kv.kv_heads */
    float scale;
    const float *q; /* [count][heads * head_width] */
    float *out;     /* [count][heads * head_width] */
    struct nj_kv_layer kv;
};

/* What the sampler and scoring need of a row of logits. */
struct nj_logit_stats {
    float max;      /* largest logit */
    int32_t argmax; /* lowest index that has it */
    float sum;      /* sum of exp(logit - max), tiles of 4,096 in order */
    int32_t finite; /* 0: some logit is NaN or infinite; the other fields are then meaningless */
};

struct nj_logit_stats_args {
    const float *logits; /* [count][stride] */
    int64_t count, vocabulary, stride;
    struct nj_logit_stats *out; /* [count] */
};

enum nj_operation {
    NJ_OP_EMBED,
    NJ_OP_RMS_NORM,
    NJ_OP_QUANTIZE,
    NJ_OP_SILU_MUL,
    NJ_OP_MATMUL,
    NJ_OP_ROPE_ANGLES,
    NJ_OP_ROPE_STORE,
    NJ_OP_ATTENTION,
    NJ_OP_LOGIT_STATS,
    NJ_OP_COUNT
};

/* "matmul", "attention", ...; "other" for what has no name. */
const char *operation_name(enum nj_operation operation);

union nj_operation_args {
    struct nj_embed_args embed;
    struct nj_rms_norm_args rms_norm;
    struct nj_quantize_args quantize;
    struct nj_silu_mul_args silu_mul;
    struct nj_matmul_args matmul;
    struct nj_rope_angles_args rope_angles;
    struct nj_rope_store_args rope_store;
    struct nj_attention_args attention;
    struct nj_logit_stats_args logit_stats;
};

#endif
