/* The index from index.bin: the same as the one from the input, and only while the input is the same. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "engine/base/file.h"
#include "pipeline/index/index_build.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"

enum { LINES = 20000, PACKED_LINES = 500 };

static const struct nj_digest JOB = {.low = 1, .high = 2};
static struct job_fixture *fixture;
static char *packed, *path; /* a second input; index.bin */
static struct nj_model *model;
static struct nj_examiner examiner;

/* Of a file that was just written the index is not used: it could change again within the same tick of the clock. */
static void let_settle(void)
{
    nanosleep(&(struct timespec){.tv_sec = 2, .tv_nsec = 100000000}, NULL);
}

static void write_packed(void)
{
    gzFile file = gzopen(packed, "wb1");
    assert_non_null(file);
    for (int i = 0; i < PACKED_LINES; i++)
        assert_true(gzprintf(file, "{\"id\":\"p%d\",\"prompt\":\"stone\"}\n", i) > 0);
    assert_int_equal(gzclose(file), Z_OK);
}

/* Every tenth line repeats an id, every seventh has none, every 31st is bad. */
static void write_source(void)
{
    char *lines = malloc(LINES * 100), *at = lines;
    assert_non_null(lines);
    for (int i = 0; i < LINES; i++) {
        if (i % 31 == 5)
            at += sprintf(at, "{\"id\":\"%d\",\"prompt\":7}\n", i);
        else if (i % 7 == 6)
            at += sprintf(at, "{\"prompt\":\"river %d\",\"max_tokens\":%d,\"temperature\":1,\"n\":%d}\n", i, 1 + i % 9,
                          1 + i / 2 % 16);
        else
            at +=
                sprintf(at, "{\"id\":\"%d\",\"prompt\":\"river %d light\"}\r\n", i % 10 == 9 ? i / 20 * 7 : i, i % 50);
    }
    job_fixture_write(fixture, lines);
    free(lines);
}

static struct nj_input *open_input(enum nj_input_run run)
{
    struct nj_error error;
    const char *const arguments[] = {fixture->source, packed};
    struct nj_input *input = input_open(arguments, 2, &error);
    assert_non_null(input);
    assert_int_equal(input_use_spool(input, fixture->output, run, NULL, &error), 0);
    return input;
}

static struct nj_index *build(struct nj_input *input, struct nj_index_totals *totals)
{
    struct nj_error error;
    struct nj_index *index = index_create(64);
    struct nj_index_writer *writer = index_writer_create(path, JOB, &error);
    examiner.input = input;
    struct nj_index_build pass = {.examiner = &examiner, .index = index, .writer = writer};
    assert_int_equal(index_build(&pass, totals, &error), 0);
    assert_int_equal(input_commit_spool(input, &error), 0);
    assert_int_equal(index_writer_commit(writer, input, &error), 0);
    index_writer_destroy(writer);
    return index;
}

/* Reads the input as it is now. */
static void make_index(enum nj_input_run run)
{
    struct nj_index_totals totals;
    struct nj_input *input = open_input(run);
    index_destroy(build(input, &totals));
    input_close(input);
}

static int set_up(void **state)
{
    struct nj_error error;
    if (job_fixture_set_up((void **)&fixture) != 0)
        return -1;
    *state = fixture;
    packed = temporary_path(fixture->directory, "b.jsonl.gz");
    path = temporary_path(fixture->output, "index.bin");
    struct nj_model_options options = {.path = fixture->model, .cache_directory = fixture->cache};
    struct nj_prompt_options encoding = {.job_time = 0};
    model = model_open(&options, &error);
    examiner.encoder = prompt_encoder_create(model, &encoding, &error);
    write_source();
    write_packed();
    let_settle();
    assert_int_equal(mkdir(fixture->output, 0700), 0);
    make_index(NJ_RUN_NEW);
    return 0;
}

static int tear_down(void **state)
{
    prompt_encoder_destroy(examiner.encoder);
    examiner_free(&examiner);
    model_close(model);
    free(packed);
    free(path);
    *state = fixture;
    return job_fixture_tear_down(state);
}

/* The index of index.bin for the input as it is now; NULL: it does not match. */
static struct nj_index *load(struct nj_input *input, struct nj_index_totals *totals)
{
    struct nj_error error;
    struct nj_index_reader *reader = index_reader_open(path, &JOB, &error);
    assert_non_null(reader);
    struct nj_index *index = NULL;
    assert_int_equal(input_list_streams(input, &error), 0);
    if (index_reader_matches(reader, input)) {
        index = index_create(64);
        examiner.input = input;
        struct nj_index_build pass = {.examiner = &examiner, .index = index};
        assert_int_equal(index_load(&pass, reader, totals, &error), 0);
    }
    index_reader_close(reader);
    return index;
}

static bool is_usable(void)
{
    struct nj_index_totals totals;
    struct nj_input *input = open_input(NJ_RUN_AGAIN);
    struct nj_index *index = input_has_whole_copy(input) ? load(input, &totals) : NULL;
    index_destroy(index);
    input_close(input);
    return index != NULL;
}

