/* Matrix products and embedding lookup. Inner loops run over the 16 rows of a strip. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

enum {
    ROWS = NJ_STRIP_ROWS,
    COLS = NJ_GROUP_COLS,
    SEGMENT_GROUPS = NJ_SEGMENT_COLS / NJ_GROUP_COLS,
    CHUNK_TOKENS = 32 /* tokens that share one unpacking of a segment */
};

/* One group of 16 rows x 32 columns unpacked. `minimum` is 0 where the kind has none. */
struct block {
    int16_t q[COLS][ROWS];         /* with the zero point subtracted */
    int16_t column_scale[2][ROWS]; /* of columns 0..15 and 16..31; 1 where the kind has none */
    float scale[ROWS];
    float minimum[ROWS];
};

struct segment {
    struct block block[SEGMENT_GROUPS];
};

static uint16_t load_half(const uint8_t *bytes)
{
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    return half;
}

static int unpack_number(int bits, const uint8_t *data, int row, int col)
{
    if (bits == 8)
        return (int8_t)data[64 * (col / 4) + 4 * row + col % 4];
    uint8_t pair = data[64 * (col % 16 / 4) + 4 * row + col % 4];
    int low = col < 16 ? pair & 15 : pair >> 4;
    if (bits == 5)
        return low + 16 * (data[256 + 4 * row + col % 4] >> (col / 4) & 1);
    if (bits == 6)
        return low + 16 * (data[256 + 64 * (col / 16) + 4 * row + col % 4] >> 2 * (col % 16 / 4) & 3);
    return low;
}

static void unpack_halves(const uint8_t *halves, float *out)
{
    for (int row = 0; row < ROWS; row++)
        out[row] = elementary_float_from_half(load_half(halves + 2 * row));
}

/* The 6-bit number of a group of a super-block. */
static float unpack_six_bits(const uint8_t *data, int group, int row)
{
    int low = data[16 * (group % 4) + row] >> 4 * (group / 4) & 15;
    int high = data[64 + 16 * (group / 4) + row] >> 2 * (group % 4) & 3;
    return (float)(low + 16 * high);
}

/* `group` counts in the block whose scales these are. */
static void unpack_scales(const struct nj_matrix_kind_info *info, const uint8_t *scales, int group, struct block *block)
{
    int is_super = info->block_groups > 1;
    for (int row = 0; row < ROWS; row++) {
        block->column_scale[0][row] = block->column_scale[1][row] = 1;
        block->minimum[row] = 0.0f;
    }
    if (is_super && info->has_minimum) {
        unpack_halves(scales + 192, block->scale);
        unpack_halves(scales + 192 + 2 * ROWS, block->minimum);
        for (int row = 0; row < ROWS; row++) {
            block->scale[row] *= unpack_six_bits(scales, group, row);
            block->minimum[row] = -(block->minimum[row] * unpack_six_bits(scales + 96, group, row));
        }
    } else if (is_super) {
        unpack_halves(scales + 256, block->scale);
        for (int half = 0; half < 2; half++)
            for (int row = 0; row < ROWS; row++)
                block->column_scale[half][row] = (int8_t)scales[16 * (2 * group + half) + row];
    } else {
        unpack_halves(scales, block->scale);
        if (info->has_minimum)
            unpack_halves(scales + 2 * ROWS, block->minimum);
    }
}

/* Group `group` of a strip. */
static void unpack_group(const struct nj_matrix_kind_info *info, const uint8_t *strip, int64_t group,
                         struct block *block)
{
    const uint8_t *data = strip + (size_t)(group / info->block_groups) * info->block_bytes;
    int within = (int)(group % info->block_groups);
    const uint8_t *numbers = data + (size_t)within * info->quant_bytes;
    for (int col = 0; col < COLS; col++)
        for (int row = 0; row < ROWS; row++)
            block->q[col][row] = (int16_t)(unpack_number(info->bits, numbers, row, col) - info->zero_point);
    unpack_scales(info, data + (size_t)info->block_groups * info->quant_bytes, within, block);
}

