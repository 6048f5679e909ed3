/* exp and quantised groups of docs/arithmetic.md, on CUDA. */
#ifndef NJ_KERNELS_CUDA_ELEMENTARY_H
#define NJ_KERNELS_CUDA_ELEMENTARY_H

#include "kernels/cuda/device.h"

NJ_DEVICE float cuda_exp(float x)
{
    if (x != x)
        return x;
    if (x < -87.0f)
        return 0.0f;
    x = x > 88.0f ? 88.0f : x;
    const float n = rintf(x * 0x1.715476p+0f);
    float r = fmaf(n, -0x1.62e43p-1f, x);
    r = fmaf(n, 0x1.05c61p-29f, r);
    float p = 0x1.6a23cep-10f;
    p = fmaf(p, r, 0x1.123a2p-7f);
    p = fmaf(p, r, 0x1.5558f2p-5f);
    p = fmaf(p, r, 0x1.555492p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    return p * float_of_bits((uint32_t)((int32_t)n + 127) << 23);
}

/* A group's scale and what its numbers are multiplied with before they are rounded. */
struct group_scale {
    float d, inverse;
};

NJ_DEVICE uint32_t magnitude_bits(float x)
{
    return bits_of_float(x) & 0x7fffffffu;
}

/* Of a group that a warp holds: `bits` is the largest of a lane's magnitude_bits; all lanes get the same. */
NJ_DEVICE struct group_scale scale_group(uint32_t bits, float levels)
{
    struct group_scale scale = {0.0f, 0.0f};
    for (int mask = NJ_CUDA_WARP / 2; mask > 0; mask /= 2) {
        const uint32_t other = warp_xor(bits, mask);
        bits = other > bits ? other : bits;
    }
    if (bits >= 0x7f800000u) {
        scale.d = float_of_bits(0x7fc00000u);
    } else if (bits >= 0x0d800000u) { /* 2^-100 */
        scale.d = float_of_bits(bits) / levels;
        scale.inverse = levels / float_of_bits(bits);
    }
    return scale;
}

/* 0 in groups without numbers, where x may be anything. */
NJ_DEVICE int32_t quantize_in_group(float x, struct group_scale scale)
{
    return scale.inverse == 0.0f ? 0 : (int32_t)rintf(x * scale.inverse);
}

#endif
