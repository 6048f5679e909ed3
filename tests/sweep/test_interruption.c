/* Stopping at any moment, and going on. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "tests/sweep/trial.h"

enum { REQUESTS = 24, LONGEST_PROMPT = 150, MOST_NEW = 40, SEED = 8 };

static struct trial_model opened;
static struct trial expected, trial;

static int open_shared(void **state)
{
    (void)state;
    const struct nj_synthetic_shape shape = synthetic_shape_small();
    trial_model_open(&opened, &shape, NULL);
    trial_create(&expected, opened.model, REQUESTS, LONGEST_PROMPT, MOST_NEW, SEED);
    trial_create(&trial, opened.model, REQUESTS, LONGEST_PROMPT, MOST_NEW, SEED);
    const struct nj_scheduler_options options = trial_options(&expected);
    trial_run_all(&expected, opened.model, NULL, 1, &options);
    return 0;
}

static int close_shared(void **state)
{
    (void)state;
    trial_destroy(&trial);
    trial_destroy(&expected);
    trial_model_close(&opened);
    return 0;
}

/* Few blocks, so that preempted sequences are among those in flight. */
static struct nj_scheduler_options tight_options(void)
{
    struct nj_scheduler_options options = trial_options(&trial);
    options.kv_blocks = scheduler_least_blocks(options.longest_sequence) + 4;
    return options;
}

static int32_t count_done(void)
{
    int32_t done = 0;
    for (int i = 0; i < REQUESTS; i++)
        done += trial.answer[i].is_done;
    return done;
}

/* What is left to compute: prompts and noted tokens of the requests that are not done. */
static uint64_t count_known_positions(void)
{
    uint64_t positions = 0;
    for (int i = 0; i < REQUESTS; i++)
        if (!trial.answer[i].is_done)
            positions += (uint64_t)(trial.request[i].prompt_count + trial.answer[i].generated_count);
    return positions;
}

/* Stops after so many sweeps and finishes from the noted tokens in a new scheduler. Returns 0 if it was over
 * before. */
static int stop_and_go_on(struct nj_device *device, int sweeps, const struct nj_scheduler_options *options)
{
    struct nj_error error = {0};
    trial_forget_answers(&trial);
    trial.stop_after_sweeps = sweeps;
    if (trial_run(&trial, opened.model, device, options, &error) == 0)
        return 0;
    assert_int_equal(error.code, NJ_INTERRUPTED);
    trial_assert_prefixes(&expected, &trial);

    const int32_t left = REQUESTS - count_done();
    const uint64_t positions = count_known_positions();
    trial.pulled = 0;
    trial.stop_after_sweeps = 0;
    assert_int_equal(trial_run(&trial, opened.model, device, options, &error), 0);
    trial_assert_same_answers(&expected, &trial);
    assert_int_equal(trial.pulled, left);
    assert_int_equal(trial.counts.prefill_tokens, positions);
    for (int i = 0; i < REQUESTS; i++)
        assert_int_equal(trial.answer[i].deliveries, 1);
    return 1;
}

static void test_stopped_at_any_sweep(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    const struct nj_scheduler_options options = tight_options();
    int sweeps = 1;
    while (stop_and_go_on(device, sweeps, &options))
        sweeps += 1 + sweeps / 4;
    assert_true(sweeps > 30);
    device_close(device);
}

static void test_stopped_again_and_again(void **state)
{
    (void)state;
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 2);
    const struct nj_scheduler_options options = tight_options();
    trial_forget_answers(&trial);
    trial.stop_after_sweeps = 9;
    int runs = 1;
    while (trial_run(&trial, opened.model, device, &options, &error) != 0)
        runs++;
    trial.stop_after_sweeps = 0;
    trial_assert_same_answers(&expected, &trial);
    assert_true(runs >= 5);
    device_close(device);
}

/* Log-probabilities that the checkpoint has, too. */
static void give_logprobs(int index)
{
    const struct trial_answer *answer = &expected.answer[index];
    const size_t bytes =
        (size_t)answer->generated_count * (size_t)(1 + expected.request[index].top_logprobs) * sizeof *answer->logprobs;
    if (answer->logprobs == NULL)
        return;
    trial.answer[index].logprobs = malloc(bytes);
    assert_non_null(trial.answer[index].logprobs);
    memcpy(trial.answer[index].logprobs, answer->logprobs, bytes);
}

/* Answers that were complete in the checkpoint: an end token, a stop string, all tokens there. Only those are computed
 * again whose log-probabilities are wanted but not known, and of these not what would follow. */
