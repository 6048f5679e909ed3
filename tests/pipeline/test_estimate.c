/* Progress in predicted work: it never goes back, ends at the total, and the range holds what was asked of it. */
#include <math.h>

#include "pipeline/job/estimate.h"
#include "tests/pipeline/cmocka_headers.h"

enum { REQUESTS = 200, PROMPT = 100, MOST = 400 };

static struct nj_estimate make_estimate(void)
{
    return (struct nj_estimate){.prompt_tokens = REQUESTS * PROMPT, .most_new_tokens = REQUESTS * MOST};
}

/* A job at a constant speed whose answers are `length` tokens: 1,000 units of work a second. Of each prompt `shared`
 * tokens need not be computed. */
static void run_job(uint32_t length, uint32_t shared)
{
    struct nj_estimate estimate = make_estimate();
    double seconds = 0, last = 0;
    const double total = REQUESTS * (PROMPT - shared + NJ_NEW_TOKEN_WORK * (double)length);
    struct nj_prediction prediction = {0};
    for (uint64_t i = 1; i <= REQUESTS; i++) {
        seconds = (double)i * total / REQUESTS / 1000;
        estimate_add_done(&estimate, PROMPT, MOST, length, 1);
        prediction = estimate_update(&estimate, seconds, i * (PROMPT - shared), i * shared, i * length);
        double fraction = prediction.work_done / prediction.work_total;
        assert_true(fraction >= last && fraction <= 1);
        last = fraction;
        if (i < REQUESTS / 4)
            continue;
        double left = total / 1000 - seconds;
        assert_true(prediction.least_left_seconds <= left + 0.01);
        assert_true(prediction.most_left_seconds >= left - 0.01);
    }
    assert_true(prediction.work_done == prediction.work_total);
    assert_true(prediction.most_left_seconds == 0);
    /* What was computed, and nothing that was not. */
    double computed = REQUESTS * (PROMPT - shared + (double)length);
    assert_true(fabs(prediction.tokens_per_second * seconds / computed - 1) < 0.1);
}

static void test_short_answers(void **state)
{
    (void)state;
    run_job(100, 0);
}

static void test_longest_answers(void **state)
{
    (void)state;
    run_job(MOST, 0);
}

/* The time left is told as what is left will be: shared in part. */
static void test_shared_prompts(void **state)
{
    (void)state;
    run_job(10, 90);
}

static void test_begun_work_counts(void **state)
{
    (void)state;
    struct nj_estimate estimate = make_estimate();
    struct nj_prediction before = estimate_update(&estimate, 0, 0, 0, 0);
    assert_true(before.work_done == 0);
    assert_true(before.least_left_seconds < 0 && before.most_left_seconds < 0); /* unknown yet */
    struct nj_prediction after = estimate_update(&estimate, 2, 500, 0, 100);
    assert_true(after.work_done > 0 && after.work_done < after.work_total);
    assert_true(after.tokens_per_second == 300);
    assert_true(after.least_left_seconds > 0 && after.least_left_seconds <= after.most_left_seconds);
}

/* What earlier runs did is done, but says nothing about this run's speed. */
static void test_earlier_runs(void **state)
{
    (void)state;
    struct nj_estimate estimate = make_estimate();
    for (int i = 0; i < REQUESTS / 2; i++)
        estimate_add_done(&estimate, PROMPT, MOST, MOST, 0);
    struct nj_prediction prediction = estimate_update(&estimate, 0, 0, 0, 0);
    double fraction = prediction.work_done / prediction.work_total;
    assert_true(fraction > 0.49 && fraction < 0.52);
    assert_true(prediction.tokens_per_second == 0);
}

/* Tokens of requests in flight are not lost in a stop, so the work done does not fall behind them. */
static void test_restored_tokens_count(void **state)
{
    (void)state;
    struct nj_estimate estimate = make_estimate();
    double none = estimate_update(&estimate, 0, 0, 0, 0).work_done;
    estimate_add_restored(&estimate, 300);
    struct nj_prediction restored = estimate_update(&estimate, 0, 0, 0, 0);
    assert_true(none == 0);
    assert_true(restored.work_done == 300 * NJ_NEW_TOKEN_WORK);
    assert_true(restored.tokens_per_second == 0);
    /* The request is finished with 100 more tokens: everything about it is done, nothing counts twice. */
    estimate_add_done(&estimate, PROMPT, MOST, MOST, 1);
    struct nj_prediction finished = estimate_update(&estimate, 1, PROMPT, 0, 100);
    assert_true(finished.work_done == PROMPT + NJ_NEW_TOKEN_WORK * MOST);
}

static void test_nothing_to_do(void **state)
{
    (void)state;
    struct nj_estimate estimate = {0};
    struct nj_prediction prediction = estimate_update(&estimate, 0, 0, 0, 0);
    assert_true(prediction.work_total == 0 && prediction.work_done == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_short_answers),         cmocka_unit_test(test_longest_answers),
        cmocka_unit_test(test_begun_work_counts),     cmocka_unit_test(test_earlier_runs),
        cmocka_unit_test(test_restored_tokens_count), cmocka_unit_test(test_nothing_to_do),
        cmocka_unit_test(test_shared_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
