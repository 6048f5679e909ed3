/* What attention does whatever the type of keys and values: blocks of positions, the softmax over them.
 *
 * A block of threads has one token and up to eight query heads of one KV head; warp w has the softmax of heads w and
 * w + 4. */
#ifndef NJ_KERNELS_CUDA_ATTENTION_H
#define NJ_KERNELS_CUDA_ATTENTION_H

#include "kernels/cuda/elementary.h"
#include "kernels/cuda/launch.h"
#include "kernels/kv_block.h"

enum {
    BLOCK = NJ_KV_BLOCK_TOKENS,
    HEADS = NJ_CUDA_ATTENTION_HEADS,
    ATTENTION_WARPS = NJ_CUDA_ATTENTION_THREADS / NJ_CUDA_WARP,
    OWN_HEADS = HEADS / ATTENTION_WARPS /* of a warp */
};

/* What the thread's block of threads attends to. */
struct attention_place {
    int64_t token;
    int64_t kv_head;
    int64_t first_head;
    int heads; /* 1 to 8 */
    int64_t positions;
    const int32_t *blocks;
};

NJ_DEVICE struct attention_place find_place(const struct nj_attention_args *a)
{
    struct attention_place place;
    const int heads_each = a->heads / a->kv.kv_heads;
    const int groups = NJ_CUDA_HEAD_GROUPS(a->heads, a->kv.kv_heads), group = block_x() % groups;
    place.token = block_y();
    place.kv_head = block_x() / groups;
    place.first_head = place.kv_head * heads_each + group * HEADS;
    place.heads = heads_each - group * HEADS < HEADS ? heads_each - group * HEADS : HEADS;
    place.positions = (int64_t)a->batch.position[place.token] + 1;
    place.blocks = a->batch.blocks + a->batch.sequence[place.token] * a->batch.blocks_stride;
    return place;
}

/* Element 0 of query or output head `head` of the place. */
NJ_DEVICE int64_t head_index(const struct nj_attention_args *a, const struct attention_place *place, int head)
{
    return (place->token * a->heads + place->first_head + head) * a->kv.head_width;
}

/* Positions 0 .. valid - 1 of a block are attended to. */
struct attention_block {
    char *memory; /* this layer's part */
    int valid;
    int is_first;
};

NJ_DEVICE struct attention_block find_block(const struct nj_attention_args *a, const struct attention_place *place,
                                            int64_t first)
{
    struct attention_block block;
    block.memory = a->kv.base + place->blocks[first / BLOCK] * a->kv.block_stride_bytes;
    block.valid = place->positions - first < BLOCK ? (int)(place->positions - first) : BLOCK;
    block.is_first = first == 0;
    return block;
}

/* One head's softmax, the same in all lanes of its warp. */
struct softmax {
    float max, sum;
};

/* Sum of 16 partials over 64 numbers, of which a lane holds `lane` and `lane + 32`; those that are missing are 0. */
NJ_DEVICE float sum_of_partials(const float p[2])
{
    const int is_upper = thread_index() % NJ_CUDA_WARP >= 16;
    const float other[2] = {warp_xor_float(p[0], 16), warp_xor_float(p[1], 16)};
    float sum = is_upper ? other[0] + p[0] : p[0] + other[0];
    sum = sum + (is_upper ? other[1] : p[1]);
    sum = sum + (is_upper ? p[1] : other[1]);
    for (int mask = 8; mask > 0; mask /= 2)
        sum = sum + warp_xor_float(sum, mask);
    return sum;
}

/* Joins a block's scores to the softmax and returns the correction of what came before; a lane has positions `lane` and
 * `lane + 32`, whose scores become p, 0 where they are not valid. */
NJ_DEVICE float join_softmax(const struct attention_block *block, struct softmax *softmax, float p[2])
{
    const int lane = thread_index() % NJ_CUDA_WARP;
    const float before = block->is_first ? float_of_bits(0xff800000u) : softmax->max;
    float max = before;
    NJ_UNROLL
    for (int i = 0; i < 2; i++)
        max = lane + NJ_CUDA_WARP * i < block->valid && p[i] > max ? p[i] : max;
    for (int mask = NJ_CUDA_WARP / 2; mask > 0; mask /= 2) {
        const float other = warp_xor_float(max, mask);
        max = other > max ? other : max;
    }
    NJ_UNROLL
    for (int i = 0; i < 2; i++)
        p[i] = lane + NJ_CUDA_WARP * i < block->valid ? cuda_exp(p[i] - max) : 0.0f;
    const float sum = sum_of_partials(p);
    const float correction = block->is_first ? 0.0f : cuda_exp(before - max);
    softmax->sum = block->is_first ? sum : fmaf(softmax->sum, correction, sum);
    softmax->max = max;
    return correction;
}

NJ_DEVICE float join_weighted(const struct attention_block *block, float out, float correction, float weighted)
{
    return block->is_first ? weighted : fmaf(out, correction, weighted);
}

#endif
