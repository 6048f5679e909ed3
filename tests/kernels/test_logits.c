/* Statistics of logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/kernels/kernel_test.h"

struct rows {
    const float *logits;
    int64_t count, vocabulary, stride;
    struct nj_logit_stats *expected;
};

static void run_rows(const struct rows *rows, const struct nj_cpu_kernels *kernels, int threads,
                     struct nj_logit_stats *out)
{
    union nj_operation_args args = {.logit_stats = {.logits = rows->logits,
                                                    .count = rows->count,
                                                    .vocabulary = rows->vocabulary,
                                                    .stride = rows->stride,
                                                    .out = out}};
    test_run(kernels, NJ_OP_LOGIT_STATS, &args, threads);
}

static void check_variant(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    const struct rows *rows = context;
    struct nj_logit_stats *got = test_allocate((size_t)rows->count * sizeof *got);
    run_rows(rows, kernels, threads, got);
    for (int64_t i = 0; i < rows->count; i++)
        if (memcmp(&got[i], &rows->expected[i], sizeof *got) != 0)
            fail_msg("%s, %d threads, vocabulary %lld, row %lld: max %a argmax %d sum %a finite %d", kernels->name,
                     threads, (long long)rows->vocabulary, (long long)i, (double)got[i].max, got[i].argmax,
                     (double)got[i].sum, got[i].finite);
    free(got);
}

/* Runs the reference, compares every table with it; the caller frees the result. */
static struct nj_logit_stats *compare_rows(const float *logits, int64_t count, int64_t vocabulary, int64_t stride)
{
    struct rows rows = {.logits = logits, .count = count, .vocabulary = vocabulary, .stride = stride};
    rows.expected = test_allocate((size_t)count * sizeof *rows.expected);
    run_rows(&rows, test_reference(), 1, rows.expected);
    test_each_variant(check_variant, &rows);
    return rows.expected;
}

static void check_row(const float *logits, int64_t vocabulary, const struct nj_logit_stats *stats)
{
    int64_t argmax = 0;
    for (int64_t i = 1; i < vocabulary; i++)
        argmax = logits[i] > logits[argmax] ? i : argmax;
    double sum = 0;
    for (int64_t i = 0; i < vocabulary; i++)
        sum += exp((double)logits[i] - (double)logits[argmax]);
    assert_int_equal(stats->finite, 1);
    assert_int_equal(stats->argmax, argmax);
    assert_true(stats->max == logits[argmax]);
    assert_true(fabs((double)stats->sum - sum) <= 1e-5 * sum);
}

static void statistics_of_random_rows(void **state)
{
    (void)state;
    static const int64_t vocabularies[] = {1, 2, 15, 16, 17, 100, 4095, 4096, 4097, 4112, 49152, 8191};
    struct nj_test_random random = {1};
    for (size_t i = 0; i < sizeof vocabularies / sizeof vocabularies[0]; i++) {
        int64_t vocabulary = vocabularies[i], stride = vocabulary + 3;
        float *logits = test_random_floats(&random, 5 * stride, -20.0f, 20.0f);
        struct nj_logit_stats *stats = compare_rows(logits, 5, vocabulary, stride);
        for (int row = 0; row < 5; row++)
            check_row(logits + row * stride, vocabulary, &stats[row]);
        free(stats);
        free(logits);
    }
}

static void ties_go_to_the_lowest_index(void **state)
{
    (void)state;
    float logits[100];
    for (int i = 0; i < 100; i++)
        logits[i] = -1.0f;
    logits[37] = logits[38] = logits[99] = 2.0f;
    struct nj_logit_stats *stats = compare_rows(logits, 1, 100, 100);
    assert_int_equal(stats->argmax, 37);
    free(stats);
    for (int i = 0; i < 100; i++)
        logits[i] = i % 2 != 0 ? 0.0f : -0.0f;
    logits[0] = -3.0f;
    stats = compare_rows(logits, 1, 100, 100); /* the two zeros are equal */
    assert_int_equal(stats->argmax, 1);
    assert_true(!signbit(stats->max));
    free(stats);
}

/* Whatever place the bad logit has, the row is marked and nothing else is. */
static void rows_that_are_not_finite(void **state)
{
    (void)state;
    enum { VOCABULARY = 53 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int place = 0; place < VOCABULARY; place++) {
        float logits[3 * VOCABULARY] = {0};
        logits[VOCABULARY + place] = bad[place % 3];
        struct nj_logit_stats *stats = compare_rows(logits, 3, VOCABULARY, VOCABULARY);
        assert_true(stats[0].finite == 1 && stats[1].finite == 0 && stats[2].finite == 1);
        free(stats);
    }
}

static void extreme_but_finite(void **state)
{
    (void)state;
    float logits[20] = {-3e38f, 3e38f, 0x1p-149f, -200.0f};
    struct nj_logit_stats *stats = compare_rows(logits, 1, 20, 20);
    assert_true(stats->finite == 1 && stats->argmax == 1 && stats->sum == 1.0f);
    free(stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_of_random_rows),
        cmocka_unit_test(ties_go_to_the_lowest_index),
        cmocka_unit_test(rows_that_are_not_finite),
        cmocka_unit_test(extreme_but_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
