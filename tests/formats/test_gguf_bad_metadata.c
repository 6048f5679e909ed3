/* Bad keys and values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"

static void assert_value_refused(uint32_t type, const struct nj_bytes *value, const char *expected)
{
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_raw(&writer, "bad.key", type, value->data, value->count);
    gguf_file_assert_refused(&writer, expected);
}

static void assert_array_refused(uint32_t element_type, uint64_t count, const void *from, size_t bytes,
                                 const char *expected)
{
    struct nj_bytes value = {0};
    bytes_add_u32(&value, element_type);
    bytes_add_u64(&value, count);
    bytes_add(&value, from, bytes);
    assert_value_refused(GGUF_ARRAY, &value, expected);
    bytes_free(&value);
}

static void test_value_types(void **state)
{
    (void)state;
    struct nj_bytes value = {0};
    bytes_add_u64(&value, 0);
    assert_value_refused(13, &value, "the value of 'bad.key': the type 13 is unknown");
    assert_value_refused(UINT32_MAX, &value, "the type 4294967295 is unknown");
    bytes_free(&value);
}

static void test_bools(void **state)
{
    (void)state;
    struct nj_bytes value = {0};
    bytes_add(&value, "\2", 1);
    assert_value_refused(GGUF_BOOL, &value, "the value of 'bad.key': a bool is 2");
    bytes_free(&value);
    assert_array_refused(GGUF_BOOL, 3, "\0\1\7", 3, "the value of 'bad.key': a bool is 7");
}

static void test_string_lengths(void **state)
{
    (void)state;
    static const uint64_t LENGTHS[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 32, 1 << 24, 100000};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        struct nj_bytes value = {0};
        bytes_add_u64(&value, LENGTHS[i]);
        assert_value_refused(GGUF_STRING, &value, "the value of 'bad.key': a string claims");
        assert_array_refused(GGUF_STRING, 1, value.data, value.count, "the value of 'bad.key': a string claims");
        bytes_free(&value);
    }
}

static void test_array_heads(void **state)
{
    (void)state;
    assert_array_refused(GGUF_ARRAY, 1, "", 0, "the value of 'bad.key': arrays inside arrays");
    assert_array_refused(13, 1, "", 0, "the value of 'bad.key': the array's element type 13 is unknown");
    static const uint64_t COUNTS[] = {UINT64_MAX, UINT64_C(1) << 61, (1 << 24) + 1};
    static const uint32_t TYPES[] = {GGUF_UINT8, GGUF_INT32, GGUF_FLOAT32, GGUF_BOOL, GGUF_STRING, GGUF_FLOAT64};
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        for (size_t j = 0; j < sizeof COUNTS / sizeof *COUNTS; j++)
            assert_array_refused(TYPES[i], COUNTS[j], "", 0, "the value of 'bad.key': an array claims");
        assert_array_refused(TYPES[i], 1 << 24, "", 0, "more than the rest of the file can hold");
    }
}

static void test_keys(void **state)
{
    (void)state;
    static const struct {
        const char *key, *expected;
    } CASES[] = {
        {"", "key 5 of 5: the name is empty"},
        {"bad\xff", "key 5 of 5: the name is not valid UTF-8"},
        {"bad\xc0\x80", "key 5 of 5: the name is not valid UTF-8"},
        {"bad\nkey", "key 5 of 5: the name has a control character"},
        {"bad\x7fkey", "key 5 of 5: the name has a control character"},
        {"words", "the key 'words' occurs twice"},
        {"general.architecture", "the key 'general.architecture' occurs twice"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct nj_gguf_writer writer;
        gguf_file_start_valid(&writer);
        gguf_writer_add_u32(&writer, CASES[i].key, 1);
        gguf_file_assert_refused(&writer, CASES[i].expected);
    }
}

static void test_long_key(void **state)
{
    (void)state;
    static char key[65537];
    memset(key, 'k', sizeof key - 1);
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_u32(&writer, key, 1);
    gguf_file_assert_refused(&writer, "key 5 of 5: a string claims 65536 bytes; at most 65535");
}

/* The error names the byte where the bad record or field begins. */
static void test_place(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    struct nj_bytes bytes = {0};
    gguf_file_start_valid(&writer);
    int64_t record = 24 + (int64_t)writer.entries.count;
    gguf_writer_add_u32(&writer, "words", 1);
    gguf_file_finish(&writer, &bytes);
    gguf_file_assert_refused_bytes(&bytes, "occurs twice", record);
    gguf_file_start_valid(&writer);
    gguf_writer_add_raw(&writer, "bad.key", GGUF_BOOL, "\2", 1);
    gguf_file_finish(&writer, &bytes);
    gguf_file_assert_refused_bytes(&bytes, "a bool is 2", record + 8 + 7 + 4);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, gguf_file_set_up, gguf_file_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(test_value_types), FILE_TEST(test_bools), FILE_TEST(test_string_lengths),
        FILE_TEST(test_array_heads), FILE_TEST(test_keys),  FILE_TEST(test_long_key),
        FILE_TEST(test_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
