/* Statistics of a row of logits. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

static int all_finite(const float *x, int64_t count)
{
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest < 0x7f800000u;
}

static float sum_tile(const float *x, int64_t count, float max)
{
    float partial[REFERENCE_PARTIALS] = {0};
    for (int64_t i = 0; i < count; i++)
        partial[i % REFERENCE_PARTIALS] += elementary_exp(x[i] - max);
    return sum_partials(partial);
}

static struct nj_logit_stats compute_stats(const float *x, int64_t count)
{
    struct nj_logit_stats stats = {0};
    if (!all_finite(x, count))
        return stats;
    stats.finite = 1;
    for (int64_t i = 1; i < count; i++)
        if (x[i] > x[stats.argmax])
            stats.argmax = (int32_t)i;
    stats.max = x[stats.argmax];
    for (int64_t first = 0; first < count; first += NJ_LOGIT_TILE) {
        int64_t rest = count - first;
        stats.sum += sum_tile(x + first, rest < NJ_LOGIT_TILE ? rest : NJ_LOGIT_TILE, stats.max);
    }
    return stats;
}

void reference_run_logit_stats(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_logit_stats_args *a = &args->logit_stats;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t row = share_begin(a->count, thread, threads); row < end; row++)
        a->out[row] = compute_stats(a->logits + row * a->stride, a->vocabulary);
}
