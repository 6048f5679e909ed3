#include "kernels/matrix.h"

enum {
    HALVES_BYTES = NJ_STRIP_ROWS * 2, /* one half per row */
    BIT_BYTES = NJ_STRIP_ROWS * NJ_GROUP_COLS / 8,
    SUPER_GROUPS = NJ_SUPER_COLS / NJ_GROUP_COLS,
    SIX_BIT_BYTES = NJ_STRIP_ROWS * SUPER_GROUPS * 6 / 8,
    SIGNED_BYTES = NJ_STRIP_ROWS * SUPER_GROUPS * 2 /* one byte per row and 16 columns */
};

/* Integer kinds whose scales stand behind every group of 32 columns. */
#define NJ_GROUP_KIND(bits_, zero_point_, has_minimum_)                                                                \
    .bits = (bits_), .zero_point = (zero_point_), .has_minimum = (has_minimum_), .block_groups = 1,                    \
    .quant_bytes = (bits_)*BIT_BYTES, .block_bytes = (bits_)*BIT_BYTES + (1 + (has_minimum_)) * HALVES_BYTES

/* Super-blocks: eight groups, then their scales. */
#define NJ_SUPER_KIND(bits_, zero_point_, has_minimum_, scale_bytes_)                                                  \
    .bits = (bits_), .zero_point = (zero_point_), .has_minimum = (has_minimum_), .block_groups = SUPER_GROUPS,         \
    .quant_bytes = (bits_)*BIT_BYTES, .block_bytes = SUPER_GROUPS * (bits_)*BIT_BYTES + (scale_bytes_)

static const struct nj_matrix_kind_info kind_infos[NJ_KIND_COUNT] = {
    [NJ_KIND_U4_ZERO8] = {.name = "u4_zero8", NJ_GROUP_KIND(4, 8, 0)},
    [NJ_KIND_U4_MIN] = {.name = "u4_min", NJ_GROUP_KIND(4, 0, 1)},
    [NJ_KIND_S8] = {.name = "s8", NJ_GROUP_KIND(8, 0, 0)},
    [NJ_KIND_F32] = {.name = "f32", .is_float = 1, .element_bytes = 4},
    [NJ_KIND_F16] = {.name = "f16", .is_float = 1, .element_bytes = 2},
    [NJ_KIND_BF16] = {.name = "bf16", .is_float = 1, .element_bytes = 2},
    [NJ_KIND_U5_ZERO16] = {.name = "u5_zero16", NJ_GROUP_KIND(5, 16, 0)},
    [NJ_KIND_U4_SUPER] = {.name = "u4_super", NJ_SUPER_KIND(4, 0, 1, 2 * SIX_BIT_BYTES + 2 * HALVES_BYTES)},
    [NJ_KIND_U5_SUPER] = {.name = "u5_super", NJ_SUPER_KIND(5, 0, 1, 2 * SIX_BIT_BYTES + 2 * HALVES_BYTES)},
    [NJ_KIND_U6_SUPER] = {.name = "u6_super", NJ_SUPER_KIND(6, 32, 0, SIGNED_BYTES + HALVES_BYTES)},
    [NJ_KIND_U5_MIN] = {.name = "u5_min", NJ_GROUP_KIND(5, 0, 1)},
};

const struct nj_matrix_kind_info *matrix_kind_info(enum nj_matrix_kind kind)
{
    return &kind_infos[kind];
}

size_t matrix_strip_bytes(enum nj_matrix_kind kind, int64_t cols)
{
    if ((unsigned)kind >= NJ_KIND_COUNT || cols <= 0 || cols % NJ_GROUP_COLS != 0)
        return 0;
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    int64_t unit_cols = info->is_float ? 1 : (int64_t)info->block_groups * NJ_GROUP_COLS;
    if (cols % unit_cols != 0)
        return 0;
    size_t units = (size_t)(cols / unit_cols);
    size_t unit_bytes = info->is_float ? info->element_bytes * NJ_STRIP_ROWS : info->block_bytes;
    size_t bytes = 0;
    return __builtin_mul_overflow(units, unit_bytes, &bytes) ? 0 : bytes;
}

size_t matrix_bytes(enum nj_matrix_kind kind, int64_t rows, int64_t cols)
{
    if (rows <= 0)
        return 0;
    size_t strips = ((size_t)rows - 1) / NJ_STRIP_ROWS + 1;
    size_t bytes = 0;
    return __builtin_mul_overflow(strips, matrix_strip_bytes(kind, cols), &bytes) ? 0 : bytes;
}
