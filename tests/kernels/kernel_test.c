#include "tests/kernels/kernel_test.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
#include "tests/support/strip_number.h"

uint64_t random_next(struct nj_test_random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t random_below(struct nj_test_random *random, int64_t limit)
{
    return (int64_t)(random_next(random) % (uint64_t)limit);
}

float random_uniform(struct nj_test_random *random, float low, float high)
{
    return low + (high - low) * (float)(random_next(random) >> 40) * 0x1p-24f;
}

float random_any_float(struct nj_test_random *random)
{
    uint32_t bits = (uint32_t)random_next(random);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void *test_allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        fail_msg("no memory for %zu bytes", bytes);
    return memory;
}

float *test_random_floats(struct nj_test_random *random, int64_t count, float low, float high)
{
    float *x = test_allocate((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = random_uniform(random, low, high);
    return x;
}

static uint16_t random_scale(struct nj_test_random *random, enum nj_test_flavour flavour)
{
    static const float extremes[] = {65504.0f, -65504.0f, 0x1p-14f, 0.0f, -1.0f};
    switch (flavour) {
    case NJ_TEST_EXTREME:
        return elementary_half_from_float(extremes[random_below(random, 5)]);
    case NJ_TEST_SUBNORMAL:
        return (uint16_t)(random_next(random) & 0x83ff);
    case NJ_TEST_ANY:
        return (uint16_t)random_next(random);
    default:
        return elementary_half_from_float(random_uniform(random, -0.02f, 0.02f));
    }
}

static uint8_t random_byte(struct nj_test_random *random, enum nj_matrix_kind kind, enum nj_test_flavour flavour)
{
    int is_extreme = flavour == NJ_TEST_EXTREME;
    int odd = (int)(random_next(random) & 1);
    if (kind == NJ_KIND_S8)
        return (uint8_t)(int8_t)(is_extreme ? (odd ? 127 : -127) : random_below(random, 255) - 127);
    return (uint8_t)(is_extreme ? (odd ? 0xff : 0xf0) : random_next(random));
}

/* Scales of a super-block's groups or columns, one byte per row in turn. */
static void fill_super_scales(struct nj_test_random *random, enum nj_matrix_kind kind, int64_t rows,
                              enum nj_test_flavour flavour, uint8_t *scales, size_t bytes)
{
    int is_extreme_signed = flavour == NJ_TEST_EXTREME && kind == NJ_KIND_U6_SUPER;
    for (size_t i = 0; i < bytes; i++) {
        uint8_t byte = random_byte(random, kind, flavour);
        if ((int64_t)(i % NJ_STRIP_ROWS) < rows)
            scales[i] = is_extreme_signed ? (byte & 1 ? 0x7f : 0x80) : byte;
    }
}

static void fill_block(struct nj_test_random *random, enum nj_matrix_kind kind, int64_t rows,
                       enum nj_test_flavour flavour, uint8_t *block)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    size_t bytes = (size_t)info->block_groups * info->quant_bytes;
    size_t halves = info->block_bytes - 2 * NJ_STRIP_ROWS * (info->has_minimum ? 2 : 1);
    memset(block, 0, info->block_bytes);
    for (size_t i = 0; i < bytes; i++)
        if ((int64_t)(i % 64 / 4) < rows)
            block[i] = random_byte(random, kind, flavour);
    fill_super_scales(random, kind, rows, flavour, block + bytes, halves - bytes);
    for (size_t i = halves; i < info->block_bytes; i += 2) {
        uint16_t half = random_scale(random, flavour);
        if ((int64_t)((i - halves) / 2 % NJ_STRIP_ROWS) < rows)
            memcpy(block + i, &half, sizeof half);
    }
}

static void fill_floats(struct nj_test_random *random, enum nj_matrix_kind kind, int64_t rows, int64_t cols,
                        enum nj_test_flavour flavour, uint8_t *strip)
{
    size_t bytes = matrix_kind_info(kind)->element_bytes;
    for (int64_t i = 0; i < cols * NJ_STRIP_ROWS; i++) {
        float value = elementary_float_from_half(random_scale(random, flavour));
        value = i % NJ_STRIP_ROWS < rows ? value : 0.0f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t narrow = kind == NJ_KIND_F16 ? elementary_half_from_float(value) : (uint16_t)(bits >> 16);
        memcpy(strip + (size_t)i * bytes, bytes == 4 ? (const void *)&value : (const void *)&narrow, bytes);
    }
}

struct nj_matrix test_random_matrix(struct nj_test_random *random, enum nj_matrix_kind kind, int64_t rows, int64_t cols,
                                    enum nj_test_flavour flavour)
{
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    size_t strip_bytes = matrix_strip_bytes(kind, cols);
    uint8_t *data = aligned_alloc(64, (matrix_bytes(kind, rows, cols) + 63) / 64 * 64);
    assert_non_null(data);
    for (int64_t first = 0; first < rows; first += NJ_STRIP_ROWS) {
        uint8_t *strip = data + (size_t)(first / NJ_STRIP_ROWS) * strip_bytes;
        if (info->is_float)
            fill_floats(random, kind, rows - first, cols, flavour, strip);
        for (size_t at = 0; !info->is_float && at < strip_bytes; at += info->block_bytes)
            fill_block(random, kind, rows - first, flavour, strip + at);
    }
    return (struct nj_matrix){.kind = kind, .rows = rows, .cols = cols, .data = data};
}

double test_matrix_element(const struct nj_matrix *w, int64_t row, int64_t col)
{
    const uint8_t *strip = (const uint8_t *)w->data + (size_t)(row / 16) * matrix_strip_bytes(w->kind, w->cols);
    struct strip_number number = strip_number_at(w->kind, strip, (int)(row % 16), col);
    double product = (double)number.scale * number.q;
    return number.has_minimum ? product + (double)number.minimum : product;
}

int64_t test_fitting_cols(enum nj_matrix_kind kind, int64_t cols)
{
    int64_t unit = matrix_kind_info(kind)->block_groups > 1 ? NJ_SUPER_COLS : NJ_GROUP_COLS;
    return (cols + unit - 1) / unit * unit;
}

struct nj_q8 test_allocate_q8(int64_t rows, int64_t cols)
{
    size_t elements = (size_t)(rows * cols), groups = elements / NJ_GROUP_COLS;
    struct nj_q8 q8 = {.q = test_allocate(elements),
                       .d = test_allocate(groups * sizeof(float)),
                       .sum = test_allocate(groups * sizeof(int32_t))};
    memset(q8.q, 0x5a, elements);
    memset(q8.d, 0x5a, groups * sizeof(float));
    memset(q8.sum, 0x5a, groups * sizeof(int32_t));
    return q8;
}

void test_free_q8(struct nj_q8 *q8)
{
    free(q8->q);
    free(q8->d);
    free(q8->sum);
}

struct nj_q8 test_quantize(const float *x, int64_t rows, int64_t cols)
{
    struct nj_q8 q8 = test_allocate_q8(rows, cols);
    union nj_operation_args args = {.quantize = {.x = x, .count = rows, .width = cols, .out = {.q8 = q8}}};
    test_run(test_reference(), NJ_OP_QUANTIZE, &args, 1);
    return q8;
}

void test_fill_cache(struct nj_test_random *random, const struct nj_kv_layer *kv, int64_t blocks)
{
    for (int64_t block = 0; block < blocks; block++) {
        char *part = kv->base + block * kv->block_stride_bytes;
        for (int64_t i = 0; i < kv->block_stride_bytes / 2; i++)
            ((uint16_t *)part)[i] = elementary_half_from_float(random_uniform(random, -1.0f, 1.0f));
        for (int64_t head = 0; kv->type == NJ_KV_Q8 && head < kv->kv_heads; head++) {
            struct nj_kv_q8_head stored = kv_q8_head(part, kv->head_width, head);
            for (int64_t i = 0; i < kv_q8_groups(kv->head_width) * NJ_KV_BLOCK_TOKENS; i++)
                stored.key_scales[i] = 0.01f;
            for (int64_t i = 0; i < NJ_KV_BLOCK_TOKENS; i++)
                stored.value_scales[i] = 0.01f;
        }
    }
}

void test_run(const struct nj_cpu_kernels *kernels, enum nj_operation operation, const union nj_operation_args *args,
              int threads)
{
    for (int i = 0; i < threads; i++)
        kernels->run[operation](args, threads % 2 != 0 ? threads - 1 - i : i, threads);
}

const struct nj_cpu_kernels *test_reference(void)
{
    const struct nj_cpu_kernels *reference = cpu_kernels_find("reference");
    assert_non_null(reference);
    return reference;
}

/* Tables under test; the program's own come first. */
struct table {
    const struct nj_cpu_kernels *kernels;
    enum nj_test_table_use use;
};

static struct {
    struct table table[16];
    size_t count;
    int announced;
} tables;

enum { MOST_TABLES = sizeof tables.table / sizeof tables.table[0] };

static void append_table(const struct nj_cpu_kernels *kernels, enum nj_test_table_use use)
{
    assert_true(tables.count < MOST_TABLES);
    tables.table[tables.count++] = (struct table){.kernels = kernels, .use = use};
}

static void take_program_tables(void)
{
    const struct nj_cpu_kernels *kernels;
    if (tables.count > 0)
        return;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++)
        append_table(kernels, cpu_kernels_runnable(kernels) ? NJ_TEST_TABLE_RUNS : NJ_TEST_TABLE_LACKS);
}

void test_add_table(const struct nj_cpu_kernels *kernels, enum nj_test_table_use use)
{
    take_program_tables();
    append_table(kernels, use);
}

static void announce_skipped(const struct table *table)
{
    print_message("skipped: %s kernels (this machine lacks the instructions)\n", table->kernels->name);
}

int test_take_only(const char *name)
{
    take_program_tables();
    for (size_t i = 0; i < tables.count; i++) {
        if (strcmp(tables.table[i].kernels->name, name) != 0)
            continue;
        tables.table[0] = tables.table[i];
        tables.count = 1;
        if (tables.table[0].use == NJ_TEST_TABLE_LACKS)
            announce_skipped(&tables.table[0]);
        return tables.table[0].use != NJ_TEST_TABLE_LACKS;
    }
    print_message("there are no %s kernels\n", name);
    exit(EXIT_FAILURE);
}

void test_each_variant(nj_test_variant check, void *context)
{
    take_program_tables();
    for (size_t i = 0; i < tables.count; i++) {
        const struct table *table = &tables.table[i];
        if (table->use == NJ_TEST_TABLE_LACKS && !tables.announced)
            announce_skipped(table);
        for (int threads = 1; threads <= NJ_TEST_MOST_THREADS && table->use == NJ_TEST_TABLE_RUNS; threads++)
            check(table->kernels, threads, context);
        if (table->use == NJ_TEST_TABLE_SLOW)
            check(table->kernels, NJ_TEST_SLOW_THREADS, context);
    }
    tables.announced = 1;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void assert_same_floats(const float *got, const float *expected, int64_t count, const char *what)
{
    for (int64_t i = 0; i < count; i++)
        if (bits_of(got[i]) != bits_of(expected[i]) && !(isnan(got[i]) && isnan(expected[i])))
            fail_msg("%s: element %lld of %lld is %a, not %a", what, (long long)i, (long long)count, (double)got[i],
                     (double)expected[i]);
}

void assert_same_q8(const struct nj_q8 *got, const struct nj_q8 *expected, int64_t rows, int64_t cols, const char *what)
{
    int64_t groups = rows * (cols / NJ_GROUP_COLS);
    assert_same_floats(got->d, expected->d, groups, what);
    if (memcmp(got->q, expected->q, (size_t)(rows * cols)) != 0)
        fail_msg("%s: int8 values differ", what);
    if (memcmp(got->sum, expected->sum, (size_t)groups * sizeof *got->sum) != 0)
        fail_msg("%s: group sums differ", what);
}
