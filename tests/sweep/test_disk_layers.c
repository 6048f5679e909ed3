/* Layers on disk: the same answers as from RAM, and how much is read for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/sweep/trial.h"

enum { LAYERS = 5, REQUESTS = 12, LONGEST_PROMPT = 90, MOST_NEW = 12, SEED = 3 };

static struct trial_model opened;
static struct trial expected, trial;

static int open_shared(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.layers = LAYERS;
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

/* Small budgets make many sweeps, in which decoding and prompts mix. */
static struct nj_scheduler_options small_sweeps(void)
{
    struct nj_scheduler_options options = trial_options(&trial);
    options.token_budget = 48;
    options.kv_blocks = scheduler_least_blocks(options.longest_sequence) + 3;
    return options;
}

static void load_with(int32_t disk_layers, enum nj_reader_kind reader)
{
    struct nj_error error;
    const struct nj_weights_options options = {.disk_layers = disk_layers, .reader = reader};
    if (trial_model_reload(&opened, &options, &error) != 0)
        fail_msg("%s", error.message);
}

/* How many layers are on disk, and what a sweep reads of them. */
static struct nj_weights_memory memory_with(int32_t disk_layers)
{
    struct nj_weights_memory memory;
    struct nj_error error;
    assert_int_equal(weights_plan_memory(opened.model->gguf, &opened.model->shape, disk_layers, &memory, &error), 0);
    return memory;
}

/* Nor is anything begun a little later. */
static void assert_nothing_is_read_ahead(void)
{
    const struct timespec a_while = {.tv_nsec = 20000000};
    nanosleep(&a_while, NULL);
    assert_int_equal(weights_ring_counts(opened.model->weights).ahead_bytes, 0);
}

static void answers_do_not_depend_on_where_layers_are(void **state)
{
    (void)state;
    const struct nj_scheduler_options options = small_sweeps();
    for (int32_t disk_layers = 0; disk_layers <= LAYERS; disk_layers++) {
        for (int reader = NJ_READER_AUTOMATIC; reader <= NJ_READER_THREADS; reader += 2) {
            load_with(disk_layers, (enum nj_reader_kind)reader);
            trial_forget_answers(&trial);
            trial_run_all(&trial, opened.model, NULL, 1 + disk_layers % 3, &options);
            trial_assert_same_answers(&expected, &trial);
            const struct nj_ring_counts counts = weights_ring_counts(opened.model->weights);
            const uint64_t sweeps = disk_layers == 0 ? 0 : trial.counts.sweeps;
            assert_int_equal(counts.completed_sweeps, sweeps);
            assert_int_equal(counts.completed_bytes, sweeps * memory_with(disk_layers).disk_bytes);
            assert_int_equal(counts.abandoned_bytes, 0);
            assert_nothing_is_read_ahead();
        }
    }
}

static int next_without_logprobs(int from)
{
    while (trial.request[from].wants_logprobs)
        from++;
    assert_true(from < REQUESTS);
    return from;
}

/* A request that came complete waits while the only other one runs: it needs no sweep. */
static void nothing_is_read_for_who_needs_no_sweep(void **state)
{
    (void)state;
    struct nj_scheduler_options options = trial_options(&trial);
    options.token_budget = LONGEST_PROMPT + MOST_NEW; /* one sweep is enough */
    load_with(2, NJ_READER_AUTOMATIC);
    trial_forget_answers(&trial);
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    const int runs = next_without_logprobs(0), waits = next_without_logprobs(runs + 1);
    const struct nj_ring_counts before = weights_ring_counts(opened.model->weights);
    trial.answer[runs].is_done = trial.answer[waits].is_done = false;
    trial.answer[runs].deliveries = trial.answer[waits].deliveries = 0;
    trial.answer[runs].generated_count--;
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    trial_assert_same_answers(&expected, &trial);
    assert_int_equal(trial.counts.sweeps, 1);
    const struct nj_ring_counts after = weights_ring_counts(opened.model->weights);
    assert_int_equal(after.completed_bytes - before.completed_bytes, memory_with(2).disk_bytes);
    assert_nothing_is_read_ahead();
}

