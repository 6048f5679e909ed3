/* Matrix products without VNNI. Lanes are output rows: a tile is 8 rows (half a strip) or 16 by up to six
 * tokens over one segment of columns, so that a segment's weights stay in the first-level cache while the
 * tokens pass over them. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/matmul_float.h"
#include "kernels/avx2/vector.h"

enum {
    ROWS = NJ_STRIP_ROWS,
    COLS = NJ_GROUP_COLS,
    SEGMENT_GROUPS = NJ_SEGMENT_COLS / NJ_GROUP_COLS,
    TILE_TOKENS = 6,
    /* Tokens whose totals are kept on the stack; more where each chunk has to dequantise the weights. */
    CHUNK_TOKENS = 8 * TILE_TOKENS,
    FLOAT_PATH_CHUNK_TOKENS = 256
};

/* The scales of a segment's groups, expanded once for all tokens of a chunk. */
struct scales {
    float scale[SEGMENT_GROUPS][ROWS], minimum[SEGMENT_GROUPS][ROWS];
};

/* The activations of a tile over one segment. Row t of `q` is at q + t * cols, of `d` at d + t * all_groups. */
struct tile {
    const int8_t *q;
    const float *d;
    const struct scales *scales;
    int64_t cols, all_groups;
    int64_t groups;                                   /* of this segment */
    int32_t zero_points[TILE_TOKENS][SEGMENT_GROUPS]; /* the kind's zero point * sum */
    float scaled_sums[TILE_TOKENS][SEGMENT_GROUPS];   /* d * sum, for minima */
};

/* Four columns of one token in every lane. */
NJ_ALWAYS_INLINE __m256i broadcast_columns(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Adds 16 columns (four weight vectors) of n tokens to sums in int16. */
NJ_ALWAYS_INLINE void add_products(int n, const __m256i *w, const int8_t *q, int64_t cols, __m256i *sum)
{
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(w[j], broadcast_columns(q + t * cols + 4 * j)));
}

/* Bit j of every byte, as 16 or 0. */
NJ_ALWAYS_INLINE __m256i spread_fifth_bit(__m256i bits, int j)
{
    __m256i moved = j < 4 ? _mm256_slli_epi16(bits, 4 - j) : _mm256_srli_epi16(bits, j - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

/* Columns 0..15 (half 0) or 16..31 (half 1) of 8 rows with unsigned numbers of 4 or 5 bits. */
NJ_ALWAYS_INLINE void load_unsigned(int bits, const uint8_t *block, int half, __m256i *w)
{
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        __m256i pairs = _mm256_loadu_si256((const __m256i *)(block + 64 * j));
        w[j] = _mm256_and_si256(half ? _mm256_srli_epi16(pairs, 4) : pairs, _mm256_set1_epi8(15));
        if (bits == 5) {
            __m256i fifth = _mm256_loadu_si256((const __m256i *)(block + ROWS * COLS / 2));
            w[j] = _mm256_or_si256(w[j], spread_fifth_bit(fifth, 4 * half + j));
        }
    }
}

/* Exact dot products of 8 rows with one group of n tokens. Products are summed in int16 as long as they fit
 * before they are widened: 16 deep for 4 bits (16 * 15 * 127 < 2^15), 8 deep for 5 bits (8 * 31 * 127 < 2^15). */
NJ_ALWAYS_INLINE void dot_unsigned(int bits, int n, const uint8_t *block, const int8_t *q, int64_t cols, __m256i *dot)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i w[4], sum[TILE_TOKENS];
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        sum[t] = _mm256_setzero_si256();
    load_unsigned(bits, block, 0, w);
    add_products(n, w, q, cols, sum);
#pragma GCC unroll 8
    for (int t = 0; t < n && bits == 5; t++) {
        dot[t] = _mm256_madd_epi16(sum[t], ones);
        sum[t] = _mm256_setzero_si256();
    }
    load_unsigned(bits, block, 1, w);
    add_products(n, w, q + 16, cols, sum);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        __m256i widened = _mm256_madd_epi16(sum[t], ones);
        dot[t] = bits == 5 ? _mm256_add_epi32(dot[t], widened) : widened;
    }
}

