/* Attention by KV type; shapes that no model has go to the plain kernels. */
#include "kernels/avx2/attention.h"

#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"

void avx2_run_attention(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_kv_layer *kv = &args->attention.kv;
    if (kv->head_width % VECTOR_FLOATS != 0)
        reference_run_attention(args, thread, threads);
    else if (kv->type == NJ_KV_F16)
        avx2_attend_f16(&args->attention, thread, threads);
    else if (kv->type == NJ_KV_Q8)
        avx2_attend_q8(&args->attention, thread, threads);
    else
        reference_run_attention(args, thread, threads);
}
