#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"

/* Embedding lookups and angles are a vanishing share of a sweep: the plain versions serve. */
const struct nj_cpu_kernels avx2_kernels = {
    .name = "avx2",
    .needs = "AVX2, FMA and F16C",
    .run =
        {
            [NJ_OP_EMBED] = reference_run_embed,
            [NJ_OP_RMS_NORM] = avx2_run_rms_norm,
            [NJ_OP_QUANTIZE] = avx2_run_quantize,
            [NJ_OP_SILU_MUL] = avx2_run_silu_mul,
            [NJ_OP_MATMUL] = avx2_run_matmul,
            [NJ_OP_ROPE_ANGLES] = reference_run_rope_angles,
            [NJ_OP_ROPE_STORE] = avx2_run_rope_store,
            [NJ_OP_ATTENTION] = avx2_run_attention,
            [NJ_OP_LOGIT_STATS] = avx2_run_logit_stats,
        },
};

/* F16C, which clang cannot ask for, is older than both. */
int avx2_is_runnable(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