/* The same for signed bytes: |w| times x with the sign of w; a pair is at most 2 * 127 * 127 < 2^15. */
NJ_ALWAYS_INLINE void dot_s8(int n, const uint8_t *block, const int8_t *q, int64_t cols, __m256i *dot)
{
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        dot[t] = _mm256_setzero_si256();
    for (int j = 0; j < 8; j++) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(block + 64 * j));
        __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 8
        for (int t = 0; t < n; t++) {
            __m256i x = _mm256_sign_epi8(broadcast_columns(q + t * cols + 4 * j), w);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, x);
            dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
}

/* The upper two bits of columns 4 * j .. 4 * j + 3 of 16, moved to bits 4 and 5 of every byte. */
NJ_ALWAYS_INLINE __m256i spread_two_bits(__m256i bits, int j)
{
    __m256i moved = j < 2 ? _mm256_slli_epi16(bits, 4 - 2 * j) : _mm256_srli_epi16(bits, 2 * j - 4);
    return _mm256_and_si256(moved, _mm256_set1_epi8(0x30));
}

/* Six bits with signed scales of 16 columns each, of row r at column_scales[r] and column_scales[16 + r]. The zero
 * point is subtracted from the weights: then 16 columns fit int16, 8 * 32 * 127 < 2^15, and are widened by the
 * multiplication with their scale. */
NJ_ALWAYS_INLINE void dot_six_bits(int n, const uint8_t *block, const uint8_t *column_scales, const int8_t *q,
                                   int64_t cols, __m256i *dot)
{
#pragma GCC unroll 8
    for (int t = 0; t < n; t++)
        dot[t] = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        __m128i bytes = _mm_loadl_epi64((const __m128i *)(column_scales + ROWS * half));
        __m256i factors = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(bytes, bytes)); /* each twice: for a pair */
        __m256i upper = _mm256_loadu_si256((const __m256i *)(block + ROWS * COLS / 2 + 64 * half));
        __m256i sum[TILE_TOKENS];
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            sum[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            __m256i pairs = _mm256_loadu_si256((const __m256i *)(block + 64 * j));
            __m256i low = _mm256_and_si256(half ? _mm256_srli_epi16(pairs, 4) : pairs, _mm256_set1_epi8(15));
            __m256i w = _mm256_sub_epi8(_mm256_or_si256(low, spread_two_bits(upper, j)), _mm256_set1_epi8(32));
            __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 8
            for (int t = 0; t < n; t++) {
                __m256i x = _mm256_sign_epi8(broadcast_columns(q + t * cols + 16 * half + 4 * j), w);
                sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(magnitude, x));
            }
        }
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
            dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(sum[t], factors));
    }
}

NJ_ALWAYS_INLINE int has_zero_point(enum nj_matrix_kind kind)
{
    return kind == NJ_KIND_U4_ZERO8 || kind == NJ_KIND_U5_ZERO16;
}

NJ_ALWAYS_INLINE int has_minimum(enum nj_matrix_kind kind)
{
    return kind == NJ_KIND_U4_MIN || kind == NJ_KIND_U5_MIN || kind == NJ_KIND_U4_SUPER || kind == NJ_KIND_U5_SUPER;
}

NJ_ALWAYS_INLINE int number_bits(enum nj_matrix_kind kind)
{
    if (kind == NJ_KIND_S8)
        return 8;
    if (kind == NJ_KIND_U6_SUPER)
        return 6;
    return kind == NJ_KIND_U5_ZERO16 || kind == NJ_KIND_U5_MIN || kind == NJ_KIND_U5_SUPER ? 5 : 4;
}

/* Joins one group's dot products of 8 rows to the accumulators. */
NJ_ALWAYS_INLINE void join_group(enum nj_matrix_kind kind, int n, const struct tile *tile, int64_t g, int half,
                                 const __m256i *dot, __m256 *acc)
{
    __m256 scale = _mm256_loadu_ps(tile->scales->scale[g] + VECTOR_FLOATS * half);
    __m256 minimum = _mm256_setzero_ps();
    if (has_minimum(kind))
        minimum = _mm256_loadu_ps(tile->scales->minimum[g] + VECTOR_FLOATS * half);
#pragma GCC unroll 8
    for (int t = 0; t < n; t++) {
        __m256i exact = dot[t];
        if (has_zero_point(kind))
            exact = _mm256_sub_epi32(exact, _mm256_set1_epi32(tile->zero_points[t][g]));
        __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(tile->d[t * tile->all_groups + g]));
        acc[t] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(exact), acc[t]);
        if (has_minimum(kind))
            acc[t] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(tile->scaled_sums[t][g]), acc[t]);
    }
}

