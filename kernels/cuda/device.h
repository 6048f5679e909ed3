/* What the CUDA kernels need of the machine: each primitive is one instruction or little more.
 *
 * The kernels are written in what C and CUDA C++ have in common. nvcc compiles them for GPUs; tests compile the same
 * files for the host, with emulated primitives included before everything else (tests/emulator/primitives.h).
 *
 * NJ_DEVICE: begins a function that kernels call.
 *
 * NJ_KERNEL(name, threads, type, args): begins a kernel: blocks of `threads` threads, one argument of type `type`.
 *
 * NJ_SHARED(type, name): `name` points to the block's shared memory, a `type`, aligned to 16 bytes; once a kernel.
 *
 * NJ_UNROLL: the loop that follows is unrolled, as its arrays stay in registers. NJ_UNROLL_NOT, NJ_UNROLL_TWICE: it is
 * not, or by two: otherwise registers would not suffice.
 *
 * thread_index, block_x, block_y: the place of this thread; blocks have one dimension, the grid two.
 *
 * block_barrier, warp_barrier: all threads of the block, or of the warp, have come here and see each other's memory.
 *
 * warp_xor: the value of lane `lane ^ mask`; all 32 lanes take part.
 *
 * dot4: c + a.0 * b.0 + ... + a.3 * b.3 over signed bytes.
 *
 * multiply_s8, multiply_u8: c += a * b on tensor cores, 16 x 8 x 32; a is signed, b signed or unsigned bytes.
 *
 * copy_16: begins a copy of 16 bytes to shared memory, both aligned; it lands after NJ_COPY_WAIT.
 *
 * copy_commit, NJ_COPY_WAIT(n): closes a group of this thread's copies; waits for all groups but the last n.
 *
 * half_to_float, bits_of_float, float_of_bits: as the names say.
 *
 * With g = lane / 4 and t = lane % 4, a[0..3] are four bytes each of rows g, g + 8, g, g + 8 from columns 4t, 4t, 16 +
 * 4t, 16 + 4t; b[0..1] of column g from rows 4t and 16 + 4t; c[0..3] are elements (g, 2t), (g, 2t + 1), (g + 8, 2t), (g
 * + 8, 2t + 1). Floats are as in docs/arithmetic.md: compiled with -fmad=false, fused only where fmaf stands. */
#ifndef NJ_KERNELS_CUDA_DEVICE_H
#define NJ_KERNELS_CUDA_DEVICE_H

#include <assert.h>
#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#include "kernels/cuda/primitives.h"
#elif !defined(NJ_EMULATED_PRIMITIVES)
#error "CUDA kernels are compiled by nvcc, or for the host with tests/emulator/primitives.h"
#endif

enum { NJ_CUDA_WARP = 32 };

NJ_DEVICE float warp_xor_float(float value, int mask)
{
    return float_of_bits(warp_xor(bits_of_float(value), mask));
}

/* Memory is aligned to 4 bytes. */
NJ_DEVICE uint32_t load_word(const void *memory)
{
    return *(const uint32_t *)memory;
}

#endif
