/* The job's copy of its input: what was written comes back, while it is written and afterwards; damage is found. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/input/spool.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

enum { STREAM_BYTES = 3 * NJ_SPOOL_BLOCK_BYTES + 1234, STREAMS = 4 };

static char *directory;

static int make_directory(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    temporary_directory_remove(directory);
    return 0;
}

/* A byte that depends on its place, hard to compress in odd streams. */
static char byte_at(size_t stream, uint64_t offset)
{
    uint64_t mixed = (offset * STREAMS + stream + 1) * UINT64_C(0x9E3779B97F4A7C15);
    return stream % 2 == 1 ? (char)(mixed >> 56) : (char)('a' + offset / 100 % 26);
}

/* Length of a stream: one is empty. */
static uint64_t length_of(size_t stream)
{
    return stream == 2 ? 0 : STREAM_BYTES + stream;
}

static void check_range(struct nj_spool *spool, size_t stream, uint64_t offset, size_t length)
{
    struct nj_error error;
    char *bytes = malloc(length + 1);
    assert_non_null(bytes);
    assert_int_equal(spool_read(spool, spool_stream_at(spool, stream)->start + offset, bytes, length, &error), 0);
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != byte_at(stream, offset + i))
            fail_msg("stream %zu, byte %zu", stream, (size_t)offset + i);
    }
    free(bytes);
}

static void write_stream(struct nj_spool *spool, size_t stream)
{
    char chunk[777];
    struct nj_error error;
    char name[16] = "";
    if (stream > 0)
        snprintf(name, sizeof name, "m%zu.jsonl", stream);
    assert_int_equal(spool_begin_stream(spool, name, &error), 0);
    for (uint64_t offset = 0; offset < length_of(stream); offset += sizeof chunk) {
        uint64_t left = length_of(stream) - offset;
        size_t length = left < sizeof chunk ? (size_t)left : sizeof chunk;
        for (size_t i = 0; i < length; i++)
            chunk[i] = byte_at(stream, offset + i);
        assert_int_equal(spool_append(spool, chunk, length, &error), 0);
        if (offset % 1000 == 0)
            check_range(spool, stream, offset / 2, length); /* written blocks and the one that is being filled */
    }
}

static struct nj_spool *write_spool(void)
{
    struct nj_error error;
    struct nj_spool *spool = spool_create(directory, &error);
    assert_non_null(spool);
    const struct nj_spool_source first = {.path = (char *)(uintptr_t) "-", .kind = 3};
    const struct nj_spool_source second = {
        .path = (char *)(uintptr_t) "/in.tar", .bytes = 99, .modified_nanoseconds = -5, .kind = 2};
    assert_int_equal(spool_begin_source(spool, &first, &error), 0);
    write_stream(spool, 0);
    assert_int_equal(spool_begin_source(spool, &second, &error), 0);
    for (size_t stream = 1; stream < STREAMS; stream++)
        write_stream(spool, stream);
    return spool;
}

static void check_spool(struct nj_spool *spool)
{
    assert_int_equal(spool_source_count(spool), 2);
    assert_string_equal(spool_source_at(spool, 0)->path, "-");
    assert_string_equal(spool_source_at(spool, 1)->path, "/in.tar");
    assert_int_equal(spool_source_at(spool, 1)->bytes, 99);
    assert_int_equal(spool_source_at(spool, 1)->modified_nanoseconds, -5);
    assert_int_equal(spool_source_at(spool, 1)->kind, 2);
    assert_int_equal(spool_stream_count(spool), STREAMS);
    for (size_t stream = STREAMS; stream-- > 0;) {
        assert_int_equal(spool_stream_at(spool, stream)->source, stream > 0);
        assert_int_equal(spool_stream_at(spool, stream)->bytes, length_of(stream));
        check_range(spool, stream, 0, (size_t)length_of(stream));
    }
    assert_string_equal(spool_stream_at(spool, 3)->name, "m3.jsonl");
    check_range(spool, 1, NJ_SPOOL_BLOCK_BYTES - 5, 10);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_spool *spool;
    assert_int_equal(spool_open(directory, &spool, &error), 0);
    spool = write_spool();
    check_spool(spool);
    assert_int_equal(spool_commit(spool, &error), 0);
    check_spool(spool);
    spool_close(spool);
    assert_int_equal(spool_open(directory, &spool, &error), 1);
    check_spool(spool);
    char byte;
    uint64_t end = spool_stream_at(spool, 3)->start + spool_stream_at(spool, 3)->bytes;
    assert_int_equal(spool_read(spool, end, &byte, 1, &error), -1);
    assert_int_equal(error.code, NJ_INTERNAL);
    spool_close(spool);
}

