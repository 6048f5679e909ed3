/* Good files: every value type, look-ups, tensors and their data. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"

static void assert_text(struct nj_text text, const char *expected)
{
    assert_int_equal(text.length, strlen(expected));
    assert_memory_equal(text.bytes, expected, text.length);
}

static struct nj_gguf *open_good(struct nj_gguf_writer *writer)
{
    struct nj_error error = {0};
    struct nj_gguf *gguf = gguf_file_open(writer, &error);
    if (gguf == NULL)
        fail_msg("not opened: %s", error.message);
    return gguf;
}

static void add_raw_number(struct nj_gguf_writer *writer, const char *key, enum nj_gguf_type type, uint64_t bits,
                           size_t bytes)
{
    gguf_writer_add_raw(writer, key, type, &bits, bytes);
}

static void assert_u64(const struct nj_gguf *gguf, const char *key, uint64_t expected)
{
    struct nj_error error;
    uint64_t value = 99;
    assert_int_equal(gguf_get_u64(gguf, key, UINT64_MAX, &value, &error), 1);
    assert_true(value == expected);
}

static void test_integers_of_every_width(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    add_raw_number(&writer, "u8", GGUF_UINT8, 200, 1);
    add_raw_number(&writer, "i8", GGUF_INT8, 100, 1);
    add_raw_number(&writer, "u16", GGUF_UINT16, 60000, 2);
    add_raw_number(&writer, "i16", GGUF_INT16, 30000, 2);
    add_raw_number(&writer, "u32", GGUF_UINT32, 4000000000, 4);
    add_raw_number(&writer, "i32", GGUF_INT32, 2000000000, 4);
    add_raw_number(&writer, "u64", GGUF_UINT64, UINT64_MAX, 8);
    add_raw_number(&writer, "i64", GGUF_INT64, INT64_MAX, 8);
    add_raw_number(&writer, "negative8", GGUF_INT8, (uint8_t)-3, 1);
    add_raw_number(&writer, "negative16", GGUF_INT16, (uint16_t)-3, 2);
    add_raw_number(&writer, "negative32", GGUF_INT32, (uint32_t)-3, 4);
    add_raw_number(&writer, "negative64", GGUF_INT64, (uint64_t)-3, 8);
    struct nj_gguf *gguf = open_good(&writer);
    assert_u64(gguf, "u8", 200);
    assert_u64(gguf, "i8", 100);
    assert_u64(gguf, "u16", 60000);
    assert_u64(gguf, "i16", 30000);
    assert_u64(gguf, "u32", 4000000000);
    assert_u64(gguf, "i32", 2000000000);
    assert_u64(gguf, "u64", UINT64_MAX);
    assert_u64(gguf, "i64", INT64_MAX);
    static const char *const NEGATIVE[] = {"negative8", "negative16", "negative32", "negative64"};
    for (int i = 0; i < 4; i++) {
        struct nj_error error;
        uint64_t value;
        assert_int_equal(gguf_get_u64(gguf, NEGATIVE[i], UINT64_MAX, &value, &error), -1);
        assert_int_equal(error.code, NJ_BAD_DATA);
        assert_non_null(strstr(error.message, NEGATIVE[i]));
        assert_non_null(strstr(error.message, "-3"));
    }
    gguf_close(gguf);
}

static void test_range_of_integers(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    struct nj_gguf *gguf = open_good(&writer);
    struct nj_error error;
    uint64_t value = 99;
    assert_int_equal(gguf_get_u64(gguf, "llama.block_count", 2, &value, &error), 1);
    assert_int_equal(value, 2);
    assert_int_equal(gguf_get_u64(gguf, "llama.block_count", 1, &value, &error), -1);
    assert_non_null(strstr(error.message, "'llama.block_count' is 2; at most 1 is possible"));
    assert_string_equal(error.file, gguf_file_path());
    assert_true(error.byte > 0);
    gguf_close(gguf);
}

static void test_floats_and_bools(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    double wide = 0.1;
    float infinite = INFINITY;
    gguf_writer_add_f32(&writer, "f32", 0.25f);
    gguf_writer_add_raw(&writer, "f64", GGUF_FLOAT64, &wide, sizeof wide);
    gguf_writer_add_raw(&writer, "infinite", GGUF_FLOAT32, &infinite, sizeof infinite);
    gguf_writer_add_bool(&writer, "yes", true);
    gguf_writer_add_bool(&writer, "no", false);
    struct nj_gguf *gguf = open_good(&writer);
    struct nj_error error;
    double value = 0;
    bool truth = false;
    assert_int_equal(gguf_get_f64(gguf, "f32", &value, &error), 1);
    assert_true(value == 0.25);
    assert_int_equal(gguf_get_f64(gguf, "f64", &value, &error), 1);
    assert_true(value == 0.1);
    assert_int_equal(gguf_get_f64(gguf, "infinite", &value, &error), -1);
    assert_non_null(strstr(error.message, "not a finite number"));
    assert_int_equal(gguf_get_bool(gguf, "yes", &truth, &error), 1);
    assert_true(truth);
    assert_int_equal(gguf_get_bool(gguf, "no", &truth, &error), 1);
    assert_false(truth);
    gguf_close(gguf);
}

static void test_texts_and_arrays(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_texts(&writer, "no.words", NULL, 0);
    struct nj_gguf *gguf = open_good(&writer);
    struct nj_error error;
    struct nj_text text;
    const struct nj_text *texts;
    const int64_t *integers;
    size_t count = 0;
    assert_int_equal(gguf_get_text(gguf, "general.architecture", &text, &error), 1);
    assert_text(text, "llama");
    assert_int_equal(gguf_get_texts(gguf, "words", &texts, &count, &error), 1);
    assert_int_equal(count, 3);
    assert_text(texts[0], "one");
    assert_text(texts[1], "two");
    assert_text(texts[2], "");
    assert_int_equal(gguf_get_texts(gguf, "no.words", &texts, &count, &error), 1);
    assert_int_equal(count, 0);
    assert_int_equal(gguf_get_integers(gguf, "numbers", &integers, &count, &error), 1);
    assert_int_equal(count, 3);
    assert_true(integers[0] == -1 && integers[1] == 0 && integers[2] == 70000);
    gguf_close(gguf);
}

static void add_raw_array(struct nj_gguf_writer *writer, const char *key, uint32_t element_type, uint64_t count,
                          const void *from, size_t bytes)
{
    struct nj_bytes value = {0};
    bytes_add_u32(&value, element_type);
    bytes_add_u64(&value, count);
    bytes_add(&value, from, bytes);
    gguf_writer_add_raw(writer, key, GGUF_ARRAY, value.data, value.count);
    bytes_free(&value);
}

static void test_integer_arrays_of_every_width(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    add_raw_array(&writer, "u8", GGUF_UINT8, 2, (const uint8_t[]){1, 255}, 2);
    add_raw_array(&writer, "i16", GGUF_INT16, 2, (const int16_t[]){1, -2}, 4);
    add_raw_array(&writer, "u64", GGUF_UINT64, 2, (const uint64_t[]){1, INT64_MAX}, 16);
    add_raw_array(&writer, "large", GGUF_UINT64, 2, (const uint64_t[]){1, UINT64_MAX}, 16);
    struct nj_gguf *gguf = open_good(&writer);
    struct nj_error error;
    const int64_t *integers;
    size_t count;
    assert_int_equal(gguf_get_integers(gguf, "u8", &integers, &count, &error), 1);
    assert_true(count == 2 && integers[1] == 255);
    assert_int_equal(gguf_get_integers(gguf, "i16", &integers, &count, &error), 1);
    assert_true(count == 2 && integers[1] == -2);
    assert_int_equal(gguf_get_integers(gguf, "u64", &integers, &count, &error), 1);
    assert_true(count == 2 && integers[1] == INT64_MAX);
    assert_int_equal(gguf_get_integers(gguf, "large", &integers, &count, &error), -1);
    assert_non_null(strstr(error.message, "'large'"));
    gguf_close(gguf);
}

static void test_absent_and_wrong_types(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_f32(&writer, "scale", 1.0f);
    add_raw_array(&writer, "scores", GGUF_FLOAT32, 2, (const float[]){1, 2}, 8);
    struct nj_gguf *gguf = open_good(&writer);
    struct nj_error error;
    uint64_t number;
    double real;
    bool truth;
    struct nj_text text;
    const struct nj_text *texts;
    const int64_t *integers;
    size_t count;
    assert_int_equal(gguf_get_u64(gguf, "absent", 1, &number, &error), 0);
    assert_int_equal(gguf_get_f64(gguf, "absent", &real, &error), 0);
    assert_int_equal(gguf_get_bool(gguf, "absent", &truth, &error), 0);
    assert_int_equal(gguf_get_text(gguf, "absent", &text, &error), 0);
    assert_int_equal(gguf_get_texts(gguf, "absent", &texts, &count, &error), 0);
    assert_int_equal(gguf_get_integers(gguf, "absent", &integers, &count, &error), 0);
    assert_int_equal(gguf_get_u64(gguf, "scale", 1, &number, &error), -1);
    assert_string_equal(error.message, "the value of 'scale' is of the type float32; an integer is needed");
    assert_int_equal(gguf_get_f64(gguf, "llama.block_count", &real, &error), -1);
    assert_int_equal(gguf_get_bool(gguf, "llama.block_count", &truth, &error), -1);
    assert_int_equal(gguf_get_text(gguf, "words", &text, &error), -1);
    assert_string_equal(error.message, "the value of 'words' is an array of string; a string is needed");
    assert_int_equal(gguf_get_texts(gguf, "numbers", &texts, &count, &error), -1);
    assert_string_equal(error.message, "the value of 'numbers' is an array of int32; an array of strings is needed");
    assert_int_equal(gguf_get_texts(gguf, "general.architecture", &texts, &count, &error), -1);
    assert_int_equal(gguf_get_integers(gguf, "words", &integers, &count, &error), -1);
    assert_int_equal(gguf_get_integers(gguf, "scores", &integers, &count, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    gguf_close(gguf);
}

/* More metadata than one buffered read, with strings that lie across the seams. */
static void test_large_metadata(void **state)
{
    (void)state;
    enum { WORDS = 50000 };
    static char text[WORDS][24];
    static const char *words[WORDS];
    for (int i = 0; i < WORDS; i++) {
        snprintf(text[i], sizeof text[i], "word-%d", i * 7919);
        words[i] = text[i];
    }
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    gguf_writer_add_texts(&writer, "words", words, WORDS);
    for (int i = 0; i < 1000; i++)
        gguf_writer_add_u32(&writer, words[i], (uint32_t)i);
    struct nj_gguf *gguf = open_good(&writer);
    const struct nj_text *read;
    size_t count;
    struct nj_error error;
    assert_int_equal(gguf_get_texts(gguf, "words", &read, &count, &error), 1);
    assert_int_equal(count, WORDS);
    for (int i = 0; i < WORDS; i++)
        assert_text(read[i], words[i]);
    for (int i = 0; i < 1000; i++)
        assert_u64(gguf, words[i], (uint64_t)i);
    gguf_close(gguf);
}