static void test_same_as_from_the_input(void **state)
{
    (void)state;
    struct nj_index_totals loaded_totals, built_totals;
    struct nj_input *input = open_input(NJ_RUN_AGAIN), *again = open_input(NJ_RUN_AGAIN);
    struct nj_index *loaded = load(input, &loaded_totals), *built = build(again, &built_totals);
    assert_non_null(loaded);
    assert_int_equal(index_count(loaded), LINES + PACKED_LINES);
    assert_int_equal(index_count(loaded), index_count(built));
    for (uint32_t i = 0; i < index_count(built); i++) {
        const struct nj_index_entry *entry = index_at(built, i);
        uint64_t cursor = 0;
        assert_memory_equal(index_at(loaded, i), entry, sizeof *entry);
        assert_int_equal(index_find(loaded, entry->id_hash, &cursor), i);
    }
    assert_int_equal(loaded_totals.requests, built_totals.requests);
    assert_int_equal(loaded_totals.bad, built_totals.bad);
    assert_int_equal(loaded_totals.prompt_tokens, built_totals.prompt_tokens);
    assert_int_equal(loaded_totals.most_logprobs, built_totals.most_logprobs);
    assert_int_equal(loaded_totals.most_new_tokens, built_totals.most_new_tokens);
    /* The lines of the copy are found where the records say. */
    struct nj_line line;
    struct nj_error error;
    examiner.input = input;
    assert_int_equal(examine_read_again(&examiner, index_at(loaded, LINES), &line, &error), 0);
    assert_memory_equal(line.text, "{\"id\":\"p0\"", 10);
    input_forget_streams(input);
    assert_int_equal(input_file_count(input), 2);
    index_destroy(loaded);
    index_destroy(built);
    input_close(input);
    input_close(again);
}

static void set_modified(const struct stat *info)
{
    const struct timespec times[] = {info->st_atim, info->st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, fixture->source, times, 0), 0);
}

/* The same size and even the same time of modification. */
static void test_changed_file(void **state)
{
    (void)state;
    struct stat info;
    assert_true(is_usable());
    assert_int_equal(stat(fixture->source, &info), 0);
    FILE *file = fopen(fixture->source, "r+");
    assert_non_null(file);
    assert_int_equal(fputc('[', file), '[');
    fclose(file);
    set_modified(&info);
    assert_false(is_usable());
    let_settle();
    assert_false(is_usable());
    make_index(NJ_RUN_AGAIN);
    assert_true(is_usable());
}

static void test_replaced_file(void **state)
{
    (void)state;
    struct stat info;
    size_t length;
    assert_true(is_usable());
    assert_int_equal(stat(fixture->source, &info), 0);
    char *content = file_read_whole(fixture->source, 1 << 24, &length, NULL);
    assert_int_equal(unlink(fixture->source), 0);
    temporary_write_file(fixture->source, content, length);
    set_modified(&info);
    assert_false(is_usable());
    free(content);
}

static void test_new_file_is_not_trusted(void **state)
{
    (void)state;
    write_source();
    make_index(NJ_RUN_AGAIN);
    assert_false(is_usable());
    let_settle();
    assert_false(is_usable()); /* it was too new when it was read */
    make_index(NJ_RUN_AGAIN);
    assert_true(is_usable());
}

static void test_another_copy(void **state)
{
    (void)state;
    char *kept = temporary_path(fixture->output, "index.kept");
    assert_int_equal(rename(path, kept), 0);
    write_packed();
    gzFile more = gzopen(packed, "ab");
    assert_true(gzputs(more, "{\"id\":\"more\",\"prompt\":\"stone\"}\n") > 0);
    assert_int_equal(gzclose(more), Z_OK);
    assert_false(is_usable()); /* a new copy must be made */
    make_index(NJ_RUN_AGAIN);
    assert_true(is_usable());
    assert_int_equal(rename(kept, path), 0); /* as if the run had been killed between the copy and the index */
    assert_false(is_usable());
    free(kept);
}

/* A record with the right checksums that points beyond its file, as no index of ours does. */
static void test_impossible_records(void **state)
{
    (void)state;
    static const struct nj_index_record records[] = {{.file = 9},
                                                     {.kind = 9},
                                                     {.own_id = 2},
                                                     {.offset = UINT64_MAX - 1, .length = 5},
                                                     {.offset = 1 << 30},
                                                     {.length = 1 << 27},
                                                     {.prompt_tokens = 1 << 24},
                                                     {.max_new_tokens = 1 << 24},
                                                     {.more_samples = 16},
                                                     {.logprobs = 22},
                                                     {.line = UINT64_MAX}};
    struct nj_input *input = open_input(NJ_RUN_AGAIN);
    struct nj_error error;
    assert_int_equal(input_list_streams(input, &error), 0);
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        struct nj_index_writer *writer = index_writer_create(path, JOB, &error);
        assert_int_equal(index_writer_add(writer, &records[i], &error), 0);
        assert_int_equal(index_writer_commit(writer, input, &error), 0);
        index_writer_destroy(writer);
        struct nj_index_reader *reader = index_reader_open(path, &JOB, &error);
        struct nj_index *index = index_create(64);
        struct nj_index_totals totals;
        examiner.input = input;
        struct nj_index_build pass = {.examiner = &examiner, .index = index};
        assert_int_equal(index_load(&pass, reader, &totals, &error), -1);
        assert_int_equal(error.code, NJ_BAD_DATA);
        index_destroy(index);
        index_reader_close(reader);
    }
    input_close(input);
}

int main(void)
{
    /* In this order: a file that is changed takes two seconds until it is trusted again. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_from_the_input), cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_replaced_file),          cmocka_unit_test(test_new_file_is_not_trusted),
        cmocka_unit_test(test_another_copy),           cmocka_unit_test(test_impossible_records),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
