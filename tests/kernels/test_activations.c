/* Norm, quantisation and gated SiLU. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/kernel_test.h"

/* An operation whose output is an activation, in all three combinations of forms. */
struct row_operation {
    enum nj_operation operation;
    union nj_operation_args args;
    struct nj_activation *out; /* inside args */
    int64_t count, width;
    float *expected_f32;
    struct nj_q8 expected_q8;
};

static void run_into(struct row_operation *operation, const struct nj_cpu_kernels *kernels, int threads, float *f32,
                     const struct nj_q8 *q8)
{
    *operation->out = (struct nj_activation){.f32 = f32};
    if (q8 != NULL)
        operation->out->q8 = *q8;
    test_run(kernels, operation->operation, &operation->args, threads);
}

static void check_variant(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    struct row_operation *operation = context;
    int64_t floats = operation->count * operation->width;
    int has_q8 = operation->width % NJ_GROUP_COLS == 0;
    for (int forms = 1; forms <= (has_q8 ? 3 : 1); forms++) { /* 1: f32, 2: q8, 3: both */
        char what[96];
        snprintf(what, sizeof what, "operation %d, forms %d, %s, %d threads", (int)operation->operation, forms,
                 kernels->name, threads);
        float *f32 = test_random_floats(&(struct nj_test_random){1}, floats, 0.0f, 1.0f);
        struct nj_q8 q8 = test_allocate_q8(has_q8 ? operation->count : 0, operation->width);
        run_into(operation, kernels, threads, (forms & 1) != 0 ? f32 : NULL, (forms & 2) != 0 ? &q8 : NULL);
        if ((forms & 1) != 0)
            assert_same_floats(f32, operation->expected_f32, floats, what);
        if ((forms & 2) != 0)
            assert_same_q8(&q8, &operation->expected_q8, operation->count, operation->width, what);
        test_free_q8(&q8);
        free(f32);
    }
}

/* Compares all tables; leaves the reference's output for the caller, who frees it with free_expected. */
static void compare_operation(struct row_operation *operation)
{
    int has_q8 = operation->width % NJ_GROUP_COLS == 0;
    operation->expected_f32 = test_allocate((size_t)(operation->count * operation->width) * sizeof(float));
    operation->expected_q8 = test_allocate_q8(has_q8 ? operation->count : 0, operation->width);
    run_into(operation, test_reference(), 1, operation->expected_f32, has_q8 ? &operation->expected_q8 : NULL);
    test_each_variant(check_variant, operation);
}

static void free_expected(struct row_operation *operation)
{
    free(operation->expected_f32);
    test_free_q8(&operation->expected_q8);
}

static void compare_norm(struct nj_test_random *random, int64_t count, int64_t width, const int32_t *row_index,
                         const float *x)
{
    float *weight = test_random_floats(random, width, -2.0f, 2.0f);
    struct row_operation operation = {.operation = NJ_OP_RMS_NORM, .count = count, .width = width};
    operation.args.rms_norm = (struct nj_rms_norm_args){
        .x = x, .row_index = row_index, .count = count, .width = width, .weight = weight, .epsilon = 1e-5f};
    operation.out = &operation.args.rms_norm.out;
    compare_operation(&operation);
    for (int64_t row = 0; row < count; row++) {
        const float *in = x + (row_index != NULL ? row_index[row] : row) * width;
        double squares = 0;
        for (int64_t i = 0; i < width; i++)
            squares += (double)in[i] * in[i];
        double inverse = 1.0 / sqrt(squares / (double)width + 1e-5);
        for (int64_t i = 0; i < width; i++) {
            double exact = in[i] * inverse * weight[i];
            float got = operation.expected_f32[row * width + i];
            if (isfinite(exact) && isfinite(squares) && squares < 1e30 && squares > 0)
                assert_true(fabs(got - exact) <= 1e-6 * fabs(exact) * (1 + (double)width / 1e4) + 1e-30);
        }
    }
    free_expected(&operation);
    free(weight);
}

static void norms(void **state)
{
    (void)state;
    static const int64_t widths[] = {32, 64, 96, 576, 1536, 7, 40};
    static const int32_t picked[] = {4, 0, 4};
    struct nj_test_random random = {1};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        float *x = test_random_floats(&random, 5 * widths[i], -4.0f, 4.0f);
        compare_norm(&random, 5, widths[i], NULL, x);
        compare_norm(&random, 3, widths[i], picked, x);
        x[2] = NAN;
        x[widths[i]] = INFINITY;
        memset(x + 2 * widths[i], 0, (size_t)widths[i] * sizeof *x);
        compare_norm(&random, 5, widths[i], NULL, x);
        free(x);
    }
}

