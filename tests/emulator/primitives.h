/* The primitives of kernels/cuda/device.h on the emulator; included before the kernel. */
#ifndef NJ_TESTS_EMULATOR_PRIMITIVES_H
#define NJ_TESTS_EMULATOR_PRIMITIVES_H

#include <string.h>

#include "kernels/elementary.h"
#include "tests/emulator/emulator.h"

#define NJ_EMULATED_PRIMITIVES 1
#define NJ_DEVICE static inline
#define NJ_KERNEL(name, threads, type, args)                                                                           \
    static void name##_body(const type args);                                                                          \
    void name(const void *memory);                                                                                     \
    void name(const void *memory)                                                                                      \
    {                                                                                                                  \
        name##_body(*(const type *)memory);                                                                            \
    }                                                                                                                  \
    static void name##_body(const type args)
#define NJ_SHARED(type, name) type *const name = emulator_shared_memory(sizeof(type))
#define NJ_UNROLL
#define NJ_UNROLL_TWICE
#define NJ_UNROLL_NOT
#define NJ_COPY_WAIT(groups) emulator_copy_wait(groups)

NJ_DEVICE int thread_index(void)
{
    return emulator_thread_index();
}

NJ_DEVICE int block_x(void)
{
    return (int)emulator_block_x();
}

NJ_DEVICE int block_y(void)
{
    return (int)emulator_block_y();
}

NJ_DEVICE void block_barrier(void)
{
    emulator_block_barrier();
}

NJ_DEVICE void warp_barrier(void)
{
    struct emulator_operands operands = {0};
    emulator_warp_operation(EMULATOR_BARRIER, &operands);
}

NJ_DEVICE uint32_t warp_xor(uint32_t value, int mask)
{
    struct emulator_operands operands = {.value = value, .mask = mask};
    emulator_warp_operation(EMULATOR_XOR, &operands);
    return operands.value;
}

NJ_DEVICE int32_t dot4(uint32_t a, uint32_t b, int32_t c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}

NJ_DEVICE void multiply_s8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    struct emulator_operands operands = {.c = c, .a = a, .b = b};
    emulator_warp_operation(EMULATOR_MULTIPLY_S8, &operands);
}

NJ_DEVICE void multiply_u8(int32_t c[4], const uint32_t a[4], const uint32_t b[2])
{
    struct emulator_operands operands = {.c = c, .a = a, .b = b};
    emulator_warp_operation(EMULATOR_MULTIPLY_U8, &operands);
}

NJ_DEVICE void copy_16(void *shared, const void *global)
{
    emulator_copy(shared, global);
}

NJ_DEVICE void copy_commit(void)
{
    emulator_copy_commit();
}

NJ_DEVICE float half_to_float(uint16_t half)
{
    return elementary_float_from_half(half);
}

NJ_DEVICE uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

NJ_DEVICE float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
