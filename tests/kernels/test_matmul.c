/* Matrix products of every table against the reference, and the reference against double precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/emulator/cuda_tables.h"
#include "tests/kernels/emulated/tables.h"
#include "tests/kernels/kernel_test.h"

/* One product to be compared: args whose outputs point into `initial`'s copies. */
struct product {
    union nj_operation_args args;
    float *initial[3], *expected[3];
    size_t y_floats[3];
    char what[160];
};

enum { MOST_ROWS_PAST = 5 /* y_stride beyond the rows, to see that nothing else is written */ };

static void run_product(const struct product *product, const struct nj_cpu_kernels *kernels, int threads, float **y)
{
    union nj_operation_args args = product->args;
    for (int i = 0; i < args.matmul.outputs; i++) {
        memcpy(y[i], product->initial[i], product->y_floats[i] * sizeof(float));
        args.matmul.output[i].y = y[i];
    }
    test_run(kernels, NJ_OP_MATMUL, &args, threads);
}

static void check_variant(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    const struct product *product = context;
    float *y[3] = {NULL};
    for (int i = 0; i < product->args.matmul.outputs; i++)
        y[i] = test_allocate(product->y_floats[i] * sizeof(float));
    run_product(product, kernels, threads, y);
    for (int i = 0; i < product->args.matmul.outputs; i++) {
        char what[256];
        snprintf(what, sizeof what, "%s, output %d, %s, %d threads", product->what, i, kernels->name, threads);
        assert_same_floats(y[i], product->expected[i], (int64_t)product->y_floats[i], what);
        free(y[i]);
    }
}

/* Takes matrices and activations as they are; fills in outputs and compares all tables. */
static void compare_product(struct nj_test_random *random, struct product *product)
{
    struct nj_matmul_args *a = &product->args.matmul;
    for (int i = 0; i < a->outputs; i++) {
        a->output[i].y_stride = a->output[i].w.rows + random_below(random, MOST_ROWS_PAST);
        product->y_floats[i] = (size_t)(a->count * a->output[i].y_stride);
        product->initial[i] = test_random_floats(random, (int64_t)product->y_floats[i], -1.0f, 1.0f);
        product->expected[i] = test_allocate(product->y_floats[i] * sizeof(float));
    }
    run_product(product, test_reference(), 1, product->expected);
    test_each_variant(check_variant, product);
    for (int i = 0; i < a->outputs; i++) {
        free(product->initial[i]);
        free(product->expected[i]);
    }
}

/* Activations with the awkward groups among them: zeros, tiny, huge, and NaN where asked for. */
static float *make_activations(struct nj_test_random *random, int64_t count, int64_t cols, int with_nan)
{
    float *x = test_random_floats(random, count * cols, -3.0f, 3.0f);
    for (int64_t first = 0; first < count * cols; first += NJ_GROUP_COLS) {
        int64_t choice = random_below(random, 12);
        float factor = choice == 0 ? 0.0f : choice == 1 ? 0x1p-130f : choice == 2 ? 1e6f : 1.0f;
        for (int64_t i = 0; i < NJ_GROUP_COLS; i++)
            x[first + i] = choice == 3 ? (x[first + i] < 0 ? -1.0f : 1.0f) : x[first + i] * factor;
    }
    if (with_nan)
        x[random_below(random, count * cols)] = random_below(random, 2) ? NAN : INFINITY;
    return x;
}

struct shape {
    int64_t rows, cols, count;
    int accumulate, with_bias, with_nan, float_path;
    enum nj_test_flavour flavour;
};

/* A kind that cannot have the shape's columns gets the next larger number of them. */
static void compare_shape(struct nj_test_random *random, int outputs, const enum nj_matrix_kind *kinds,
                          const struct shape *wanted)
{
    struct product product = {0};
    struct nj_matmul_args *a = &product.args.matmul;
    struct shape fitting = *wanted;
    const struct shape *shape = &fitting;
    for (int i = 0; i < outputs; i++)
        fitting.cols = test_fitting_cols(kinds[i], fitting.cols);
    float *x = make_activations(random, shape->count, shape->cols, shape->with_nan);
    struct nj_q8 q8 = test_quantize(x, shape->count, shape->cols);
    *a = (struct nj_matmul_args){.x = {.f32 = x, .q8 = q8}, .count = shape->count, .outputs = outputs};
    if (shape->float_path)
        a->x.q8 = (struct nj_q8){0};
    for (int i = 0; i < outputs; i++) {
        a->output[i].w = test_random_matrix(random, kinds[i], shape->rows + 7 * i, shape->cols, shape->flavour);
        a->output[i].accumulate = shape->accumulate ^ (i == 1);
        if (shape->with_bias && i != 1) /* biases are each output's own */
            a->output[i].bias = test_random_floats(random, a->output[i].w.rows, -1.0f, 1.0f);
    }
    snprintf(product.what, sizeof product.what, "%s x %d: rows %lld, cols %lld, tokens %lld, flavour %d",
             matrix_kind_info(kinds[0])->name, outputs, (long long)shape->rows, (long long)shape->cols,
             (long long)shape->count, (int)shape->flavour);
    compare_product(random, &product);
    for (int i = 0; i < outputs; i++) {
        free((void *)a->output[i].w.data);
        free((void *)a->output[i].bias);
    }
    test_free_q8(&q8);
    free(x);
}

