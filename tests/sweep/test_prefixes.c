/* Prompts that begin alike: what is alike is computed once, and the answers are those of each request alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sweep/trial.h"

enum { REQUESTS = 16, LONGEST_TAIL = 60, MOST_NEW = 40, SEED = 21, BLOCK = NJ_KV_BLOCK_TOKENS };

static struct trial_model opened;
static struct trial expected, expected_q8; /* each request in a scheduler of its own */

/* Puts the first `count` tokens of `text` before the request's prompt, of which `kept` tokens stay. */
static void begin_with(struct trial_request *request, const int32_t *text, int32_t count, int32_t kept)
{
    int32_t *prompt = malloc((size_t)(count + kept) * sizeof *prompt);
    assert_non_null(prompt);
    memcpy(prompt, text, (size_t)count * sizeof *prompt);
    memcpy(prompt + count, request->prompt, (size_t)kept * sizeof *prompt);
    free(request->prompt);
    request->prompt = prompt;
    request->prompt_count = count + kept;
}

/* In turn: 200 tokens in common; the first 100 of these and then others, also in common; exactly the first two blocks;
 * nothing in common. */
static void create(struct trial *trial)
{
    int32_t text[200], branch[200];
    uint64_t state = SEED;
    for (int i = 0; i < 200; i++) {
        text[i] = (int32_t)(trial_random(&state) % (uint64_t)opened.model->shape.vocabulary);
        branch[i] = i < 100 ? text[i] : (text[i] + 1) % opened.model->shape.vocabulary;
    }
    trial_create(trial, opened.model, REQUESTS, LONGEST_TAIL, MOST_NEW, SEED);
    for (int i = 0; i < REQUESTS; i++) {
        struct trial_request *request = &trial->request[i];
        if (i % 4 == 0)
            begin_with(request, text, 200, request->prompt_count);
        if (i % 4 == 1)
            begin_with(request, branch, 200, request->prompt_count);
        if (i % 4 == 2)
            begin_with(request, text, 2 * BLOCK, 0);
    }
}

/* One request, all alone. */
static void run_alone(struct trial *trial, int index, enum nj_kv_type kv_type, struct nj_device *device)
{
    struct nj_error error = {0};
    struct nj_scheduler_options options = trial_options(trial);
    options.kv_type = kv_type;
    for (int i = 0; i < REQUESTS; i++)
        trial->answer[i].is_done = i != index;
    assert_int_equal(trial_run(trial, opened.model, device, &options, &error), 0);
    assert_int_equal(trial->counts.shared_tokens, 0);
}

static void run_each_alone(struct trial *trial, enum nj_kv_type kv_type)
{
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    create(trial);
    for (int i = 0; i < REQUESTS; i++)
        run_alone(trial, i, kv_type, device);
    for (int i = 0; i < REQUESTS; i++)
        trial->answer[i].is_done = true;
    device_close(device);
}

static int open_shared(void **state)
{
    (void)state;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&opened, &shape, NULL);
    run_each_alone(&expected, NJ_KV_F16);
    run_each_alone(&expected_q8, NJ_KV_Q8);
    return 0;
}

static int close_shared(void **state)
{
    (void)state;
    trial_destroy(&expected);
    trial_destroy(&expected_q8);
    trial_model_close(&opened);
    return 0;
}

static int32_t common_blocks(const struct trial_request *a, const struct trial_request *b)
{
    int32_t blocks = 0;
    while ((blocks + 1) * BLOCK <= a->prompt_count && (blocks + 1) * BLOCK <= b->prompt_count &&
           memcmp(a->prompt + blocks * BLOCK, b->prompt + blocks * BLOCK, BLOCK * sizeof *a->prompt) == 0)
        blocks++;
    return blocks;
}

static uint64_t prompt_tokens(const struct trial *trial)
{
    uint64_t tokens = 0;
    for (int i = 0; i < trial->count; i++)
        tokens += (uint64_t)trial->request[i].prompt_count;
    return tokens;
}

/* The positions that need not be computed if requests come in this order and nothing is ever forgotten. */
static uint64_t shareable_tokens(const struct trial *trial)
{
    uint64_t tokens = 0;
    for (int i = 0; i < trial->count; i++) {
        const struct trial_request *request = &trial->request[i];
        int32_t most = 0;
        for (int j = trial->is_reversed ? i + 1 : 0; j < (trial->is_reversed ? trial->count : i); j++) {
            const int32_t common = common_blocks(request, &trial->request[j]);
            most = common > most ? common : most;
        }
        const int32_t bound = (request->prompt_count - 1) / BLOCK;
        tokens += (uint64_t)(most < bound ? most : bound) * BLOCK;
    }
    return tokens;
}

