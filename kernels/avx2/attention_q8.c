/* Causal attention over int8 keys and values, up to four rows at a time over one widening of the stored bytes.
 *
 * Scores (lanes = keys) and weighted values (lanes = dimensions) are the same product: quads of bytes times quads of
 * int16 coefficients, as int16 pairs into 32-bit sums. Bytes 0 and 2 of each quad become one register of int16, bytes
 * 1 and 3 another, by two shifts: so coefficients are kept in the order 0, 2, 1, 3. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/attention.h"
#include "kernels/kv_block.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, ROWS_AT_ONCE = 4, GROUP_QUADS = NJ_GROUP_COLS / NJ_KV_QUAD, LINE_BYTES = 64 };

struct row {
    struct softmax_row softmax;
    float weight_scale;                /* of `weights` */
    int16_t weights[BLOCK];            /* quads in the order 0, 2, 1, 3 */
    int16_t query[NJ_MOST_HEAD_WIDTH]; /* the same */
    float query_scales[NJ_MOST_HEAD_WIDTH / NJ_GROUP_COLS];
};

/* Eight integers within int16 as two quads of coefficients. */
NJ_ALWAYS_INLINE void store_quads(int16_t *quads, __m256i n)
{
    n = _mm256_shuffle_epi32(n, _MM_SHUFFLE(3, 1, 2, 0));
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
    _mm_storeu_si128((__m128i *)quads, words);
}

/* Adds to sum[r][i], for n rows and `vectors` registers of eight columns, `quads` quads of each column times row r's
 * coefficients. Quads of a column are `stride` bytes apart. Meanwhile fetches two cache lines of `ahead`, if any, for
 * each quad. */
NJ_ALWAYS_INLINE void multiply_quads(int n, int vectors, const int8_t *bytes, int64_t stride, int64_t quads,
                                     const int16_t *const coefficients[ROWS_AT_ONCE], const char *ahead,
                                     __m256i sum[ROWS_AT_ONCE][2])
{
    for (int64_t quad = 0; quad < quads; quad++) {
        if (ahead != NULL) {
            _mm_prefetch(ahead + 2 * quad * LINE_BYTES, _MM_HINT_T0);
            _mm_prefetch(ahead + (2 * quad + 1) * LINE_BYTES, _MM_HINT_T0);
        }
        __m256i even[2], odd[2];
        for (int i = 0; i < vectors; i++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(bytes + quad * stride + i * (int64_t)sizeof x));
            even[i] = _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
            odd[i] = _mm256_srai_epi16(x, 8);
        }
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            __m256i even_pair = vector_broadcast_bytes(coefficients[r] + quad * NJ_KV_QUAD);
            __m256i odd_pair = vector_broadcast_bytes(coefficients[r] + quad * NJ_KV_QUAD + 2);
            for (int i = 0; i < vectors; i++) {
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(even[i], even_pair));
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(odd[i], odd_pair));
            }
        }
    }
}

/* Scores of n rows with 16 keys, from key `first` of the block. */
NJ_ALWAYS_INLINE void score_keys(int n, struct row *rows, int64_t width, float scale,
                                 const struct nj_kv_q8_head *stored, int64_t first, const char *ahead)
{
    __m256 score[ROWS_AT_ONCE][2];
    for (int r = 0; r < n; r++)
        score[r][0] = score[r][1] = _mm256_setzero_ps();
    for (int64_t group = 0; group * NJ_GROUP_COLS < width; group++) {
        int64_t quad = group * GROUP_QUADS, rest = width / NJ_KV_QUAD - quad;
        const int16_t *query[ROWS_AT_ONCE];
        __m256i sum[ROWS_AT_ONCE][2];
        for (int r = 0; r < n; r++) {
            query[r] = rows[r].query + group * NJ_GROUP_COLS;
            sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        }
        multiply_quads(n, 2, stored->keys + (quad * BLOCK + first) * NJ_KV_QUAD, BLOCK * NJ_KV_QUAD,
                       rest < GROUP_QUADS ? rest : GROUP_QUADS, query, ahead + quad * 2 * LINE_BYTES, sum);
        for (int r = 0; r < n; r++) {
            __m256 query_scale = _mm256_broadcast_ss(rows[r].query_scales + group);
            for (int i = 0; i < 2; i++) {
                __m256 key_scale = _mm256_loadu_ps(stored->key_scales + group * BLOCK + first + i * VECTOR_FLOATS);
                score[r][i] =
                    _mm256_fmadd_ps(_mm256_mul_ps(query_scale, key_scale), _mm256_cvtepi32_ps(sum[r][i]), score[r][i]);
            }
        }
    }
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 2; i++)
            _mm256_storeu_ps(rows[r].softmax.p + first + i * VECTOR_FLOATS,
                             _mm256_mul_ps(score[r][i], _mm256_set1_ps(scale)));
}

