/* Causal attention over float16 keys and values: scores with lanes = keys, weighted values with lanes = dimensions, up
 * to six rows at a time.
 *
 * Widening halves takes about as long as what three rows compute with them. When more than six rows go through a block,
 * it is widened once into a buffer; otherwise on the way into registers. */
#include <stddef.h>

#include "kernels/avx2/attention.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, ROWS_AT_ONCE = 6, MOST_VECTORS = 8, LINE_BYTES = 64 };

/* Registers of columns at once: enough sums for the latency of an addition, few enough for 16 registers. */
#define NJ_VECTORS(n) ((n) == 1 ? 8 : (n) == 2 ? 4 : 2)

/* Keys or values of a head, [..][stride]: halves, or if there are none, floats. */
struct columns {
    const uint16_t *halves;
    const float *floats;
    int64_t stride;
};

/* One KV head of a block. */
struct block {
    struct columns keys, values; /* [width][64], [64][width] */
    const char *ahead;           /* what will be read next, as large as both in halves: fetched meanwhile */
};

NJ_ALWAYS_INLINE __m256 load_columns(int is_wide, const struct columns *columns, int64_t index)
{
    return is_wide ? _mm256_loadu_ps(columns->floats + index) : vector_load_halves(columns->halves + index);
}

/* sum[r][i] = products of `count` coefficients of n rows with `vectors` registers of columns from `first`, ascending.
 * `ahead`, if any: a cache line of it is fetched for each register pair of halves. */
NJ_ALWAYS_INLINE void multiply(int n, int vectors, int is_wide, const float *const coefficients[ROWS_AT_ONCE],
                               int64_t count, const struct columns *columns, int64_t first, const char *ahead,
                               __m256 sum[ROWS_AT_ONCE][MOST_VECTORS])
{
    NJ_UNROLL
    for (int r = 0; r < n; r++) {
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            sum[r][i] = _mm256_setzero_ps();
    }
    for (int64_t k = 0; k < count; k++) {
        __m256 column[MOST_VECTORS];
        NJ_UNROLL
        for (int i = 0; i < vectors; i++)
            column[i] = load_columns(is_wide, columns, k * columns->stride + first + i * VECTOR_FLOATS);
        if (ahead != NULL) {
            NJ_UNROLL
            for (int i = 0; i < vectors / 2; i++)
                _mm_prefetch(ahead + (k * (vectors / 2) + i) * LINE_BYTES, _MM_HINT_T0);
        }
        NJ_UNROLL
        for (int r = 0; r < n; r++) {
            __m256 coefficient = _mm256_broadcast_ss(coefficients[r] + k);
            NJ_UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r][i] = _mm256_fmadd_ps(coefficient, column[i], sum[r][i]);
        }
    }
}

/* Scores of n rows with the block's keys, at least the first `valid`. */
NJ_ALWAYS_INLINE void score_block(int n, int is_wide, struct softmax_row *rows, const struct nj_attention_args *a,
                                  const struct block *block, int64_t valid)
{
    const int vectors = NJ_VECTORS(n);
    const int64_t width = a->kv.head_width;
    const float *query[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++)
        query[r] = rows[r].q;
    for (int64_t first = 0; first < valid; first += vectors * VECTOR_FLOATS) {
        __m256 sum[ROWS_AT_ONCE][MOST_VECTORS];
        const char *ahead = is_wide ? NULL : block->ahead + first / SOFTMAX_STEP * width * LINE_BYTES;
        multiply(n, vectors, is_wide, query, width, &block->keys, first, ahead, sum);
        NJ_UNROLL
        for (int r = 0; r < n; r++) {
            NJ_UNROLL
            for (int i = 0; i < vectors; i++)
                _mm256_storeu_ps(rows[r].p + first + i * VECTOR_FLOATS,
                                 _mm256_mul_ps(sum[r][i], _mm256_set1_ps(a->scale)));
        }
    }
}

/* Joins the weighted values of n rows, which see the same positions, in `vectors` registers of dimensions. */
NJ_ALWAYS_INLINE void join_values(int n, int vectors, int is_wide, struct softmax_row *rows,
                                  const struct columns *values, int64_t first, int is_first)
{
    __m256 sum[ROWS_AT_ONCE][MOST_VECTORS];
    const float *weights[ROWS_AT_ONCE];
    for (int r = 0; r < n; r++)
        weights[r] = rows[r].p;
    multiply(n, vectors, is_wide, weights, rows[0].valid, values, first, NULL, sum);
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

NJ_ALWAYS_INLINE void weigh_block(int n, int is_wide, struct softmax_row *rows, const struct nj_attention_args *a,
                                  const struct block *block, int is_first)
{
    const int64_t width = a->kv.head_width, step = NJ_VECTORS(n) * VECTOR_FLOATS;
    int64_t d = 0;
    for (; d + step <= width; d += step)
        join_values(n, NJ_VECTORS(n), is_wide, rows, &block->values, d, is_first);
    for (; d + SOFTMAX_STEP <= width; d += SOFTMAX_STEP)
        join_values(n, 2, is_wide, rows, &block->values, d, is_first);
    if (d < width)
        join_values(n, 1, is_wide, rows, &block->values, d, is_first);
}

typedef void (*score_function)(struct softmax_row *rows, const struct nj_attention_args *a, const struct block *block,
                               int64_t valid);
typedef void (*weigh_function)(struct softmax_row *rows, const struct nj_attention_args *a, const struct block *block,
                               int is_first);

#define NJ_FOR_ROWS(n, is_wide)                                                                                        \
    static void score_##n##_##is_wide(struct softmax_row *rows, const struct nj_attention_args *a,                     \
                                      const struct block *block, int64_t valid)                                        \
    {                                                                                                                  \
        score_block(n, is_wide, rows, a, block, valid);                                                                \
    }                                                                                                                  \
    static void weigh_##n##_##is_wide(struct softmax_row *rows, const struct nj_attention_args *a,                     \
                                      const struct block *block, int is_first)                                         \
    {                                                                                                                  \
        weigh_block(n, is_wide, rows, a, block, is_first);                                                             \
    }
