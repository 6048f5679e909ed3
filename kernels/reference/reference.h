/* The reference kernels: docs/arithmetic.md written down plainly. Loops whose order the contract leaves
 * free (exact integer sums, independent outputs) are laid out so that the compiler may vectorise them.
 * They share no code with the other tables, which are tested against them. */
#ifndef NJ_KERNELS_REFERENCE_REFERENCE_H
#define NJ_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/cpu_kernels.h"

extern const struct nj_cpu_kernels reference_kernels;
int reference_is_runnable(void);

void reference_run_embed(const union nj_operation_args *args, int thread, int threads);
void reference_run_rms_norm(const union nj_operation_args *args, int thread, int threads);
void reference_run_quantize(const union nj_operation_args *args, int thread, int threads);
void reference_run_silu_mul(const union nj_operation_args *args, int thread, int threads);
void reference_run_matmul(const union nj_operation_args *args, int thread, int threads);
void reference_run_rope_angles(const union nj_operation_args *args, int thread, int threads);
void reference_run_rope_store(const union nj_operation_args *args, int thread, int threads);
void reference_run_attention(const union nj_operation_args *args, int thread, int threads);
void reference_run_logit_stats(const union nj_operation_args *args, int thread, int threads);

#endif
