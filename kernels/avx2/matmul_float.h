/* One strip of a matrix product with float32 activations: total[t][r] = the product of row 16 * strip + r with row t of
 * x, for `tokens` rows of x ([tokens][w.cols]). */
#ifndef NJ_KERNELS_AVX2_MATMUL_FLOAT_H
#define NJ_KERNELS_AVX2_MATMUL_FLOAT_H

#include "kernels/matrix.h"

/* Float kinds. */
void avx2_multiply_floats(const struct nj_matrix *w, int64_t strip, const float *x, int64_t tokens,
                          float (*total)[NJ_STRIP_ROWS]);

/* Any kind, expanded to float32 first: the test-only float path. */
void avx2_multiply_dequantized(const struct nj_matrix *w, int64_t strip, const float *x, int64_t tokens,
                               float (*total)[NJ_STRIP_ROWS]);

#endif