static void test_tensors_and_their_data(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_tensor(&writer, "strange", 10, 4, (const uint64_t[]){256, 1, 2, 3}, 6 * 84);
    struct nj_bytes bytes = {0};
    gguf_writer_finish(&writer, &bytes);
    size_t data_start = bytes.count;
    for (uint64_t i = 0; i < writer.data_bytes; i++)
        bytes_add(&bytes, &(unsigned char){(unsigned char)(i * 31)}, 1);
    gguf_writer_free(&writer);
    struct nj_error error;
    struct nj_gguf *gguf = gguf_file_open_bytes(&bytes, &error);
    assert_non_null(gguf);
    assert_string_equal(gguf_path(gguf), gguf_file_path());
    assert_int_equal(gguf_tensor_count(gguf), 3);
    const struct nj_gguf_tensor *a = gguf_tensor_find(gguf, "a");
    const struct nj_gguf_tensor *b = gguf_tensor_find(gguf, "b");
    const struct nj_gguf_tensor *strange = gguf_tensor_find(gguf, "strange");
    assert_ptr_equal(a, gguf_tensor_at(gguf, 0));
    assert_ptr_equal(b, gguf_tensor_at(gguf, 1));
    assert_null(gguf_tensor_find(gguf, "c"));
    assert_text(b->name, "b");
    assert_string_equal(b->type->name, "Q8_0");
    assert_true(b->dimensions == 2 && b->shape[0] == 64 && b->shape[1] == 2 && b->shape[2] == 1 && b->shape[3] == 1);
    assert_int_equal(a->offset, data_start);
    assert_int_equal(a->bytes, 64 * 3 * 4);
    assert_int_equal(b->bytes, 2 * 2 * 34);
    assert_null(strange->type);
    assert_int_equal(strange->type_id, 10);
    unsigned char got[50];
    assert_int_equal(gguf_read(gguf, b, 86, got, sizeof got, &error), 0);
    assert_memory_equal(got, bytes.data + b->offset + 86, sizeof got);
    assert_int_equal(gguf_read(gguf, b, 87, got, sizeof got, &error), -1);
    assert_int_equal(gguf_read(gguf, b, UINT64_MAX, got, sizeof got, &error), -1);
    assert_non_null(strstr(error.message, "'b'"));
    gguf_close(gguf);
    bytes_free(&bytes);
}

