/* The ring of layers: what comes through it, in both ways of reading, and how much is read. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/disk/layer_ring.h"
#include "tests/support/temporary_directory.h"

enum { PAGE = 4096, LAYERS = 5, MOST_SLOTS = 3 };

/* One page, several, more than a chunk and not a multiple of it, exactly a chunk; with a gap between two of them. */
static const struct nj_ring_layer layers[LAYERS] = {
    {.offset = PAGE, .bytes = PAGE},
    {.offset = 2 * PAGE, .bytes = 7 * PAGE},
    {.offset = 12 * PAGE, .bytes = NJ_RING_CHUNK_BYTES + 3 * PAGE},
    {.offset = NJ_RING_CHUNK_BYTES + 15 * PAGE, .bytes = NJ_RING_CHUNK_BYTES},
    {.offset = 2 * NJ_RING_CHUNK_BYTES + 15 * PAGE, .bytes = 2 * PAGE},
};
enum { FILE_BYTES = 2 * NJ_RING_CHUNK_BYTES + 17 * PAGE, LARGEST = NJ_RING_CHUNK_BYTES + 3 * PAGE };

static char *directory, *path;
static uint32_t *content; /* the file's words, each of which tells where it is */
static void *slots[MOST_SLOTS];

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "layers");
    content = malloc(FILE_BYTES);
    for (uint32_t i = 0; i < FILE_BYTES / sizeof *content; i++)
        content[i] = i * 2654435761u;
    temporary_write_file(path, content, FILE_BYTES);
    for (int i = 0; i < MOST_SLOTS; i++)
        slots[i] = aligned_alloc(PAGE, LARGEST);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < MOST_SLOTS; i++)
        free(slots[i]);
    free(content);
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

struct trial {
    struct nj_direct_file *file;
    struct nj_layer_ring *ring;
};

/* False: the kernel gives no io_uring here. */
static bool open_trial(struct trial *trial, enum nj_reader_kind reader, int slot_count)
{
    struct nj_error error;
    trial->file = direct_file_open(path, &error);
    assert_non_null(trial->file);
    const struct nj_layer_ring_options options = {.file = trial->file,
                                                  .layers = layers,
                                                  .count = LAYERS,
                                                  .slots = slots,
                                                  .slot_count = slot_count,
                                                  .reader = reader};
    for (int i = 0; i < slot_count; i++)
        memset(slots[i], 0, LARGEST);
    trial->ring = layer_ring_create(&options, &error);
    if (trial->ring != NULL)
        return true;
    if (reader != NJ_READER_URING || error.code != NJ_UNAVAILABLE)
        fail_msg("%s", error.message);
    direct_file_close(trial->file);
    return false;
}

static void close_trial(struct trial *trial)
{
    layer_ring_destroy(trial->ring);
    direct_file_close(trial->file);
}

static uint64_t sweep_bytes(void)
{
    uint64_t bytes = 0;
    for (int i = 0; i < LAYERS; i++)
        bytes += layers[i].bytes;
    return bytes;
}

static void take_and_compare(struct nj_layer_ring *ring, int layer)
{
    struct nj_error error;
    const void *address = layer_ring_take(ring, NULL, &error);
    if (address == NULL)
        fail_msg("layer %d: %s", layer, error.message);
    assert_memory_equal(address, (const char *)content + layers[layer].offset, layers[layer].bytes);
}

static void run_sweep(struct nj_layer_ring *ring, bool another_follows)
{
    layer_ring_begin_sweep(ring, another_follows);
    for (int i = 0; i < LAYERS; i++) {
        take_and_compare(ring, i);
        layer_ring_give_back(ring);
    }
    layer_ring_end_sweep(ring, true);
}

/* Calls a check with every way of reading and number of slots. */
static void each_way(void (*check)(enum nj_reader_kind reader, int slot_count))
{
    static const enum nj_reader_kind readers[] = {NJ_READER_THREADS, NJ_READER_URING, NJ_READER_AUTOMATIC};
    for (int i = 0; i < 3; i++)
        for (int slot_count = 1; slot_count <= MOST_SLOTS; slot_count++)
            check(readers[i], slot_count);
}