static void every_token_count(void **state)
{
    (void)state;
    struct nj_test_random random = {1};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind};
        for (int64_t count = 1; count <= 70; count++)
            compare_shape(&random, 1, kinds, &(struct shape){.rows = 33, .cols = 64, .count = count});
    }
}

static void columns_across_segments(void **state)
{
    (void)state;
    static const int64_t cols[] = {32, 96, 992, 1024, 1056, 2048, 2080, 3072, 4128};
    struct nj_test_random random = {2};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind};
        for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++)
            for (int accumulate = 0; accumulate <= 1; accumulate++)
                compare_shape(&random, 1, kinds,
                              &(struct shape){.rows = 24, .cols = cols[i], .count = 7, .accumulate = accumulate});
    }
}

/* More tokens and strips than any table takes at once. */
static void many_pieces(void **state)
{
    (void)state;
    struct nj_test_random random = {11};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind};
        compare_shape(&random, 1, kinds, &(struct shape){.rows = 16 * 17 + 3, .cols = 256, .count = 101});
    }
}

static void ragged_rows(void **state)
{
    (void)state;
    struct nj_test_random random = {3};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind};
        for (int64_t rows = 1; rows <= 50; rows++)
            compare_shape(&random, 1, kinds, &(struct shape){.rows = rows, .cols = 32, .count = 3});
    }
}

static void several_outputs(void **state)
{
    (void)state;
    struct nj_test_random random = {4};
    for (int first = 0; first < NJ_KIND_COUNT; first++) {
        enum nj_matrix_kind kinds[3];
        for (int i = 0; i < 3; i++)
            kinds[i] = (enum nj_matrix_kind)((first + 2 * i + i / 2) % NJ_KIND_COUNT);
        for (int outputs = 1; outputs <= 3; outputs++)
            for (int accumulate = 0; accumulate <= 1; accumulate++)
                compare_shape(&random, outputs, kinds,
                              &(struct shape){.rows = 40, .cols = 1088, .count = 9, .accumulate = accumulate});
    }
}

static void biases(void **state)
{
    (void)state;
    struct nj_test_random random = {10};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind, NJ_KIND_F32, NJ_KIND_S8};
        for (int accumulate = 0; accumulate <= 1; accumulate++)
            compare_shape(
                &random, 3, kinds,
                &(struct shape){.rows = 37, .cols = 1088, .count = 50, .accumulate = accumulate, .with_bias = 1});
    }
}

/* The bias joins the whole product, and that sum what was there: in another order the tiny numbers would stay. */
static void biases_join_the_total(void **state)
{
    (void)state;
    float x[32] = {1.0f}, bias[2] = {-1.0f, -1.0f}, y[2] = {0x1p-30f, 0.0f};
    _Alignas(64) float data[32 * NJ_STRIP_ROWS] = {1.0f, 1.0f};
    union nj_operation_args args = {
        .matmul = {.x.f32 = x,
                   .count = 1,
                   .outputs = 1,
                   .output[0] = {.w = {.kind = NJ_KIND_F32, .rows = 2, .cols = 32, .data = data},
                                 .bias = bias,
                                 .y = y,
                                 .y_stride = 2,
                                 .accumulate = 1}}};
    test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
    assert_true(y[0] == 0x1p-30f && y[1] == 0.0f);
    bias[0] = -0.5f;
    args.matmul.output[0].accumulate = 0;
    test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
    assert_true(y[0] == 0.5f && y[1] == 0.0f);
}

static void adversarial_numbers(void **state)
{
    (void)state;
    struct nj_test_random random = {5};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind};
        for (int flavour = 0; flavour < NJ_TEST_FLAVOURS; flavour++)
            for (int with_nan = 0; with_nan <= 1; with_nan++)
                compare_shape(&random, 1, kinds,
                              &(struct shape){.rows = 32,
                                              .cols = 1120,
                                              .count = 13,
                                              .with_nan = with_nan,
                                              .flavour = (enum nj_test_flavour)flavour});
    }
}