static const uint8_t *strip_data(const struct nj_matrix *w, int64_t strip)
{
    return (const uint8_t *)w->data + (size_t)strip * matrix_strip_bytes(w->kind, w->cols);
}

static void unpack_segment(const struct nj_matrix *w, int64_t strip, int64_t first_group, int64_t groups,
                           struct segment *segment)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    for (int64_t g = 0; g < groups; g++)
        unpack_group(info, strip_data(w, strip), first_group + g, &segment->block[g]);
}

static void dequantize_block(const struct nj_matrix_kind_info *info, const struct block *block, float *out)
{
    for (int col = 0; col < COLS; col++) {
        for (int row = 0; row < ROWS; row++) {
            float q = (float)block->q[col][row];
            float scale = block->scale[row] * (float)block->column_scale[col / 16][row];
            out[col * ROWS + row] = info->has_minimum ? fmaf(scale, q, block->minimum[row]) : scale * q;
        }
    }
}

static void widen_floats(enum nj_matrix_kind kind, const uint8_t *data, int64_t count, float *out)
{
    if (kind == NJ_KIND_F32) {
        memcpy(out, data, (size_t)count * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        uint16_t stored = load_half(data + 2 * i);
        out[i] = kind == NJ_KIND_F16 ? elementary_float_from_half(stored) : elementary_float_from_bfloat16(stored);
    }
}

void reference_dequantize_strip(const struct nj_matrix *w, int64_t strip, int64_t first, int64_t count, float *out)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    const uint8_t *data = strip_data(w, strip);
    if (info->is_float) {
        widen_floats(w->kind, data + (size_t)first * ROWS * info->element_bytes, count * ROWS, out);
        return;
    }
    for (int64_t col = 0; col < count; col += COLS) {
        struct block block;
        unpack_group(info, data, (first + col) / COLS, &block);
        dequantize_block(info, &block, out + col * ROWS);
    }
}

/* acc += one group's part of one token: an exact int32 dot product, joined by fmaf. */
static void add_group(const struct nj_matrix_kind_info *info, const struct block *block, const int8_t *x, float d,
                      int32_t sum, float *acc)
{
    int32_t dot[ROWS] = {0};
    for (int half = 0; half < 2; half++) {
        int32_t part[ROWS] = {0};
        for (int col = 16 * half; col < 16 * half + 16; col++)
            for (int row = 0; row < ROWS; row++)
                part[row] += block->q[col][row] * x[col];
        for (int row = 0; row < ROWS; row++)
            dot[row] += block->column_scale[half][row] * part[row];
    }
    for (int row = 0; row < ROWS; row++)
        acc[row] = fmaf(block->scale[row] * d, (float)dot[row], acc[row]);
    if (info->has_minimum)
        for (int row = 0; row < ROWS; row++)
            acc[row] = fmaf(block->minimum[row], d * (float)sum, acc[row]);
}

/* Adds a segment's sum to the total; the first one is assigned. */
static void add_segment(const float *acc, int is_first, float *total)
{
    for (int row = 0; row < ROWS; row++)
        total[row] = is_first ? acc[row] : total[row] + acc[row];
}

static void multiply_integers(const struct nj_matrix *w, int64_t strip, const struct nj_q8 *x, int64_t first_token,
                              int64_t tokens, float total[][ROWS])
{
    int64_t all_groups = w->cols / COLS;
    for (int64_t first = 0; first < all_groups; first += SEGMENT_GROUPS) {
        struct segment segment;
        int64_t groups = all_groups - first < SEGMENT_GROUPS ? all_groups - first : SEGMENT_GROUPS;
        unpack_segment(w, strip, first, groups, &segment);
        for (int64_t t = 0; t < tokens; t++) {
            float acc[ROWS] = {0};
            for (int64_t g = 0; g < groups; g++) {
                int64_t group = (first_token + t) * all_groups + first + g;
                add_group(matrix_kind_info(w->kind), &segment.block[g], x->q + group * COLS, x->d[group], x->sum[group],
                          acc);
            }
            add_segment(acc, first == 0, total[t]);
        }
    }
}

