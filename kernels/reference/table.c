#include "kernels/reference/reference.h"

const struct nj_cpu_kernels reference_kernels = {
    .name = "reference",
    .needs = "x86-64-v3, as the whole program",
    .run =
        {
            [NJ_OP_EMBED] = reference_run_embed,
            [NJ_OP_RMS_NORM] = reference_run_rms_norm,
            [NJ_OP_QUANTIZE] = reference_run_quantize,
            [NJ_OP_SILU_MUL] = reference_run_silu_mul,
            [NJ_OP_MATMUL] = reference_run_matmul,
            [NJ_OP_ROPE_ANGLES] = reference_run_rope_angles,
            [NJ_OP_ROPE_STORE] = reference_run_rope_store,
            [NJ_OP_ATTENTION] = reference_run_attention,
            [NJ_OP_LOGIT_STATS] = reference_run_logit_stats,
        },
};

/* Needs only what the whole program is compiled for. */
int reference_is_runnable(void)
{
    return 1;
}
