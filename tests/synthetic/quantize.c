#include "tests/synthetic/quantize.h"

#include <math.h>
#include <string.h>

#include "kernels/elementary.h"
#include "tests/synthetic/quantize_super.h"

enum { BLOCK = 32 };

static void store_half(unsigned char *out, float value)
{
    uint16_t half = elementary_half_from_float(value);
    memcpy(out, &half, sizeof half);
}

/* Rounds to the nearest of least..most steps of `scale`; a scale of 0 gives 0 steps. */
static int round_to_step(float value, float scale, int least, int most)
{
    int step = scale == 0.0f ? 0 : (int)floorf(value / scale + 0.5f);
    return step < least ? least : step > most ? most : step;
}

static void quantize_f32(const float *row, int64_t cols, unsigned char *out)
{
    memcpy(out, row, (size_t)cols * sizeof *row);
}

static void quantize_f16(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t i = 0; i < cols; i++)
        store_half(out + 2 * i, row[i]);
}

static void quantize_bf16(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t i = 0; i < cols; i++) {
        uint32_t bits;
        memcpy(&bits, &row[i], sizeof bits);
        uint16_t rounded = (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* to nearest, ties to even */
        memcpy(out + 2 * i, &rounded, sizeof rounded);
    }
}

static void store_nibbles(const int steps[BLOCK], unsigned char *out)
{
    for (int i = 0; i < BLOCK / 2; i++)
        out[i] = (unsigned char)(steps[i] | steps[i + BLOCK / 2] << 4);
}

static void quantize_q4_0(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += BLOCK, out += 18) {
        const float *x = row + col;
        float extreme = 0.0f; /* of the largest magnitude, with its sign: it gets the step -8 */
        for (int i = 0; i < BLOCK; i++)
            extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
        float scale = extreme / -8.0f;
        int steps[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            steps[i] = 8 + round_to_step(x[i], scale, -8, 7);
        store_half(out, scale);
        store_nibbles(steps, out + 2);
    }
}

/* Steps of 0..most_step above the least of a block; stores scale and minimum. */
static void quantize_above_least(const float *x, int most_step, int steps[BLOCK], unsigned char *out)
{
    float least = x[0];
    float most = x[0];
    for (int i = 1; i < BLOCK; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float scale = (most - least) / (float)most_step;
    for (int i = 0; i < BLOCK; i++)
        steps[i] = round_to_step(x[i] - least, scale, 0, most_step);
    store_half(out, scale);
    store_half(out + 2, least);
}

static void quantize_q4_1(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += BLOCK, out += 20) {
        int steps[BLOCK];
        quantize_above_least(row + col, 15, steps, out);
        store_nibbles(steps, out + 4);
    }
}

/* Steps of five bits: their fifth bits, then their low ones. */
static void store_five_bits(const int steps[BLOCK], unsigned char *out)
{
    int low[BLOCK];
    uint32_t fifth = 0;
    for (int i = 0; i < BLOCK; i++) {
        low[i] = steps[i] & 15;
        fifth |= (uint32_t)(steps[i] >> 4) << i;
    }
    memcpy(out, &fifth, sizeof fifth);
    store_nibbles(low, out + sizeof fifth);
}

static void quantize_q5_0(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += BLOCK, out += 22) {
        const float *x = row + col;
        float extreme = 0.0f; /* of the largest magnitude, with its sign: it gets the step -16 */
        for (int i = 0; i < BLOCK; i++)
            extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
        float scale = extreme / -16.0f;
        int steps[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            steps[i] = 16 + round_to_step(x[i], scale, -16, 15);
        store_half(out, scale);
        store_five_bits(steps, out + 2);
    }
}

static void quantize_q5_1(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += BLOCK, out += 24) {
        int steps[BLOCK];
        quantize_above_least(row + col, 31, steps, out);
        store_five_bits(steps, out + 4);
    }
}

static void quantize_q8_0(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += BLOCK, out += 34) {
        const float *x = row + col;
        float largest = 0.0f;
        for (int i = 0; i < BLOCK; i++)
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        float scale = largest / 127.0f;
        store_half(out, scale);
        for (int i = 0; i < BLOCK; i++)
            out[2 + i] = (unsigned char)round_to_step(x[i], scale, -127, 127);
    }
}

const struct nj_quantizer *quantizer_find(const char *name)
{
    static const struct nj_quantizer QUANTIZERS[] = {
        {"f32", 0, quantize_f32},    {"f16", 1, quantize_f16},    {"bf16", 30, quantize_bf16},
        {"q4_0", 2, quantize_q4_0},  {"q4_1", 3, quantize_q4_1},  {"q8_0", 8, quantize_q8_0},
        {"q5_0", 6, quantize_q5_0},  {"q4_k", 12, quantize_q4_k}, {"q5_k", 13, quantize_q5_k},
        {"q6_k", 14, quantize_q6_k}, {"q5_1", 7, quantize_q5_1},
    };
    for (size_t i = 0; i < sizeof QUANTIZERS / sizeof *QUANTIZERS; i++)
        if (strcmp(QUANTIZERS[i].name, name) == 0)
            return &QUANTIZERS[i];
    return NULL;
}