static void multiply_floats(const struct nj_matrix *w, int64_t strip, const float *x, int64_t first_token,
                            int64_t tokens, float total[][ROWS])
{
    for (int64_t first = 0; first < w->cols; first += NJ_SEGMENT_COLS) {
        float values[NJ_SEGMENT_COLS][ROWS];
        int64_t cols = w->cols - first < NJ_SEGMENT_COLS ? w->cols - first : NJ_SEGMENT_COLS;
        reference_dequantize_strip(w, strip, first, cols, values[0]);
        for (int64_t t = 0; t < tokens; t++) {
            const float *row_x = x + (first_token + t) * w->cols + first;
            float acc[ROWS] = {0};
            for (int64_t col = 0; col < cols; col++)
                for (int row = 0; row < ROWS; row++)
                    acc[row] = fmaf(values[col][row], row_x[col], acc[row]);
            add_segment(acc, first == 0, total[t]);
        }
    }
}

static void store_total(const struct nj_matmul_output *output, int64_t strip, int64_t token, const float *total)
{
    int64_t first_row = strip * ROWS;
    int64_t rows = output->w.rows - first_row < ROWS ? output->w.rows - first_row : ROWS;
    float *y = output->y + token * output->y_stride + first_row;
    for (int64_t row = 0; row < rows; row++) {
        float sum = output->bias != NULL ? total[row] + output->bias[first_row + row] : total[row];
        y[row] = output->accumulate ? y[row] + sum : sum;
    }
}

static void multiply_strip(const struct nj_matmul_args *a, const struct nj_matmul_output *output, int64_t strip)
{
    int is_float = matrix_kind_info(output->w.kind)->is_float || a->x.q8.q == NULL;
    for (int64_t first = 0; first < a->count; first += CHUNK_TOKENS) {
        float total[CHUNK_TOKENS][ROWS];
        int64_t tokens = a->count - first < CHUNK_TOKENS ? a->count - first : CHUNK_TOKENS;
        if (is_float)
            multiply_floats(&output->w, strip, a->x.f32, first, tokens, total);
        else
            multiply_integers(&output->w, strip, &a->x.q8, first, tokens, total);
        for (int64_t t = 0; t < tokens; t++)
            store_total(output, strip, first + t, total[t]);
    }
}

static int64_t strip_count(const struct nj_matrix *w)
{
    return (w->rows + ROWS - 1) / ROWS;
}

void reference_run_matmul(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_matmul_args *a = &args->matmul;
    int64_t strips = 0;
    for (int i = 0; i < a->outputs; i++)
        strips += strip_count(&a->output[i].w);
    int64_t begin = share_begin(strips, thread, threads);
    int64_t end = share_begin(strips, thread + 1, threads);
    int64_t first = 0; /* number of the output's first strip among all */
    for (int i = 0; i < a->outputs; i++) {
        int64_t count = strip_count(&a->output[i].w);
        for (int64_t strip = 0; strip < count; strip++)
            if (first + strip >= begin && first + strip < end)
                multiply_strip(a, &a->output[i], strip);
        first += count;
    }
}

void reference_run_embed(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_embed_args *a = &args->embed;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t t = share_begin(a->count, thread, threads); t < end; t++) {
        for (int64_t first = 0; first < a->table.cols; first += COLS) {
            float values[COLS][ROWS];
            reference_dequantize_strip(&a->table, a->token[t] / ROWS, first, COLS, values[0]);
            for (int col = 0; col < COLS; col++)
                a->out[t * a->table.cols + first + col] = values[col][a->token[t] % ROWS];
        }
    }
}
