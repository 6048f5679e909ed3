/* Causal attention over float16 keys and values: scores with lanes = keys, weighted values with lanes =
 * dimensions, up to six rows at a time over one conversion of the stored halves. */
#include <stddef.h>

#include "kernels/avx2/attention.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, ROWS_AT_ONCE = 6, MOST_VECTORS = 8 };

/* Registers of columns at once: enough sums for the latency of an addition, few enough for 16 registers. */
#define NJ_VECTORS(n) ((n) == 1 ? 8 : (n) == 2 ? 4 : 2)

/* Scores of n rows with `vectors` registers of keys, from key `first` of the block. */
NJ_ALWAYS_INLINE void score_keys(int n, int vectors, struct softmax_row *rows, int64_t width, float scale,
                                 const uint16_t *keys, int64_t first)
{
    __m256 sum[ROWS_AT_ONCE][MOST_VECTORS];
    NJ_UNROLL
    for (int r = 0; r < n; r++) {
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            sum[r][i] = _mm256_setzero_ps();
    }
    for (int64_t d = 0; d < width; d++) {
        __m256 key[MOST_VECTORS];
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            key[i] = vector_load_halves(keys + d * BLOCK + first + i * VECTOR_FLOATS);
        NJ_UNROLL
        for (int r = 0; r < n; r++) {
            __m256 q = _mm256_broadcast_ss(rows[r].q + d);
            NJ_UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r][i] = _mm256_fmadd_ps(q, key[i], sum[r][i]);
        }
    }
    NJ_UNROLL
    for (int r = 0; r < n; r++) {
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            _mm256_storeu_ps(rows[r].p + first + i * VECTOR_FLOATS, _mm256_mul_ps(sum[r][i], _mm256_set1_ps(scale)));
    }
}

/* Joins the weighted values of n rows, which see the same positions, in `vectors` registers of dimensions. */
NJ_ALWAYS_INLINE void join_values(int n, int vectors, struct softmax_row *rows, int64_t width, const uint16_t *values,
                                  int64_t first, int is_first)
{
    __m256 sum[ROWS_AT_ONCE][MOST_VECTORS];
    NJ_UNROLL
    for (int r = 0; r < n; r++) {
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            sum[r][i] = _mm256_setzero_ps();
    }
    int64_t valid = rows[0].valid;
    for (int64_t j = 0; j < valid; j++) {
        __m256 value[MOST_VECTORS];
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            value[i] = vector_load_halves(values + j * width + first + i * VECTOR_FLOATS);
        NJ_UNROLL
        for (int r = 0; r < n; r++) {
            __m256 p = _mm256_broadcast_ss(rows[r].p + j);
            NJ_UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r][i] = _mm256_fmadd_ps(p, value[i], sum[r][i]);
        }
    }
    NJ_UNROLL
    for (int r = 0; r < n; r++) {
        __m256 correction = _mm256_set1_ps(rows[r].correction);
        NJ_UNROLL
        for (int i = 0; i < vectors; i++) {
            float *out = rows[r].out + first + i * VECTOR_FLOATS;
            __m256 joined = is_first ? sum[r][i] : _mm256_fmadd_ps(_mm256_loadu_ps(out), correction, sum[r][i]);
            _mm256_storeu_ps(out, joined);
        }
    }
}

NJ_ALWAYS_INLINE void score_block(int n, struct softmax_row *rows, const struct nj_attention_args *a,
                                  const uint16_t *keys, int64_t valid)
{
    for (int64_t first = 0; first < valid; first += NJ_VECTORS(n) * VECTOR_FLOATS)
        score_keys(n, NJ_VECTORS(n), rows, a->kv.head_width, a->scale, keys, first);
}