static bool exists(const char *name)
{
    char *path = temporary_path(directory, name);
    bool found = access(path, F_OK) == 0;
    free(path);
    return found;
}

static void test_complete_or_not_there(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_spool *spool = write_spool(), *old;
    assert_int_equal(spool_open(directory, &old, &error), 0);
    spool_close(spool); /* given up */
    assert_false(exists("spool/blocks.1"));
    spool = write_spool();
    assert_int_equal(spool_commit(spool, &error), 0);
    spool_close(spool);
    /* A second one does not disturb the first until it is complete; then it replaces it. */
    spool = write_spool();
    assert_int_equal(spool_open(directory, &old, &error), 1);
    check_spool(old);
    spool_close(old);
    assert_true(exists("spool/blocks.1") && exists("spool/blocks.2"));
    assert_int_equal(spool_commit(spool, &error), 0);
    spool_close(spool);
    assert_false(exists("spool/blocks.1"));
    assert_int_equal(spool_open(directory, &old, &error), 1);
    check_spool(old);
    spool_close(old);
}

static void test_leftovers_are_removed(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_spool *spool = write_spool();
    assert_int_equal(spool_commit(spool, &error), 0);
    spool_close(spool);
    char *path = temporary_path(directory, "spool/blocks.7");
    temporary_write_file(path, "x", 1);
    free(path);
    spool = write_spool();
    assert_false(exists("spool/blocks.7"));
    assert_true(exists("spool/blocks.1"));
    spool_close(spool);
}

/* Whether everything can be read; a failure must be the named one. */
static bool reads_whole(void)
{
    struct nj_error error = {0};
    struct nj_spool *spool;
    char *bytes = malloc(STREAM_BYTES + STREAMS);
    assert_non_null(bytes);
    bool whole = spool_open(directory, &spool, &error) == 1;
    for (size_t stream = 0; whole && stream < STREAMS; stream++) {
        const struct nj_spool_stream *at = spool_stream_at(spool, stream);
        whole = spool_read(spool, at->start, bytes, (size_t)at->bytes, &error) == 0;
    }
    if (!whole) {
        assert_int_equal(error.code, NJ_BAD_DATA);
        assert_non_null(strstr(error.message, "delete the directory \"spool\""));
        assert_non_null(strstr(error.file, "/spool/"));
    }
    spool_close(spool);
    free(bytes);
    return whole;
}

/* Every `step`th byte changed, and the file cut there. */
static void damage_everywhere(const char *name, size_t step)
{
    struct nj_error error;
    size_t length;
    char *path = temporary_path(directory, name);
    char *content = file_read_whole(path, 1 << 28, &length, &error);
    assert_non_null(content);
    for (size_t i = 0; i < length; i += step) {
        content[i] ^= 0x10;
        temporary_write_file(path, content, length);
        content[i] ^= 0x10;
        assert_false(reads_whole());
        temporary_write_file(path, content, i);
        assert_false(reads_whole());
    }
    temporary_write_file(path, content, length);
    assert_true(reads_whole());
    assert_int_equal(unlink(path), 0);
    free(content);
    free(path);
}

static void test_damage(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_spool *spool = write_spool();
    assert_int_equal(spool_commit(spool, &error), 0);
    spool_close(spool);
    damage_everywhere("spool/blocks.1", 131071);
    assert_false(reads_whole()); /* gone */
    spool = NULL;
    char *path = temporary_path(directory, "spool/spool.bin");
    assert_int_equal(unlink(path), 0);
    free(path);
    spool = write_spool();
    assert_int_equal(spool_commit(spool, &error), 0);
    spool_close(spool);
    damage_everywhere("spool/spool.bin", 7);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_complete_or_not_there),
        TEST(test_leftovers_are_removed),
        TEST(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
