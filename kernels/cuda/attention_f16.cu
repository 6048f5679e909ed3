/* Attention of single tokens over keys and values in half precision. The order of their sums is defined, so a thread
 * has a position (scores) or dimensions (values) to itself and goes through the other direction alone. */
#include "kernels/cuda/attention.h"

enum {
    PARTS = NJ_CUDA_ATTENTION_THREADS / BLOCK, /* threads with the same position */
    PART_HEADS = HEADS / PARTS,
    MOST_DIMENSIONS = NJ_MOST_HEAD_WIDTH / NJ_CUDA_ATTENTION_THREADS /* of a thread */
};

/* Heads past the last have zeros for queries and weights. */
struct f16_shared {
    float query[HEADS][NJ_MOST_HEAD_WIDTH];
    float score[HEADS][BLOCK]; /* then p */
    float correction[HEADS], sum[HEADS];
};

NJ_DEVICE void load_queries(const struct nj_attention_args *a, const struct attention_place *place,
                            struct f16_shared *shared)
{
    for (int head = 0; head < HEADS; head++)
        for (int d = thread_index(); d < a->kv.head_width; d += NJ_CUDA_ATTENTION_THREADS)
            shared->query[head][d] = head < place->heads ? a->q[head_index(a, place, head) + d] : 0.0f;
}

/* A thread has one position and every second head. */
NJ_DEVICE void score_block(const struct nj_attention_args *a, const struct attention_block *block, const uint16_t *keys,
                           struct f16_shared *shared)
{
    const int position = thread_index() % BLOCK, part = thread_index() / BLOCK;
    float score[PART_HEADS] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (position >= block->valid)
        return;
    NJ_UNROLL_TWICE
    for (int d = 0; d < a->kv.head_width; d++) {
        const float key = half_to_float(keys[d * BLOCK + position]);
        NJ_UNROLL
        for (int i = 0; i < PART_HEADS; i++)
            score[i] = fmaf(shared->query[part + PARTS * i][d], key, score[i]);
    }
    NJ_UNROLL
    for (int i = 0; i < PART_HEADS; i++)
        shared->score[part + PARTS * i][position] = score[i] * a->scale;
}

/* A warp has two heads: scores become p. */
NJ_DEVICE void weigh_positions(const struct attention_block *block, struct softmax softmax[OWN_HEADS],
                               struct f16_shared *shared)
{
    const int lane = thread_index() % NJ_CUDA_WARP;
    NJ_UNROLL
    for (int own = 0; own < OWN_HEADS; own++) {
        const int head = thread_index() / NJ_CUDA_WARP + ATTENTION_WARPS * own;
        float *score = shared->score[head];
        float p[2] = {score[lane], score[lane + NJ_CUDA_WARP]};
        const float correction = join_softmax(block, &softmax[own], p);
        score[lane] = p[0];
        score[lane + NJ_CUDA_WARP] = p[1];
        if (lane == 0) {
            shared->correction[head] = correction;
            shared->sum[head] = softmax[own].sum;
        }
    }
}

/* A thread has dimensions of its own, of all heads. */
NJ_DEVICE void join_values(const struct nj_attention_args *a, const struct attention_block *block,
                           const uint16_t *values, const struct f16_shared *shared, float out[MOST_DIMENSIONS][HEADS])
{
    const int width = a->kv.head_width;
    NJ_UNROLL
    for (int own = 0; own < MOST_DIMENSIONS; own++) {
        const int d = thread_index() + NJ_CUDA_ATTENTION_THREADS * own;
        float weighted[HEADS] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
        if (d >= width)
            continue;
        NJ_UNROLL_TWICE
        for (int j = 0; j < block->valid; j++) {
            const float value = half_to_float(values[j * width + d]);
            NJ_UNROLL
            for (int head = 0; head < HEADS; head++)
                weighted[head] = fmaf(shared->score[head][j], value, weighted[head]);
        }
        NJ_UNROLL
        for (int head = 0; head < HEADS; head++)
            out[own][head] = join_weighted(block, out[own][head], shared->correction[head], weighted[head]);
    }
}

NJ_DEVICE void store_output(const struct nj_attention_args *a, const struct attention_place *place,
                            const struct f16_shared *shared, float out[MOST_DIMENSIONS][HEADS])
{
    NJ_UNROLL
    for (int own = 0; own < MOST_DIMENSIONS; own++) {
        const int d = thread_index() + NJ_CUDA_ATTENTION_THREADS * own;
        NJ_UNROLL
        for (int head = 0; head < HEADS; head++)
            if (head < place->heads && d < a->kv.head_width)
                a->out[head_index(a, place, head) + d] = out[own][head] / shared->sum[head];
    }
}

NJ_KERNEL(cuda_attention_f16, NJ_CUDA_ATTENTION_THREADS, struct nj_attention_args, a)
{
    NJ_SHARED(struct f16_shared, shared);
    const struct attention_place place = find_place(&a);
    struct softmax softmax[OWN_HEADS] = {{0.0f, 0.0f}};
    float out[MOST_DIMENSIONS][HEADS] = {{0.0f}};
    load_queries(&a, &place, shared);
    block_barrier();
    for (int64_t first = 0; first < place.positions; first += BLOCK) {
        const struct attention_block block = find_block(&a, &place, first);
        const uint16_t *keys =
            (const uint16_t *)(block.memory + place.kv_head * kv_head_bytes(NJ_KV_F16, a.kv.head_width));
        score_block(&a, &block, keys, shared);
        block_barrier();
        weigh_positions(&block, softmax, shared);
        block_barrier();
        join_values(&a, &block, keys + BLOCK * a.kv.head_width, shared, out);
        block_barrier(); /* p has been read */
    }
    store_output(&a, &place, shared, out);
}
