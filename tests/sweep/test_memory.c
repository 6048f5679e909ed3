/* Memory: what is promised is what is taken, the sweep loop takes none, and the least KV cache is enough. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sweep/trial.h"

/* Calls from the test program and nightjar's libraries are counted while `counting` is set. */
static struct {
    bool counting;
    uint64_t calls, bytes;
} heap;

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);

static void note_allocation(size_t bytes)
{
    if (!heap.counting)
        return;
    heap.calls++;
    heap.bytes += bytes;
}

void *__wrap_malloc(size_t bytes)
{
    note_allocation(bytes);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    note_allocation(count * bytes);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    note_allocation(bytes);
    return __real_realloc(old, bytes);
}

static struct trial_model opened;

static int open_shared(void **state)
{
    (void)state;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&opened, &shape, NULL);
    return 0;
}

static int close_shared(void **state)
{
    (void)state;
    trial_model_close(&opened);
    return 0;
}

static uint64_t bytes_of_one_text(void)
{
    heap.bytes = 0;
    heap.counting = true;
    struct nj_output_text *text = output_text_create(opened.model->tokenizer, NULL, 0);
    heap.counting = false;
    output_text_destroy(text);
    return heap.bytes;
}

/* All but the answers' texts and a few small things: handles, and the queue of launches. */
static void check_bytes(struct nj_scheduler_options options)
{
    enum { HANDLES = 16 * 1024 };
    static struct trial trial;
    const struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    const uint64_t promised = scheduler_bytes(&opened.model->shape, &options);
    const uint64_t texts = (uint64_t)options.most_sequences * bytes_of_one_text();
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    heap.bytes = 0;
    heap.counting = true;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, &options, &callbacks, NULL);
    heap.counting = false;
    assert_non_null(scheduler);
    const uint64_t taken = device_bytes(device) + heap.bytes - texts;
    assert_true(taken >= promised && taken - promised < HANDLES);
    scheduler_destroy(scheduler);
    assert_int_equal(device_bytes(device), 0);
    device_close(device);
}

static void test_bytes_are_as_promised(void **state)
{
    (void)state;
    struct nj_scheduler_options options = {
        .token_budget = 256, .kv_blocks = 64, .longest_sequence = 4000, .most_sequences = 64, .kv_type = NJ_KV_F16};
    check_bytes(options);
    options.kv_type = NJ_KV_F32;
    check_bytes(options);
    options.kv_type = NJ_KV_Q8;
    check_bytes(options);
    options.token_budget = 1000;
    options.most_sequences = 3;
    options.kv_blocks = 200;
    check_bytes(options);
    options.longest_sequence = 20;
    check_bytes(options);
}

/* Many sequences of the longest kind at small KV: the tokens' arena is bounded by the KV blocks. */
static void test_tokens_take_little_beside_the_cache(void **state)
{
    (void)state;
    struct nj_scheduler_options options = {.token_budget = 4096,
                                           .kv_blocks = 2048,
                                           .longest_sequence = 131072,
                                           .most_sequences = 4096,
                                           .kv_type = NJ_KV_F16};
    const uint64_t pool = (uint64_t)options.kv_blocks * kv_block_bytes(&opened.model->shape, NJ_KV_F16);
    struct nj_scheduler_options little = options;
    little.longest_sequence = 64;
    little.most_sequences = 1;
    const uint64_t growth =
        scheduler_bytes(&opened.model->shape, &options) - scheduler_bytes(&opened.model->shape, &little);
    assert_true(growth < pool);
}

struct loop {
    struct trial trial;
    struct nj_scheduler_callbacks callbacks;
};

/* Every callback stops the counting while it runs; it starts when all slots have had an answer. */
static int next_uncounted(void *context, struct nj_sequence_request *request, struct nj_error *error)
{
    struct loop *loop = context;
    const bool counting = heap.counting;
    heap.counting = false;
    const int result = loop->callbacks.next(&loop->trial, request, error);
    heap.counting = counting;
    return result;
}

static int finished_uncounted(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    struct loop *loop = context;
    heap.counting = false;
    return loop->callbacks.finished(&loop->trial, result, error);
}

static int swept_uncounted(void *context, struct nj_error *error)
{
    struct loop *loop = context;
    heap.counting = false;
    int done = 0;
    for (int i = 0; i < loop->trial.count; i++)
        done += loop->trial.answer[i].is_done;
    const int result = loop->callbacks.swept(&loop->trial, error);
    heap.counting = done >= 16;
    return result;
}

/* Forty times the same request in six slots, with preemption: when each slot's text has had its size once, the
 * loop allocates nothing any more. */
