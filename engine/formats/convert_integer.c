#include "engine/formats/convert_integer.h"

#include <inttypes.h>
#include <string.h>

int convert_integer_strip(const void *rows, size_t row_bytes, size_t from_block_bytes, int rows_present, int64_t cols,
                          enum nj_matrix_kind kind, convert_block convert, void *strip, struct nj_error *error)
{
    size_t to_block_bytes = matrix_kind_info(kind)->block_bytes;
    int64_t block_cols = (int64_t)matrix_kind_info(kind)->block_groups * NJ_GROUP_COLS;
    memset(strip, 0, matrix_strip_bytes(kind, cols));
    for (int row = 0; row < rows_present; row++) {
        const unsigned char *from = (const unsigned char *)rows + (size_t)row * row_bytes;
        unsigned char *to = strip;
        for (int64_t col = 0; col < cols; col += block_cols) {
            const char *reason = convert(from, row, to);
            if (reason != NULL)
                return error_set(error, NJ_BAD_DATA, "%s (columns from %" PRId64 ", row %d of its strip)", reason, col,
                                 row);
            from += from_block_bytes;
            to += to_block_bytes;
        }
    }
    return 0;
}

void convert_store_nibbles(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS])
{
    for (int i = 0; i < NJ_GROUP_COLS / 2; i++)
        to[64 * (i / 4) + 4 * row + i % 4] = (unsigned char)((q[i] & 15) | (q[NJ_GROUP_COLS / 2 + i] & 15) << 4);
}

void convert_store_fifth_bits(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS])
{
    unsigned char *bits = to + NJ_GROUP_COLS * NJ_STRIP_ROWS / 2 + 4 * row;
    for (int i = 0; i < NJ_GROUP_COLS; i++)
        bits[i % 4] |= (unsigned char)((q[i] >> 4 & 1) << (i / 4));
}

void convert_store_upper_pairs(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS])
{
    unsigned char *bits = to + NJ_GROUP_COLS * NJ_STRIP_ROWS / 2 + 4 * row;
    for (int i = 0; i < NJ_GROUP_COLS; i++)
        bits[64 * (i / 16) + i % 4] |= (unsigned char)((q[i] >> 4 & 3) << 2 * (i % 16 / 4));
}

uint16_t convert_read_half(const unsigned char *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return half;
}

int convert_half_is_finite(uint16_t half)
{
    return (half & 0x7c00) != 0x7c00;
}

void convert_store_half(unsigned char *to, int row, uint16_t half)
{
    memcpy(to + (size_t)row * sizeof half, &half, sizeof half);
}
