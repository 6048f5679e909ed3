/* Kernels for AVX2, FMA and F16C (no VNNI). */
#ifndef NJ_KERNELS_AVX2_AVX2_H
#define NJ_KERNELS_AVX2_AVX2_H

#include "kernels/cpu_kernels.h"
#include "kernels/peak.h"

extern const struct nj_cpu_kernels avx2_kernels;
int avx2_is_runnable(void);
extern const struct nj_peak_mix avx2_peak_mix;

void avx2_run_rms_norm(const union nj_operation_args *args, int thread, int threads);
void avx2_run_quantize(const union nj_operation_args *args, int thread, int threads);
void avx2_run_silu_mul(const union nj_operation_args *args, int thread, int threads);
void avx2_run_matmul(const union nj_operation_args *args, int thread, int threads);
void avx2_run_rope_store(const union nj_operation_args *args, int thread, int threads);
void avx2_run_attention(const union nj_operation_args *args, int thread, int threads);
void avx2_run_logit_stats(const union nj_operation_args *args, int thread, int threads);

#endif
