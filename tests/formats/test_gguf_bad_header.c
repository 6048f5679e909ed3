/* Bad headers, counts, alignment, and files that end too early. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"

static void test_not_gguf(void **state)
{
    (void)state;
    struct nj_bytes bytes = {0};
    gguf_file_assert_refused_bytes(&bytes, "the file ends inside the header", 0);
    bytes_add(&bytes, "GG", 2);
    gguf_file_assert_refused_bytes(&bytes, "the file ends inside the header", 0);
    bytes_add(&bytes, "{\"id\": 1, \"prompt\": \"x\"}", 24);
    gguf_file_assert_refused_bytes(&bytes, "does not begin with 'GGUF'", 0);
    bytes_add(&bytes, "GGUF", 4);
    gguf_file_assert_refused_bytes(&bytes, "the file ends inside the header", 4);
}

static void test_versions(void **state)
{
    (void)state;
    static const uint32_t VERSIONS[] = {0, 1, 4, UINT32_MAX};
    for (size_t i = 0; i < sizeof VERSIONS / sizeof *VERSIONS; i++) {
        struct nj_gguf_writer writer;
        gguf_file_start_valid(&writer);
        writer.version = VERSIONS[i];
        gguf_file_assert_refused(&writer, "only 2 and 3");
    }
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    writer.version = 3u << 24;
    gguf_file_assert_refused(&writer, "big-endian");
}

/* Counts beyond what the file can hold are refused before anything is allocated for them. */
static void test_counts(void **state)
{
    (void)state;
    static const uint64_t COUNTS[] = {UINT64_MAX, UINT64_C(1) << 61, UINT64_C(1) << 40, 1000000};
    for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
        struct nj_gguf_writer writer;
        gguf_file_start_valid(&writer);
        writer.entry_count = COUNTS[i];
        gguf_file_assert_refused(&writer, "the list of keys: the count");
        gguf_file_start_valid(&writer);
        writer.tensor_count = COUNTS[i];
        gguf_file_assert_refused(&writer, "the list of tensors: the count");
    }
}

static void assert_alignment_refused(uint32_t type, uint64_t value, size_t bytes, const char *expected)
{
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_raw(&writer, "general.alignment", type, &value, bytes);
    gguf_file_assert_refused(&writer, expected);
}

static void test_alignment(void **state)
{
    (void)state;
    assert_alignment_refused(GGUF_UINT32, 0, 4, "general.alignment is 0");
    assert_alignment_refused(GGUF_UINT32, 48, 4, "general.alignment is 48");
    assert_alignment_refused(GGUF_UINT32, 4, 4, "general.alignment is 4");
    assert_alignment_refused(GGUF_UINT32, 1u << 31, 4, "general.alignment is 2147483648");
    assert_alignment_refused(GGUF_UINT64, 32, 8, "general.alignment has the type uint64");
    assert_alignment_refused(GGUF_INT32, 32, 4, "general.alignment has the type int32");
    assert_alignment_refused(GGUF_FLOAT32, 0x42000000, 4, "general.alignment has the type float32");
}

static void test_split_files(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_raw(&writer, "split.count", GGUF_UINT16, &(uint16_t){3}, 2);
    gguf_file_assert_refused(&writer,
                             "the first of 3 parts of a split model, whose name must end in -00001-of-00003.gguf");
    gguf_file_start_valid(&writer);
    gguf_writer_add_text(&writer, "split.count", "3");
    gguf_file_assert_refused(&writer, "'split.count'");
    gguf_file_start_valid(&writer);
    gguf_writer_add_raw(&writer, "split.count", GGUF_UINT16, &(uint16_t){1}, 2);
    struct nj_error error;
    struct nj_gguf *gguf = gguf_file_open(&writer, &error);
    assert_non_null(gguf);
    gguf_close(gguf);
}

/* The padding behind the last tensor may be missing; every shorter file is refused. */
static void test_truncation_at_every_byte(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    struct nj_bytes whole = {0};
    struct nj_error error;
    gguf_file_start_valid(&writer);
    gguf_file_finish(&writer, &whole);
    for (size_t bytes = 0; bytes < whole.count; bytes++) {
        struct nj_bytes part = {0};
        bytes_add(&part, whole.data, bytes);
        gguf_file_assert_refused_bytes(&part, "", -2); /* any message: there are a dozen places to end */
    }
    struct nj_gguf *gguf = gguf_file_open_bytes(&whole, &error);
    assert_non_null(gguf);
    gguf_close(gguf);
    bytes_free(&whole);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, gguf_file_set_up, gguf_file_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(test_not_gguf),  FILE_TEST(test_versions),    FILE_TEST(test_counts),
        FILE_TEST(test_alignment), FILE_TEST(test_split_files), FILE_TEST(test_truncation_at_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
