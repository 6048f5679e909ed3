/* What the reference kernels share among themselves. */
#ifndef NJ_KERNELS_REFERENCE_INTERNAL_H
#define NJ_KERNELS_REFERENCE_INTERNAL_H

#include "kernels/operations.h"

enum { REFERENCE_PARTIALS = 16 };

/* The first of `count` items that belongs to `thread`; its last one is before the next thread's first. */
static inline int64_t share_begin(int64_t count, int thread, int threads)
{
    return count * thread / threads;
}

/* The fixed tree over 16 partial sums; overwrites them. */
static inline float sum_partials(float *partial)
{
    for (int half = REFERENCE_PARTIALS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            partial[i] += partial[i + half];
    return partial[0];
}

/* x[i] ~ scale * q[i], |q[i]| <= levels, for `count` numbers with one scale, which is returned: NaN if one of them is
 * not finite, 0 if all are below 2^-100 (then every q is 0). */
float reference_quantize(const float *x, int64_t count, float levels, int32_t *q);

/* Columns [first, first + count) of one row of a strip as float32: value [col][row] for all 16 rows. */
void reference_dequantize_strip(const struct nj_matrix *w, int64_t strip, int64_t first, int64_t count, float *out);

#endif
