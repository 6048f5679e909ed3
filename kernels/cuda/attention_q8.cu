/* Attention of single tokens over keys and values in int8, on tensor cores.
 *
 * Scores are products of 16 positions x 32 dimensions (a group) with 32 dimensions x 8 heads, weighted values of
 * 16 dimensions x 32 positions with 32 positions x 8 heads: four neighbours of the direction that is summed over lie in
 * one word of the cache, as the tensor core takes them. A weight of 16 bits is 256 * high + low, high signed, low not.
 */
#include "kernels/cuda/attention.h"

enum {
    MOST_GROUPS = NJ_MOST_HEAD_WIDTH / NJ_GROUP_COLS,
    GROUP_QUADS = NJ_GROUP_COLS / NJ_KV_QUAD,
    MOST_QUADS = NJ_MOST_HEAD_WIDTH / NJ_KV_QUAD,
    POSITION_QUADS = BLOCK / NJ_KV_QUAD,
    PADDING = 4, /* words: eight heads lie in different banks */
    TILE = 16,   /* positions or dimensions of one product */
    MOST_TILES = NJ_MOST_HEAD_WIDTH / TILE / ATTENTION_WARPS
};

static_assert(BLOCK / TILE == ATTENTION_WARPS, "every warp has a tile of positions");

struct q8_shared {
    uint32_t query[HEADS][MOST_QUADS + PADDING]; /* four dimensions in a word */
    uint32_t high[HEADS][POSITION_QUADS + PADDING], low[HEADS][POSITION_QUADS + PADDING]; /* four positions in a word */
    float query_scale[HEADS][MOST_GROUPS];
    float score[HEADS][BLOCK];
    float weight_scale[HEADS], correction[HEADS], sum[HEADS];
};

/* Every warp takes groups of heads in turn. Numbers past the width and heads past the last are 0. */
NJ_DEVICE void quantize_queries(const struct nj_attention_args *a, const struct attention_place *place,
                                struct q8_shared *shared)
{
    const int lane = thread_index() % NJ_CUDA_WARP, groups = (int)kv_q8_groups(a->kv.head_width);
    for (int task = thread_index() / NJ_CUDA_WARP; task < HEADS * groups; task += ATTENTION_WARPS) {
        const int head = task / groups, group = task % groups, d = group * NJ_GROUP_COLS + lane;
        const float x = head < place->heads && d < a->kv.head_width ? a->q[head_index(a, place, head) + d] : 0.0f;
        const struct group_scale scale = scale_group(magnitude_bits(x), 127.0f);
        ((int8_t *)shared->query[head])[d] = (int8_t)quantize_in_group(x, scale);
        if (lane == 0)
            shared->query_scale[head][group] = scale.d;
    }
}

/* A lane's words of a 16 x 32 matrix whose quads of columns are `stride` words apart; rows and quads past the last are
 * 0. */
NJ_DEVICE void load_tile(const int8_t *bytes, int stride, int row, int rows, int quad, int quads, uint32_t a[4])
{
    NJ_UNROLL
    for (int i = 0; i < 4; i++) {
        const int r = row + 8 * (i % 2), q = quad + 4 * (i / 2);
        a[i] = r < rows && q < quads ? load_word(bytes + 4 * ((int64_t)q * stride + r)) : 0;
    }
}