struct way {
    const char *kernels; /* NULL: the fastest */
    int threads;
    int32_t token_budget, most_sequences;
    int64_t more_blocks; /* than the least; negative: plenty */
    bool is_reversed;
    enum nj_kv_type kv_type;
};

static struct nj_scheduler_counts run_way(const struct way *way)
{
    static struct trial trial;
    create(&trial);
    trial.is_reversed = way->is_reversed;
    struct nj_scheduler_options options = trial_options(&trial);
    options.kv_type = way->kv_type;
    options.token_budget = way->token_budget;
    options.most_sequences = way->most_sequences;
    if (way->more_blocks >= 0)
        options.kv_blocks = scheduler_least_blocks(options.longest_sequence) + way->more_blocks;
    trial_run_all(&trial, opened.model, way->kernels, way->threads, &options);
    trial_assert_same_answers(way->kv_type == NJ_KV_Q8 ? &expected_q8 : &expected, &trial);
    const struct nj_scheduler_counts counts = trial.counts;
    assert_int_equal(counts.prefill_tokens + counts.shared_tokens, prompt_tokens(&trial));
    if (way->more_blocks < 0)
        assert_int_equal(counts.shared_tokens, shareable_tokens(&trial));
    trial_destroy(&trial);
    return counts;
}

/* Whatever rides in a sweep together, and with room for everything, each block that prompts have in common is
 * computed exactly once. */
static void test_what_is_alike_is_computed_once(void **state)
{
    (void)state;
    static const struct way ways[] = {
        {NULL, 1, 9, 40, -1, true, NJ_KV_F16},          {NULL, 2, 64, 1, -1, false, NJ_KV_F16},
        {NULL, 3, 100, 5, -1, true, NJ_KV_F16},         {NULL, 1, 4000, 40, -1, false, NJ_KV_F16},
        {NULL, 2, 100, 40, -1, true, NJ_KV_Q8},         {NULL, 1, 30, 3, -1, false, NJ_KV_Q8},
        {"reference", 2, 512, 40, -1, true, NJ_KV_F16},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const struct nj_scheduler_counts counts = run_way(&ways[i]);
        assert_true(counts.shared_tokens > 1000);
        assert_int_equal(counts.recomputed_tokens, 0);
    }
}

/* Too little memory for all: cached blocks are forgotten, sequences are preempted, and nothing of that is seen. */
static void test_little_memory(void **state)
{
    (void)state;
    const uint64_t shareable = shareable_tokens(&expected);
    uint64_t preemptions = 0, forgotten = 0;
    for (int64_t more = 0; more < 10; more += 2) {
        const struct way way = {NULL,
                                2,
                                more % 3 == 0 ? 512 : 40,
                                more == 6 ? 3 : 40,
                                more,
                                more % 4 == 0,
                                more == 2 ? NJ_KV_Q8 : NJ_KV_F16};
        const struct nj_scheduler_counts counts = run_way(&way);
        assert_true(counts.shared_tokens > 0);
        preemptions += counts.preemptions;
        forgotten += counts.shared_tokens < shareable;
    }
    print_message("%llu preemptions; in %llu of 5 runs something was forgotten\n", (unsigned long long)preemptions,
                  (unsigned long long)forgotten);
    assert_true(preemptions >= 1);
    assert_true(forgotten >= 3);
}

/* Prompts that differ in their tails only, one new token each: all in one sweep, the common blocks once. */
static void test_sequences_of_one_sweep_share(void **state)
{
    (void)state;
    enum { COUNT = REQUESTS / 4 };
    static struct trial trial;
    create(&trial);
    uint64_t own_rows = 0;
    for (int i = 0; i < REQUESTS; i++) {
        trial.answer[i].is_done = i % 4 != 0;
        trial.request[i].max_new_tokens = 1;
        own_rows += i % 4 == 0 ? (uint64_t)trial.request[i].prompt_count - 3 * BLOCK : 0;
    }
    struct nj_scheduler_options options = trial_options(&trial);
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 2);
    options.token_budget = 3 * BLOCK + (int32_t)own_rows;
    options.most_sequences = COUNT;
    assert_int_equal(trial_run(&trial, opened.model, device, &options, NULL), 0);
    device_close(device);
    assert_int_equal(trial.counts.sweeps, 1);
    assert_int_equal(trial.counts.finished, COUNT);
    assert_int_equal(trial.counts.shared_tokens, (COUNT - 1) * 3 * BLOCK);
    assert_int_equal(trial.counts.prefill_tokens, options.token_budget);
    for (int i = 0; i < REQUESTS; i += 4) {
        assert_int_equal(trial.answer[i].generated_count, 1);
        assert_int_equal(trial.answer[i].generated[0], expected.answer[i].generated[0]);
    }
    trial_destroy(&trial);
}

/* A pool in which the common blocks and one more for each sequence fit. The first answers are short, so that more
 * sequences come in than fit once their answers grow. Whoever was preempted finds the common blocks again, because
 * the oldest still has them. */