/* 16 strided partials and their tree, pinned by an example in which any other order gives another sum. */
static void norm_sums_in_the_written_order(void **state)
{
    (void)state;
    float x[32] = {0}, weight[32], y[32];
    for (int i = 0; i < 32; i++)
        weight[i] = 1.0f;
    /* squares: 2^24 in partial 0, 1 in partials 8 and 4: (2^24 + 1) rounds to 2^24 twice; ascending in one
     * chain gives the same, but 1 in partials 4 and 12 meet first and survive */
    x[0] = 4096.0f;
    x[4] = x[12] = 1.0f;
    union nj_operation_args args = {
        .rms_norm = {.x = x, .count = 1, .width = 32, .weight = weight, .epsilon = 0.0f, .out.f32 = y}};
    test_run(test_reference(), NJ_OP_RMS_NORM, &args, 1);
    float expected = 4096.0f * (1.0f / sqrtf((16777216.0f + 2.0f) / 32.0f));
    float one_chain = 4096.0f * (1.0f / sqrtf(16777216.0f / 32.0f));
    assert_true(expected != one_chain && y[0] == expected);
}

static void quantisation_is_the_same_everywhere(void **state)
{
    (void)state;
    enum { COUNT = 37, WIDTH = 160 };
    struct nj_test_random random = {2};
    float *x = test_allocate(COUNT * WIDTH * sizeof *x);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < COUNT * WIDTH; i++) {
            int any = round == 0 || (round == 1 && random_below(&random, 500) == 0);
            float factor = ldexpf(1.0f, (int)((i / 32 * 7 + round) % 250) - 125);
            x[i] = any ? random_any_float(&random) : random_uniform(&random, -1.0f, 1.0f) * (round < 4 ? 1.0f : factor);
        }
        struct row_operation operation = {.operation = NJ_OP_QUANTIZE, .count = COUNT, .width = WIDTH};
        operation.args.quantize = (struct nj_quantize_args){.x = x, .count = COUNT, .width = WIDTH};
        operation.out = &operation.args.quantize.out;
        compare_operation(&operation);
        assert_same_floats(operation.expected_f32, x, COUNT * WIDTH, "copy");
        free_expected(&operation);
    }
    free(x);
}

static void check_quantised_group(const float *x, const struct nj_q8 *q8, int64_t group)
{
    float amax = 0;
    int32_t sum = 0;
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[group * 32 + i]));
    assert_true(q8->d[group] == amax / 127.0f);
    for (int i = 0; i < 32; i++) {
        int8_t q = q8->q[group * 32 + i];
        sum += q;
        assert_true(q >= -127);
        assert_true(fabs((double)q8->d[group] * q - (double)x[group * 32 + i]) <= 0.50001 * (double)q8->d[group]);
    }
    assert_int_equal(sum, q8->sum[group]);
}

static void quantisation_is_accurate(void **state)
{
    (void)state;
    enum { GROUPS = 200 };
    struct nj_test_random random = {3};
    float *x = test_random_floats(&random, GROUPS * 32, -5.0f, 5.0f);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < 32; i++)
            x[g * 32 + i] = ldexpf(x[g * 32 + i], g - 100 < -98 ? -98 : g - 100);
    struct nj_q8 q8 = test_quantize(x, 1, GROUPS * 32);
    for (int64_t g = 0; g < GROUPS; g++)
        check_quantised_group(x, &q8, g);
    test_free_q8(&q8);
    free(x);
}

static void special_groups(void **state)
{
    (void)state;
    enum { GROUPS = 6 };
    float x[GROUPS * 32] = {0};
    x[1 * 32 + 3] = 0x1.fffffep-101f; /* just below the threshold: counts as zero */
    x[2 * 32 + 5] = -0x1p-100f;       /* on it: quantised */
    x[3 * 32 + 7] = NAN;
    x[4 * 32 + 9] = -INFINITY;
    x[5 * 32 + 11] = 0x1.fffffep+127f; /* the largest float */
    struct nj_q8 q8 = test_quantize(x, 1, GROUPS * 32);
    assert_true(q8.d[0] == 0.0f && q8.d[1] == 0.0f && q8.sum[1] == 0 && q8.q[32 + 3] == 0);
    assert_true(q8.d[2] == 0x1p-100f / 127.0f && q8.q[2 * 32 + 5] == -127 && q8.sum[2] == -127);
    for (int g = 3; g <= 4; g++) {
        assert_true(isnan(q8.d[g]) && q8.sum[g] == 0);
        for (int i = 0; i < 32; i++)
            assert_int_equal(q8.q[g * 32 + i], 0);
    }
    assert_true(isfinite(q8.d[5]) && q8.q[5 * 32 + 11] == 127);
    test_free_q8(&q8);
}

