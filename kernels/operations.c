#include "kernels/operations.h"

const char *operation_name(enum nj_operation operation)
{
    static const char *const names[NJ_OP_COUNT] = {
        [NJ_OP_EMBED] = "embed",           [NJ_OP_RMS_NORM] = "rms_norm",   [NJ_OP_QUANTIZE] = "quantize",
        [NJ_OP_SILU_MUL] = "silu_mul",     [NJ_OP_MATMUL] = "matmul",       [NJ_OP_ROPE_ANGLES] = "rope_angles",
        [NJ_OP_ROPE_STORE] = "rope_store", [NJ_OP_ATTENTION] = "attention", [NJ_OP_LOGIT_STATS] = "logit_stats",
    };
    const char *name = operation < NJ_OP_COUNT ? names[operation] : NULL;
    return name != NULL ? name : "other";
}
