#include "tests/support/strip_number.h"

#include <math.h>
#include <string.h>

#include "kernels/elementary.h"

static float half_at(const unsigned char *halves, int index)
{
    uint16_t half;
    memcpy(&half, halves + 2 * index, sizeof half);
    return elementary_float_from_half(half);
}

static float float_at(enum nj_matrix_kind kind, const unsigned char *strip, int row, int64_t col)
{
    int64_t index = 16 * col + row;
    float single;
    uint16_t bits;
    if (kind == NJ_KIND_F32) {
        memcpy(&single, strip + 4 * index, sizeof single);
        return single;
    }
    memcpy(&bits, strip + 2 * index, sizeof bits);
    return kind == NJ_KIND_F16 ? elementary_float_from_half(bits) : elementary_float_from_bfloat16(bits);
}

static int nibble_at(const unsigned char *group, int row, int col)
{
    unsigned char pair = group[64 * (col % 16 / 4) + 4 * row + col % 4];
    return col < 16 ? pair & 15 : pair >> 4;
}

static int five_bits_at(const unsigned char *group, int row, int col)
{
    return nibble_at(group, row, col) + 16 * (group[256 + 4 * row + col % 4] >> (col / 4) & 1);
}

static int six_bits_at(const unsigned char *group, int row, int col)
{
    int upper = group[256 + 64 * (col / 16) + 4 * row + col % 4] >> 2 * (col % 16 / 4) & 3;
    return nibble_at(group, row, col) + 16 * upper;
}

static float group_scale_at(const unsigned char *data, int group, int row)
{
    int low = group < 4 ? data[16 * group + row] & 15 : data[16 * (group - 4) + row] >> 4;
    int upper = data[64 + 16 * (group / 4) + row] >> 2 * (group % 4) & 3;
    return (float)(low + 16 * upper);
}

static struct strip_number super_number(enum nj_matrix_kind kind, const unsigned char *strip, int row, int64_t col)
{
    static const size_t QUANT_BYTES[] = {[4] = 256, [5] = 320, [6] = 384};
    int bits = kind == NJ_KIND_U4_SUPER ? 4 : kind == NJ_KIND_U5_SUPER ? 5 : 6;
    size_t block_bytes = 8 * QUANT_BYTES[bits] + (bits == 6 ? 256 + 32 : 96 + 96 + 64);
    const unsigned char *block = strip + (size_t)(col / 256) * block_bytes;
    const unsigned char *scales = block + 8 * QUANT_BYTES[bits];
    int group = (int)(col % 256 / 32), within = (int)(col % 32);
    const unsigned char *numbers = block + (size_t)group * QUANT_BYTES[bits];
    if (bits == 6) {
        int8_t column_scale = (int8_t)scales[16 * (col % 256 / 16) + row];
        return (struct strip_number){.scale = half_at(scales + 256, row) * (float)column_scale,
                                     .q = six_bits_at(numbers, row, within) - 32};
    }
    return (struct strip_number){.scale = half_at(scales + 192, row) * group_scale_at(scales, group, row),
                                 .minimum = -(half_at(scales + 224, row) * group_scale_at(scales + 96, group, row)),
                                 .q = bits == 4 ? nibble_at(numbers, row, within) : five_bits_at(numbers, row, within),
                                 .has_minimum = true};
}

struct strip_number strip_number_at(enum nj_matrix_kind kind, const void *strip, int row, int64_t col)
{
    const unsigned char *bytes = strip;
    int within = (int)(col % 32);
    const unsigned char *block;
    switch (kind) {
    case NJ_KIND_U4_ZERO8:
        block = bytes + col / 32 * (256 + 32);
        return (struct strip_number){.scale = half_at(block + 256, row), .q = nibble_at(block, row, within) - 8};
    case NJ_KIND_U4_MIN:
        block = bytes + col / 32 * (256 + 64);
        return (struct strip_number){.scale = half_at(block + 256, row),
                                     .minimum = half_at(block + 256 + 32, row),
                                     .q = nibble_at(block, row, within),
                                     .has_minimum = true};
    case NJ_KIND_S8:
        block = bytes + col / 32 * (512 + 32);
        return (struct strip_number){.scale = half_at(block + 512, row),
                                     .q = (int8_t)block[64 * (within / 4) + 4 * row + within % 4]};
    case NJ_KIND_U5_ZERO16:
        block = bytes + col / 32 * (320 + 32);
        return (struct strip_number){.scale = half_at(block + 320, row), .q = five_bits_at(block, row, within) - 16};
    case NJ_KIND_U5_MIN:
        block = bytes + col / 32 * (320 + 64);
        return (struct strip_number){.scale = half_at(block + 320, row),
                                     .minimum = half_at(block + 320 + 32, row),
                                     .q = five_bits_at(block, row, within),
                                     .has_minimum = true};
    case NJ_KIND_U4_SUPER:
    case NJ_KIND_U5_SUPER:
    case NJ_KIND_U6_SUPER:
        return super_number(kind, bytes, row, col);
    default:
        return (struct strip_number){.scale = float_at(kind, bytes, row, col), .q = 1};
    }
}

float strip_element(enum nj_matrix_kind kind, const void *strip, int row, int64_t col)
{
    struct strip_number number = strip_number_at(kind, strip, row, col);
    return number.has_minimum ? fmaf(number.scale, (float)number.q, number.minimum) : number.scale * (float)number.q;
}