/* Adds a segment's sum to the total; the first one is assigned. */
NJ_ALWAYS_INLINE void add_segment(__m256 acc, int is_first, float *total)
{
    _mm256_storeu_ps(total, is_first ? acc : _mm256_add_ps(_mm256_loadu_ps(total), acc));
}

/* One segment of 8 rows (from row 8 * half of the strip) for n tokens. `blocks` is the segment's first. */
NJ_ALWAYS_INLINE void multiply_integer_tile(enum nj_matrix_kind kind, int n, const uint8_t *blocks, int half,
                                            const struct tile *tile, int is_first, float (*total)[ROWS])
{
    const int bits = number_bits(kind);
    const size_t bytes = (size_t)bits * (ROWS * COLS / 8);
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    const int64_t block_groups = info->block_groups;
    __m256 acc[TILE_TOKENS];
    for (int t = 0; t < n; t++)
        acc[t] = _mm256_setzero_ps();
    const uint8_t *block = blocks;
    for (int64_t g = 0, within = 0; g < tile->groups; g++) {
        const uint8_t *numbers = block + (size_t)within * bytes + 32 * half;
        const int8_t *q = tile->q + g * COLS;
        __m256i dot[TILE_TOKENS];
        if (bits == 8)
            dot_s8(n, numbers, q, tile->cols, dot);
        else if (bits == 6)
            dot_six_bits(n, numbers, block + (size_t)block_groups * bytes + 2 * ROWS * within + 8 * half, q, tile->cols,
                         dot);
        else
            dot_unsigned(bits, n, numbers, q, tile->cols, dot);
        join_group(kind, n, tile, g, half, dot, acc);
        if (++within == block_groups) {
            within = 0;
            block += info->block_bytes;
        }
    }
    for (int t = 0; t < n; t++)
        add_segment(acc[t], is_first, total[t] + VECTOR_FLOATS * half);
}

typedef void (*integer_tile_function)(const uint8_t *blocks, int half, const struct tile *tile, int is_first,
                                      float (*total)[ROWS]);

#define NJ_INTEGER_TILE(name, kind, n)                                                                                 \
    static void name##_##n(const uint8_t *blocks, int half, const struct tile *tile, int is_first,                     \
                           float(*total)[ROWS])                                                                        \
    {                                                                                                                  \
        multiply_integer_tile(kind, n, blocks, half, tile, is_first, total);                                           \
    }
#define NJ_INTEGER_TILES(name, kind)                                                                                   \
    NJ_INTEGER_TILE(name, kind, 1)                                                                                     \
    NJ_INTEGER_TILE(name, kind, 2)                                                                                     \
    NJ_INTEGER_TILE(name, kind, 3)                                                                                     \
    NJ_INTEGER_TILE(name, kind, 4)                                                                                     \
    NJ_INTEGER_TILE(name, kind, 5)                                                                                     \
    NJ_INTEGER_TILE(name, kind, 6)

NJ_INTEGER_TILES(u4_zero8_tile, NJ_KIND_U4_ZERO8)
NJ_INTEGER_TILES(u4_min_tile, NJ_KIND_U4_MIN)
NJ_INTEGER_TILES(s8_tile, NJ_KIND_S8)
NJ_INTEGER_TILES(u5_zero16_tile, NJ_KIND_U5_ZERO16)
NJ_INTEGER_TILES(u5_min_tile, NJ_KIND_U5_MIN)
NJ_INTEGER_TILES(u4_super_tile, NJ_KIND_U4_SUPER)
NJ_INTEGER_TILES(u5_super_tile, NJ_KIND_U5_SUPER)
NJ_INTEGER_TILES(u6_super_tile, NJ_KIND_U6_SUPER)

