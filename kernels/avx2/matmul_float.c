/* Lanes are output rows: a tile is a strip of 16 rows by up to six tokens over one segment of columns. */
#include "kernels/avx2/matmul_float.h"

#include <stddef.h>

#include "kernels/avx2/matmul.h"
#include "kernels/reference/internal.h"

enum { ROWS = NJ_STRIP_ROWS, TILE_TOKENS = MATMUL_TILE_TOKENS };

NJ_ALWAYS_INLINE __m256 load_floats(enum nj_matrix_kind kind, const uint8_t *data)
{
    if (kind == NJ_KIND_F32)
        return _mm256_loadu_ps((const float *)data);
    if (kind == NJ_KIND_F16)
        return vector_load_halves((const uint16_t *)data);
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)data));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* One segment of a strip for n tokens whose rows of x are `stride` apart. */
NJ_ALWAYS_INLINE void multiply_float_tile(enum nj_matrix_kind kind, int n, const uint8_t *data, const float *x,
                                          int64_t stride, int64_t cols, int is_first, float (*total)[ROWS])
{
    const size_t vector_bytes = VECTOR_FLOATS * (kind == NJ_KIND_F32 ? 4 : 2);
    __m256 low[TILE_TOKENS], high[TILE_TOKENS];
    NJ_UNROLL
    for (int t = 0; t < n; t++)
        low[t] = high[t] = _mm256_setzero_ps();
    for (int64_t col = 0; col < cols; col++) {
        __m256 w_low = load_floats(kind, data + 2 * (size_t)col * vector_bytes);
        __m256 w_high = load_floats(kind, data + (2 * (size_t)col + 1) * vector_bytes);
        NJ_UNROLL
        for (int t = 0; t < n; t++) {
            __m256 value = _mm256_broadcast_ss(x + t * stride + col);
            low[t] = _mm256_fmadd_ps(w_low, value, low[t]);
            high[t] = _mm256_fmadd_ps(w_high, value, high[t]);
        }
    }
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        matmul_add_segment(low[t], is_first, total[t]);
        matmul_add_segment(high[t], is_first, total[t] + VECTOR_FLOATS);
    }
}

typedef void (*float_tile_function)(const uint8_t *data, const float *x, int64_t stride, int64_t cols, int is_first,
                                    float (*total)[ROWS]);

#define NJ_FLOAT_TILE(name, kind, n)                                                                                   \
    static void name##_##n(const uint8_t *data, const float *x, int64_t stride, int64_t cols, int is_first,            \
                           float(*total)[ROWS])                                                                        \
    {                                                                                                                  \
        multiply_float_tile(kind, n, data, x, stride, cols, is_first, total);                                          \
    }
#define NJ_FLOAT_TILES(name, kind)                                                                                     \
    NJ_FLOAT_TILE(name, kind, 1)                                                                                       \
    NJ_FLOAT_TILE(name, kind, 2)                                                                                       \
    NJ_FLOAT_TILE(name, kind, 6)

NJ_FLOAT_TILES(f32_tile, NJ_KIND_F32)
NJ_FLOAT_TILES(f16_tile, NJ_KIND_F16)
NJ_FLOAT_TILES(bf16_tile, NJ_KIND_BF16)

/* The widest tile that `tokens` fill. */
static float_tile_function choose_float_tile(enum nj_matrix_kind kind, int64_t tokens, int64_t *n)
{
    static const float_tile_function functions[NJ_KIND_COUNT][3] = {
        [NJ_KIND_F32] = {f32_tile_1, f32_tile_2, f32_tile_6},
        [NJ_KIND_F16] = {f16_tile_1, f16_tile_2, f16_tile_6},
        [NJ_KIND_BF16] = {bf16_tile_1, bf16_tile_2, bf16_tile_6},
    };
    *n = tokens >= 6 ? 6 : tokens >= 2 ? 2 : 1;
    return functions[kind][tokens >= 6 ? 2 : tokens >= 2 ? 1 : 0];
}

/* Segment `segment` of a strip, whose numbers are at `data`. */
static void multiply_segment(const struct nj_matrix *w, enum nj_matrix_kind kind, const uint8_t *data, int64_t segment,
                             const float *x, int64_t tokens, float (*total)[ROWS])
{
    const int64_t first = segment * NJ_SEGMENT_COLS, rest = w->cols - first;
    const int64_t cols = rest < NJ_SEGMENT_COLS ? rest : NJ_SEGMENT_COLS;
    int64_t n;
    for (int64_t t = 0; t < tokens; t += n) {
        float_tile_function multiply = choose_float_tile(kind, tokens - t, &n);
        multiply(data, x + t * w->cols + first, w->cols, cols, segment == 0, total + t);
    }
}

static int64_t count_segments(const struct nj_matrix *w)
{
    return (w->cols + NJ_SEGMENT_COLS - 1) / NJ_SEGMENT_COLS;
}

void avx2_multiply_floats(const struct nj_matrix *w, int64_t strip, const float *x, int64_t tokens,
                          float (*total)[NJ_STRIP_ROWS])
{
    const uint8_t *data = (const uint8_t *)w->data + (size_t)strip * matrix_strip_bytes(w->kind, w->cols);
    const size_t segment_bytes = (size_t)NJ_SEGMENT_COLS * ROWS * matrix_kind_info(w->kind)->element_bytes;
    for (int64_t segment = 0; segment < count_segments(w); segment++)
        multiply_segment(w, w->kind, data + (size_t)segment * segment_bytes, segment, x, tokens, total);
}

void avx2_multiply_dequantized(const struct nj_matrix *w, int64_t strip, const float *x, int64_t tokens,
                               float (*total)[NJ_STRIP_ROWS])
{
    for (int64_t segment = 0; segment < count_segments(w); segment++) {
        float values[NJ_SEGMENT_COLS][ROWS];
        const int64_t first = segment * NJ_SEGMENT_COLS, rest = w->cols - first;
        reference_dequantize_strip(w, strip, first, rest < NJ_SEGMENT_COLS ? rest : NJ_SEGMENT_COLS, values[0]);
        multiply_segment(w, NJ_KIND_F32, (const uint8_t *)values, segment, x, tokens, total);
    }
}
