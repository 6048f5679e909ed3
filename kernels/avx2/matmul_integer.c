/* Inner loops of matrix products of integer kinds: 8 rows by up to six tokens over one segment of columns.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and sums pairs in int16, saturated. Tokens are unsigned here (128 is
 * added to them; no pair of products then exceeds 2 * 255 * 32 < 2^15), weights signed; the sums start at the weights'
 * own -128 * (their sum), which takes the 128 back. Sums of int16 wrap, so only the final ones must fit:
 *
 *   MATMUL_WHOLE   16 products: numbers of -16 .. 15, 16 * 16 * 127 < 2^15
 *   MATMUL_HALVES   8 products: numbers of -32 .. 31, 8 * 32 * 127 < 2^15
 *   MATMUL_SIGNED   numbers of -127 .. 127: |w| times x with the sign of w; 2 * 127 * 127 < 2^15, widened at once
 *
 * A group's sums are joined to the accumulators two steps (a step is one group of one token) after its products were
 * begun: on processors where only one unit multiplies, that unit would stand still if every step waited for its own
 * chain of widening, conversion and multiplication. At the start of a segment the join lags behind the first group, so
 * groups of zeros stand in front of it. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/matmul.h"

enum { LAG_STEPS = MATMUL_LEAD_GROUPS }; /* with one token a tile, a step is a group */

NJ_ALWAYS_INLINE __m256i load(const void *at)
{
    return _mm256_load_si256(at);
}

/* Sums of products of columns 4 * first_j .. 4 * end_j - 1 in int16, two to each row. */
NJ_ALWAYS_INLINE __m256i sum_products(const struct matmul_weight_group *w, const uint8_t *q, int first_j, int end_j,
                                      const int16_t *bias)
{
    __m256i sum = load(bias);
    NJ_UNROLL
    for (int j = first_j; j < end_j; j++)
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(vector_broadcast_bytes(q + 4 * j), load(w->numbers[j])));
    return sum;
}

NJ_ALWAYS_INLINE __m256i dot_halves(const struct matmul_weight_group *w, const uint8_t *q)
{
    __m256i low = _mm256_madd_epi16(sum_products(w, q, 0, 4, w->bias[0]), load(w->factors[0]));
    __m256i high = _mm256_madd_epi16(sum_products(w, q, 4, 8, w->bias[1]), load(w->factors[1]));
    return _mm256_add_epi32(low, high);
}

NJ_ALWAYS_INLINE __m256i dot_signed(const struct matmul_weight_group *w, const uint8_t *q)
{
    __m256i dot = _mm256_setzero_si256();
    NJ_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i numbers = load(w->numbers[j]);
        __m256i x = _mm256_sign_epi8(vector_broadcast_bytes(q + 4 * j), numbers);
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(numbers), x);
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return dot;
}

/* The products of one step: still to be widened (MATMUL_WHOLE) or exact dot products. */
NJ_ALWAYS_INLINE __m256i multiply_group(enum matmul_form form, const struct matmul_weight_group *w, const uint8_t *q)
{
    if (form == MATMUL_WHOLE)
        return sum_products(w, q, 0, 8, w->bias[0]);
    return form == MATMUL_HALVES ? dot_halves(w, q) : dot_signed(w, q);
}

NJ_ALWAYS_INLINE __m256i widen(enum matmul_form form, __m256i products)
{
    return form == MATMUL_WHOLE ? _mm256_madd_epi16(products, _mm256_set1_epi16(1)) : products;
}

/* Joins the dot products of LAG_STEPS steps before token t of the group at w and x. */
NJ_ALWAYS_INLINE void join_late(int with_minimum, int n, int t, const struct matmul_weight_group *w,
                                const struct matmul_token_group *x, __m256i dot, __m256 *acc)
{
    const int token = (t + LAG_STEPS * (n - 1)) % n;
    const int groups_back = (token - (t - LAG_STEPS)) / n;
    w -= groups_back;
    x -= groups_back;
    __m256 factor = _mm256_mul_ps(_mm256_load_ps(w->scale), _mm256_set1_ps(x->d[token]));
    acc[token] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dot), acc[token]);
    if (with_minimum)
        acc[token] = _mm256_fmadd_ps(_mm256_load_ps(w->minimum), _mm256_set1_ps(x->scaled_sum[token]), acc[token]);
}

NJ_ALWAYS_INLINE void multiply_tile(enum matmul_form form, int with_minimum, int n,
                                    const struct matmul_weights *weights, const struct matmul_tokens *tile,
                                    int64_t groups, int is_first, float *total)
{
    const struct matmul_weight_group *w = weights->group + MATMUL_LEAD_GROUPS;
    const struct matmul_token_group *x = tile->group + MATMUL_LEAD_GROUPS;
    __m256 acc[MATMUL_TILE_TOKENS];
    NJ_UNROLL
    for (int t = 0; t < n; t++)
        acc[t] = _mm256_setzero_ps();
    __m256i products = _mm256_setzero_si256(), dot = _mm256_setzero_si256(); /* of one step ago, of two */
    for (const struct matmul_weight_group *end = w + groups; w < end; w++, x++) {
        NJ_UNROLL
        for (int t = 0; t < n; t++) {
            __m256i next = multiply_group(form, w, x->q[t]);
            join_late(with_minimum, n, t, w, x, dot, acc);
            dot = widen(form, products);
            products = next;
        }
    }
    join_late(with_minimum, n, 0, w, x, dot, acc);
    join_late(with_minimum, n, 1, w, x, widen(form, products), acc);
    NJ_UNROLL
    for (int t = 0; t < n; t++)
        matmul_add_segment(acc[t], is_first, total + t * MATMUL_ROWS);
}

#define NJ_TILE(name, form, with_minimum, n)                                                                           \
    static void name##_##n(const struct matmul_weights *weights, const struct matmul_tokens *tile, int64_t groups,     \
                           int is_first, float *total)                                                                 \
    {                                                                                                                  \
        multiply_tile(form, with_minimum, n, weights, tile, groups, is_first, total);                                  \
    }
#define NJ_TILES(name, form, with_minimum)                                                                             \
    NJ_TILE(name, form, with_minimum, 1)                                                                               \
    NJ_TILE(name, form, with_minimum, 2)                                                                               \
    NJ_TILE(name, form, with_minimum, 3)                                                                               \
    NJ_TILE(name, form, with_minimum, 4)                                                                               \
    NJ_TILE(name, form, with_minimum, 5)                                                                               \
    NJ_TILE(name, form, with_minimum, 6)                                                                               \
    static const matmul_tile_function name##_tiles[MATMUL_TILE_TOKENS] = {name##_1, name##_2, name##_3,                \
                                                                          name##_4, name##_5, name##_6};

NJ_TILES(whole, MATMUL_WHOLE, 0)
NJ_TILES(whole_minimum, MATMUL_WHOLE, 1)
NJ_TILES(halves, MATMUL_HALVES, 0)
NJ_TILES(halves_minimum, MATMUL_HALVES, 1)
NJ_TILES(signed_bytes, MATMUL_SIGNED, 0)

matmul_tile_function avx2_integer_tile(enum nj_matrix_kind kind, int64_t tokens)
{
    /* [form][has minima] */
    static const matmul_tile_function *const tables[][2] = {
        [MATMUL_WHOLE] = {whole_tiles, whole_minimum_tiles},
        [MATMUL_HALVES] = {halves_tiles, halves_minimum_tiles},
        [MATMUL_SIGNED] = {signed_bytes_tiles, NULL},
    };
    return tables[matmul_form_of(kind)][matrix_kind_info(kind)->has_minimum][tokens - 1];
}