#define NJ_TILE_LIST(name)                                                                                             \
    {                                                                                                                  \
        name##_1, name##_2, name##_3, name##_4, name##_5, name##_6                                                     \
    }

/* [kind][tokens - 1]; float kinds have none */
static const integer_tile_function integer_tiles[NJ_KIND_COUNT][TILE_TOKENS] = {
    [NJ_KIND_U4_ZERO8] = NJ_TILE_LIST(u4_zero8_tile),
    [NJ_KIND_U4_MIN] = NJ_TILE_LIST(u4_min_tile),
    [NJ_KIND_S8] = NJ_TILE_LIST(s8_tile),
    [NJ_KIND_U5_ZERO16] = NJ_TILE_LIST(u5_zero16_tile),
    [NJ_KIND_U5_MIN] = NJ_TILE_LIST(u5_min_tile),
    [NJ_KIND_U4_SUPER] = NJ_TILE_LIST(u4_super_tile),
    [NJ_KIND_U5_SUPER] = NJ_TILE_LIST(u5_super_tile),
    [NJ_KIND_U6_SUPER] = NJ_TILE_LIST(u6_super_tile),
};

/* 6-bit numbers of 8 rows, from row 8 * half on, of one group of a super-block. */
NJ_ALWAYS_INLINE __m256 load_six_bits(const uint8_t *data, int group, int half)
{
    const uint8_t *low_at = data + ROWS * (group % 4) + 8 * half, *high_at = data + 64 + ROWS * (group / 4) + 8 * half;
    __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)low_at));
    __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)high_at));
    low = _mm256_and_si256(_mm256_srl_epi32(low, _mm_cvtsi32_si128(4 * (group / 4))), _mm256_set1_epi32(15));
    high = _mm256_and_si256(_mm256_srl_epi32(high, _mm_cvtsi32_si128(2 * (group % 4))), _mm256_set1_epi32(3));
    return _mm256_cvtepi32_ps(_mm256_or_si256(low, _mm256_slli_epi32(high, 4)));
}

/* Rows 8 * half to 8 * half + 7. `data` are the scales of the block in which the group is number `group`. */
static void expand_scales(const struct nj_matrix_kind_info *info, const uint8_t *data, int group, int half,
                          float *scale, float *minimum)
{
    const size_t half_bytes = 2 * ROWS; /* of 16 halves */
    int is_super = info->block_groups > 1;
    const uint8_t *halves = data + 16 * half;
    if (is_super)
        halves += info->has_minimum ? 192 : 256;
    __m256 d = vector_load_halves((const uint16_t *)halves), m = _mm256_setzero_ps();
    if (info->has_minimum)
        m = vector_load_halves((const uint16_t *)(halves + half_bytes));
    if (is_super && info->has_minimum) {
        d = _mm256_mul_ps(d, load_six_bits(data, group, half));
        m = _mm256_mul_ps(m, load_six_bits(data + 96, group, half));
        m = _mm256_xor_ps(m, _mm256_set1_ps(-0.0f));
    }
    _mm256_storeu_ps(scale + VECTOR_FLOATS * half, d);
    _mm256_storeu_ps(minimum + VECTOR_FLOATS * half, m);
}

static void prepare_scales(const struct nj_matrix *w, const uint8_t *blocks, int64_t groups, struct scales *scales)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    const uint8_t *data = blocks + (size_t)info->block_groups * info->quant_bytes;
    for (int64_t g = 0, within = 0; g < groups; g++) {
        for (int half = 0; half < 2; half++)
            expand_scales(info, data, (int)within, half, scales->scale[g], scales->minimum[g]);
        if (++within == info->block_groups) {
            within = 0;
            data += info->block_bytes;
        }
    }
}

