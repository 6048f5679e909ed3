/* Kernels for processors with VNNI: 512 bits wide (AVX-512), and 256 bits wide in the VEX encoding (AVX-VNNI). The
 * loops of both are the same source, kernels/vnni; the two folders compile it for their instructions. */
#ifndef NJ_KERNELS_VNNI_VNNI_H
#define NJ_KERNELS_VNNI_VNNI_H

#include "kernels/cpu_kernels.h"
#include "kernels/peak.h"

extern const struct nj_cpu_kernels avx512_vnni_kernels;
int avx512_vnni_is_runnable(void);
extern const struct nj_peak_mix avx512_vnni_peak_mix;
void avx512_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads);

extern const struct nj_cpu_kernels avx_vnni_kernels;
int avx_vnni_is_runnable(void);
extern const struct nj_peak_mix avx_vnni_peak_mix;
void avx_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads);

#endif