#define NJ_FOR_ALL_ROWS(is_wide)                                                                                       \
    NJ_FOR_ROWS(1, is_wide)                                                                                            \
    NJ_FOR_ROWS(2, is_wide)                                                                                            \
    NJ_FOR_ROWS(3, is_wide)                                                                                            \
    NJ_FOR_ROWS(4, is_wide)                                                                                            \
    NJ_FOR_ROWS(5, is_wide)                                                                                            \
    NJ_FOR_ROWS(6, is_wide)
NJ_FOR_ALL_ROWS(0)
NJ_FOR_ALL_ROWS(1)

static const score_function score_functions[2][ROWS_AT_ONCE] = {
    {score_1_0, score_2_0, score_3_0, score_4_0, score_5_0, score_6_0},
    {score_1_1, score_2_1, score_3_1, score_4_1, score_5_1, score_6_1}};
static const weigh_function weigh_functions[2][ROWS_AT_ONCE] = {
    {weigh_1_0, weigh_2_0, weigh_3_0, weigh_4_0, weigh_5_0, weigh_6_0},
    {weigh_1_1, weigh_2_1, weigh_3_1, weigh_4_1, weigh_5_1, weigh_6_1}};

static int64_t most_valid(const struct softmax_row *rows, int count)
{
    int64_t most = 0;
    for (int r = 0; r < count; r++)
        most = rows[r].valid > most ? rows[r].valid : most;
    return most;
}

static void score_rows(struct softmax_row *rows, int count, const struct nj_attention_args *a,
                       const struct block *block, int is_first)
{
    const int at_once = rows_at_once(count, ROWS_AT_ONCE), is_wide = block->keys.halves == NULL;
    for (int r = 0; r < count; r += at_once) {
        int n = count - r < at_once ? count - r : at_once;
        int64_t valid = most_valid(rows + r, n);
        if (valid > 0)
            score_functions[is_wide][n - 1](rows + r, a, block, valid);
    }
    for (int r = 0; r < count; r++)
        if (rows[r].valid > 0)
            softmax_join(&rows[r], is_first);
}

/* A value that a row does not see may be NaN: only rows that see the same ones go together. */
static void weigh_rows(struct softmax_row *rows, int count, const struct nj_attention_args *a,
                       const struct block *block, int is_first)
{
    const int is_wide = block->values.halves == NULL;
    for (int r = 0; r < count;) {
        int same = 1;
        while (r + same < count && rows[r + same].valid == rows[r].valid)
            same++;
        const int at_once = rows_at_once(same, ROWS_AT_ONCE);
        for (int done = 0; done < same && rows[r].valid > 0; done += at_once) {
            int n = same - done < at_once ? same - done : at_once;
            weigh_functions[is_wide][n - 1](rows + r + done, a, block, is_first);
        }
        r += same;
    }
}

/* Widens `count` halves, a multiple of 8, and fetches what lies ahead: as much, in the same order. */
static const float *widen(const uint16_t *halves, int64_t count, const char *ahead, float *floats)
{
    for (int64_t i = 0; i < count; i += VECTOR_FLOATS) {
        _mm_prefetch(ahead + i * (int64_t)sizeof *halves, _MM_HINT_T0);
        _mm256_storeu_ps(floats + i, vector_load_halves(halves + i));
    }
    return floats;
}

/* All rows with one block. */
static void join_block(struct softmax_row *rows, int count, const struct nj_attention_args *a, const uint16_t *keys,
                       const char *ahead, int is_first)
{
    float floats[NJ_MOST_HEAD_WIDTH * BLOCK];
    const int64_t width = a->kv.head_width, halves = width * BLOCK;
    const int is_wide = count > ROWS_AT_ONCE;
    struct block block = {.keys = {.halves = keys, .stride = BLOCK},
                          .values = {.halves = keys + halves, .stride = width},
                          .ahead = ahead};
    if (is_wide)
        block.keys = (struct columns){.floats = widen(keys, halves, ahead, floats), .stride = BLOCK};
    score_rows(rows, count, a, &block, is_first);
    if (is_wide)
        block.values = (struct columns){.floats = widen(keys + halves, most_valid(rows, count) * width,
                                                        ahead + halves * (int64_t)sizeof *keys, floats),
                                        .stride = width};
    weigh_rows(rows, count, a, &block, is_first);
}

void avx2_attend_f16(const struct attention_rows *rows)
{
    const struct nj_attention_args *a = rows->args;
    struct softmax_row row[MOST_ROWS];
    const int count = (int)(rows->end - rows->begin);
    int64_t positions = 0;
    for (int r = 0; r < count; r++) {
        softmax_begin(rows, rows->begin + r, &row[r]);
        positions = row[r].positions > positions ? row[r].positions : positions;
    }
    for (int64_t first = 0; first < positions; first += BLOCK) {
        for (int r = 0; r < count; r++)
            softmax_enter(&row[r], first);
        const char *block = attention_block(a, rows->token, rows->kv_head, first);
        join_block(row, count, a, (const uint16_t *)block, attention_ahead(rows, first, positions), first == 0);
    }
    for (int r = 0; r < count; r++)
        softmax_end(&row[r], a->kv.head_width);
}
