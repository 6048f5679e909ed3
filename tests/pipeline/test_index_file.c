/* index.bin: written, read back, and refused with any byte changed or missing. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/index/index_file.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

enum { RECORDS = 10000, FEW = 5 };

struct fixture {
    char *directory, *path;
    struct nj_input *input;
};

static const struct nj_digest JOB = {.low = 1, .high = 2};

static int set_up(void **state)
{
    static struct fixture fixture;
    struct nj_error error;
    fixture.directory = temporary_directory_create();
    fixture.path = temporary_path(fixture.directory, "index.bin");
    char *source = temporary_path(fixture.directory, "some.jsonl");
    temporary_write_file(source, "{}\n", 3);
    fixture.input = input_open((const char *const *)&source, 1, &error);
    free(source);
    *state = &fixture;
    return fixture.input == NULL;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    input_close(fixture->input);
    free(fixture->path);
    temporary_directory_remove(fixture->directory);
    return 0;
}

static struct nj_index_record make_record(uint32_t i)
{
    return (struct nj_index_record){.id_hash = digest_of(&i, sizeof i),
                                    .digest = {.low = i, .high = ~(uint64_t)i},
                                    .offset = UINT64_C(5000000000) + i,
                                    .line = i + 1,
                                    .prompt_tokens = i,
                                    .max_new_tokens = 2 * i,
                                    .kind = i % 4,
                                    .logprobs = i % 22,
                                    .more_samples = i % 16,
                                    .prefix_key = {i + 1, i + 2, i + 3, 0, 0, 0, i + 8}};
}

static void write_index(const struct fixture *fixture, uint32_t count)
{
    struct nj_error error;
    struct nj_index_writer *writer = index_writer_create(fixture->path, JOB, &error);
    assert_non_null(writer);
    for (uint32_t i = 0; i < count; i++) {
        struct nj_index_record record = make_record(i);
        assert_int_equal(index_writer_add(writer, &record, &error), 0);
    }
    assert_int_equal(index_writer_commit(writer, fixture->input, &error), 0);
    index_writer_destroy(writer);
}

static void check_index(const struct fixture *fixture, uint32_t count)
{
    struct nj_error error;
    struct nj_index_reader *reader = index_reader_open(fixture->path, &JOB, &error);
    assert_non_null(reader);
    assert_int_equal(index_reader_count(reader), count);
    for (int round = 0; round < 2; round++) {
        struct nj_index_record record;
        for (uint32_t i = 0; i < count; i++) {
            struct nj_index_record wanted = make_record(i);
            assert_int_equal(index_reader_next(reader, &record, &error), 1);
            assert_memory_equal(&record, &wanted, sizeof record);
        }
        assert_int_equal(index_reader_next(reader, &record, &error), 0);
        index_reader_rewind(reader);
    }
    assert_string_equal(index_reader_label(reader, 0), "some.jsonl");
    assert_string_equal(index_reader_label(reader, 1), "?");
    index_reader_close(reader);
}

static void test_round_trip(void **state)
{
    write_index(*state, RECORDS);
    check_index(*state, RECORDS);
    write_index(*state, 0);
    check_index(*state, 0);
}

static void test_uncommitted_leaves_the_old_one(void **state)
{
    const struct fixture *fixture = *state;
    struct nj_error error;
    write_index(fixture, FEW);
    struct nj_index_writer *writer = index_writer_create(fixture->path, JOB, &error);
    struct nj_index_record record = make_record(9);
    assert_int_equal(index_writer_add(writer, &record, &error), 0);
    index_writer_destroy(writer);
    check_index(fixture, FEW);
    char *temporary = temporary_path(fixture->directory, "index.bin.tmp");
    assert_int_not_equal(access(temporary, F_OK), 0);
    free(temporary);
}

static void check_refused(const struct fixture *fixture, const char *content, size_t length)
{
    struct nj_error error;
    temporary_write_file(fixture->path, content, length);
    struct nj_index_reader *reader = index_reader_open(fixture->path, &JOB, &error);
    assert_null(reader);
    assert_int_equal(error.code, NJ_BAD_DATA);
}

static void test_damage_anywhere(void **state)
{
    const struct fixture *fixture = *state;
    struct nj_error error;
    size_t length;
    write_index(fixture, FEW);
    char *content = file_read_whole(fixture->path, 1 << 20, &length, &error);
    assert_non_null(content);
    for (size_t i = 0; i < length; i++) {
        content[i] ^= 0x10;
        check_refused(fixture, content, length);
        content[i] ^= 0x10;
        check_refused(fixture, content, i);
    }
    temporary_write_file(fixture->path, content, length);
    check_index(fixture, FEW);
    free(content);
}

static void test_other_job_and_none(void **state)
{
    const struct fixture *fixture = *state;
    struct nj_error error;
    struct nj_digest other = {.low = 9};
    assert_null(index_reader_open(fixture->path, &JOB, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    write_index(fixture, FEW);
    assert_null(index_reader_open(fixture->path, &other, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    struct nj_index_reader *reader = index_reader_open(fixture->path, NULL, &error);
    assert_non_null(reader);
    index_reader_close(reader);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_uncommitted_leaves_the_old_one),
        TEST(test_damage_anywhere),
        TEST(test_other_job_and_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
