/* Not compiled for VNNI, but called only where the table runs. The registers keep whatever they hold. */
#include "kernels/vnni/vnni.h"

enum { CHAINS = 12 /* more than the instruction's latency times the units that a processor has for it */ };

/* Left to itself the assembler takes the EVEX encoding for both. */
#define NJ_ENCODING_zmm ""
#define NJ_ENCODING_ymm "%{vex%} "
#define NJ_PRODUCT(width, to) NJ_ENCODING_##width "vpdpbusd %%" #width "0,%%" #width "1,%%" #width #to "\n"
#define NJ_FOUR_PRODUCTS(width, a, b, c, d)                                                                            \
    NJ_PRODUCT(width, a) NJ_PRODUCT(width, b) NJ_PRODUCT(width, c) NJ_PRODUCT(width, d)
#define NJ_TWELVE_PRODUCTS(width)                                                                                      \
    NJ_FOUR_PRODUCTS(width, 2, 3, 4, 5) NJ_FOUR_PRODUCTS(width, 6, 7, 8, 9) NJ_FOUR_PRODUCTS(width, 10, 11, 12, 13)
#define NJ_VECTOR_REGISTERS                                                                                            \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "xmm14", "xmm15"

static void run_zmm(int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        __asm__ volatile(NJ_TWELVE_PRODUCTS(zmm)::: NJ_VECTOR_REGISTERS);
    __asm__ volatile("vzeroupper" ::: NJ_VECTOR_REGISTERS);
}

static void run_ymm(int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        __asm__ volatile(NJ_TWELVE_PRODUCTS(ymm)::: NJ_VECTOR_REGISTERS);
}

const struct nj_peak_mix avx512_vnni_peak_mix = {
    .name = "avx512-vnni, vpdpbusd of 64 bytes",
    .operations_per_step = 2.0 * 64 * CHAINS,
    .run = run_zmm,
};

const struct nj_peak_mix avx_vnni_peak_mix = {
    .name = "avx-vnni, vpdpbusd of 32 bytes",
    .operations_per_step = 2.0 * 32 * CHAINS,
    .run = run_ymm,
};
