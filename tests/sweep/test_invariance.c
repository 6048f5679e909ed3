/* The answers depend on the model and the requests only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sweep/trial.h"

enum { REQUESTS = 30, LONGEST_PROMPT = 150, MOST_NEW = 50, SEED = 5 };

struct shared {
    struct trial_model opened;
    struct trial expected, expected_q8; /* by KV type */
};
static struct shared shared;

static void run_expected(struct trial *expected, enum nj_kv_type kv_type)
{
    trial_create(expected, shared.opened.model, REQUESTS, LONGEST_PROMPT, MOST_NEW, SEED);
    struct nj_scheduler_options options = trial_options(expected);
    options.kv_type = kv_type;
    trial_run_all(expected, shared.opened.model, "reference", 1, &options);
}

static int open_shared(void **state)
{
    (void)state;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&shared.opened, &shape, NULL);
    run_expected(&shared.expected, NJ_KV_F16);
    run_expected(&shared.expected_q8, NJ_KV_Q8);
    return 0;
}

static int close_shared(void **state)
{
    (void)state;
    trial_destroy(&shared.expected_q8);
    trial_destroy(&shared.expected);
    trial_model_close(&shared.opened);
    return 0;
}

static void test_the_trial_is_worth_comparing(void **state)
{
    (void)state;
    const struct trial *expected = &shared.expected;
    int stopped = 0, full = 0, different = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const struct trial_answer *answer = &expected->answer[i];
        stopped += answer->finish == NJ_FINISH_STOP;
        full += answer->finish == NJ_FINISH_LENGTH;
        assert_true(answer->finish != NJ_FINISH_LENGTH ||
                    answer->generated_count == expected->request[i].max_new_tokens);
        for (int32_t t = 1; t < answer->generated_count; t++)
            different += answer->generated[t] != answer->generated[t - 1];
    }
    assert_true(stopped >= 3 && full >= 10 && different >= 300);
    assert_int_equal(expected->counts.finished, REQUESTS);
    assert_int_equal(expected->counts.preemptions, 0);
    assert_int_equal(expected->counts.recomputed_tokens, 0);
}

/* The positions of all prompts are computed once, and every new token is counted. */
static void test_counts_add_up(void **state)
{
    (void)state;
    const struct trial *expected = &shared.expected;
    uint64_t prompt_tokens = 0, new_tokens = 0;
    for (int i = 0; i < REQUESTS; i++) {
        prompt_tokens += (uint64_t)expected->request[i].prompt_count;
        new_tokens += (uint64_t)expected->answer[i].generated_count;
    }
    assert_int_equal(expected->counts.prefill_tokens, prompt_tokens);
    assert_int_equal(expected->counts.decode_tokens, new_tokens);
    assert_true(expected->counts.mixed_sweeps > 0);
    assert_int_equal(expected->counts.sweeps, expected->sweeps);
}

struct way {
    const char *kernels; /* NULL: the fastest */
    int threads;
    int32_t token_budget;
    int64_t kv_blocks; /* 0: the least; negative: plenty */
    int32_t most_sequences;
    bool is_reversed;
};

static struct nj_scheduler_counts run_way(const struct way *way, enum nj_kv_type kv_type)
{
    static struct trial trial;
    trial_create(&trial, shared.opened.model, REQUESTS, LONGEST_PROMPT, MOST_NEW, SEED);
    trial.is_reversed = way->is_reversed;
    struct nj_scheduler_options options = trial_options(&trial);
    options.kv_type = kv_type;
    options.token_budget = way->token_budget;
    options.most_sequences = way->most_sequences;
    if (way->kv_blocks >= 0)
        options.kv_blocks = way->kv_blocks > 0 ? way->kv_blocks : scheduler_least_blocks(options.longest_sequence);
    trial_run_all(&trial, shared.opened.model, way->kernels, way->threads, &options);
    trial_assert_same_answers(kv_type == NJ_KV_Q8 ? &shared.expected_q8 : &shared.expected, &trial);
    trial_destroy(&trial);
    return trial.counts;
}