static void test_version_2_and_no_tensors(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    writer.version = 2;
    struct nj_gguf *gguf = open_good(&writer);
    assert_int_equal(gguf_tensor_count(gguf), 0);
    assert_null(gguf_tensor_find(gguf, "a"));
    gguf_close(gguf);
}

static void test_other_alignment(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    writer.alignment = 512;
    gguf_writer_add_u32(&writer, "general.alignment", 512);
    gguf_writer_add_tensor(&writer, "a", 0, 1, (const uint64_t[]){4}, 16);
    gguf_writer_add_tensor(&writer, "b", 0, 1, (const uint64_t[]){4}, 16);
    struct nj_gguf *gguf = open_good(&writer);
    assert_int_equal(gguf_tensor_find(gguf, "a")->offset, 512);
    assert_int_equal(gguf_tensor_find(gguf, "b")->offset, 1024);
    gguf_close(gguf);
}

static void test_missing_and_special_files(void **state)
{
    (void)state;
    struct nj_error error;
    assert_null(gguf_open(gguf_file_path(), &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_string_equal(error.file, gguf_file_path());
    assert_null(gguf_open("/", &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_int_equal(mkfifo(gguf_file_path(), 0600), 0);
    assert_null(gguf_open(gguf_file_path(), &error)); /* does not wait for a writer */
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "not a regular file"));
}

static void test_a_file_that_shrinks_after_opening(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    struct nj_gguf *gguf = open_good(&writer);
    const struct nj_gguf_tensor *b = gguf_tensor_find(gguf, "b");
    assert_int_equal(truncate(gguf_file_path(), (off_t)b->offset + 10), 0);
    struct nj_error error;
    char got[20];
    assert_int_equal(gguf_read(gguf, b, 0, got, sizeof got, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "too short"));
    gguf_close(gguf);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, gguf_file_set_up, gguf_file_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(test_integers_of_every_width),
        FILE_TEST(test_range_of_integers),
        FILE_TEST(test_floats_and_bools),
        FILE_TEST(test_texts_and_arrays),
        FILE_TEST(test_integer_arrays_of_every_width),
        FILE_TEST(test_absent_and_wrong_types),
        FILE_TEST(test_large_metadata),
        FILE_TEST(test_tensors_and_their_data),
        FILE_TEST(test_version_2_and_no_tensors),
        FILE_TEST(test_other_alignment),
        FILE_TEST(test_missing_and_special_files),
        FILE_TEST(test_a_file_that_shrinks_after_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
