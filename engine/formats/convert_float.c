/* F32, F16 and BF16: rows of numbers, kept as they are; only their order changes. */
#include "engine/formats/converters.h"

#include <inttypes.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/matrix.h"

/* A number is infinite or NaN when all bits of its exponent are set. */
static const uint32_t F32_EXPONENT = 0x7f800000;
static const uint32_t F16_EXPONENT = 0x7c00;
static const uint32_t BF16_EXPONENT = 0x7f80;

static int fail_not_finite(struct nj_error *error, int row, int64_t col)
{
    return error_set(error, NJ_BAD_DATA, "a weight is not a finite number (column %" PRId64 ", row %d of its strip)",
                     col, row);
}

int converter_f32_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                        struct nj_error *error)
{
    uint32_t *out = strip;
    memset(strip, 0, matrix_strip_bytes(NJ_KIND_F32, cols));
    for (int row = 0; row < rows_present; row++) {
        const unsigned char *from = (const unsigned char *)rows + (size_t)row * row_bytes;
        for (int64_t col = 0; col < cols; col++) {
            uint32_t bits;
            memcpy(&bits, from + (size_t)col * sizeof bits, sizeof bits);
            if ((bits & F32_EXPONENT) == F32_EXPONENT)
                return fail_not_finite(error, row, col);
            out[col * NJ_STRIP_ROWS + row] = bits;
        }
    }
    return 0;
}

static int convert_16bit(const void *rows, size_t row_bytes, int rows_present, int64_t cols, uint16_t *out,
                         uint32_t exponent, struct nj_error *error)
{
    memset(out, 0, (size_t)cols * NJ_STRIP_ROWS * sizeof *out);
    for (int row = 0; row < rows_present; row++) {
        const unsigned char *from = (const unsigned char *)rows + (size_t)row * row_bytes;
        for (int64_t col = 0; col < cols; col++) {
            uint16_t bits;
            memcpy(&bits, from + (size_t)col * sizeof bits, sizeof bits);
            if ((bits & exponent) == exponent)
                return fail_not_finite(error, row, col);
            out[col * NJ_STRIP_ROWS + row] = bits;
        }
    }
    return 0;
}

int converter_f16_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                        struct nj_error *error)
{
    return convert_16bit(rows, row_bytes, rows_present, cols, strip, F16_EXPONENT, error);
}

int converter_bf16_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error)
{
    return convert_16bit(rows, row_bytes, rows_present, cols, strip, BF16_EXPONENT, error);
}

void converter_f32_row(const void *row, int64_t cols, float *out)
{
    memcpy(out, row, (size_t)cols * sizeof *out);
}

static void dequantize_16bit(const void *row, int64_t cols, float (*to_float)(uint16_t), float *out)
{
    for (int64_t col = 0; col < cols; col++) {
        uint16_t bits;
        memcpy(&bits, (const unsigned char *)row + (size_t)col * sizeof bits, sizeof bits);
        out[col] = to_float(bits);
    }
}

void converter_f16_row(const void *row, int64_t cols, float *out)
{
    dequantize_16bit(row, cols, elementary_float_from_half, out);
}

void converter_bf16_row(const void *row, int64_t cols, float *out)
{
    dequantize_16bit(row, cols, elementary_float_from_bfloat16, out);
}