static void memory_is_what_was_planned(void **state)
{
    (void)state;
    for (int32_t disk_layers = 0; disk_layers <= LAYERS; disk_layers++) {
        load_with(disk_layers, NJ_READER_AUTOMATIC);
        const struct nj_weights_memory memory = memory_with(disk_layers);
        assert_int_equal(device_bytes(opened.device), memory.fixed_bytes + memory.layer_bytes + memory.ring_bytes);
        assert_int_equal(memory.disk_bytes == 0, disk_layers == 0);
    }
}

static void layers_in_ram_lie_evenly_between_those_on_disk(void **state)
{
    (void)state;
    for (int32_t layers = 1; layers <= 40; layers++) {
        for (int32_t disk_layers = 0; disk_layers <= layers; disk_layers++) {
            int32_t count = 0, in_a_row = 0;
            for (int32_t i = 0; i < layers; i++) {
                const bool is_on_disk = weights_layer_is_on_disk(i, layers, disk_layers);
                count += is_on_disk;
                in_a_row = is_on_disk ? 0 : in_a_row + 1;
                assert_true(disk_layers == 0 || in_a_row <= (layers - 1) / disk_layers);
            }
            assert_int_equal(count, disk_layers);
        }
    }
}

/* Stopped after every number of sweeps and gone on from there, in one process and with the same weights. */
static void a_stopped_run_goes_on(void **state)
{
    (void)state;
    const struct nj_scheduler_options options = small_sweeps();
    load_with(3, NJ_READER_AUTOMATIC);
    uint64_t sweeps = 0;
    for (int stop_after = 1; stop_after < 12; stop_after += 3) {
        struct nj_error error;
        trial_forget_answers(&trial);
        trial.stop_after_sweeps = stop_after;
        assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), -1);
        assert_int_equal(error.code, NJ_INTERRUPTED);
        sweeps += trial.counts.sweeps;
        trial.stop_after_sweeps = 0;
        assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), 0);
        sweeps += trial.counts.sweeps;
        trial_assert_same_answers(&expected, &trial);
    }
    const struct nj_ring_counts counts = weights_ring_counts(opened.model->weights);
    assert_int_equal(counts.completed_sweeps, sweeps);
    assert_int_equal(counts.completed_bytes, sweeps * memory_with(3).disk_bytes);
}

/* For a scheduler of the test's own. */
static void start_over(void)
{
    trial_forget_answers(&trial);
    trial.next = 0;
    trial.sweeps = 0;
}

static atomic_int cancel;

static int cancel_after_a_sweep(void *context, struct nj_error *error)
{
    (void)context;
    (void)error;
    atomic_store(&cancel, 1);
    return 0;
}

/* Cancelled while the first layers of the next sweep are being read ahead. */
static void a_cancelled_run_goes_on(void **state)
{
    (void)state;
    struct nj_scheduler_options options = small_sweeps();
    load_with(LAYERS, NJ_READER_THREADS);
    options.cancel = &cancel;
    start_over();
    struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    callbacks.swept = cancel_after_a_sweep;
    struct nj_error error;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, opened.device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    assert_int_equal(error.code, NJ_INTERRUPTED);
    trial_note_unfinished(&trial, scheduler);
    scheduler_destroy(scheduler);
    atomic_store(&cancel, 0);
    trial_run_all(&trial, opened.model, NULL, 2, &options);
    trial_assert_same_answers(&expected, &trial);
}

static int cut_pack_after_a_sweep(void *context, struct nj_error *error)
{
    (void)context;
    (void)error;
    assert_int_equal(truncate(pack_path(opened.model->pack), NJ_PACK_ALIGNMENT), 0);
    return 0;
}

