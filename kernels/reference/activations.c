/* Row-wise operations that produce activations: norm, quantisation, gated SiLU. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

/* Groups whose largest magnitude is below 2^-100 count as zero: levels / amax stays finite. */
static const uint32_t smallest_amax_bits = 0x0d800000u;
static const uint32_t infinity_bits = 0x7f800000u;

static uint32_t largest_magnitude_bits(const float *x, int64_t count)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

float reference_quantize(const float *x, int64_t count, float levels, int32_t *q)
{
    uint32_t bits = largest_magnitude_bits(x, count);
    if (bits < smallest_amax_bits || bits >= infinity_bits) {
        memset(q, 0, (size_t)count * sizeof *q);
        return bits >= infinity_bits ? NAN : 0.0f;
    }
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    float inverse = levels / amax;
    for (int64_t i = 0; i < count; i++)
        q[i] = (int32_t)rintf(x[i] * inverse); /* never beyond +-levels */
    return amax / levels;
}

static void quantize_group(const float *x, int8_t *q, float *d, int32_t *sum)
{
    int32_t quantised[NJ_GROUP_COLS];
    *d = reference_quantize(x, NJ_GROUP_COLS, 127.0f, quantised);
    *sum = 0;
    for (int i = 0; i < NJ_GROUP_COLS; i++) {
        q[i] = (int8_t)quantised[i];
        *sum += quantised[i];
    }
}

/* Stores `count` values of row `row`, from column `first`, in the forms that `out` has. For q8 both are
 * multiples of 32. */
static void store_activation(const struct nj_activation *out, int64_t width, int64_t row, int64_t first, int64_t count,
                             const float *values)
{
    if (out->f32 != NULL)
        memmove(out->f32 + row * width + first, values, (size_t)count * sizeof *values);
    if (out->q8.q == NULL)
        return;
    for (int64_t i = 0; i < count; i += NJ_GROUP_COLS) {
        int64_t column = first + i;
        int64_t group = row * (width / NJ_GROUP_COLS) + column / NJ_GROUP_COLS;
        quantize_group(values + i, out->q8.q + row * width + column, out->q8.d + group, out->q8.sum + group);
    }
}

static float inverse_rms(const float *x, int64_t width, float epsilon)
{
    float partial[REFERENCE_PARTIALS] = {0};
    for (int64_t i = 0; i < width; i++)
        partial[i % REFERENCE_PARTIALS] = fmaf(x[i], x[i], partial[i % REFERENCE_PARTIALS]);
    float mean = sum_partials(partial) / (float)width;
    return 1.0f / sqrtf(mean + epsilon);
}

void reference_run_rms_norm(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rms_norm_args *a = &args->rms_norm;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t row = share_begin(a->count, thread, threads); row < end; row++) {
        const float *x = a->x + (a->row_index != NULL ? a->row_index[row] : row) * a->width;
        float inverse = inverse_rms(x, a->width, a->epsilon);
        for (int64_t first = 0; first < a->width; first += NJ_GROUP_COLS) {
            float y[NJ_GROUP_COLS];
            int64_t count = a->width - first < NJ_GROUP_COLS ? a->width - first : NJ_GROUP_COLS;
            for (int64_t i = 0; i < count; i++)
                y[i] = (x[first + i] * inverse) * a->weight[first + i];
            store_activation(&a->out, a->width, row, first, count, y);
        }
    }
}

void reference_run_quantize(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_quantize_args *a = &args->quantize;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t row = share_begin(a->count, thread, threads); row < end; row++)
        store_activation(&a->out, a->width, row, 0, a->width, a->x + row * a->width);
}

static float silu(float x)
{
    return x / (1.0f + elementary_exp(-x));
}

void reference_run_silu_mul(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_silu_mul_args *a = &args->silu_mul;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t row = share_begin(a->count, thread, threads); row < end; row++) {
        for (int64_t first = 0; first < a->width; first += NJ_GROUP_COLS) {
            float y[NJ_GROUP_COLS];
            int64_t count = a->width - first < NJ_GROUP_COLS ? a->width - first : NJ_GROUP_COLS;
            const float *gate = a->gate + row * a->width + first;
            const float *up = a->up + row * a->width + first;
            for (int64_t i = 0; i < count; i++)
                y[i] = silu(gate[i]) * up[i];
            store_activation(&a->out, a->width, row, first, count, y);
        }
    }
}