NJ_ALWAYS_INLINE void weigh_block(int n, struct softmax_row *rows, const struct nj_attention_args *a,
                                  const uint16_t *keys, int is_first)
{
    const int64_t width = a->kv.head_width, step = NJ_VECTORS(n) * VECTOR_FLOATS;
    const uint16_t *values = keys + width * BLOCK;
    int64_t d = 0;
    for (; d + step <= width; d += step)
        join_values(n, NJ_VECTORS(n), rows, width, values, d, is_first);
    for (; d < width; d += VECTOR_FLOATS)
        join_values(n, 1, rows, width, values, d, is_first);
}

typedef void (*score_function)(struct softmax_row *rows, const struct nj_attention_args *a, const uint16_t *keys,
                               int64_t valid);
typedef void (*weigh_function)(struct softmax_row *rows, const struct nj_attention_args *a, const uint16_t *keys,
                               int is_first);

#define NJ_FOR_ROWS(n)                                                                                                 \
    static void score_block_##n(struct softmax_row *rows, const struct nj_attention_args *a, const uint16_t *keys,     \
                                int64_t valid)                                                                         \
    {                                                                                                                  \
        score_block(n, rows, a, keys, valid);                                                                          \
    }                                                                                                                  \
    static void weigh_block_##n(struct softmax_row *rows, const struct nj_attention_args *a, const uint16_t *keys,     \
                                int is_first)                                                                          \
    {                                                                                                                  \
        weigh_block(n, rows, a, keys, is_first);                                                                       \
    }
NJ_FOR_ROWS(1)
NJ_FOR_ROWS(2)
NJ_FOR_ROWS(3)
NJ_FOR_ROWS(4)
NJ_FOR_ROWS(5)
NJ_FOR_ROWS(6)

static const score_function score_blocks[ROWS_AT_ONCE] = {score_block_1, score_block_2, score_block_3,
                                                          score_block_4, score_block_5, score_block_6};
static const weigh_function weigh_blocks[ROWS_AT_ONCE] = {weigh_block_1, weigh_block_2, weigh_block_3,
                                                          weigh_block_4, weigh_block_5, weigh_block_6};

/* n rows with the block whose first position is `first`. */
static void join_block(int n, struct softmax_row *rows, const struct nj_attention_args *a, const uint16_t *keys,
                       int64_t first)
{
    int64_t most = 0;
    for (int r = 0; r < n; r++) {
        int64_t valid = softmax_enter(&rows[r], first);
        most = valid > most ? valid : most;
    }
    if (most == 0)
        return;
    score_blocks[n - 1](rows, a, keys, most);
    for (int r = 0; r < n; r++)
        if (rows[r].valid > 0)
            softmax_join(&rows[r], first == 0);
    /* a value that a row does not see may be NaN: only rows that see the same ones go together */
    for (int r = 0, same; r < n; r += same) {
        for (same = 1; r + same < n && rows[r + same].valid == rows[r].valid;)
            same++;
        if (rows[r].valid > 0)
            weigh_blocks[same - 1](&rows[r], a, keys, first == 0);
    }
}

void avx2_attend_f16(const struct attention_rows *rows)
{
    const struct nj_attention_args *a = rows->args;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[rows->token] * a->batch.blocks_stride;
    struct softmax_row row[MOST_ROWS];
    const int count = (int)(rows->end - rows->begin), at_once = rows_at_once(count, ROWS_AT_ONCE);
    int64_t positions = 0;
    for (int r = 0; r < count; r++) {
        softmax_begin(rows, rows->begin + r, &row[r]);
        positions = row[r].positions > positions ? row[r].positions : positions;
    }
    for (int64_t first = 0; first < positions; first += BLOCK) {
        const char *block = a->kv.base + blocks[first / BLOCK] * a->kv.block_stride_bytes;
        const uint16_t *keys = (const uint16_t *)block + rows->kv_head * 2 * a->kv.head_width * BLOCK;
        for (int r = 0; r < count; r += at_once)
            join_block(count - r < at_once ? count - r : at_once, row + r, a, keys, first);
    }
    for (int r = 0; r < count; r++)
        softmax_end(&row[r], a->kv.head_width);
}
