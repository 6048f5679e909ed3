/* inflight.ckpt: written, read back, refused with any byte changed or missing. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "engine/base/file.h"
#include "pipeline/output/checkpoint.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static const struct nj_digest JOB = {.low = 11, .high = 12};
static const int32_t TOKENS[] = {5, 6, 7, 8, 9};

static struct nj_logprob LOGPROBS[25];

static char *directory, *path;

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "inflight.ckpt");
    for (int i = 0; i < 25; i++)
        LOGPROBS[i] = (struct nj_logprob){.token = i, .value = -0.1f * (float)i};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

static void write_checkpoint(int sequences)
{
    struct nj_error error;
    struct nj_checkpoint_writer writer = {0};
    struct nj_log_mark results = {.length = 1000, .crc = 77}, errors = {.length = 20, .crc = UINT32_MAX};
    assert_int_equal(checkpoint_begin(&writer, JOB, results, errors, &error), 0);
    for (int i = 0; i < sequences; i++) {
        struct nj_checkpoint_sequence sequence = {.id_hash = {.low = (uint64_t)i},
                                                  .digest = {.high = (uint64_t)i},
                                                  .sample = (uint32_t)i * 3,
                                                  .generated = TOKENS,
                                                  .generated_count = i,
                                                  .logprobs = i % 2 == 1 ? LOGPROBS : NULL,
                                                  .top_logprobs = i % 2 == 1 ? i - 1 : 0};
        assert_int_equal(checkpoint_add(&writer, &sequence, &error), 0);
    }
    assert_int_equal(checkpoint_write(&writer, path, &error), 0);
    checkpoint_writer_free(&writer);
}

static void check_checkpoint(int sequences)
{
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    assert_int_equal(checkpoint_read(path, JOB, &checkpoint, &error), 1);
    assert_int_equal(checkpoint.results.length, 1000);
    assert_int_equal(checkpoint.results.crc, 77);
    assert_int_equal(checkpoint.errors.length, 20);
    assert_true(checkpoint.errors.crc == UINT32_MAX);
    assert_int_equal(checkpoint.count, sequences);
    for (int i = 0; i < sequences; i++) {
        const struct nj_checkpoint_sequence *sequence = &checkpoint.sequences[i];
        assert_int_equal(sequence->id_hash.low, i);
        assert_int_equal(sequence->digest.high, i);
        assert_int_equal(sequence->sample, i * 3);
        assert_int_equal(sequence->generated_count, i);
        if (i > 0)
            assert_memory_equal(sequence->generated, TOKENS, (size_t)i * sizeof TOKENS[0]);
        assert_int_equal(sequence->logprobs != NULL, i % 2 == 1);
        if (i % 2 == 1) {
            assert_int_equal(sequence->top_logprobs, i - 1);
            assert_memory_equal(sequence->logprobs, LOGPROBS, (size_t)(i * i) * sizeof LOGPROBS[0]);
        }
    }
    checkpoint_free(&checkpoint);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    assert_int_equal(checkpoint_read(path, JOB, &checkpoint, &error), 0);
    for (int sequences = 0; sequences <= 5; sequences++) {
        write_checkpoint(sequences);
        check_checkpoint(sequences);
    }
}

static void check_refused(const char *content, size_t length)
{
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    temporary_write_file(path, content, length);
    assert_int_equal(checkpoint_read(path, JOB, &checkpoint, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_null(checkpoint.sequences);
}

static void test_damage_anywhere(void **state)
{
    (void)state;
    struct nj_error error;
    size_t length;
    write_checkpoint(4);
    char *content = file_read_whole(path, 1 << 20, &length, &error);
    assert_non_null(content);
    for (size_t i = 0; i < length; i++) {
        for (int bit = 0; bit < 8; bit++) {
            content[i] ^= (char)(1 << bit);
            check_refused(content, length);
            content[i] ^= (char)(1 << bit);
        }
        check_refused(content, i);
    }
    temporary_write_file(path, content, length);
    check_checkpoint(4);
    free(content);
}

static void test_other_job(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    struct nj_digest other = {.low = 1};
    write_checkpoint(2);
    assert_int_equal(checkpoint_read(path, other, &checkpoint, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "another job"));
}

/* Written by a version that knew one sequence per request. */
static void test_older_version(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    size_t length;
    write_checkpoint(2);
    char *content = file_read_whole(path, 1 << 20, &length, &error);
    assert_non_null(content);
    content[8] = 1;
    const uint32_t crc = (uint32_t)crc32_z(0, (const unsigned char *)content, length - sizeof crc);
    memcpy(content + length - sizeof crc, &crc, sizeof crc);
    temporary_write_file(path, content, length);
    free(content);
    assert_int_equal(checkpoint_read(path, JOB, &checkpoint, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "another version"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_round_trip), TEST(test_damage_anywhere), TEST(test_other_job),
                                       TEST(test_older_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