static void test_the_loop_does_not_allocate(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    static struct loop loop;
    struct nj_error error = {0};
    trial_create(&loop.trial, opened.model, COUNT, 70, 50, 3);
    struct trial_request *request = loop.trial.request;
    request[0].max_new_tokens = 50;
    for (int i = 1; i < COUNT; i++) {
        free(request[i].prompt);
        request[i] = request[0];
        request[i].prompt = malloc((size_t)request[0].prompt_count * sizeof(int32_t));
        memcpy(request[i].prompt, request[0].prompt, (size_t)request[0].prompt_count * sizeof(int32_t));
    }
    struct nj_scheduler_options options = trial_options(&loop.trial);
    options.most_sequences = 6;
    options.kv_blocks = 7;
    loop.callbacks = trial_callbacks(&loop.trial);
    const struct nj_scheduler_callbacks callbacks = {
        .context = &loop, .next = next_uncounted, .finished = finished_uncounted, .swept = swept_uncounted};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 2);
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    heap.calls = 0;
    const int result = scheduler_run(scheduler, &error);
    heap.counting = false;
    assert_int_equal(result, 0);
    assert_int_equal(heap.calls, 0);
    assert_int_equal(scheduler_counts(scheduler).finished, COUNT);
    scheduler_destroy(scheduler);
    device_close(device);
    trial_destroy(&loop.trial);
}

/* One request of exactly the longest length, in exactly the least cache, beside others that want it too. */
static void run_longest(int32_t longest)
{
    static struct trial trial;
    trial_create(&trial, opened.model, 6, 40, longest, 9);
    trial.request[0].max_new_tokens = longest - trial.request[0].prompt_count;
    for (int i = 1; i < 6; i++)
        trial.request[i].max_new_tokens = 20;
    struct nj_scheduler_options options = trial_options(&trial);
    assert_int_equal(options.longest_sequence, longest);
    options.kv_blocks = scheduler_least_blocks(longest);
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    trial_destroy(&trial);
}

static void test_the_least_cache_is_enough(void **state)
{
    (void)state;
    assert_int_equal(scheduler_least_blocks(2), 1);
    assert_int_equal(scheduler_least_blocks(65), 1);
    assert_int_equal(scheduler_least_blocks(66), 2);
    assert_int_equal(scheduler_least_blocks(129), 2);
    assert_int_equal(scheduler_least_blocks(130), 3);
    run_longest(128);
    run_longest(129);
    run_longest(130);
    run_longest(193);
}

static void test_one_block_less_is_refused(void **state)
{
    (void)state;
    struct nj_error error = {0};
    static struct trial trial;
    const struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    struct nj_scheduler_options options = {.token_budget = 16,
                                           .kv_blocks = scheduler_least_blocks(1000) - 1,
                                           .longest_sequence = 1000,
                                           .most_sequences = 4,
                                           .kv_type = NJ_KV_F16};
    assert_null(scheduler_create(opened.model, opened.device, &options, &callbacks, &error));
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    assert_non_null(strstr(error.message, "needs 16 KV blocks"));
    options.kv_blocks++;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, opened.device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    scheduler_destroy(scheduler);
}

/* Requests that the job was not planned for, or that a damaged checkpoint gives, are errors. */
static void test_impossible_requests_are_refused(void **state)
{
    (void)state;
    static struct trial trial;
    struct nj_error error = {0};
    trial_create(&trial, opened.model, 3, 30, 20, 2);
    struct nj_scheduler_options options = trial_options(&trial);
    const struct nj_scheduler_options short_options = {.token_budget = 8,
                                                       .kv_blocks = 8,
                                                       .longest_sequence = options.longest_sequence - 1,
                                                       .most_sequences = 2,
                                                       .kv_type = NJ_KV_F16};
    assert_int_equal(trial_run(&trial, opened.model, opened.device, &short_options, &error), -1);
    assert_int_equal(error.code, NJ_INTERNAL);
    trial_forget_answers(&trial);
    trial.request[1].prompt[0] = opened.model->shape.vocabulary;
    assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    trial.request[1].prompt[0] = 0;
    trial.request[1].top_logprobs = NJ_TOP_LOGPROBS_MOST + 1;
    assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), -1);
    assert_int_equal(error.code, NJ_INTERNAL);
    trial.request[1].top_logprobs = 0;
    trial.request[1].bias[0].token = opened.model->shape.vocabulary;
    trial.request[1].bias_count = 1;
    assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), -1);
    assert_int_equal(error.code, NJ_INTERNAL);
    trial_destroy(&trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_as_promised),      cmocka_unit_test(test_tokens_take_little_beside_the_cache),
        cmocka_unit_test(test_the_loop_does_not_allocate), cmocka_unit_test(test_the_least_cache_is_enough),
        cmocka_unit_test(test_one_block_less_is_refused),  cmocka_unit_test(test_impossible_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
