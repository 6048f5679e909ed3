/* Matrix products of a few tokens: unpacking a weight that is used once or twice costs more than it saves, so weights
 * go from where they are packed straight into the products.
 *
 * Here weights are the unsigned and tokens the signed operand of vpmaddubsw, so that nothing has to be known of the
 * weights' sums: the zero point is taken from the tokens' sums instead, which all rows share. As in matmul_integer.c
 * sums of int16 wrap and only the final ones must fit. Pairs do: 2 * 63 * 127 < 2^15. */
#include <string.h>

#include "kernels/avx2/matmul_weights.h"

/* How far ahead of the products weights are fetched: they come from memory once, faster than processors fetch by
 * themselves while they multiply. */
enum { AHEAD_BYTES = 4096, CACHE_LINE_BYTES = 64 };

/* 32 columns of the tokens. */
struct few_group {
    int8_t q[MATMUL_FEW_TOKENS][MATMUL_COLS];
    int32_t start[MATMUL_FEW_TOKENS][2]; /* what sums in int16 start at, two to each row; MATMUL_HALVES: of each half */
    float d[MATMUL_FEW_TOKENS];
    float scaled_sum[MATMUL_FEW_TOKENS]; /* d * sum, for minima */
};

/* One segment of a strip. */
struct few_segment {
    const uint8_t *block;      /* its first block */
    size_t bytes, strip_bytes; /* of the segment; from one strip to the next */
    int64_t groups;
    int is_first;
    const struct few_group *x;
    float (*total)[MATMUL_ROWS];
};

/* The two sums that products of 16 or 32 columns make in each row: of the first two columns of every quad, and of the
 * others. Returns -zero_point times both, as int16. */
static int32_t zero_point_sums(const int8_t *q, int count, int zero_point)
{
    int sums[2] = {0, 0};
    for (int i = 0; i < count; i++)
        sums[i / 2 % 2] += q[i];
    int16_t pair[2] = {(int16_t)(-zero_point * sums[0]), (int16_t)(-zero_point * sums[1])};
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return both;
}

static void load_tokens(enum nj_matrix_kind kind, const struct nj_q8 *x, int64_t cols, int64_t first_token,
                        int64_t tokens, int64_t first_group, int64_t groups, struct few_group *out)
{
    const int zero_point = matrix_kind_info(kind)->zero_point;
    const int part = matmul_form_of(kind) == MATMUL_HALVES ? MATMUL_COLS / 2 : MATMUL_COLS;
    for (int64_t t = 0; t < tokens; t++) {
        int64_t index = (first_token + t) * (cols / MATMUL_COLS) + first_group;
        for (int64_t g = 0; g < groups; g++, index++) {
            const int8_t *q = x->q + index * MATMUL_COLS;
            memcpy(out[g].q[t], q, MATMUL_COLS);
            for (int half = 0; half < MATMUL_COLS / part && zero_point != 0; half++)
                out[g].start[t][half] = zero_point_sums(q + half * part, part, zero_point);
            out[g].d[t] = x->d[index];
            out[g].scaled_sum[t] = x->d[index] * (float)x->sum[index];
        }
    }
}

/* Adds the products of column quads j and j + 4, which are packed together. */
NJ_ALWAYS_INLINE void add_quads(int bits, int n, const uint8_t *numbers, int j, const struct few_group *x,
                                __m256i sum[MATMUL_FEW_TOKENS], __m256i last_sum[MATMUL_FEW_TOKENS])
{
    __m256i low = load_numbers(bits, 0, numbers, j), high = load_numbers(bits, 0, numbers, j + 4);
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        sum[t] = _mm256_add_epi16(sum[t], _mm256_maddubs_epi16(low, vector_broadcast_bytes(x->q[t] + 4 * j)));
        last_sum[t] =
            _mm256_add_epi16(last_sum[t], _mm256_maddubs_epi16(high, vector_broadcast_bytes(x->q[t] + 4 * (j + 4))));
    }
}

NJ_ALWAYS_INLINE __m256i starting_sum(int zero_point, const int32_t *start)
{
    return zero_point == 0 ? _mm256_setzero_si256() : _mm256_set1_epi32(*start);
}

