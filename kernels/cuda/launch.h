/* The CUDA kernels, their arguments and the grids that they are launched with.
 *
 * All pointers are device addresses; a kernel's results equal kernels/reference bit for bit (docs/arithmetic.md). */
#ifndef NJ_KERNELS_CUDA_LAUNCH_H
#define NJ_KERNELS_CUDA_LAUNCH_H

#include "kernels/operations.h"

/* cuda_matmul_many_KIND and cuda_matmul_few_KIND, KIND one of u4_zero8, u4_min, u4_super; w is of that kind and has at
 * least one column and row. The grid is (rows / rows of a block, tokens / tokens of a block), rounded up. Both kernels
 * do any number of tokens: many is for more than 8, few reads every weight once per 8. */
struct nj_cuda_matmul_args {
    struct nj_q8 x; /* q is aligned to 16 bytes */
    int64_t count;  /* tokens, at least 1 */
    struct nj_matmul_output output;
};

enum {
    NJ_CUDA_MATMUL_THREADS = 128,
    NJ_CUDA_MANY_ROWS = 64, /* of a block */
    NJ_CUDA_MANY_TOKENS = 64,
    NJ_CUDA_FEW_ROWS = NJ_STRIP_ROWS,
    NJ_CUDA_FEW_TOKENS = 8
};

/* cuda_attention_q8 and cuda_attention_f16 take a struct nj_attention_args whose kv is of that type. A block does up to
 * 8 query heads of one KV head for one token: the grid is (kv_heads * NJ_CUDA_HEAD_GROUPS, tokens). */
enum { NJ_CUDA_ATTENTION_THREADS = 128, NJ_CUDA_ATTENTION_HEADS = 8 };

/* Blocks that one KV head's query heads make. */
#define NJ_CUDA_HEAD_GROUPS(heads, kv_heads)                                                                           \
    (((heads) / (kv_heads) + NJ_CUDA_ATTENTION_HEADS - 1) / NJ_CUDA_ATTENTION_HEADS)

#endif