static void float_path(void **state)
{
    (void)state;
    struct nj_test_random random = {6};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        enum nj_matrix_kind kinds[] = {(enum nj_matrix_kind)kind, NJ_KIND_F32};
        for (int64_t count = 1; count <= 5; count += 4)
            compare_shape(&random, 2, kinds,
                          &(struct shape){.rows = 20, .cols = 1088, .count = count, .float_path = 1});
        compare_shape(&random, 2, kinds,
                      &(struct shape){.rows = 20, .cols = 2080, .count = 261, .accumulate = 1, .float_path = 1});
    }
}

/* Every byte of numbers is `number`, and of a super-block's scales `scale`. */
static void compare_constant_product(struct nj_test_random *random, enum nj_matrix_kind kind, int number, int scale,
                                     int8_t x)
{
    enum { TOKENS = 7 };
    const struct nj_matrix_kind_info *info = matrix_kind_info(kind);
    int64_t cols = test_fitting_cols(kind, NJ_GROUP_COLS);
    struct nj_matrix w = test_random_matrix(random, kind, 16, cols, NJ_TEST_ORDINARY);
    size_t numbers = (size_t)info->block_groups * info->quant_bytes;
    memset((void *)w.data, number, numbers);
    if (info->block_groups > 1)
        memset((uint8_t *)w.data + numbers, scale, info->has_minimum ? 192 : 256);
    struct nj_q8 q8 = test_allocate_q8(TOKENS, cols);
    memset(q8.q, x, (size_t)(TOKENS * cols));
    for (int64_t i = 0; i < TOKENS * cols / NJ_GROUP_COLS; i++) {
        q8.d[i] = 1.0f;
        q8.sum[i] = 32 * x;
    }
    struct product product = {0};
    snprintf(product.what, sizeof product.what, "largest dot products of %s", info->name);
    product.args.matmul = (struct nj_matmul_args){.x = {.q8 = q8}, .count = TOKENS, .outputs = 1, .output[0].w = w};
    compare_product(random, &product);
    test_free_q8(&q8);
    free((void *)w.data);
}

/* The largest exact sums: 8-bit pairs and chains of 4, 5 and 6 bits at their limits, with the signs that add up. */
static void largest_dot_products(void **state)
{
    (void)state;
    struct nj_test_random random = {7};
    for (int i = 0; i < NJ_KIND_COUNT; i++) {
        enum nj_matrix_kind kind = (enum nj_matrix_kind)i;
        if (matrix_kind_info(kind)->is_float)
            continue;
        for (int sign = -1; sign <= 1; sign += 2) {
            int largest = kind == NJ_KIND_S8 ? 127 : 0xff;
            compare_constant_product(&random, kind, largest, 0x7f, (int8_t)(127 * sign));
            compare_constant_product(&random, kind, largest, 0xff, (int8_t)(127 * sign));
            compare_constant_product(&random, kind, 0, 0x80, (int8_t)(127 * sign));
        }
    }
}

/* |y - exact| <= (terms + 8) * 2^-24 * sum of magnitudes. */
static void check_against_double(struct nj_test_random *random, enum nj_matrix_kind kind, int is_float_path)
{
    enum { ROWS = 37, TOKENS = 3 };
    const int64_t cols = test_fitting_cols(kind, 2080);
    float *x = make_activations(random, TOKENS, cols, 0);
    struct nj_q8 q8 = test_quantize(x, TOKENS, cols);
    struct nj_matrix w = test_random_matrix(random, kind, ROWS, cols, NJ_TEST_ORDINARY);
    float y[TOKENS * ROWS];
    int is_float = is_float_path || matrix_kind_info(kind)->is_float;
    union nj_operation_args args = {.matmul = {.x = {.f32 = x, .q8 = is_float ? (struct nj_q8){0} : q8},
                                               .count = TOKENS,
                                               .outputs = 1,
                                               .output[0] = {.w = w, .y = y, .y_stride = ROWS}}};
    test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
    for (int64_t t = 0; t < TOKENS; t++) {
        for (int64_t row = 0; row < ROWS; row++) {
            double exact = 0, magnitude = 0;
            for (int64_t col = 0; col < cols; col++) {
                int64_t i = t * cols + col;
                double value = is_float ? (double)x[i] : (double)q8.d[i / 32] * q8.q[i];
                double term = test_matrix_element(&w, row, col) * value;
                exact += term;
                magnitude += fabs(term);
            }
            int64_t terms = is_float ? NJ_SEGMENT_COLS : 2 * NJ_SEGMENT_COLS / NJ_GROUP_COLS;
            double bound = (double)(terms + 8) * 0x1p-24 * magnitude + 1e-30;
            /* the minimum's part and the quants' part may be much larger than their sum */
            bound *= matrix_kind_info(kind)->has_minimum ? 4 : 1;
            if (!(fabs(y[t * ROWS + row] - exact) <= bound))
                fail_msg("%s row %lld: %.9g, in double %.9g", matrix_kind_info(kind)->name, (long long)row,
                         (double)y[t * ROWS + row], exact);
        }
    }
    free((void *)w.data);
    test_free_q8(&q8);
    free(x);
}

