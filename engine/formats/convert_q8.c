/* Q8_0: half scale d, 32 signed bytes q: d * q. */
#include "engine/formats/converters.h"

#include <string.h>

#include "engine/formats/convert_integer.h"
#include "kernels/elementary.h"

enum { Q8_0_BLOCK_BYTES = 34, STRIP_BYTES = NJ_GROUP_COLS * NJ_STRIP_ROWS };

static const char *convert_q8_0_block(const unsigned char *from, int row, unsigned char *to)
{
    uint16_t scale = convert_read_half(from);
    if (!convert_half_is_finite(scale))
        return "a scale is not a finite number";
    from += sizeof scale;
    if (memchr(from, 0x80, NJ_GROUP_COLS) != NULL)
        return "a weight is stored as -128, which no quantiser of this format writes";
    for (int j = 0; j < NJ_GROUP_COLS / 4; j++)
        memcpy(to + 64 * j + 4 * row, from + 4 * j, 4);
    convert_store_half(to + STRIP_BYTES, row, scale);
    return NULL;
}

int converter_q8_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, Q8_0_BLOCK_BYTES, rows_present, cols, NJ_KIND_S8, convert_q8_0_block,
                                 strip, error);
}

void converter_q8_0_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_GROUP_COLS, block += Q8_0_BLOCK_BYTES) {
        float scale = elementary_float_from_half(convert_read_half(block));
        for (int i = 0; i < NJ_GROUP_COLS; i++)
            out[col + i] = scale * (float)(int8_t)block[2 + i];
    }
}
