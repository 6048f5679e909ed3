/* The primitives of kernels/cuda/device.h as nvcc takes them. */
#ifndef NJ_KERNELS_CUDA_PRIMITIVES_H
#define NJ_KERNELS_CUDA_PRIMITIVES_H

#include <cuda_fp16.h>

#define NJ_DEVICE static __device__ __forceinline__
#define NJ_KERNEL(name, threads, type, args) extern "C" __global__ void __launch_bounds__(threads) name(const type args)
#define NJ_SHARED(type, name)                                                                                          \
    __shared__ __align__(16) type name##_memory;                                                                       \
    type *const name = &name##_memory
#define NJ_UNROLL _Pragma("unroll")
#define NJ_UNROLL_TWICE _Pragma("unroll 2")
#define NJ_UNROLL_NOT _Pragma("unroll 1")

NJ_DEVICE int thread_index(void)
{
    return (int)threadIdx.x;
}

NJ_DEVICE int block_x(void)
{
    return (int)blockIdx.x;
}

NJ_DEVICE int block_y(void)
{
    return (int)blockIdx.y;
}

NJ_DEVICE void block_barrier(void)
{
    __syncthreads();
}

NJ_DEVICE void warp_barrier(void)
{
    __syncwarp();
}

NJ_DEVICE uint32_t warp_xor(uint32_t value, int mask)
{
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

NJ_DEVICE int32_t dot4(uint32_t a, uint32_t b, int32_t c)
{
    return __dp4a((int)a, (int)b, c);
}

NJ_DEVICE float half_to_float(uint16_t half)
{
    return __half2float(__ushort_as_half(half));
}

NJ_DEVICE uint32_t bits_of_float(float x)
{
    return __float_as_uint(x);
}

NJ_DEVICE float float_of_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

#define NJ_MULTIPLY(type, c, a, b)                                                                                     \
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8." type ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "       \
                 "{%0,%1,%2,%3};"                                                                                      \
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

NJ_DEVICE void copy_16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}

NJ_DEVICE void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

#define NJ_COPY_WAIT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")

#else

/* sm_75: a quarter of the product at a time, of the same registers; copies are loads and stores. */
#define NJ_MULTIPLY_QUARTER(type, c0, c1, a, b)                                                                        \
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8." type ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};"                  \
                 : "+r"(c0), "+r"(c1)                                                                                  \
                 : "r"(a), "r"(b))
#define NJ_MULTIPLY(type, c, a, b)                                                                                     \
    NJ_MULTIPLY_QUARTER(type, c[0], c[1], a[0], b[0]);                                                                 \
    NJ_MULTIPLY_QUARTER(type, c[2], c[3], a[1], b[0]);                                                                 \
    NJ_MULTIPLY_QUARTER(type, c[0], c[1], a[2], b[1]);                                                                 \
    NJ_MULTIPLY_QUARTER(type, c[2], c[3], a[3], b[1])

NJ_DEVICE void copy_16(void *shared, const void *global)
{
    *(uint4 *)shared = *(const uint4 *)global;
}

NJ_DEVICE void copy_commit(void) {}

#define NJ_COPY_WAIT(groups) ((void)(groups))

#endif

NJ_DEVICE void multiply_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    NJ_MULTIPLY("s8", c, a, b);
}

NJ_DEVICE void multiply_u8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    NJ_MULTIPLY("u8", c, a, b);
}

#endif