static void prepare_tile(const struct nj_matrix *w, const struct nj_q8 *x, int64_t token, int64_t tokens,
                         int64_t first_group, struct tile *tile)
{
    int64_t all_groups = w->cols / COLS;
    int64_t rest = all_groups - first_group;
    int32_t zero_point = matrix_kind_info(w->kind)->zero_point;
    tile->cols = w->cols;
    tile->all_groups = all_groups;
    tile->groups = rest < SEGMENT_GROUPS ? rest : SEGMENT_GROUPS;
    tile->q = x->q + token * w->cols + first_group * COLS;
    tile->d = x->d + token * all_groups + first_group;
    const int32_t *sum = x->sum + token * all_groups + first_group;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t g = 0; g < tile->groups; g++) {
            int64_t index = t * all_groups + g;
            tile->zero_points[t][g] = zero_point * sum[index];
            tile->scaled_sums[t][g] = tile->d[index] * (float)sum[index];
        }
    }
}

static void multiply_integers(const struct nj_matrix *w, const uint8_t *strip, const struct nj_q8 *x,
                              int64_t first_token, int64_t tokens, float (*total)[ROWS])
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    int64_t all_groups = w->cols / COLS;
    for (int64_t group = 0; group < all_groups; group += SEGMENT_GROUPS) {
        const uint8_t *blocks = strip + (size_t)(group / info->block_groups) * info->block_bytes;
        struct scales scales;
        prepare_scales(w, blocks, all_groups - group < SEGMENT_GROUPS ? all_groups - group : SEGMENT_GROUPS, &scales);
        for (int64_t t = 0; t < tokens; t += TILE_TOKENS) {
            int64_t n = tokens - t < TILE_TOKENS ? tokens - t : TILE_TOKENS;
            struct tile tile;
            tile.scales = &scales;
            prepare_tile(w, x, first_token + t, n, group, &tile);
            integer_tile_function multiply = integer_tiles[w->kind][n - 1];
            multiply(blocks, 0, &tile, group == 0, total + t);
            multiply(blocks, 1, &tile, group == 0, total + t);
        }
    }
}

static void store_totals(const struct nj_matmul_output *output, int64_t first_row, int64_t first_token, int64_t tokens,
                         float (*total)[ROWS])
{
    int64_t rows = output->w.rows - first_row < ROWS ? output->w.rows - first_row : ROWS;
    for (int64_t t = 0; t < tokens; t++) {
        float *y = output->y + (first_token + t) * output->y_stride + first_row;
        for (int64_t row = 0; row < rows && output->bias != NULL; row++)
            total[t][row] += output->bias[first_row + row];
        for (int64_t row = 0; row < rows; row++)
            y[row] = output->accumulate ? y[row] + total[t][row] : total[t][row];
    }
}

/* Integer weights are dequantised where there are only float activations. */
static void multiply_strip(const struct nj_matmul_args *a, const struct nj_matmul_output *output, int64_t strip)
{
    const struct nj_matrix *w = &output->w;
    const int is_float = matrix_kind_info(w->kind)->is_float, is_float_path = !is_float && a->x.q8.q == NULL;
    const int64_t chunk = is_float_path ? FLOAT_PATH_CHUNK_TOKENS : CHUNK_TOKENS;
    const uint8_t *data = (const uint8_t *)w->data + (size_t)strip * matrix_strip_bytes(w->kind, w->cols);
    for (int64_t first = 0; first < a->count; first += chunk) {
        float total[FLOAT_PATH_CHUNK_TOKENS][ROWS];
        const int64_t tokens = a->count - first < chunk ? a->count - first : chunk;
        const float *x = a->x.f32 + first * w->cols;
        if (is_float)
            avx2_multiply_floats(w, strip, x, tokens, total);
        else if (is_float_path)
            avx2_multiply_dequantized(w, strip, x, tokens, total);
        else
            multiply_integers(w, data, &a->x.q8, first, tokens, total);
        store_totals(output, strip * ROWS, first, tokens, total);
    }
}

void avx2_run_matmul(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_matmul_args *a = &args->matmul;
    int64_t first[4] = {0}; /* number of each output's first strip among all */
    for (int i = 0; i < a->outputs; i++)
        first[i + 1] = first[i] + (a->output[i].w.rows + ROWS - 1) / ROWS;
    int64_t end = vector_share_begin(first[a->outputs], thread + 1, threads);
    int output = 0;
    for (int64_t strip = vector_share_begin(first[a->outputs], thread, threads); strip < end; strip++) {
        while (strip >= first[output + 1])
            output++;
        multiply_strip(a, &a->output[output], strip - first[output]);
    }
}
