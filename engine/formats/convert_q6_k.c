/* Q6_K: super-blocks of 256 elements in sixteens, each with a signed scale s of 8 bits, and a half scale d; an element
 * is (d * s) * (q - 32), exact in float32.
 *
 * In the file: 128 bytes of low four bits, 64 of upper two, 16 scales, d. Each half of the 256 elements has 64 and 32
 * of these bytes: its elements i, 32 + i, 64 + i, 96 + i have the low nibbles of bytes i and 32 + i, then the high
 * ones, and in byte i of the upper bits the bits 0, 2, 4, 6 and their neighbours. */
#include "engine/formats/converters.h"

#include "engine/formats/convert_integer.h"
#include "kernels/elementary.h"

enum { GROUPS = NJ_SUPER_COLS / NJ_GROUP_COLS, BLOCK_BYTES = 210, UPPER_AT = 128, SCALES_AT = 192, HALF_AT = 208 };
enum { SCALED_COLS = 16, SCALES = NJ_SUPER_COLS / SCALED_COLS };

static void read_numbers(const unsigned char *block, int group, uint8_t q[NJ_GROUP_COLS])
{
    const int half = group / 4, quarter = group % 4;
    const unsigned char *low = block + 64 * half + 32 * (quarter % 2), *upper = block + UPPER_AT + 32 * half;
    for (int i = 0; i < NJ_GROUP_COLS; i++)
        q[i] = (uint8_t)((quarter < 2 ? low[i] & 15 : low[i] >> 4) | (upper[i] >> 2 * quarter & 3) << 4);
}

static const char *convert_q6_k_block(const unsigned char *from, int row, unsigned char *to)
{
    const size_t group_bytes = matrix_kind_info(NJ_KIND_U6_SUPER)->quant_bytes;
    uint16_t scale = convert_read_half(from + HALF_AT);
    if (!convert_half_is_finite(scale))
        return "a scale is not a finite number";
    for (int group = 0; group < GROUPS; group++) {
        uint8_t q[NJ_GROUP_COLS];
        read_numbers(from, group, q);
        convert_store_nibbles(to + (size_t)group * group_bytes, row, q);
        convert_store_upper_pairs(to + (size_t)group * group_bytes, row, q);
    }
    unsigned char *scales = to + GROUPS * group_bytes;
    for (int i = 0; i < SCALES; i++)
        scales[NJ_STRIP_ROWS * i + row] = from[SCALES_AT + i];
    convert_store_half(scales + SCALES * NJ_STRIP_ROWS, row, scale);
    return NULL;
}

int converter_q6_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_integer_strip(rows, row_bytes, BLOCK_BYTES, rows_present, cols, NJ_KIND_U6_SUPER, convert_q6_k_block,
                                 strip, error);
}

void converter_q6_k_row(const void *row, int64_t cols, float *out)
{
    const unsigned char *block = row;
    for (int64_t col = 0; col < cols; col += NJ_SUPER_COLS, block += BLOCK_BYTES) {
        float d = elementary_float_from_half(convert_read_half(block + HALF_AT));
        for (int i = 0; i < NJ_SUPER_COLS; i += NJ_GROUP_COLS) {
            uint8_t q[NJ_GROUP_COLS];
            read_numbers(block, i / NJ_GROUP_COLS, q);
            for (int j = 0; j < NJ_GROUP_COLS; j++) {
                int8_t s = (int8_t)block[SCALES_AT + (i + j) / SCALED_COLS];
                out[col + i + j] = d * (float)s * (float)(q[j] - 32);
            }
        }
    }
}
