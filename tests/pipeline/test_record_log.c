/* Append-only logs: torn tails at every byte, damage inside, lost lines. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/base/byte_buffer.h"
#include "pipeline/output/record_log.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

enum { LINES = 3 };

struct fixture {
    char *directory, *path;
    struct nj_byte_buffer seen; /* good lines, each with a newline */
    int notices;
    char last_notice[512];
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){.directory = temporary_directory_create()};
    fixture.path = temporary_path(fixture.directory, "results.jsonl");
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    byte_buffer_free(&fixture->seen);
    free(fixture->path);
    temporary_directory_remove(fixture->directory);
    return 0;
}

static int see(void *context, const char *line, size_t length, uint64_t offset, struct nj_error *error)
{
    struct fixture *fixture = context;
    (void)offset;
    assert_int_equal(byte_buffer_append(&fixture->seen, line, length, error), 0);
    return byte_buffer_append(&fixture->seen, "\n", 1, error);
}

static void hear(void *context, const char *line)
{
    struct fixture *fixture = context;
    fixture->notices++;
    snprintf(fixture->last_notice, sizeof fixture->last_notice, "%s", line);
}

static struct nj_record_log *open_log(struct fixture *fixture, const struct nj_log_mark *mark)
{
    struct nj_error error;
    fixture->seen.length = 0;
    fixture->notices = 0;
    struct nj_log_options options = {.directory = fixture->directory,
                                     .name = "results",
                                     .committed = mark,
                                     .visit = see,
                                     .visit_context = fixture,
                                     .notice = hear,
                                     .notice_context = fixture};
    struct nj_record_log *log = record_log_open(&options, &error);
    if (log == NULL)
        fail_msg("%s", error.message);
    return log;
}

static void append(struct nj_record_log *log, int number)
{
    struct nj_error error;
    char record[64];
    snprintf(record, sizeof record, "{\"id\":\"%d\",\"text\":\"answer %d\"}", number, number * number);
    assert_int_equal(record_log_append(log, record, &error), 0);
}

/* A log of LINES lines, its content and mark. */
static char *write_lines(struct fixture *fixture, size_t *length, struct nj_log_mark *mark)
{
    struct nj_error error;
    struct nj_record_log *log = open_log(fixture, NULL);
    for (int i = 0; i < LINES; i++)
        append(log, i);
    assert_false(record_log_is_synced(log));
    assert_int_equal(record_log_sync(log, &error), 0);
    assert_true(record_log_is_synced(log));
    *mark = record_log_mark(log);
    record_log_close(log);
    char *content = file_read_whole(fixture->path, 1 << 20, length, &error);
    assert_non_null(content);
    assert_int_equal(mark->length, *length);
    return content;
}

static void check_file(const struct fixture *fixture, const char *name, const char *content, size_t length)
{
    struct nj_error error;
    size_t got_length;
    char *path = temporary_path(fixture->directory, name);
    char *got = file_read_whole(path, 1 << 20, &got_length, &error);
    assert_non_null(got);
    assert_int_equal(got_length, length);
    assert_memory_equal(got, content, length);
    free(got);
    free(path);
}