/* Exact dot products of 8 rows, `half` of the strip. */
NJ_ALWAYS_INLINE void multiply_unsigned(enum nj_matrix_kind kind, int bits, int zero_point, int n,
                                        const uint8_t *numbers, const uint8_t *scales, int group, int half,
                                        const struct few_group *x, __m256i dot[MATMUL_FEW_TOKENS])
{
    const int in_halves = matmul_form_of(kind) == MATMUL_HALVES;
    __m256i sum[MATMUL_FEW_TOKENS], last_sum[MATMUL_FEW_TOKENS];
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        sum[t] = starting_sum(zero_point, &x->start[t][0]);
        last_sum[t] = in_halves ? starting_sum(zero_point, &x->start[t][1]) : _mm256_setzero_si256();
    }
    NJ_UNROLL
    for (int j = 0; j < 4; j++)
        add_quads(bits, n, numbers, j, x, sum, last_sum);
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        if (in_halves) {
            dot[t] = _mm256_madd_epi16(sum[t], load_factors(kind, scales, group, half, 0));
            __m256i last = _mm256_madd_epi16(last_sum[t], load_factors(kind, scales, group, half, 1));
            dot[t] = _mm256_add_epi32(dot[t], last);
        } else {
            dot[t] = _mm256_madd_epi16(_mm256_add_epi16(sum[t], last_sum[t]), _mm256_set1_epi16(1));
        }
    }
}

/* The same for NJ_KIND_S8: |w| times x with the sign of w, widened at once. */
NJ_ALWAYS_INLINE void multiply_signed(int n, const uint8_t *numbers, const struct few_group *x,
                                      __m256i dot[MATMUL_FEW_TOKENS])
{
    NJ_UNROLL
    for (int t = 0; t < n; t++)
        dot[t] = _mm256_setzero_si256();
    NJ_UNROLL
    for (int j = 0; j < 8; j++) {
        __m256i w = load_numbers(8, 0, numbers, j), magnitude = _mm256_abs_epi8(w);
        NJ_UNROLL
        for (int t = 0; t < n; t++) {
            __m256i signed_x = _mm256_sign_epi8(vector_broadcast_bytes(x->q[t] + 4 * j), w);
            __m256i pairs = _mm256_maddubs_epi16(magnitude, signed_x);
            dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
}

NJ_ALWAYS_INLINE void multiply_half(enum nj_matrix_kind kind, int bits, int zero_point, int n, const uint8_t *numbers,
                                    const uint8_t *scales, const struct matmul_block_scales *of_block, int group,
                                    int half, const struct few_group *x, __m256 acc[MATMUL_FEW_TOKENS])
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    __m256i dot[MATMUL_FEW_TOKENS];
    numbers += 4 * MATMUL_HALF_ROWS * half;
    if (kind == NJ_KIND_S8)
        multiply_signed(n, numbers, x, dot);
    else
        multiply_unsigned(kind, bits, zero_point, n, numbers, scales, group, half, x, dot);
    const struct matmul_scales loaded = load_scales(info, scales, of_block, group, half);
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        __m256 factor = _mm256_mul_ps(loaded.scale, _mm256_set1_ps(x->d[t]));
        acc[t] = _mm256_fmadd_ps(factor, _mm256_cvtepi32_ps(dot[t]), acc[t]);
        if (info->has_minimum)
            acc[t] = _mm256_fmadd_ps(loaded.minimum, _mm256_set1_ps(x->scaled_sum[t]), acc[t]);
    }
}

/* Fetches what lies AHEAD_BYTES behind `at` (both in bytes from the segment's beginning), the next strip's segment
 * being next. */
NJ_ALWAYS_INLINE void fetch_ahead(const struct few_segment *segment, size_t at, size_t bytes)
{
    at += AHEAD_BYTES;
    if (at >= segment->bytes)
        at += segment->strip_bytes - segment->bytes;
    for (size_t line = 0; line < bytes; line += CACHE_LINE_BYTES)
        _mm_prefetch((const char *)((uintptr_t)segment->block + at + line), _MM_HINT_T0); /* may be past the matrix */
}

/* One pass over the segment for halves [first_half, end_half) of the strip. The first half's pass fetches ahead. */
NJ_ALWAYS_INLINE void multiply_halves(enum nj_matrix_kind kind, int bits, int zero_point, int n, int first_half,
                                      int end_half, const struct few_segment *segment)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    __m256 acc[2][MATMUL_FEW_TOKENS];
    NJ_UNROLL
    for (int t = 0; t < n; t++)
        acc[0][t] = acc[1][t] = _mm256_setzero_ps();
    const size_t group_bytes = info->block_bytes / (size_t)info->block_groups;
    const uint8_t *block = segment->block;
    struct matmul_block_scales of_block;
    size_t at = 0;
    int group = 0;
    for (const struct few_group *x = segment->x, *end = x + segment->groups; x < end; x++, at += group_bytes) {
        const uint8_t *numbers = block + (size_t)group * info->quant_bytes;
        const uint8_t *scales = block + (size_t)info->block_groups * info->quant_bytes;
        if (group == 0)
            load_block_scales(info, scales, &of_block);
        if (first_half == 0)
            fetch_ahead(segment, at, group_bytes);
        NJ_UNROLL
        for (int half = first_half; half < end_half; half++)
            multiply_half(kind, bits, zero_point, n, numbers, scales, &of_block, group, half, x, acc[half]);
        if (++group == info->block_groups) {
            group = 0;
            block += info->block_bytes;
        }
    }
    NJ_UNROLL
    for (int half = first_half; half < end_half; half++) {
        NJ_UNROLL
        for (int t = 0; t < n; t++)
            matmul_add_segment(acc[half][t], segment->is_first, segment->total[t] + MATMUL_HALF_ROWS * half);
    }
}

