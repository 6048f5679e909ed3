/* Q4_K and Q5_K: super-blocks of 256 elements in eight groups of 32, each with a scale s and a minimum m of 6 bits;
 * half scales d of the scales and e of the minima; an element is (d * s) * q - e * m. The products with the 6-bit
 * numbers are exact in float32.
 *
 * In the file: d, e, 12 bytes of s and m, for Q5_K 32 bytes of fifth bits (bit g of byte i is of element i of group
 * g), 128 bytes of nibbles (byte 32 * k + i has element i of group 2k in its low nibble, of 2k + 1 in its high one).
 * The 12 bytes hold s of groups 0..3 and m of groups 0..3 in the low six bits of the first eight; the last four hold
 * the low four bits of s and m of groups 4..7, whose upper two bits are the upper two of the first eight. */
#include "engine/formats/converters.h"

#include <math.h>

#include "engine/formats/convert_integer.h"
#include "kernels/elementary.h"

enum { GROUPS = NJ_SUPER_COLS / NJ_GROUP_COLS, SCALES_AT = 4, NUMBERS_AT = 16, FIFTH_BYTES = 32 };
enum { Q4_K_BLOCK_BYTES = 144, Q5_K_BLOCK_BYTES = 176 };
enum { STRIP_MINIMA_AT = 96, STRIP_HALVES_AT = 192, STRIP_HALVES_BYTES = 2 * NJ_STRIP_ROWS };

static void read_group_scales(const unsigned char *block, int group, uint8_t *scale, uint8_t *minimum)
{
    const unsigned char *bytes = block + SCALES_AT;
    if (group < 4) {
        *scale = bytes[group] & 63;
        *minimum = bytes[group + 4] & 63;
    } else {
        *scale = (uint8_t)((bytes[group + 4] & 15) | (bytes[group - 4] >> 6) << 4);
        *minimum = (uint8_t)(bytes[group + 4] >> 4 | (bytes[group] >> 6) << 4);
    }
}

static void read_numbers(const unsigned char *block, int has_fifth_bits, int group, uint8_t q[NJ_GROUP_COLS])
{
    const unsigned char *fifth = block + NUMBERS_AT;
    const unsigned char *pairs = fifth + (has_fifth_bits ? FIFTH_BYTES : 0) + 32 * (group / 2);
    for (int i = 0; i < NJ_GROUP_COLS; i++) {
        q[i] = group % 2 == 0 ? pairs[i] & 15 : pairs[i] >> 4;
        if (has_fifth_bits)
            q[i] |= (uint8_t)((fifth[i] >> group & 1) << 4);
    }
}

/* A 6-bit number of a group into the strip's 96 bytes of them. */
static void store_six_bits(unsigned char *to, int group, int row, uint8_t number)
{
    to[16 * (group % 4) + row] |= (unsigned char)((number & 15) << 4 * (group / 4));
    to[64 + 16 * (group / 4) + row] |= (unsigned char)((number >> 4) << 2 * (group % 4));
}

static const char *convert_block_of(enum nj_matrix_kind kind, const unsigned char *from, int row, unsigned char *to)
{
    const int has_fifth_bits = kind == NJ_KIND_U5_SUPER;
    const size_t group_bytes = matrix_kind_info(kind)->quant_bytes;
    uint16_t scale = convert_read_half(from), minimum = convert_read_half(from + 2);
    if (!convert_half_is_finite(scale) || !convert_half_is_finite(minimum))
        return "a scale or minimum is not a finite number";
    unsigned char *scales = to + GROUPS * group_bytes;
    for (int group = 0; group < GROUPS; group++) {
        uint8_t q[NJ_GROUP_COLS], group_scale, group_minimum;
        read_numbers(from, has_fifth_bits, group, q);
        convert_store_nibbles(to + (size_t)group * group_bytes, row, q);
        if (has_fifth_bits)
            convert_store_fifth_bits(to + (size_t)group * group_bytes, row, q);
        read_group_scales(from, group, &group_scale, &group_minimum);
        store_six_bits(scales, group, row, group_scale);
        store_six_bits(scales + STRIP_MINIMA_AT, group, row, group_minimum);
    }
    convert_store_half(scales + STRIP_HALVES_AT, row, scale);
    convert_store_half(scales + STRIP_HALVES_AT + STRIP_HALVES_BYTES, row, minimum);
    return NULL;
}

static const char *convert_q4_k_block(const unsigned char *from, int row, unsigned char *to)
{
    return convert_block_of(NJ_KIND_U4_SUPER, from, row, to);
}

static const char *convert_q5_k_block(const unsigned char *from, int row, unsigned char *to)
{
    return convert_block_of(NJ_KIND_U5_SUPER, from, row, to);
}

int converter_q4_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q4_K_BLOCK_BYTES, rows_present, cols, NJ_KIND_U4_SUPER,
                                 convert_q4_k_block, strip, error);
}

int converter_q5_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q5_K_BLOCK_BYTES, rows_present, cols, NJ_KIND_U5_SUPER,
                                 convert_q5_k_block, strip, error);
}

static void dequantize_block(const unsigned char *block, int has_fifth_bits, float *out)
{
    float d = elementary_float_from_half(convert_read_half(block));
    float e = elementary_float_from_half(convert_read_half(block + 2));
    for (int group = 0; group < GROUPS; group++) {
        uint8_t q[NJ_GROUP_COLS], group_scale, group_minimum;
        read_numbers(block, has_fifth_bits, group, q);
        read_group_scales(block, group, &group_scale, &group_minimum);
        float scale = d * (float)group_scale, minimum = -(e * (float)group_minimum);
        for (int i = 0; i < NJ_GROUP_COLS; i++)
            out[NJ_GROUP_COLS * group + i] = fmaf(scale, (float)q[i], minimum);
    }
}

void converter_q4_k_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_SUPER_COLS, block += Q4_K_BLOCK_BYTES)
        dequantize_block(block, 0, out + col);
}

void converter_q5_k_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_SUPER_COLS, block += Q5_K_BLOCK_BYTES)
        dequantize_block(block, 1, out + col);
}
