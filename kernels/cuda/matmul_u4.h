/* What both products of 4-bit kinds share: where numbers and scales lie (kernels/matrix.h), how a group joins a sum and
 * how a sum is stored. `kind` is a constant wherever these are called: branches on it vanish. */
#ifndef NJ_KERNELS_CUDA_MATMUL_U4_H
#define NJ_KERNELS_CUDA_MATMUL_U4_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/launch.h"

enum {
    U4_GROUP_BYTES = 256,
    U4_SUPER_GROUPS = NJ_SUPER_COLS / NJ_GROUP_COLS,
    U4_SUPER_NUMBERS = U4_GROUP_BYTES * U4_SUPER_GROUPS,
    U4_SIX_BITS_BYTES = 96,
    U4_HALVES_BYTES = 2 * NJ_STRIP_ROWS,
    SEGMENT_GROUPS = NJ_SEGMENT_COLS / NJ_GROUP_COLS
};

NJ_DEVICE int u4_zero_point(int kind)
{
    return kind == NJ_KIND_U4_ZERO8 ? 8 : 0;
}

NJ_DEVICE int u4_has_minimum(int kind)
{
    return kind != NJ_KIND_U4_ZERO8;
}

/* Bytes of a block and its groups of 32 columns. */
NJ_DEVICE int u4_block_bytes(int kind)
{
    if (kind == NJ_KIND_U4_SUPER)
        return U4_SUPER_NUMBERS + 2 * U4_SIX_BITS_BYTES + 2 * U4_HALVES_BYTES;
    return U4_GROUP_BYTES + (u4_has_minimum(kind) ? 2 : 1) * U4_HALVES_BYTES;
}

NJ_DEVICE int u4_block_groups(int kind)
{
    return kind == NJ_KIND_U4_SUPER ? U4_SUPER_GROUPS : 1;
}

NJ_DEVICE int64_t u4_strips(const struct nj_matrix *w)
{
    return (w->rows + NJ_STRIP_ROWS - 1) / NJ_STRIP_ROWS;
}

NJ_DEVICE const uint8_t *u4_strip(int kind, const struct nj_matrix *w, int64_t strip)
{
    const int64_t blocks = w->cols / NJ_GROUP_COLS / u4_block_groups(kind);
    return (const uint8_t *)w->data + strip * blocks * u4_block_bytes(kind);
}

NJ_DEVICE const uint8_t *u4_block(int kind, const uint8_t *strip, int group)
{
    return strip + (int64_t)(group / u4_block_groups(kind)) * u4_block_bytes(kind);
}

/* The 256 bytes of a group. */
NJ_DEVICE const uint8_t *u4_numbers(int kind, const uint8_t *strip, int group)
{
    return u4_block(kind, strip, group) + group % u4_block_groups(kind) * U4_GROUP_BYTES;
}

/* Scale and minimum of a row in a group; the minimum is 0 where the kind has none. */
struct u4_scale {
    float d, m;
};

NJ_DEVICE float u4_half(const uint8_t *halves, int row)
{
    return half_to_float(((const uint16_t *)halves)[row]);
}

NJ_DEVICE float u4_six_bits(const uint8_t *data, int group, int row)
{
    const int low = data[16 * (group % 4) + row] >> 4 * (group / 4) & 15;
    const int high = data[64 + 16 * (group / 4) + row] >> 2 * (group % 4) & 3;
    return (float)(low + 16 * high);
}

NJ_DEVICE struct u4_scale u4_read_scale(int kind, const uint8_t *strip, int group, int row)
{
    const uint8_t *block = u4_block(kind, strip, group);
    struct u4_scale scale;
    if (kind == NJ_KIND_U4_SUPER) {
        const uint8_t *six_bits = block + U4_SUPER_NUMBERS, *halves = six_bits + 2 * U4_SIX_BITS_BYTES;
        const int within = group % U4_SUPER_GROUPS;
        scale.d = u4_half(halves, row) * u4_six_bits(six_bits, within, row);
        scale.m = -(u4_half(halves + U4_HALVES_BYTES, row) * u4_six_bits(six_bits + U4_SIX_BITS_BYTES, within, row));
    } else {
        scale.d = u4_half(block + U4_GROUP_BYTES, row);
        scale.m = u4_has_minimum(kind) ? u4_half(block + U4_GROUP_BYTES + U4_HALVES_BYTES, row) : 0.0f;
    }
    return scale;
}

/* `dot` is a group's exact product; `scaled_sum` is the activation's scale times its sum. */
NJ_DEVICE float u4_join_group(int kind, float acc, struct u4_scale w, float d_x, float scaled_sum, float dot)
{
    acc = fmaf(w.d * d_x, dot, acc);
    return u4_has_minimum(kind) ? fmaf(w.m, scaled_sum, acc) : acc;
}

NJ_DEVICE float join_segment(int is_first, float total, float acc)
{
    return is_first ? acc : total + acc;
}

/* Rows and tokens past the end are dropped. */
NJ_DEVICE void store_total(const struct nj_cuda_matmul_args *a, int64_t row, int64_t token, float total)
{
    const struct nj_matmul_output *output = &a->output;
    if (row >= output->w.rows || token >= a->count)
        return;
    float *y = output->y + token * output->y_stride + row;
    const float sum = output->bias ? total + output->bias[row] : total;
    *y = output->accumulate ? *y + sum : sum;
}

#endif