static void check_sweeps(enum nj_reader_kind reader, int slot_count)
{
    enum { SWEEPS = 3 };
    struct trial trial;
    if (!open_trial(&trial, reader, slot_count)) {
        print_message("no io_uring here: not checked\n");
        return;
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        run_sweep(trial.ring, sweep == 0); /* both an announced sweep and one that is not */
    const struct nj_ring_counts counts = layer_ring_counts(trial.ring);
    assert_int_equal(counts.completed_sweeps, SWEEPS);
    assert_int_equal(counts.completed_bytes, SWEEPS * sweep_bytes());
    assert_int_equal(counts.abandoned_bytes, 0);
    close_trial(&trial);
}

static void every_sweep_gets_every_layer(void **state)
{
    (void)state;
    each_way(check_sweeps);
}

static void sleep_milliseconds(long milliseconds)
{
    const struct timespec time = {.tv_nsec = milliseconds * 1000000};
    nanosleep(&time, NULL);
}

/* Whether the next layer comes within a while. */
static bool becomes_ready(struct nj_layer_ring *ring, int milliseconds)
{
    for (int i = 0; i < milliseconds && !layer_ring_is_ready(ring); i++)
        sleep_milliseconds(1);
    return layer_ring_is_ready(ring);
}

static void check_reading_ahead(enum nj_reader_kind reader, int slot_count)
{
    struct trial trial;
    if (slot_count < 2 || !open_trial(&trial, reader, slot_count))
        return;
    assert_false(becomes_ready(trial.ring, 30)); /* before the first sweep */
    layer_ring_begin_sweep(trial.ring, true);
    for (int i = 0; i < LAYERS; i++) {
        take_and_compare(trial.ring, i);
        assert_true(becomes_ready(trial.ring, 5000)); /* the one behind it, while this one is in use */
        layer_ring_give_back(trial.ring);
    }
    layer_ring_end_sweep(trial.ring, true);
    assert_true(layer_ring_counts(trial.ring).ahead_bytes >= layers[0].bytes); /* of the sweep that follows */
    run_sweep(trial.ring, false);
    assert_false(becomes_ready(trial.ring, 30)); /* nothing behind the last sweep */
    assert_int_equal(layer_ring_counts(trial.ring).ahead_bytes, 0);
    assert_int_equal(layer_ring_counts(trial.ring).completed_bytes, 2 * sweep_bytes());
    close_trial(&trial);
}

static void the_next_layer_is_read_while_one_is_used(void **state)
{
    (void)state;
    each_way(check_reading_ahead);
}

/* Abandoned after so many layers, one of them not given back. */
static void check_abandoned(enum nj_reader_kind reader, int slot_count)
{
    struct trial trial;
    for (int taken = 0; taken <= LAYERS; taken += 2) {
        if (!open_trial(&trial, reader, slot_count))
            return;
        run_sweep(trial.ring, true);
        layer_ring_begin_sweep(trial.ring, true);
        uint64_t bytes = 0;
        for (int i = 0; i < taken; i++) {
            take_and_compare(trial.ring, i);
            bytes += layers[i].bytes;
            if (i + 1 < taken)
                layer_ring_give_back(trial.ring);
        }
        layer_ring_end_sweep(trial.ring, false);
        struct nj_ring_counts counts = layer_ring_counts(trial.ring);
        assert_int_equal(counts.completed_bytes, sweep_bytes());
        assert_true(counts.abandoned_bytes >= bytes && counts.abandoned_bytes <= bytes + 3 * sweep_bytes());
        run_sweep(trial.ring, false);
        counts = layer_ring_counts(trial.ring);
        assert_int_equal(counts.completed_sweeps, 2);
        assert_int_equal(counts.completed_bytes, 2 * sweep_bytes());
        close_trial(&trial);
    }
}

static void an_abandoned_sweep_is_counted_apart_and_the_next_begins_anew(void **state)
{
    (void)state;
    each_way(check_abandoned);
}

/* The same file, as the ring has it open. */
static void restore_file(void)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const size_t from = layers[3].offset;
    assert_int_equal(pwrite(fd, (const char *)content + from, FILE_BYTES - from, (off_t)from), FILE_BYTES - from);
    close(fd);
}

static void check_cut_file(enum nj_reader_kind reader, int slot_count)
{
    struct trial trial;
    if (!open_trial(&trial, reader, slot_count))
        return;
    assert_int_equal(truncate(path, (off_t)layers[3].offset), 0);
    layer_ring_begin_sweep(trial.ring, false);
    struct nj_error error = {0};
    int taken = 0;
    while (layer_ring_take(trial.ring, NULL, &error) != NULL) {
        layer_ring_give_back(trial.ring);
        taken++;
    }
    assert_true(taken <= 3);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "shortened"));
    assert_false(layer_ring_is_ready(trial.ring));
    layer_ring_end_sweep(trial.ring, false);
    restore_file();
    run_sweep(trial.ring, false);
    close_trial(&trial);
}

static void a_read_that_fails_is_told_and_can_be_tried_again(void **state)
{
    (void)state;
    each_way(check_cut_file);
}

static void waiting_ends_when_cancelled(void **state)
{
    (void)state;
    struct trial trial;
    assert_true(open_trial(&trial, NJ_READER_THREADS, 1));
    layer_ring_begin_sweep(trial.ring, false);
    take_and_compare(trial.ring, 0);
    atomic_int cancel = 1;
    struct nj_error error;
    assert_null(layer_ring_take(trial.ring, &cancel, &error)); /* the only slot is in use */
    assert_int_equal(error.code, NJ_INTERRUPTED);
    layer_ring_end_sweep(trial.ring, false);
    close_trial(&trial);
}

/* The ring may go at any moment. */
static void a_ring_is_destroyed_while_it_reads(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct trial trial;
        assert_true(open_trial(&trial, i % 2 == 0 ? NJ_READER_THREADS : NJ_READER_AUTOMATIC, 2));
        layer_ring_begin_sweep(trial.ring, true);
        if (i >= 4)
            take_and_compare(trial.ring, 0);
        close_trial(&trial);
    }
}

#define RING_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RING_TEST(every_sweep_gets_every_layer),
        RING_TEST(the_next_layer_is_read_while_one_is_used),
        RING_TEST(an_abandoned_sweep_is_counted_apart_and_the_next_begins_anew),
        RING_TEST(a_read_that_fails_is_told_and_can_be_tried_again),
        RING_TEST(waiting_ends_when_cancelled),
        RING_TEST(a_ring_is_destroyed_while_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
