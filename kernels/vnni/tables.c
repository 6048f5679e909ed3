/* Not compiled for VNNI: everything here may run on any machine. */
#include <cpuid.h>

#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"
#include "kernels/vnni/vnni.h"

/* What is not a product of bytes is as good in AVX2. */
#define NJ_TABLE(matmul)                                                                                               \
    {                                                                                                                  \
        [NJ_OP_EMBED] = reference_run_embed, [NJ_OP_RMS_NORM] = avx2_run_rms_norm,                                     \
        [NJ_OP_QUANTIZE] = avx2_run_quantize, [NJ_OP_SILU_MUL] = avx2_run_silu_mul, [NJ_OP_MATMUL] = (matmul),         \
        [NJ_OP_ROPE_ANGLES] = reference_run_rope_angles, [NJ_OP_ROPE_STORE] = avx2_run_rope_store,                     \
        [NJ_OP_ATTENTION] = avx2_run_attention, [NJ_OP_LOGIT_STATS] = avx2_run_logit_stats,                            \
    }

const struct nj_cpu_kernels avx512_vnni_kernels = {
    .name = "avx512-vnni",
    .needs = "AVX-512 (F, BW, DQ, VL) with VNNI",
    .run = NJ_TABLE(avx512_vnni_run_matmul),
};

const struct nj_cpu_kernels avx_vnni_kernels = {
    .name = "avx-vnni",
    .needs = "AVX-VNNI, AVX2, FMA and F16C",
    .run = NJ_TABLE(avx_vnni_run_matmul),
};

/* What the compiler's run-time library says includes that the operating system saves the registers. */
int avx512_vnni_is_runnable(void)
{
    return avx2_is_runnable() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

/* clang 14 cannot ask for AVX-VNNI. Its registers are those of AVX2, so who saves these saves all of it. */
int avx_vnni_is_runnable(void)
{
    enum { EXTENDED_FEATURES = 7, AVX_VNNI_BIT = 1 << 4 /* of eax of subleaf 1 */ };
    unsigned most_subleaf = 0, features = 0, b, c, d;
    if (!avx2_is_runnable() || !__get_cpuid_count(EXTENDED_FEATURES, 0, &most_subleaf, &b, &c, &d) || most_subleaf < 1)
        return 0;
    return __get_cpuid_count(EXTENDED_FEATURES, 1, &features, &b, &c, &d) && (features & AVX_VNNI_BIT) != 0;
}