/* Ties go to the even integer. */
static void quantisation_rounds_to_even(void **state)
{
    (void)state;
    float x[32] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 3.5f};
    static const int8_t expected[8] = {127, 0, 2, 2, 0, -2, -2, 4};
    struct nj_q8 q8 = test_quantize(x, 1, 32);
    assert_memory_equal(q8.q, expected, 8);
    test_free_q8(&q8);
}

static void quantise_in_place(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    (void)context;
    enum { COUNT = 5, WIDTH = 64 };
    float *x = test_random_floats(&(struct nj_test_random){4}, COUNT * WIDTH, -1.0f, 1.0f);
    float *original = test_random_floats(&(struct nj_test_random){4}, COUNT * WIDTH, -1.0f, 1.0f);
    union nj_operation_args args = {.quantize = {.x = x, .count = COUNT, .width = WIDTH, .out.f32 = x}};
    test_run(kernels, NJ_OP_QUANTIZE, &args, threads);
    assert_same_floats(x, original, COUNT * WIDTH, "in place");
    free(original);
    free(x);
}

static void copies_may_be_in_place(void **state)
{
    (void)state;
    test_each_variant(quantise_in_place, NULL);
}

static void compare_silu(int64_t count, int64_t width, const float *gate, const float *up)
{
    struct row_operation operation = {.operation = NJ_OP_SILU_MUL, .count = count, .width = width};
    operation.args.silu_mul = (struct nj_silu_mul_args){.gate = gate, .up = up, .count = count, .width = width};
    operation.out = &operation.args.silu_mul.out;
    compare_operation(&operation);
    for (int64_t i = 0; i < count * width; i++) {
        double exact = (double)gate[i] / (1.0 + exp(-(double)gate[i])) * (double)up[i];
        if (isfinite(exact) && fabs((double)gate[i]) < 80 && fabsf(up[i]) <= 2.0f)
            assert_true(fabs((double)operation.expected_f32[i] - exact) <= 4e-7 * fabs(exact) + 1e-37);
        if (isnan(gate[i]) || isnan(up[i]))
            assert_true(isnan(operation.expected_f32[i]));
    }
    free_expected(&operation);
}

static void gated_silu(void **state)
{
    (void)state;
    static const int64_t widths[] = {32, 96, 1536, 9};
    struct nj_test_random random = {5};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        float *gate = test_random_floats(&random, 6 * widths[i], -30.0f, 30.0f);
        float *up = test_random_floats(&random, 6 * widths[i], -2.0f, 2.0f);
        compare_silu(6, widths[i], gate, up);
        free(up);
        free(gate);
    }
}

/* This also compares the vector exponential with the scalar one on all kinds of numbers. */
static void gated_silu_of_any_bits(void **state)
{
    (void)state;
    enum { COUNT = 64, WIDTH = 4096 };
    struct nj_test_random random = {6};
    float *gate = test_allocate(COUNT * WIDTH * sizeof *gate);
    float *up = test_allocate(COUNT * WIDTH * sizeof *up);
    for (int i = 0; i < COUNT * WIDTH; i++) {
        gate[i] = i % 2 != 0 ? random_any_float(&random) : random_uniform(&random, -100.0f, 100.0f);
        up[i] = i % 97 != 0 ? 1.0f : random_any_float(&random);
    }
    static const float edges[] = {87.0f, -87.0f, 88.0f, -88.0f, 0.0f, -0.0f, INFINITY, -INFINITY, NAN, 87.00001f};
    memcpy(gate, edges, sizeof edges);
    compare_silu(COUNT, WIDTH, gate, up);
    free(up);
    free(gate);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(norm_sums_in_the_written_order),
        cmocka_unit_test(quantisation_is_the_same_everywhere),
        cmocka_unit_test(quantisation_is_accurate),
        cmocka_unit_test(special_groups),
        cmocka_unit_test(quantisation_rounds_to_even),
        cmocka_unit_test(copies_may_be_in_place),
        cmocka_unit_test(gated_silu),
        cmocka_unit_test(gated_silu_of_any_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