/* Two tokens' sums of both halves fit into the registers; those of more tokens only a half at a time, whose second one
 * finds the weights in the first-level cache. */
NJ_ALWAYS_INLINE void multiply_few(enum nj_matrix_kind kind, int bits, int zero_point, int n,
                                   const struct few_segment *segment)
{
    if (n <= 2) {
        multiply_halves(kind, bits, zero_point, n, 0, 2, segment);
        return;
    }
    multiply_halves(kind, bits, zero_point, n, 0, 1, segment);
    multiply_halves(kind, bits, zero_point, n, 1, 2, segment);
}

#define NJ_FEW(name, n, kind, bits, zero_point)                                                                        \
    static void name##_##n(const struct few_segment *segment)                                                          \
    {                                                                                                                  \
        multiply_few(kind, bits, zero_point, n, segment);                                                              \
    }
#define NJ_FEW_OF_KIND(name, kind, bits, zero_point)                                                                   \
    NJ_FEW(name, 1, kind, bits, zero_point)                                                                            \
    NJ_FEW(name, 2, kind, bits, zero_point)                                                                            \
    NJ_FEW(name, 3, kind, bits, zero_point)                                                                            \
    NJ_FEW(name, 4, kind, bits, zero_point)

NJ_FEW_OF_KIND(u4_zero8, NJ_KIND_U4_ZERO8, 4, 8)
NJ_FEW_OF_KIND(u4_min, NJ_KIND_U4_MIN, 4, 0)
NJ_FEW_OF_KIND(s8, NJ_KIND_S8, 8, 0)
NJ_FEW_OF_KIND(u5_zero16, NJ_KIND_U5_ZERO16, 5, 16)
NJ_FEW_OF_KIND(u4_super, NJ_KIND_U4_SUPER, 4, 0)
NJ_FEW_OF_KIND(u5_super, NJ_KIND_U5_SUPER, 5, 0)
NJ_FEW_OF_KIND(u6_super, NJ_KIND_U6_SUPER, 6, 32)
NJ_FEW_OF_KIND(u5_min, NJ_KIND_U5_MIN, 5, 0)

typedef void (*few_function)(const struct few_segment *segment);

#define NJ_FEW_FUNCTIONS(name)                                                                                         \
    {                                                                                                                  \
        name##_1, name##_2, name##_3, name##_4                                                                         \
    }

static const few_function functions[NJ_KIND_COUNT][MATMUL_FEW_TOKENS] = {
    [NJ_KIND_U4_ZERO8] = NJ_FEW_FUNCTIONS(u4_zero8),
    [NJ_KIND_U4_MIN] = NJ_FEW_FUNCTIONS(u4_min),
    [NJ_KIND_S8] = NJ_FEW_FUNCTIONS(s8),
    [NJ_KIND_U5_ZERO16] = NJ_FEW_FUNCTIONS(u5_zero16),
    [NJ_KIND_U4_SUPER] = NJ_FEW_FUNCTIONS(u4_super),
    [NJ_KIND_U5_SUPER] = NJ_FEW_FUNCTIONS(u5_super),
    [NJ_KIND_U6_SUPER] = NJ_FEW_FUNCTIONS(u6_super),
    [NJ_KIND_U5_MIN] = NJ_FEW_FUNCTIONS(u5_min),
};

void avx2_multiply_few(const struct matmul_piece *piece, const struct nj_q8 *x, int64_t first_group, int64_t groups)
{
    const struct nj_matrix *w = &piece->output->w;
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    struct few_group tokens[MATMUL_SEGMENT_GROUPS];
    load_tokens(w->kind, x, w->cols, piece->first_token, piece->tokens, first_group, groups, tokens);
    const size_t offset = (size_t)(first_group / info->block_groups) * info->block_bytes;
    const size_t bytes = (size_t)(groups / info->block_groups) * info->block_bytes;
    const size_t strip_bytes = matrix_strip_bytes(w->kind, w->cols);
    for (int64_t i = 0; i < piece->strips; i++) {
        const struct few_segment segment = {.block = matmul_strip_data(w, piece->first_strip + i) + offset,
                                            .bytes = bytes,
                                            .strip_bytes = strip_bytes,
                                            .groups = groups,
                                            .is_first = first_group == 0,
                                            .x = tokens,
                                            .total = matmul_strip_totals(piece, i)};
        functions[w->kind][piece->tokens - 1](&segment);
    }
}
