/* Causal attention over float16 keys and values: scores with lanes = keys, weighted values with lanes =
 * dimensions, up to four query heads at a time over one conversion of the stored halves. */
#include <stddef.h>

#include "kernels/avx2/attention.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, HEADS_AT_ONCE = 4, PAIR_FLOATS = 2 * VECTOR_FLOATS };

/* Up to HEADS_AT_ONCE query heads of one token that share a KV head. */
struct heads {
    const float *q; /* [heads][width] */
    float *out;     /* [heads][width] */
    int64_t width;
    float scale;
    float max[HEADS_AT_ONCE], sum[HEADS_AT_ONCE], correction[HEADS_AT_ONCE];
    float p[HEADS_AT_ONCE][BLOCK]; /* scores, then their exponentials */
};

/* Scores of n heads with 16 keys, from key `first` of the block. */
NJ_ALWAYS_INLINE void score_keys(int n, struct heads *heads, const uint16_t *keys, int64_t first)
{
    __m256 low[HEADS_AT_ONCE], high[HEADS_AT_ONCE];
    for (int h = 0; h < n; h++)
        low[h] = high[h] = _mm256_setzero_ps();
    for (int64_t d = 0; d < heads->width; d++) {
        __m256 key_low = vector_load_halves(keys + d * BLOCK + first);
        __m256 key_high = vector_load_halves(keys + d * BLOCK + first + VECTOR_FLOATS);
#pragma GCC unroll 4
        for (int h = 0; h < n; h++) {
            __m256 q = _mm256_broadcast_ss(heads->q + h * heads->width + d);
            low[h] = _mm256_fmadd_ps(q, key_low, low[h]);
            high[h] = _mm256_fmadd_ps(q, key_high, high[h]);
        }
    }
    __m256 scale = _mm256_set1_ps(heads->scale);
    for (int h = 0; h < n; h++) {
        _mm256_storeu_ps(heads->p[h] + first, _mm256_mul_ps(low[h], scale));
        _mm256_storeu_ps(heads->p[h] + first + VECTOR_FLOATS, _mm256_mul_ps(high[h], scale));
    }
}

/* Joins the block's weighted values of n heads in `vectors` (1 or 2) vectors of dimensions from `first`. */
NJ_ALWAYS_INLINE void join_values(int n, int vectors, struct heads *heads, const uint16_t *values, int64_t first,
                                  int64_t valid, int is_first)
{
    __m256 acc[HEADS_AT_ONCE][2];
    for (int h = 0; h < n; h++)
        acc[h][0] = acc[h][1] = _mm256_setzero_ps();
    for (int64_t j = 0; j < valid; j++) {
        __m256 value[2];
        for (int i = 0; i < vectors; i++)
            value[i] = vector_load_halves(values + j * heads->width + first + i * VECTOR_FLOATS);
#pragma GCC unroll 4
        for (int h = 0; h < n; h++) {
            __m256 p = _mm256_broadcast_ss(heads->p[h] + j);
            for (int i = 0; i < vectors; i++)
                acc[h][i] = _mm256_fmadd_ps(p, value[i], acc[h][i]);
        }
    }
    for (int h = 0; h < n; h++) {
        __m256 correction = _mm256_set1_ps(heads->correction[h]);
        for (int i = 0; i < vectors; i++) {
            float *out = heads->out + h * heads->width + first + i * VECTOR_FLOATS;
            __m256 joined = is_first ? acc[h][i] : _mm256_fmadd_ps(_mm256_loadu_ps(out), correction, acc[h][i]);
            _mm256_storeu_ps(out, joined);
        }
    }
}

NJ_ALWAYS_INLINE void join_block(int n, struct heads *heads, const uint16_t *keys, int64_t valid, int is_first)
{
    const uint16_t *values = keys + heads->width * BLOCK;
    for (int64_t first = 0; first < valid; first += PAIR_FLOATS)
        score_keys(n, heads, keys, first);
    for (int h = 0; h < n; h++)
        heads->correction[h] = softmax_join(heads->p[h], valid, is_first, &heads->max[h], &heads->sum[h]);
    int64_t d = 0;
    for (; d + PAIR_FLOATS <= heads->width; d += PAIR_FLOATS)
        join_values(n, 2, heads, values, d, valid, is_first);
    if (d < heads->width)
        join_values(n, 1, heads, values, d, valid, is_first);
}

typedef void (*join_block_function)(struct heads *heads, const uint16_t *keys, int64_t valid, int is_first);

#define NJ_JOIN_BLOCK(n)                                                                                               \
    static void join_block_##n(struct heads *heads, const uint16_t *keys, int64_t valid, int is_first)                 \
    {                                                                                                                  \
        join_block(n, heads, keys, valid, is_first);                                                                   \
    }
NJ_JOIN_BLOCK(1)
NJ_JOIN_BLOCK(2)
NJ_JOIN_BLOCK(3)
NJ_JOIN_BLOCK(4)

static const join_block_function join_blocks[HEADS_AT_ONCE] = {join_block_1, join_block_2, join_block_3, join_block_4};

/* n heads of token t, the first of which is `head`. */
static void attend(const struct nj_attention_args *a, int64_t t, int64_t kv_head, int64_t head, int n)
{
    int64_t width = a->kv.head_width;
    int64_t positions = (int64_t)a->batch.position[t] + 1;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    int64_t row = (t * a->heads + head) * width;
    struct heads heads = {.q = a->q + row, .out = a->out + row, .width = width, .scale = a->scale};
    for (int64_t first = 0; first < positions; first += BLOCK) {
        int64_t valid = positions - first < BLOCK ? positions - first : BLOCK;
        const char *block = a->kv.base + blocks[first / BLOCK] * a->kv.block_stride_bytes;
        const uint16_t *keys = (const uint16_t *)block + kv_head * 2 * width * BLOCK;
        join_blocks[n - 1](&heads, keys, valid, first == 0);
    }
    for (int h = 0; h < n; h++)
        divide_by_sum(heads.out + h * width, width, heads.sum[h]);
}

/* KV heads of tokens are dealt out in turn, so that every thread gets short and long contexts alike. */
void avx2_attend_f16(const struct nj_attention_args *a, int thread, int threads)
{
    int64_t heads_per_kv_head = a->heads / a->kv.kv_heads;
    for (int64_t item = thread; item < a->batch.count * a->kv.kv_heads; item += threads) {
        int64_t kv_head = item % a->kv.kv_heads;
        for (int64_t first = 0; first < heads_per_kv_head; first += HEADS_AT_ONCE) {
            int64_t rest = heads_per_kv_head - first;
            int n = (int)(rest < HEADS_AT_ONCE ? rest : HEADS_AT_ONCE);
            attend(a, item / a->kv.kv_heads, kv_head, kv_head * heads_per_kv_head + first, n);
        }
    }
}