/* A warp has 16 positions. */
NJ_DEVICE void score_block(const struct nj_attention_args *a, const struct attention_block *block,
                           const struct nj_kv_q8_head *head, struct q8_shared *shared)
{
    const int lane = thread_index() % NJ_CUDA_WARP, row = lane / 4, quad = lane % 4;
    const int first = thread_index() / NJ_CUDA_WARP * TILE, quads = (int)kv_q8_quads(a->kv.head_width);
    float score[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (first >= block->valid)
        return;
    for (int group = 0; group < (int)kv_q8_groups(a->kv.head_width); group++) {
        const uint32_t *query = &shared->query[row][group * GROUP_QUADS + quad];
        const uint32_t b[2] = {query[0], query[4]};
        const float *scales = head->key_scales + group * BLOCK + first + row;
        uint32_t keys[4];
        int32_t dot[4] = {0, 0, 0, 0};
        load_tile(head->keys, BLOCK, first + row, BLOCK, group * GROUP_QUADS + quad, quads, keys);
        multiply_s8(dot, keys, b);
        NJ_UNROLL
        for (int i = 0; i < 4; i++)
            score[i] =
                fmaf(shared->query_scale[2 * quad + i % 2][group] * scales[8 * (i / 2)], (float)dot[i], score[i]);
    }
    NJ_UNROLL
    for (int i = 0; i < 4; i++)
        shared->score[2 * quad + i % 2][first + row + 8 * (i / 2)] = score[i] * a->scale;
}

/* A warp has two heads: scores become weights in 16 bits. */
NJ_DEVICE void weigh_positions(const struct attention_place *place, const struct attention_block *block,
                               const struct nj_kv_q8_head *stored, struct softmax softmax[OWN_HEADS],
                               struct q8_shared *shared)
{
    const int lane = thread_index() % NJ_CUDA_WARP;
    NJ_UNROLL
    for (int own = 0; own < OWN_HEADS; own++) {
        const int head = thread_index() / NJ_CUDA_WARP + ATTENTION_WARPS * own;
        if (head >= place->heads)
            continue;
        float p[2] = {shared->score[head][lane], shared->score[head][lane + NJ_CUDA_WARP]};
        const float correction = join_softmax(block, &softmax[own], p);
        uint32_t largest = 0;
        NJ_UNROLL
        for (int i = 0; i < 2; i++) {
            const int position = lane + NJ_CUDA_WARP * i;
            p[i] = position < block->valid ? p[i] * stored->value_scales[position] : 0.0f;
            largest = magnitude_bits(p[i]) > largest ? magnitude_bits(p[i]) : largest;
        }
        const struct group_scale scale = scale_group(largest, 32767.0f);
        NJ_UNROLL
        for (int i = 0; i < 2; i++) {
            const int32_t n = quantize_in_group(p[i], scale);
            ((int8_t *)shared->high[head])[lane + NJ_CUDA_WARP * i] = (int8_t)(n >> 8);
            ((uint8_t *)shared->low[head])[lane + NJ_CUDA_WARP * i] = (uint8_t)(n & 255);
        }
        if (lane == 0) {
            shared->weight_scale[head] = scale.d;
            shared->correction[head] = correction;
            shared->sum[head] = softmax[own].sum;
        }
    }
}

/* Every fourth tile of 16 dimensions is a warp's. */
NJ_DEVICE void join_values(const struct nj_attention_args *a, const struct attention_block *block,
                           const struct nj_kv_q8_head *head, const struct q8_shared *shared, float out[MOST_TILES][4])
{
    const int lane = thread_index() % NJ_CUDA_WARP, row = lane / 4, quad = lane % 4, width = a->kv.head_width;
    NJ_UNROLL
    for (int tile = 0; tile < MOST_TILES; tile++) {
        const int first = (thread_index() / NJ_CUDA_WARP + ATTENTION_WARPS * tile) * TILE;
        if (first >= width)
            continue;
        int32_t high[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
        NJ_UNROLL_NOT
        for (int q = quad; q - quad < POSITION_QUADS; q += GROUP_QUADS) {
            const uint32_t b_high[2] = {shared->high[row][q], shared->high[row][q + 4]};
            const uint32_t b_low[2] = {shared->low[row][q], shared->low[row][q + 4]};
            uint32_t values[4];
            load_tile(head->values, width, first + row, width, q, POSITION_QUADS, values);
            multiply_s8(high, values, b_high);
            multiply_u8(low, values, b_low);
        }
        NJ_UNROLL
        for (int i = 0; i < 4; i++) {
            const int column = 2 * quad + i % 2;
            const float weighted = shared->weight_scale[column] * (float)(256 * high[i] + low[i]);
            out[tile][i] = join_weighted(block, out[tile][i], shared->correction[column], weighted);
        }
    }
}

NJ_DEVICE void store_output(const struct nj_attention_args *a, const struct attention_place *place,
                            const struct q8_shared *shared, float out[MOST_TILES][4])
{
    const int lane = thread_index() % NJ_CUDA_WARP, row = lane / 4, quad = lane % 4;
    NJ_UNROLL
    for (int tile = 0; tile < MOST_TILES; tile++) {
        NJ_UNROLL
        for (int i = 0; i < 4; i++) {
            const int head = 2 * quad + i % 2;
            const int d = (thread_index() / NJ_CUDA_WARP + ATTENTION_WARPS * tile) * TILE + row + 8 * (i / 2);
            if (head < place->heads && d < a->kv.head_width)
                a->out[head_index(a, place, head) + d] = out[tile][i] / shared->sum[head];
        }
    }
}

NJ_KERNEL(cuda_attention_q8, NJ_CUDA_ATTENTION_THREADS, struct nj_attention_args, a)
{
    NJ_SHARED(struct q8_shared, shared);
    const struct attention_place place = find_place(&a);
    struct softmax softmax[OWN_HEADS] = {{0.0f, 0.0f}};
    float out[MOST_TILES][4] = {{0.0f}};
    quantize_queries(&a, &place, shared);
    block_barrier();
    for (int64_t first = 0; first < place.positions; first += BLOCK) {
        const struct attention_block block = find_block(&a, &place, first);
        const struct nj_kv_q8_head head = kv_q8_head(block.memory, a.kv.head_width, place.kv_head);
        score_block(&a, &block, &head, shared);
        block_barrier(); /* scores are there, and the weights before have been read */
        weigh_positions(&place, &block, &head, softmax, shared);
        block_barrier();
        join_values(&a, &block, &head, shared, out);
    }
    store_output(&a, &place, shared, out);
}
