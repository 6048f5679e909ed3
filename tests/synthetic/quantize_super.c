#include "tests/synthetic/quantize_super.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/elementary.h"

enum { SUPER = 256, GROUP = 32, GROUPS = 8, SIXTEENS = 16 };

static float store_half(unsigned char *out, float value)
{
    uint16_t half = elementary_half_from_float(value);
    memcpy(out, &half, sizeof half);
    return elementary_float_from_half(half);
}

static int nearest_step(float value, float scale, int least, int most)
{
    int step = scale == 0.0f ? 0 : (int)floorf(value / scale + 0.5f);
    return step < least ? least : step > most ? most : step;
}

/* The largest of the values; 0 if all are below. */
static float largest_of(const float *values, int count)
{
    float largest = 0.0f;
    for (int i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    return largest;
}

static void store_group_scales(unsigned char *bytes, int group, int scale, int minimum)
{
    if (group < 4) {
        bytes[group] |= (unsigned char)scale;
        bytes[group + 4] |= (unsigned char)minimum;
    } else {
        bytes[group + 4] |= (unsigned char)((scale & 15) | (minimum & 15) << 4);
        bytes[group - 4] |= (unsigned char)((scale >> 4) << 6);
        bytes[group] |= (unsigned char)((minimum >> 4) << 6);
    }
}

/* One super-block of Q4_K (steps to 15) or Q5_K (steps to 31, with fifth bits). */
static void quantize_with_minima(const float *x, bool has_fifth_bits, unsigned char *out)
{
    const int most = has_fifth_bits ? 31 : 15;
    float scale[GROUPS], minimum[GROUPS];
    for (int g = 0; g < GROUPS; g++) {
        float negated[GROUP];
        for (int i = 0; i < GROUP; i++)
            negated[i] = -x[GROUP * g + i];
        minimum[g] = largest_of(negated, GROUP);
        scale[g] = (largest_of(x + GROUP * g, GROUP) + minimum[g]) / (float)most;
    }
    memset(out, 0, has_fifth_bits ? 176 : 144);
    float d = store_half(out, largest_of(scale, GROUPS) / 63.0f);
    float e = store_half(out + 2, largest_of(minimum, GROUPS) / 63.0f);
    unsigned char *fifth = out + 16, *pairs = out + (has_fifth_bits ? 48 : 16);
    for (int g = 0; g < GROUPS; g++) {
        int group_scale = nearest_step(scale[g], d, 0, 63), group_minimum = nearest_step(minimum[g], e, 0, 63);
        store_group_scales(out + 4, g, group_scale, group_minimum);
        for (int i = 0; i < GROUP; i++) {
            float above = x[GROUP * g + i] + e * (float)group_minimum;
            int step = nearest_step(above, d * (float)group_scale, 0, most);
            pairs[32 * (g / 2) + i] |= (unsigned char)((step & 15) << 4 * (g % 2));
            if (has_fifth_bits)
                fifth[i] |= (unsigned char)(step >> 4 << g);
        }
    }
}

void quantize_q4_k(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += SUPER, out += 144)
        quantize_with_minima(row + col, false, out);
}

void quantize_q5_k(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += SUPER, out += 176)
        quantize_with_minima(row + col, true, out);
}

static void quantize_q6_k_block(const float *x, unsigned char *out)
{
    float scale[SIXTEENS];
    for (int s = 0; s < SIXTEENS; s++) {
        float magnitude[16];
        for (int i = 0; i < 16; i++)
            magnitude[i] = fabsf(x[16 * s + i]);
        scale[s] = largest_of(magnitude, 16) / 31.0f;
    }
    memset(out, 0, 210);
    float d = store_half(out + 208, largest_of(scale, SIXTEENS) / 127.0f);
    for (int i = 0; i < SUPER; i++) {
        int column_scale = nearest_step(scale[i / 16], d, 0, 127);
        out[192 + i / 16] = (unsigned char)column_scale;
        int step = 32 + nearest_step(x[i], d * (float)column_scale, -32, 31);
        int half = i / 128, quarter = i % 128 / 32, within = i % 32;
        out[64 * half + 32 * (quarter % 2) + within] |= (unsigned char)((step & 15) << 4 * (quarter / 2));
        out[128 + 32 * half + within] |= (unsigned char)((step >> 4) << 2 * quarter);
    }
}

void quantize_q6_k(const float *row, int64_t cols, unsigned char *out)
{
    for (int64_t col = 0; col < cols; col += SUPER, out += 210)
        quantize_q6_k_block(row + col, out);
}
