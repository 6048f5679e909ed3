/* Export from a made-up directory: order, the last good record, errors, what is missing. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/index/index_file.h"
#include "pipeline/job/job.h"
#include "pipeline/output/record_log.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static const struct nj_digest JOB = {.low = 1};
static char *directory;

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    char *path = temporary_path(directory, "job.json");
    temporary_write_file(path, "{}", 2);
    free(path);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_directory_remove(directory);
    return 0;
}

/* An index of ids "0" to "count - 1", each with the digest (number, 0), in falling order. */
static void write_index(uint32_t count)
{
    struct nj_error error;
    char *path = temporary_path(directory, "index.bin");
    char *source = temporary_path(directory, "job.json");
    struct nj_input *input = input_open((const char *const *)&source, 1, &error);
    struct nj_index_writer *writer = index_writer_create(path, JOB, &error);
    for (uint32_t i = count; i-- > 0;) {
        char id[16];
        snprintf(id, sizeof id, "%u", i);
        struct nj_index_record record = {.id_hash = digest_of(id, strlen(id)), .digest = {.low = i}};
        assert_int_equal(index_writer_add(writer, &record, &error), 0);
    }
    assert_int_equal(index_writer_commit(writer, input, &error), 0);
    index_writer_destroy(writer);
    input_close(input);
    free(source);
    free(path);
}

static struct nj_record_log *open_log(const char *name)
{
    struct nj_error error;
    struct nj_log_options options = {.directory = directory, .name = name};
    struct nj_record_log *log = record_log_open(&options, &error);
    assert_non_null(log);
    return log;
}

static void append(struct nj_record_log *log, uint32_t number, uint32_t digest, const char *text)
{
    struct nj_error error;
    char record[200];
    snprintf(record, sizeof record,
             "{\"id\":\"%u\",\"text\":\"%s\",\"schema\":1,\"attempt\":1,\"digest\":\"%016x%016x\"}", number, text, 0,
             digest);
    assert_int_equal(record_log_append(log, record, &error), 0);
}

static void close_log(struct nj_record_log *log)
{
    struct nj_error error;
    assert_int_equal(record_log_sync(log, &error), 0);
    record_log_close(log);
}

static void check_export(const char *wanted, uint64_t wanted_missing)
{
    struct nj_error error;
    uint64_t missing = 99;
    size_t length;
    char *path = temporary_path(directory, "export");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    int result = job_export(directory, fd, &missing, &error);
    close(fd);
    if (wanted_missing == 0 && result != 0)
        fail_msg("%s", error.message);
    assert_int_equal(result, wanted_missing == 0 ? 0 : -1);
    if (wanted_missing > 0)
        assert_int_equal(error.code, NJ_INTERRUPTED);
    assert_int_equal(missing, wanted_missing);
    char *got = file_read_whole(path, 1 << 24, &length, &error);
    assert_string_equal(got, wanted);
    free(got);
    free(path);
}

static void test_order_of_the_index(void **state)
{
    (void)state;
    write_index(3);
    struct nj_record_log *log = open_log("results");
    append(log, 1, 1, "one");
    append(log, 0, 0, "zero");
    append(log, 2, 2, "two");
    close_log(log);
    check_export("{\"id\":\"2\",\"text\":\"two\"}\n{\"id\":\"1\",\"text\":\"one\"}\n{\"id\":\"0\",\"text\":\"zero\"}\n",
                 0);
}

static void test_last_good_record_counts(void **state)
{
    (void)state;
    write_index(3);
    struct nj_record_log *results = open_log("results"), *errors = open_log("errors");
    append(errors, 0, 0, "first failure");
    append(results, 0, 0, "first answer");
    append(results, 0, 0, "second answer");
    append(errors, 0, 0, "later failure");
    append(errors, 1, 1, "failure");
    append(errors, 1, 1, "last failure");
    append(results, 2, 77, "an answer to another question"); /* another digest */
    append(results, 55, 55, "no line of the input");
    close_log(results);
    close_log(errors);
    check_export("{\"id\":\"1\",\"text\":\"last failure\"}\n{\"id\":\"0\",\"text\":\"second answer\"}\n", 1);
}

static void test_damaged_and_torn_lines_are_missing(void **state)
{
    (void)state;
    struct nj_error error;
    size_t length;
    write_index(3);
    struct nj_record_log *log = open_log("results");
    append(log, 0, 0, "zero");
    append(log, 1, 1, "one");
    append(log, 2, 2, "two");
    close_log(log);
    char *path = temporary_path(directory, "results.jsonl");
    char *content = file_read_whole(path, 1 << 20, &length, &error);
    memcpy(strstr(content, "one"), "oNe", 3);
    temporary_write_file(path, content, length - 5);
    check_export("{\"id\":\"0\",\"text\":\"zero\"}\n", 2);
    free(content);
    free(path);
}

static void test_many_records(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    write_index(COUNT);
    struct nj_record_log *log = open_log("results");
    for (uint32_t i = 0; i < COUNT; i++)
        append(log, i * 7919 % COUNT, i * 7919 % COUNT, "t");
    close_log(log);
    char *wanted = malloc(COUNT * 40), *at = wanted;
    assert_non_null(wanted);
    for (uint32_t i = COUNT; i-- > 0;)
        at += sprintf(at, "{\"id\":\"%u\",\"text\":\"t\"}\n", i);
    check_export(wanted, 0);
    free(wanted);
}

static void test_no_job_and_no_index(void **state)
{
    (void)state;
    struct nj_error error;
    uint64_t missing;
    assert_int_equal(job_export(directory, 1, &missing, &error), -1);
    assert_int_equal(error.code, NJ_INTERRUPTED); /* killed while it read its input */
    char *path = temporary_path(directory, "none");
    assert_int_equal(job_export(path, 1, &missing, &error), -1);
    assert_int_equal(error.code, NJ_NO_INPUT);
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_order_of_the_index),
        TEST(test_last_good_record_counts),
        TEST(test_damaged_and_torn_lines_are_missing),
        TEST(test_many_records),
        TEST(test_no_job_and_no_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