/* The exponentials times the values' scales, in 15 bits. What lies behind `valid` is not looked at and gets 0. */
static void quantize_weights(struct row *row, const float *value_scales)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const int64_t valid = row->softmax.valid;
    float weight[BLOCK];
    for (int64_t j = 0; j < BLOCK; j += VECTOR_FLOATS) {
        __m256i is_valid = _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)(valid - j)), lanes);
        __m256 product = _mm256_setzero_ps();
        if (j < valid)
            product = _mm256_mul_ps(_mm256_loadu_ps(row->softmax.p + j), _mm256_loadu_ps(value_scales + j));
        _mm256_storeu_ps(weight + j, _mm256_and_ps(product, _mm256_castsi256_ps(is_valid)));
    }
    struct vector_scale scale = vector_scale_for(vector_magnitude_bits(weight, BLOCK), 32767.0f);
    for (int64_t j = 0; j < BLOCK; j += VECTOR_FLOATS)
        store_quads(row->weights + j, vector_quantize(_mm256_loadu_ps(weight + j), scale));
    row->weight_scale = scale.scale;
}

/* Joins the block's weighted values of n rows in `vectors` (1 or 2) registers of dimensions from `first`. */
NJ_ALWAYS_INLINE void join_values(int n, int vectors, struct row *rows, int64_t width, const int8_t *values,
                                  int64_t first, int64_t valid, int is_first)
{
    const int16_t *weights[ROWS_AT_ONCE];
    __m256i sum[ROWS_AT_ONCE][2];
    for (int r = 0; r < n; r++) {
        weights[r] = rows[r].weights;
        sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    }
    multiply_quads(n, vectors, values + first * NJ_KV_QUAD, width * NJ_KV_QUAD, (valid + NJ_KV_QUAD - 1) / NJ_KV_QUAD,
                   weights, NULL, sum);
    for (int r = 0; r < n; r++) {
        const struct row *row = &rows[r];
        if (row->softmax.valid <= 0)
            continue;
        for (int i = 0; i < vectors; i++) {
            float *out = row->softmax.out + first + i * VECTOR_FLOATS;
            __m256 joined = _mm256_mul_ps(_mm256_set1_ps(row->weight_scale), _mm256_cvtepi32_ps(sum[r][i]));
            if (!is_first)
                joined = _mm256_fmadd_ps(_mm256_loadu_ps(out), _mm256_set1_ps(row->softmax.correction), joined);
            _mm256_storeu_ps(out, joined);
        }
    }
}

/* `ahead`: the head of a block that is read next, fetched meanwhile (all of it but the last scales).
 * `valid`: the most positions that a row sees of the block. Weights of the others are 0 there, and bytes are numbers
 * whatever they are. */