static void test_a_complete_checkpoint_finishes_at_once(void **state)
{
    (void)state;
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    struct nj_scheduler_options options = trial_options(&trial);
    options.token_budget = 512; /* more rows with logits than one head pass holds */
    uint64_t positions = 0;
    trial_forget_answers(&trial);
    for (int i = 0; i < REQUESTS; i++) {
        if (trial.request[i].wants_logprobs && i % 2 == 0)
            positions += (uint64_t)(trial.request[i].prompt_count + expected.answer[i].generated_count - 1);
        else
            give_logprobs(i);
        trial.answer[i].generated_count = expected.answer[i].generated_count;
        memcpy(trial.answer[i].generated, expected.answer[i].generated,
               (size_t)expected.answer[i].generated_count * sizeof(int32_t));
    }
    assert_int_equal(trial_run(&trial, opened.model, device, &options, &error), 0);
    trial_assert_same_answers(&expected, &trial);
    assert_true(positions > 0);
    assert_int_equal(trial.counts.prefill_tokens, positions);
    assert_int_equal(trial.counts.decode_tokens, 0);
    device_close(device);
}

/* Kernels that set `cancel` when an operation has run so many times. */
static struct {
    const struct nj_cpu_kernels *real;
    struct nj_cpu_kernels table;
    atomic_int cancel, countdown;
} saboteur;

static void cancel_in_attention(const union nj_operation_args *args, int thread, int threads)
{
    if (thread == 0 && atomic_fetch_sub(&saboteur.countdown, 1) == 1)
        atomic_store(&saboteur.cancel, 1);
    saboteur.real->run[NJ_OP_ATTENTION](args, thread, threads);
}

static void cancel_in_logit_stats(const union nj_operation_args *args, int thread, int threads)
{
    saboteur.real->run[NJ_OP_LOGIT_STATS](args, thread, threads);
    if (thread == 0 && atomic_fetch_sub(&saboteur.countdown, 1) == 1)
        atomic_store(&saboteur.cancel, 1);
}

static struct nj_device *open_sabotaged(enum nj_operation operation, nj_cpu_kernel kernel)
{
    saboteur.real = cpu_kernels_find(NULL);
    saboteur.table = *saboteur.real;
    saboteur.table.run[operation] = kernel;
    struct nj_device *device = device_open_cpu(&saboteur.table, 2);
    assert_non_null(device);
    return device;
}

/* Cancelled in the first or second layer of the n-th sweep, then run on in the same scheduler. */
static void run_cancelled(struct nj_device *device, const struct nj_scheduler_options *options, int countdown)
{
    struct nj_error error = {0};
    trial_forget_answers(&trial);
    trial.next = 0;
    trial.sweeps = 0;
    atomic_store(&saboteur.cancel, 0);
    atomic_store(&saboteur.countdown, countdown);
    const struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, options, &callbacks, &error);
    assert_non_null(scheduler);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    assert_int_equal(error.code, NJ_INTERRUPTED);
    assert_int_equal(scheduler_counts(scheduler).abandoned_sweeps, 1);
    assert_int_equal(scheduler_counts(scheduler).sweeps, trial.sweeps);
    assert_int_equal(scheduler_run(scheduler, &error), -1); /* cancel is still set: nothing happens */
    assert_int_equal(scheduler_counts(scheduler).abandoned_sweeps, 1);
    trial_note_unfinished(&trial, scheduler);
    trial_assert_prefixes(&expected, &trial);

    atomic_store(&saboteur.cancel, 0);
    assert_int_equal(scheduler_run(scheduler, &error), 0);
    trial_assert_same_answers(&expected, &trial);
    assert_int_equal(scheduler_counts(scheduler).prefill_tokens, expected.counts.prefill_tokens);
    assert_int_equal(scheduler_counts(scheduler).decode_tokens, expected.counts.decode_tokens);
    scheduler_destroy(scheduler);
}

static void test_cancelled_inside_a_sweep(void **state)
{
    (void)state;
    struct nj_device *device = open_sabotaged(NJ_OP_ATTENTION, cancel_in_attention);
    struct nj_scheduler_options options = tight_options();
    options.cancel = &saboteur.cancel;
    for (int countdown = 1; countdown < 60; countdown += 1 + countdown / 5)
        run_cancelled(device, &options, countdown);
    device_close(device);
}

static void load_with(int32_t disk_layers)
{
    struct nj_error error;
    const struct nj_weights_options options = {.disk_layers = disk_layers};
    assert_int_equal(trial_model_reload(&opened, &options, &error), 0);
}

