#include "kernels/matrix.h"

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