NJ_ALWAYS_INLINE void join_block(int n, struct row *rows, const struct nj_attention_args *a,
                                 const struct nj_kv_q8_head *stored, const char *ahead, int64_t valid, int is_first)
{
    const int64_t width = a->kv.head_width;
    for (int64_t first = 0; first < valid; first += SOFTMAX_STEP)
        score_keys(n, rows, width, a->scale, stored, first, ahead + first / SOFTMAX_STEP * width / 2 * LINE_BYTES);
    for (int r = 0; r < n; r++) {
        if (rows[r].softmax.valid <= 0)
            continue;
        softmax_join(&rows[r].softmax, is_first);
        quantize_weights(&rows[r], stored->value_scales);
    }
    int64_t d = 0;
    for (; d + 2 * VECTOR_FLOATS <= width; d += 2 * VECTOR_FLOATS)
        join_values(n, 2, rows, width, stored->values, d, valid, is_first);
    if (d < width)
        join_values(n, 1, rows, width, stored->values, d, valid, is_first);
}

typedef void (*join_block_function)(struct row *rows, const struct nj_attention_args *a,
                                    const struct nj_kv_q8_head *stored, const char *ahead, int64_t valid, int is_first);

#define NJ_JOIN_BLOCK(n)                                                                                               \
    static void join_block_##n(struct row *rows, const struct nj_attention_args *a,                                    \
                               const struct nj_kv_q8_head *stored, const char *ahead, int64_t valid, int is_first)     \
    {                                                                                                                  \
        join_block(n, rows, a, stored, ahead, valid, is_first);                                                        \
    }
NJ_JOIN_BLOCK(1)
NJ_JOIN_BLOCK(2)
NJ_JOIN_BLOCK(3)
NJ_JOIN_BLOCK(4)

static const join_block_function join_blocks[ROWS_AT_ONCE] = {join_block_1, join_block_2, join_block_3, join_block_4};

static void quantize_query(struct row *row, int64_t width)
{
    const float *q = row->softmax.q;
    for (int64_t first = 0; first < width; first += NJ_GROUP_COLS) {
        int64_t count = width - first < NJ_GROUP_COLS ? width - first : NJ_GROUP_COLS;
        struct vector_scale scale = vector_scale_for(vector_magnitude_bits(q + first, count), 127.0f);
        for (int64_t i = first; i < first + count; i += VECTOR_FLOATS)
            store_quads(row->query + i, vector_quantize(_mm256_loadu_ps(q + i), scale));
        row->query_scales[first / NJ_GROUP_COLS] = scale.scale;
    }
}

/* Rows of earlier tokens sit out the blocks behind their position. */
static void attend_block(int n, struct row *rows, const struct nj_attention_args *a, const struct nj_kv_q8_head *stored,
                         const char *ahead, int64_t first)
{
    int64_t most = 0;
    for (int r = 0; r < n; r++) {
        softmax_enter(&rows[r].softmax, first);
        int64_t valid = rows[r].softmax.valid;
        most = valid > most ? valid : most;
    }
    if (most > 0)
        join_blocks[n - 1](rows, a, stored, ahead, most, first == 0);
}

void avx2_attend_q8(const struct attention_rows *rows)
{
    const struct nj_attention_args *a = rows->args;
    struct row row[MOST_ROWS];
    const int count = (int)(rows->end - rows->begin), at_once = rows_at_once(count, ROWS_AT_ONCE);
    int64_t positions = 0;
    for (int r = 0; r < count; r++) {
        softmax_begin(rows, rows->begin + r, &row[r].softmax);
        quantize_query(&row[r], a->kv.head_width);
        positions = row[r].softmax.positions > positions ? row[r].softmax.positions : positions;
    }
    for (int64_t first = 0; first < positions; first += BLOCK) {
        char *block = attention_block(a, rows->token, rows->kv_head, first);
        struct nj_kv_q8_head stored = kv_q8_head(block, a->kv.head_width, 0);
        const char *ahead = attention_ahead(rows, first, positions);
        for (int r = 0; r < count; r += at_once)
            attend_block(count - r < at_once ? count - r : at_once, row + r, a, &stored, ahead, first);
    }
    for (int r = 0; r < count; r++)
        softmax_end(&row[r].softmax, a->kv.head_width);
}