static void test_preempted_sequences_find_their_prompt_again(void **state)
{
    (void)state;
    enum { COUNT = 12, COMMON = 3 * BLOCK, NEW = 40 };
    static struct trial alone, together;
    struct trial *trials[] = {&alone, &together};
    int32_t text[COMMON + 50];
    uint64_t random = SEED;
    for (int i = 0; i < COMMON + 50; i++)
        text[i] = (int32_t)(trial_random(&random) % (uint64_t)opened.model->shape.vocabulary);
    for (int t = 0; t < 2; t++) {
        trial_create(trials[t], opened.model, COUNT, 10, NEW, SEED);
        for (int i = 0; i < COUNT; i++) {
            struct trial_request *request = &trials[t]->request[i];
            begin_with(request, text, COMMON + 50, request->prompt_count);
            request->max_new_tokens = i < 4 ? 2 : NEW;
            request->stop_count = 0;
        }
        struct nj_scheduler_options options = trial_options(trials[t]);
        options.most_sequences = t == 0 ? 1 : COUNT;
        if (t == 1)
            options.kv_blocks = COMMON / BLOCK + 5;
        trial_run_all(trials[t], opened.model, NULL, 2, &options);
    }
    trial_assert_same_answers(&alone, &together);
    const struct nj_scheduler_counts counts = together.counts;
    print_message("%llu preemptions, %llu positions recomputed\n", (unsigned long long)counts.preemptions,
                  (unsigned long long)counts.recomputed_tokens);
    assert_true(counts.preemptions >= 3);
    assert_true(counts.recomputed_tokens <= counts.preemptions * (50 + 10 + NEW));
    assert_int_equal(counts.shared_tokens, (COUNT - 1) * COMMON);
    trial_destroy(&alone);
    trial_destroy(&together);
}

/* Stops a run while a sweep is being planned: its blocks are published, and some are taken over. */
struct stopper {
    struct trial *trial;
    atomic_int cancel;
    int countdown;
    bool by_error;
};

static int stop_at_pull(void *context, struct nj_sequence_request *out, struct nj_error *error)
{
    struct stopper *stopper = context;
    if (stopper->countdown-- == 0) {
        if (stopper->by_error)
            return error_set(error, NJ_IO_FAILED, "the disk is gone");
        atomic_store(&stopper->cancel, 1);
    }
    return trial_callbacks(stopper->trial).next(stopper->trial, out, error);
}

static int pass_finished(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    struct trial *trial = ((struct stopper *)context)->trial;
    return trial_callbacks(trial).finished(trial, result, error);
}

static int pass_swept(void *context, struct nj_error *error)
{
    struct trial *trial = ((struct stopper *)context)->trial;
    return trial_callbacks(trial).swept(trial, error);
}

static void stop_and_go_on(struct stopper *stopper, struct nj_device *device, int64_t more_blocks)
{
    struct nj_error error = {0};
    struct trial *trial = stopper->trial;
    struct nj_scheduler_options options = trial_options(trial);
    const struct nj_scheduler_callbacks callbacks = {
        .context = stopper, .next = stop_at_pull, .finished = pass_finished, .swept = pass_swept};
    options.token_budget = 300;
    options.cancel = &stopper->cancel;
    if (more_blocks >= 0)
        options.kv_blocks = scheduler_least_blocks(options.longest_sequence) + more_blocks;
    trial_forget_answers(trial);
    trial->next = 0;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    atomic_store(&stopper->cancel, 0);
    assert_int_equal(scheduler_run(scheduler, &error), 0);
    trial_assert_same_answers(&expected, trial);
    const struct nj_scheduler_counts counts = scheduler_counts(scheduler);
    assert_int_equal(counts.prefill_tokens + counts.shared_tokens, prompt_tokens(trial));
    if (more_blocks < 0)
        assert_int_equal(counts.shared_tokens, shareable_tokens(trial));
    scheduler_destroy(scheduler);
}

/* A sweep that is planned and never computed leaves no block behind that would be taken for computed. */
static void test_an_abandoned_sweep_shares_nothing(void **state)
{
    (void)state;
    static struct trial trial;
    create(&trial);
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 2);
    for (int countdown = 0; countdown < REQUESTS; countdown += 1 + countdown / 4) {
        struct stopper stopper = {.trial = &trial, .countdown = countdown, .by_error = countdown % 3 == 0};
        stop_and_go_on(&stopper, device, countdown % 2 == 0 ? -1 : countdown);
    }
    device_close(device);
    trial_destroy(&trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_alike_is_computed_once),
        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_sequences_of_one_sweep_share),
        cmocka_unit_test(test_preempted_sequences_find_their_prompt_again),
        cmocka_unit_test(test_an_abandoned_sweep_shares_nothing),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