/* What a cancelled sweep has read is counted apart. */
static void test_cancelled_with_layers_on_disk(void **state)
{
    (void)state;
    struct nj_device *device = open_sabotaged(NJ_OP_ATTENTION, cancel_in_attention);
    struct nj_scheduler_options options = tight_options();
    options.cancel = &saboteur.cancel;
    const int32_t layers = opened.model->shape.layers;
    for (int countdown = 1; countdown < 40; countdown += 1 + countdown / 2) {
        for (int32_t disk_layers = 1; disk_layers <= layers; disk_layers++) {
            struct nj_weights_memory memory;
            struct nj_error error;
            assert_int_equal(
                weights_plan_memory(opened.model->gguf, &opened.model->shape, disk_layers, &memory, &error), 0);
            load_with(disk_layers);
            run_cancelled(device, &options, countdown);
            const struct nj_ring_counts counts = weights_ring_counts(opened.model->weights);
            assert_int_equal(counts.completed_sweeps, trial.sweeps);
            assert_int_equal(counts.completed_bytes, (uint64_t)trial.sweeps * memory.disk_bytes);
            /* The layer in which it was cancelled had been read. */
            assert_true(disk_layers < layers || counts.abandoned_bytes >= memory.disk_bytes / (uint64_t)layers);
            /* At most the cancelled sweep and, of the next one, what fits the ring. */
            assert_true(counts.abandoned_bytes <= memory.disk_bytes + memory.ring_bytes);
        }
    }
    load_with(0);
    device_close(device);
}

/* More rows want logits than one head pass holds. The first pass has been visited when the second is
 * cancelled, and still no sequence may have moved. */
static void test_cancelled_between_head_passes(void **state)
{
    (void)state;
    enum { MANY = NJ_HEAD_ROWS + 30 };
    static struct trial many;
    struct nj_error error = {0};
    trial_create(&many, opened.model, MANY, 3, 4, SEED);
    struct nj_scheduler_options options = trial_options(&many);
    options.token_budget = 512;
    options.cancel = &saboteur.cancel;
    struct nj_device *device = open_sabotaged(NJ_OP_LOGIT_STATS, cancel_in_logit_stats);
    const struct nj_scheduler_callbacks callbacks = trial_callbacks(&many);
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, &options, &callbacks, &error);
    atomic_store(&saboteur.cancel, 0);
    atomic_store(&saboteur.countdown, 1);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    trial_note_unfinished(&many, scheduler);
    assert_int_equal(scheduler_counts(scheduler).abandoned_sweeps, 1);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(many.answer[i].generated_count, 0);

    atomic_store(&saboteur.cancel, 0);
    assert_int_equal(scheduler_run(scheduler, &error), 0);
    for (int i = 0; i < MANY; i++)
        assert_true(many.answer[i].is_done);
    scheduler_destroy(scheduler);
    device_close(device);
    trial_destroy(&many);
}

static void *cancel_soon(void *context)
{
    const struct timespec pause = {.tv_nsec = *(const long *)context};
    nanosleep(&pause, NULL);
    atomic_store(&saboteur.cancel, 1);
    return NULL;
}

/* The same from another thread at no particular place. */
static void test_cancelled_from_another_thread(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 2);
    struct nj_scheduler_options options = tight_options();
    options.cancel = &saboteur.cancel;
    for (long pause = 100000; pause < 20000000; pause *= 3) {
        struct nj_error error = {0};
        pthread_t thread;
        trial_forget_answers(&trial);
        atomic_store(&saboteur.cancel, 0);
        assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &pause), 0);
        const int result = trial_run(&trial, opened.model, device, &options, &error);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (result != 0)
            assert_int_equal(error.code, NJ_INTERRUPTED);
        trial_assert_prefixes(&expected, &trial);
        atomic_store(&saboteur.cancel, 0);
        assert_int_equal(trial_run(&trial, opened.model, device, &options, &error), 0);
        trial_assert_same_answers(&expected, &trial);
    }
    device_close(device);
}

static int fail_third(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    struct trial *failing = context;
    if (count_done() == 2)
        return error_set(error, NJ_IO_FAILED, "the disk is full");
    return trial_callbacks(failing).finished(context, result, error);
}

/* An answer that could not be handed out is still there to be visited. */
static void test_a_failed_delivery_ends_the_run(void **state)
{
    (void)state;
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    const struct nj_scheduler_options options = tight_options();
    struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    callbacks.finished = fail_third;
    trial_forget_answers(&trial);
    trial.next = 0;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, device, &options, &callbacks, &error);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    assert_int_equal(count_done(), 2);
    trial_note_unfinished(&trial, scheduler);
    scheduler_destroy(scheduler);
    trial_assert_prefixes(&expected, &trial);
    assert_int_equal(trial_run(&trial, opened.model, device, &options, &error), 0);
    trial_assert_same_answers(&expected, &trial);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stopped_at_any_sweep),
        cmocka_unit_test(test_stopped_again_and_again),
        cmocka_unit_test(test_a_complete_checkpoint_finishes_at_once),
        cmocka_unit_test(test_cancelled_inside_a_sweep),
        cmocka_unit_test(test_cancelled_with_layers_on_disk),
        cmocka_unit_test(test_cancelled_between_head_passes),
        cmocka_unit_test(test_cancelled_from_another_thread),
        cmocka_unit_test(test_a_failed_delivery_ends_the_run),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