static void a_pack_cut_short_ends_the_run_with_an_error(void **state)
{
    (void)state;
    const struct nj_scheduler_options options = small_sweeps();
    load_with(LAYERS, NJ_READER_AUTOMATIC);
    start_over();
    struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    callbacks.swept = cut_pack_after_a_sweep;
    struct nj_error error;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, opened.device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    assert_int_equal(scheduler_run(scheduler, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, pack_path(opened.model->pack)));
    assert_non_null(strstr(error.message, "run the same command again"));
    trial_note_unfinished(&trial, scheduler);
    trial_assert_prefixes(&expected, &trial);
    scheduler_destroy(scheduler);
    /* The next start builds the pack anew. */
    load_with(LAYERS, NJ_READER_AUTOMATIC);
    trial_run_all(&trial, opened.model, NULL, 1, &options);
    trial_assert_same_answers(&expected, &trial);
}

enum { SOME_BYTES = 8 };

/* Replaces the first bytes of the last layer in the pack and tells what they were. */
static void exchange_bytes(const char with[SOME_BYTES], char were[SOME_BYTES])
{
    const long offset = (long)pack_section_at(opened.model->pack, LAYERS)->offset;
    FILE *file = fopen(pack_path(opened.model->pack), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fread(were, 1, SOME_BYTES, file), SOME_BYTES);
    assert_int_equal(fseek(file, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(with, 1, SOME_BYTES, file), SOME_BYTES);
    assert_int_equal(fclose(file), 0);
}

/* The bytes of a layer are changed on disk after the pack was opened. */
static void damage_is_found_when_a_layer_is_first_taken(void **state)
{
    (void)state;
    const struct nj_scheduler_options options = small_sweeps();
    load_with(2, NJ_READER_AUTOMATIC);
    char were[SOME_BYTES], damaged[SOME_BYTES];
    exchange_bytes("damaged!", were);
    trial_forget_answers(&trial);
    struct nj_error error;
    assert_int_equal(trial_run(&trial, opened.model, opened.device, &options, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "blk.4."));
    assert_non_null(strstr(error.message, "delete the pack"));
    exchange_bytes(were, damaged);
}

/* Runs all requests, after so many runs that damage ended, in one scheduler. Returns the operations of matrix products
 * that the last run made. */
static double operations_after_damage(int damaged_runs)
{
    const struct nj_scheduler_options options = small_sweeps();
    load_with(2, NJ_READER_AUTOMATIC);
    start_over();
    struct nj_scheduler_callbacks callbacks = trial_callbacks(&trial);
    struct nj_error error;
    struct nj_scheduler *scheduler = scheduler_create(opened.model, opened.device, &options, &callbacks, &error);
    assert_non_null(scheduler);
    char were[SOME_BYTES], damaged[SOME_BYTES];
    for (int i = 0; i < damaged_runs; i++) {
        exchange_bytes("damaged!", were);
        assert_int_equal(scheduler_run(scheduler, &error), -1);
        assert_int_equal(error.code, NJ_BAD_DATA);
        exchange_bytes(were, damaged);
    }
    struct nj_device_times times = {.matmul_operations = 0};
    device_time_launches(opened.device, &times);
    assert_int_equal(scheduler_run(scheduler, &error), 0);
    device_time_launches(opened.device, NULL);
    scheduler_destroy(scheduler);
    trial_assert_same_answers(&expected, &trial);
    return times.matmul_operations;
}

/* What a failed sweep had queued is not run with a later one. */
static void a_failed_sweep_leaves_nothing_behind(void **state)
{
    (void)state;
    assert_true(operations_after_damage(3) == operations_after_damage(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_do_not_depend_on_where_layers_are),
        cmocka_unit_test(nothing_is_read_for_who_needs_no_sweep),
        cmocka_unit_test(memory_is_what_was_planned),
        cmocka_unit_test(layers_in_ram_lie_evenly_between_those_on_disk),
        cmocka_unit_test(a_stopped_run_goes_on),
        cmocka_unit_test(a_cancelled_run_goes_on),
        cmocka_unit_test(a_pack_cut_short_ends_the_run_with_an_error),
        cmocka_unit_test(a_failed_sweep_leaves_nothing_behind),
        cmocka_unit_test(damage_is_found_when_a_layer_is_first_taken),
    };
    return cmocka_run_group_tests(tests, open_shared, close_shared);
}
