/* Q4_0 (half scale d, 16 bytes of nibbles: d * (q - 8)) and Q4_1 (half scale d, half minimum m, the same
 * nibbles: d * q + m). In the file byte i of a block has element i in its low nibble and 16 + i in its high
 * one; the strip keeps these pairs, so bytes move whole. */
#include "engine/formats/converters.h"

#include <math.h>
#include <string.h>

#include "engine/formats/convert_integer.h"
#include "kernels/elementary.h"

enum { NIBBLE_BYTES = 16, Q4_0_BLOCK_BYTES = 18, Q4_1_BLOCK_BYTES = 20 };
enum { STRIP_NIBBLE_BYTES = NIBBLE_BYTES * NJ_STRIP_ROWS, STRIP_SCALE_BYTES = 2 * NJ_STRIP_ROWS };

static void scatter_nibbles(const unsigned char *from, int row, unsigned char *to)
{
    for (int j = 0; j < NIBBLE_BYTES / 4; j++)
        memcpy(to + 64 * j + 4 * row, from + 4 * j, 4);
}

static const char *convert_q4_0_block(const unsigned char *from, int row, unsigned char *to)
{
    uint16_t scale = convert_read_half(from);
    if (!convert_half_is_finite(scale))
        return "a scale is not a finite number";
    scatter_nibbles(from + 2, row, to);
    convert_store_half(to + STRIP_NIBBLE_BYTES, row, scale);
    return NULL;
}

static const char *convert_q4_1_block(const unsigned char *from, int row, unsigned char *to)
{
    uint16_t scale = convert_read_half(from);
    uint16_t minimum = convert_read_half(from + 2);
    if (!convert_half_is_finite(scale) || !convert_half_is_finite(minimum))
        return "a scale or minimum is not a finite number";
    scatter_nibbles(from + 4, row, to);
    convert_store_half(to + STRIP_NIBBLE_BYTES, row, scale);
    convert_store_half(to + STRIP_NIBBLE_BYTES + STRIP_SCALE_BYTES, row, minimum);
    return NULL;
}

int converter_q4_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q4_0_BLOCK_BYTES, rows_present, cols, NJ_KIND_U4_ZERO8,
                                 convert_q4_0_block, strip, error);
}

int converter_q4_1_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q4_1_BLOCK_BYTES, rows_present, cols, NJ_KIND_U4_MIN,
                                 convert_q4_1_block, strip, error);
}

void converter_q4_0_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_GROUP_COLS, block += Q4_0_BLOCK_BYTES) {
        float scale = elementary_float_from_half(convert_read_half(block));
        for (int i = 0; i < NIBBLE_BYTES; i++) {
            unsigned char pair = block[2 + i];
            out[col + i] = scale * (float)((pair & 15) - 8);
            out[col + NIBBLE_BYTES + i] = scale * (float)((pair >> 4) - 8);
        }
    }
}

void converter_q4_1_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_GROUP_COLS, block += Q4_1_BLOCK_BYTES) {
        float scale = elementary_float_from_half(convert_read_half(block));
        float minimum = elementary_float_from_half(convert_read_half(block + 2));
        for (int i = 0; i < NIBBLE_BYTES; i++) {
            unsigned char pair = block[4 + i];
            out[col + i] = fmaf(scale, (float)(pair & 15), minimum);
            out[col + NIBBLE_BYTES + i] = fmaf(scale, (float)(pair >> 4), minimum);
        }
    }
}