static void test_answers_do_not_depend_on_how_they_are_computed(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {NULL, 1, 1, -1, 40, false},  {NULL, 2, 7, -1, 40, false},        {NULL, 1, 16, -1, 3, true},
        {NULL, 2, 64, 0, 40, false},  {"reference", 2, 64, 6, 40, true},  {NULL, 3, 512, -1, 40, false},
        {NULL, 2, 512, 0, 40, true},  {"reference", 1, 16, 0, 40, false}, {NULL, 1, 100, 9, 5, false},
        {NULL, 2, 4000, -1, 1, true},
    };
    static const struct way ways_q8[] = {
        {NULL, 2, 7, -1, 40, false},
        {NULL, 1, 64, 0, 40, true},
        {"reference", 2, 512, 6, 40, false},
        {NULL, 3, 512, -1, 5, false},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        run_way(&ways[i], NJ_KV_F16);
    for (size_t i = 0; i < sizeof ways_q8 / sizeof ways_q8[0]; i++)
        run_way(&ways_q8[i], NJ_KV_Q8);
}

/* The KV type is a part of the arithmetic: it shows in the answers. */
static void test_kv_types_differ(void **state)
{
    (void)state;
    int different = 0;
    for (int i = 0; i < REQUESTS; i++)
        different += strcmp(shared.expected.answer[i].text, shared.expected_q8.answer[i].text) != 0;
    assert_true(different > 0);
}

/* Short prompts, long answers and little KV memory: sequences outgrow it again and again. Preemption happens, its
 * work is counted, and answers stay as they are. */
static void test_preemption_is_not_seen_in_the_answers(void **state)
{
    (void)state;
    enum { MANY = 40 };
    static struct trial plenty, tight;
    trial_create(&plenty, shared.opened.model, MANY, 30, 150, SEED);
    trial_create(&tight, shared.opened.model, MANY, 30, 150, SEED);
    struct nj_scheduler_options options = trial_options(&plenty);
    trial_run_all(&plenty, shared.opened.model, NULL, 1, &options);
    options.kv_blocks = 6;
    trial_run_all(&tight, shared.opened.model, NULL, 2, &options);
    trial_assert_same_answers(&plenty, &tight);
    const struct nj_scheduler_counts counts = tight.counts;
    print_message("%llu preemptions, %llu of %llu sweeps mixed, %llu positions recomputed\n",
                  (unsigned long long)counts.preemptions, (unsigned long long)counts.mixed_sweeps,
                  (unsigned long long)counts.sweeps, (unsigned long long)counts.recomputed_tokens);
    assert_int_equal(plenty.counts.preemptions, 0);
    assert_true(counts.preemptions >= 10);
    assert_true(counts.mixed_sweeps > 0);
    assert_true(counts.recomputed_tokens > 0);
    assert_int_equal(counts.prefill_tokens, plenty.counts.prefill_tokens);
    assert_int_equal(counts.decode_tokens, plenty.counts.decode_tokens);
    trial_destroy(&tight);
    trial_destroy(&plenty);
}

/* More sequences at once mean fewer sweeps: batching is real. */
static void test_sequences_share_sweeps(void **state)
{
    (void)state;
    const struct nj_scheduler_counts alone =
        run_way(&(struct way){.threads = 1, .token_budget = 512, .kv_blocks = -1, .most_sequences = 1}, NJ_KV_F16);
    const struct nj_scheduler_counts together = run_way(
        &(struct way){.threads = 1, .token_budget = 512, .kv_blocks = -1, .most_sequences = REQUESTS}, NJ_KV_F16);
    assert_true(together.sweeps * 5 < alone.sweeps);
    assert_int_equal(alone.mixed_sweeps, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_trial_is_worth_comparing),
        cmocka_unit_test(test_counts_add_up),
        cmocka_unit_test(test_answers_do_not_depend_on_how_they_are_computed),
        cmocka_unit_test(test_kv_types_differ),
        cmocka_unit_test(test_preemption_is_not_seen_in_the_answers),
        cmocka_unit_test(test_sequences_share_sweeps),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