static void reference_is_accurate(void **state)
{
    (void)state;
    struct nj_test_random random = {8};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++)
        for (int is_float_path = 0; is_float_path <= 1; is_float_path++)
            check_against_double(&random, (enum nj_matrix_kind)kind, is_float_path);
}

/* The segment rule cannot be seen in the error, so it is pinned by an example: 1, then -1 and a tiny number
 * in the next segment. One chain would end at the tiny number; two segments lose it. */
static void segments_restart(void **state)
{
    (void)state;
    enum { COLS = 2048 };
    float *x = calloc(COLS, sizeof *x);
    float *data = aligned_alloc(64, matrix_bytes(NJ_KIND_F32, 1, COLS));
    assert_true(x != NULL && data != NULL);
    memset(data, 0, matrix_bytes(NJ_KIND_F32, 1, COLS));
    x[0] = 1.0f;
    x[1024] = -1.0f;
    x[1025] = 0x1p-30f;
    for (int col = 0; col < COLS; col++)
        data[col * NJ_STRIP_ROWS] = 1.0f;
    float y = 5.0f;
    union nj_operation_args args = {
        .matmul = {
            .x.f32 = x,
            .count = 1,
            .outputs = 1,
            .output[0] = {.w = {.kind = NJ_KIND_F32, .rows = 1, .cols = COLS, .data = data}, .y = &y, .y_stride = 1}}};
    test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
    assert_true(y == 0.0f);
    y = 0x1p-30f;
    args.matmul.output[0].accumulate = 1; /* joins the total, not the first segment */
    test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
    assert_true(y == 0x1p-30f);
    free(x);
    free(data);
}

/* The program's table of a name is never one of those that tests add to it. */
static void check_choice(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    (void)threads;
    (void)context;
    const int is_the_programs = strstr(kernels->name, "emulated") == NULL && strstr(kernels->name, "evex") == NULL;
    assert_ptr_equal(cpu_kernels_find(kernels->name), is_the_programs ? kernels : NULL);
}

static void emulated_tables_cannot_be_chosen(void **state)
{
    (void)state;
    test_each_variant(check_choice, NULL);
}

struct embedding {
    union nj_operation_args args;
    const float *expected;
};

static void check_embedding(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    struct embedding *embedding = context;
    int64_t floats = embedding->args.embed.count * embedding->args.embed.table.cols;
    union nj_operation_args args = embedding->args;
    args.embed.out = test_allocate((size_t)floats * sizeof(float));
    test_run(kernels, NJ_OP_EMBED, &args, threads);
    assert_same_floats(args.embed.out, embedding->expected, floats, kernels->name);
    free(args.embed.out);
}

static void embeddings_are_dequantised_rows(void **state)
{
    (void)state;
    enum { ROWS = 50, MOST_COLS = 256, TOKENS = 6 };
    static const int32_t tokens[TOKENS] = {0, 49, 15, 16, 33, 0};
    struct nj_test_random random = {9};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        int64_t cols = test_fitting_cols((enum nj_matrix_kind)kind, 96);
        struct nj_matrix w = test_random_matrix(&random, (enum nj_matrix_kind)kind, ROWS, cols, NJ_TEST_ORDINARY);
        float expected[TOKENS * MOST_COLS];
        for (int t = 0; t < TOKENS; t++)
            for (int64_t col = 0; col < cols; col++)
                expected[t * cols + col] = (float)test_matrix_element(&w, tokens[t], col);
        struct embedding embedding = {.args.embed = {.table = w, .token = tokens, .count = TOKENS},
                                      .expected = expected};
        test_each_variant(check_embedding, &embedding);
        free((void *)w.data);
    }
}

/* With a name: for the table of that name only; 77 if this machine lacks its instructions. */
int main(int argc, char **argv)
{
    emulated_add_tables();
    test_add_table(cuda_table_many(), NJ_TEST_TABLE_SLOW);
    test_add_table(cuda_table_few(), NJ_TEST_TABLE_SLOW);
    if (argc > 1 && !test_take_only(argv[1]))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_count),
        cmocka_unit_test(columns_across_segments),
        cmocka_unit_test(many_pieces),
        cmocka_unit_test(ragged_rows),
        cmocka_unit_test(several_outputs),
        cmocka_unit_test(biases),
        cmocka_unit_test(biases_join_the_total),
        cmocka_unit_test(adversarial_numbers),
        cmocka_unit_test(float_path),
        cmocka_unit_test(largest_dot_products),
        cmocka_unit_test(reference_is_accurate),
        cmocka_unit_test(segments_restart),
        cmocka_unit_test(embeddings_are_dequantised_rows),
        cmocka_unit_test(emulated_tables_cannot_be_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