static void remove_file(const struct fixture *fixture, const char *name)
{
    char *path = temporary_path(fixture->directory, name);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static bool has_file(const struct fixture *fixture, const char *name)
{
    char *path = temporary_path(fixture->directory, name);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

static void test_reopened(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    struct stat info;
    char *content = write_lines(fixture, &length, &mark);
    record_log_close(open_log(fixture, &mark));
    assert_int_equal(fixture->notices, 0);
    assert_int_equal(fixture->seen.length, length);
    assert_memory_equal(fixture->seen.data, content, length);
    assert_int_equal(stat(fixture->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    free(content);
}

static size_t whole_lines(const char *content, size_t length)
{
    while (length > 0 && content[length - 1] != '\n')
        length--;
    return length;
}

/* Cut at every byte: whole lines stay, the rest is moved aside, and appending goes on behind it. */
static void test_torn_at_every_byte(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    struct nj_error error;
    char *content = write_lines(fixture, &length, &mark);
    for (size_t cut = 0; cut < length; cut++) {
        size_t kept = whole_lines(content, cut);
        temporary_write_file(fixture->path, content, cut);
        struct nj_record_log *log = open_log(fixture, NULL);
        assert_int_equal(fixture->seen.length, kept);
        check_file(fixture, "results.jsonl", content, kept);
        assert_int_equal(has_file(fixture, "results.torn.1"), cut > kept);
        assert_int_equal(fixture->notices, cut > kept);
        if (cut > kept) {
            check_file(fixture, "results.torn.1", content + kept, cut - kept);
            remove_file(fixture, "results.torn.1");
        }
        append(log, 99);
        assert_int_equal(record_log_sync(log, &error), 0);
        record_log_close(log);
        record_log_close(open_log(fixture, NULL));
        assert_int_equal(fixture->notices, 0);
        assert_true(fixture->seen.length > kept);
    }
    free(content);
}

/* Behind the mark any wrong byte makes a torn tail from its line on; within it, a damaged line that stays. */
static void test_wrong_byte_anywhere(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    char *content = write_lines(fixture, &length, &mark);
    for (size_t i = 0; i < length; i++) {
        char kept = content[i];
        size_t before = whole_lines(content, i);
        content[i] = kept == 'x' ? 'y' : 'x';
        temporary_write_file(fixture->path, content, length);
        record_log_close(open_log(fixture, NULL));
        assert_int_equal(fixture->seen.length, before);
        check_file(fixture, "results.torn.1", content + before, length - before);
        remove_file(fixture, "results.torn.1");

        temporary_write_file(fixture->path, content, length);
        record_log_close(open_log(fixture, &mark));
        assert_int_equal(fixture->notices >= 1, 1);
        assert_true(fixture->seen.length < length && fixture->seen.length >= before);
        assert_memory_equal(fixture->seen.data, content, before);
        if (i + 1 < length) { /* the last newline is the end of the file: without it the line is a torn one */
            check_file(fixture, "results.jsonl", content, length);
            assert_non_null(strstr(fixture->last_notice, "damaged"));
        } else {
            remove_file(fixture, "results.torn.1");
        }
        content[i] = kept;
    }
    free(content);
}

static void test_lost_end_is_reported(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    char *content = write_lines(fixture, &length, &mark);
    size_t kept = whole_lines(content, length - 1);
    temporary_write_file(fixture->path, content, kept);
    record_log_close(open_log(fixture, &mark));
    assert_int_equal(fixture->notices, 1);
    assert_non_null(strstr(fixture->last_notice, "not what it was"));
    assert_int_equal(fixture->seen.length, kept);
    free(content);
}

/* Lines exchanged for other good ones: only the mark's checksum can tell. */
static void test_exchanged_lines_are_reported(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    char *content = write_lines(fixture, &length, &mark);
    size_t first = strcspn(content, "\n") + 1;
    char *exchanged = malloc(length);
    assert_non_null(exchanged);
    memcpy(exchanged, content + first, length - first);
    memcpy(exchanged + length - first, content, first);
    temporary_write_file(fixture->path, exchanged, length);
    record_log_close(open_log(fixture, &mark));
    assert_int_equal(fixture->notices, 1);
    assert_int_equal(fixture->seen.length, length);
    free(exchanged);
    free(content);
}

static void test_good_lines_behind_the_mark_count(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    char *content = write_lines(fixture, &length, &mark);
    struct nj_error error;
    struct nj_record_log *log = open_log(fixture, &mark);
    append(log, 50);
    assert_int_equal(record_log_flush(log, &error), 0);
    record_log_close(log); /* as a kill leaves it: written, not synced */
    log = open_log(fixture, &mark);
    assert_int_equal(fixture->notices, 0);
    assert_true(fixture->seen.length > length);
    assert_true(record_log_mark(log).length > mark.length);
    record_log_close(log);
    free(content);
}

static void test_torn_files_are_numbered(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 1; i <= 3; i++) {
        char torn[32], name[32];
        int length = snprintf(torn, sizeof torn, "{\"torn\":%d", i);
        snprintf(name, sizeof name, "results.torn.%d", i);
        temporary_write_file(fixture->path, torn, (unsigned long)length);
        record_log_close(open_log(fixture, NULL));
        check_file(fixture, name, torn, (size_t)length);
    }
    check_file(fixture, "results.torn.1", "{\"torn\":1", 9);
}

/* A write that fails half-way can be gone on with, as when the reserve has been given up. */
static void test_failed_write_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct nj_error error;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    struct nj_record_log *log = open_log(fixture, NULL);
    for (int i = 0; i < LINES; i++)
        append(log, i);
    small = old;
    small.rlim_cur = 70; /* within the second line */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int failed = record_log_sync(log, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(failed, -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    assert_int_equal(record_log_mark(log).length, 0);
    assert_int_equal(record_log_sync(log, &error), 0);
    struct nj_log_mark mark = record_log_mark(log);
    record_log_close(log);
    record_log_close(open_log(fixture, &mark));
    assert_int_equal(fixture->notices, 0);
    assert_int_equal(fixture->seen.length, mark.length);
}

static void test_scan_without_lock(void **state)
{
    struct fixture *fixture = *state;
    size_t length;
    struct nj_log_mark mark;
    struct nj_error error;
    char *content = write_lines(fixture, &length, &mark);
    temporary_write_file(fixture->path, content, length - 3);
    fixture->seen.length = 0;
    assert_int_equal(record_log_scan(fixture->path, see, fixture, &error), 0);
    assert_int_equal(fixture->seen.length, whole_lines(content, length - 3));
    check_file(fixture, "results.jsonl", content, length - 3);
    assert_int_equal(record_log_scan("/nonexistent/results.jsonl", see, fixture, &error), 0);
    free(content);
}

/* Lines longer than what is read at once. */
static void test_long_lines(void **state)
{
    struct fixture *fixture = *state;
    enum { LONG = 1000000 };
    struct nj_error error;
    char *record = malloc(LONG + 1);
    assert_non_null(record);
    memset(record, 'x', LONG);
    memcpy(record, "{\"a\":\"", 6);
    memcpy(record + LONG - 2, "\"}", 3);
    struct nj_record_log *log = open_log(fixture, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(record_log_append(log, record, &error), 0);
        append(log, i);
    }
    assert_int_equal(record_log_sync(log, &error), 0);
    struct nj_log_mark mark = record_log_mark(log);
    record_log_close(log);
    record_log_close(open_log(fixture, &mark));
    assert_int_equal(fixture->notices, 0);
    assert_int_equal(fixture->seen.length, mark.length);
    free(record);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_reopened),
        TEST(test_torn_at_every_byte),
        TEST(test_wrong_byte_anywhere),
        TEST(test_lost_end_is_reported),
        TEST(test_exchanged_lines_are_reported),
        TEST(test_good_lines_behind_the_mark_count),
        TEST(test_torn_files_are_numbered),
        TEST(test_failed_write_goes_on),
        TEST(test_scan_without_lock),
        TEST(test_long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
