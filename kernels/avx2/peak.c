#include "kernels/avx2/avx2.h"

/* One step: eight products summed in int16, widened once, as the products of 4-bit weights are. The registers keep
 * whatever they hold; every step depends on the one before only through the last addition. */
static void avx2_run_peak(int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        __asm__ volatile("vpmaddubsw %%ymm0,%%ymm1,%%ymm8\n vpmaddubsw %%ymm0,%%ymm1,%%ymm9\n"
                         "vpmaddubsw %%ymm0,%%ymm1,%%ymm10\n vpmaddubsw %%ymm0,%%ymm1,%%ymm11\n"
                         "vpmaddubsw %%ymm0,%%ymm1,%%ymm12\n vpaddw %%ymm12,%%ymm8,%%ymm8\n"
                         "vpmaddubsw %%ymm0,%%ymm1,%%ymm13\n vpaddw %%ymm13,%%ymm9,%%ymm9\n"
                         "vpmaddubsw %%ymm0,%%ymm1,%%ymm12\n vpaddw %%ymm12,%%ymm10,%%ymm10\n"
                         "vpmaddubsw %%ymm0,%%ymm1,%%ymm13\n vpaddw %%ymm13,%%ymm11,%%ymm11\n"
                         "vpaddw %%ymm9,%%ymm8,%%ymm8\n vpaddw %%ymm11,%%ymm10,%%ymm10\n"
                         "vpaddw %%ymm10,%%ymm8,%%ymm8\n vpmaddwd %%ymm2,%%ymm8,%%ymm8\n"
                         "vpaddd %%ymm8,%%ymm3,%%ymm3\n" ::
                             : "xmm3", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13");
}

const struct nj_peak_mix avx2_peak_mix = {
    .name = "avx2, 4-bit products summed in int16",
    .operations_per_step = 2.0 * 32 * 8,
    .run = avx2_run_peak,
};
