#include "tests/emulator/warp.h"

enum { LANES = 32, ROWS = 16, DEPTH = 32, COLS = 8 };

static void exchange(struct emulator_operands *const lanes[LANES])
{
    uint32_t value[LANES];
    for (int lane = 0; lane < LANES; lane++)
        value[lane] = lanes[lane]->value;
    for (int lane = 0; lane < LANES; lane++)
        lanes[lane]->value = value[(lane ^ lanes[lane]->mask) % LANES];
}

static int32_t byte_of(uint32_t word, int index, int is_signed)
{
    uint8_t byte = (uint8_t)(word >> 8 * index);
    return is_signed ? (int8_t)byte : byte;
}

/* Fragments as in the PTX manual's figures of m16n8k32 for 8-bit integers: see kernels/cuda/device.h. */
static void multiply(struct emulator_operands *const lanes[LANES], int is_b_signed)
{
    int32_t a[ROWS][DEPTH], b[DEPTH][COLS];
    for (int lane = 0; lane < LANES; lane++) {
        int group = lane / 4, quad = lane % 4;
        for (int i = 0; i < 4; i++)
            for (int byte = 0; byte < 4; byte++)
                a[group + 8 * (i % 2)][16 * (i / 2) + 4 * quad + byte] = byte_of(lanes[lane]->a[i], byte, 1);
        for (int i = 0; i < 2; i++)
            for (int byte = 0; byte < 4; byte++)
                b[16 * i + 4 * quad + byte][group] = byte_of(lanes[lane]->b[i], byte, is_b_signed);
    }
    for (int lane = 0; lane < LANES; lane++) {
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
            uint32_t sum = (uint32_t)lanes[lane]->c[i];
            for (int k = 0; k < DEPTH; k++)
                sum += (uint32_t)(a[row][k] * b[k][col]);
            lanes[lane]->c[i] = (int32_t)sum;
        }
    }
}

void warp_operate(enum emulator_operation operation, struct emulator_operands *const lanes[LANES])
{
    if (operation == EMULATOR_XOR)
        exchange(lanes);
    else if (operation != EMULATOR_BARRIER)
        multiply(lanes, operation == EMULATOR_MULTIPLY_S8);
}
