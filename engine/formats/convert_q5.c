/* Q5_0 (half scale d, 32 fifth bits, 16 bytes of low nibbles: d * (q - 16)) and Q5_1 (half scale d, half minimum m,
 * the same numbers: d * q + m). Bit i of the four bytes belongs to element i; byte i of the nibbles has element i in
 * its low half and 16 + i in its high one. */
#include "engine/formats/converters.h"

#include <math.h>
#include <string.h>

#include "engine/formats/convert_integer.h"
#include "kernels/elementary.h"

enum { Q5_0_BLOCK_BYTES = 22, Q5_1_BLOCK_BYTES = 24, STRIP_SCALE_BYTES = 2 * NJ_STRIP_ROWS };

/* `from` is where the fifth bits begin. */
static void read_numbers(const unsigned char *from, uint8_t q[NJ_GROUP_COLS])
{
    uint32_t fifth;
    memcpy(&fifth, from, sizeof fifth);
    for (int i = 0; i < NJ_GROUP_COLS; i++) {
        unsigned char pair = from[4 + i % 16];
        q[i] = (uint8_t)((i < 16 ? pair & 15 : pair >> 4) | (fifth >> i & 1) << 4);
    }
}

static void store_numbers(unsigned char *to, int row, const unsigned char *from)
{
    uint8_t q[NJ_GROUP_COLS];
    read_numbers(from, q);
    convert_store_nibbles(to, row, q);
    convert_store_fifth_bits(to, row, q);
}

static const char *convert_q5_0_block(const unsigned char *from, int row, unsigned char *to)
{
    uint16_t scale = convert_read_half(from);
    if (!convert_half_is_finite(scale))
        return "a scale is not a finite number";
    store_numbers(to, row, from + 2);
    convert_store_half(to + matrix_kind_info(NJ_KIND_U5_ZERO16)->quant_bytes, row, scale);
    return NULL;
}

static const char *convert_q5_1_block(const unsigned char *from, int row, unsigned char *to)
{
    uint16_t scale = convert_read_half(from), minimum = convert_read_half(from + 2);
    if (!convert_half_is_finite(scale) || !convert_half_is_finite(minimum))
        return "a scale or minimum is not a finite number";
    store_numbers(to, row, from + 4);
    unsigned char *scales = to + matrix_kind_info(NJ_KIND_U5_MIN)->quant_bytes;
    convert_store_half(scales, row, scale);
    convert_store_half(scales + STRIP_SCALE_BYTES, row, minimum);
    return NULL;
}

int converter_q5_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q5_0_BLOCK_BYTES, rows_present, cols, NJ_KIND_U5_ZERO16,
                                 convert_q5_0_block, strip, error);
}

int converter_q5_1_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q5_1_BLOCK_BYTES, rows_present, cols, NJ_KIND_U5_MIN,
                                 convert_q5_1_block, strip, error);
}

void converter_q5_0_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_GROUP_COLS, block += Q5_0_BLOCK_BYTES) {
        float scale = elementary_float_from_half(convert_read_half(block));
        uint8_t q[NJ_GROUP_COLS];
        read_numbers(block + 2, q);
        for (int i = 0; i < NJ_GROUP_COLS; i++)
            out[col + i] = scale * (float)(q[i] - 16);
    }
}

void converter_q5_1_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_GROUP_COLS, block += Q5_1_BLOCK_BYTES) {
        float scale = elementary_float_from_half(convert_read_half(block));
        float minimum = elementary_float_from_half(convert_read_half(block + 2));
        uint8_t q[NJ_GROUP_COLS];
        read_numbers(block + 4, q);
        for (int i = 0; i < NJ_GROUP_COLS; i++)
            out[col + i] = fmaf(scale, (float)q[i], minimum);
    }
}
