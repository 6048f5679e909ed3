/* Bad entries of the tensor directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"

enum { F32 = 0, Q4_0 = 2, Q8_0 = 8 };

/* The valid file's tensors end at this offset of its data. */
enum { DATA_BYTES = 64 * 3 * 4 + 2 * 2 * 34, NEXT_OFFSET = 928 };

static void assert_tensor_refused(const char *name, uint32_t type, uint32_t dimensions, const uint64_t *shape,
                                  uint64_t offset, const char *expected)
{
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    gguf_writer_add_tensor_at(&writer, name, type, dimensions, shape, offset);
    writer.data_bytes = NEXT_OFFSET + 1024;
    gguf_file_assert_refused(&writer, expected);
}

static void test_dimension_count(void **state)
{
    (void)state;
    static const uint64_t ONES[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    assert_tensor_refused("bad", F32, 0, ONES, NEXT_OFFSET, "the tensor 'bad' has 0 dimensions");
    assert_tensor_refused("bad", F32, 5, ONES, NEXT_OFFSET, "the tensor 'bad' has 5 dimensions");
    struct nj_gguf_writer writer;
    gguf_file_start_valid(&writer);
    writer.tensor_count++;
    bytes_add_text(&writer.tensors, "bad");
    bytes_add_u32(&writer.tensors, UINT32_MAX);
    bytes_add_zeros(&writer.tensors, 100);
    gguf_file_assert_refused(&writer, "the tensor 'bad' has 4294967295 dimensions");
}

static void test_dimensions(void **state)
{
    (void)state;
    assert_tensor_refused("bad", F32, 1, (const uint64_t[]){0}, NEXT_OFFSET, "the tensor 'bad': dimension 1 is zero");
    assert_tensor_refused("bad", F32, 3, (const uint64_t[]){4, 4, 0}, NEXT_OFFSET, "dimension 3 is zero");
    static const uint64_t OVERFLOWS[][4] = {
        {UINT64_C(1) << 32, UINT64_C(1) << 32, 1, 1},
        {UINT64_MAX, 1, 1, 1},
        {UINT64_C(1) << 63, 2, 1, 1},
        {UINT64_C(1) << 16, UINT64_C(1) << 16, UINT64_C(1) << 16, UINT64_C(1) << 16},
    };
    for (size_t i = 0; i < sizeof OVERFLOWS / sizeof *OVERFLOWS; i++)
        assert_tensor_refused("bad", F32, 4, OVERFLOWS[i], NEXT_OFFSET,
                              "the tensor 'bad': the number of elements overflows");
}

static void test_bytes(void **state)
{
    (void)state;
    static const uint64_t LONG_ROW[] = {UINT64_C(1) << 62};
    static const uint64_t MANY_ROWS[] = {UINT64_C(1) << 31, UINT64_C(1) << 31};
    assert_tensor_refused("bad", F32, 1, LONG_ROW, NEXT_OFFSET, "the tensor 'bad': the size in bytes overflows");
    assert_tensor_refused("bad", F32, 2, MANY_ROWS, NEXT_OFFSET, "the tensor 'bad': the size in bytes overflows");
    assert_tensor_refused("bad", Q8_0, 1, LONG_ROW, NEXT_OFFSET, "the tensor 'bad' (");
    assert_tensor_refused("bad", Q4_0, 2, (const uint64_t[]){48, 2}, NEXT_OFFSET,
                          "the tensor 'bad': rows of 48 elements are not whole Q4_0 blocks of 32");
    assert_tensor_refused("bad", F32, 1, (const uint64_t[]){257}, NEXT_OFFSET, "leaves the file");
    assert_tensor_refused("bad", F32, 1, (const uint64_t[]){UINT64_C(1) << 40}, NEXT_OFFSET, "leaves the file");
}

static void test_offsets(void **state)
{
    (void)state;
    static const uint64_t SHAPE[] = {256};
    assert_tensor_refused("bad", F32, 1, SHAPE, NEXT_OFFSET + 1, "the tensor 'bad': the offset 929 is not a multiple");
    assert_tensor_refused("bad", F32, 1, SHAPE, NEXT_OFFSET + 32, "the tensor 'bad' (1024 bytes) leaves the file");
    assert_tensor_refused("bad", F32, 1, SHAPE, UINT64_MAX - 31, "the tensor 'bad' (1024 bytes) leaves the file");
    assert_tensor_refused("bad", 10, 1, SHAPE, UINT64_C(1) << 40, "the tensor 'bad' (0 bytes) leaves the file");
}

static void test_overlaps(void **state)
{
    (void)state;
    static const uint64_t SHAPE[] = {8};
    assert_tensor_refused("bad", F32, 1, SHAPE, 0, "the tensors 'a' and 'bad' overlap");
    assert_tensor_refused("bad", F32, 1, SHAPE, 736, "the tensors 'a' and 'bad' overlap");
    assert_tensor_refused("bad", F32, 1, SHAPE, 896, "the tensors 'b' and 'bad' overlap");
    assert_tensor_refused("bad", 10, 1, (const uint64_t[]){256}, 768, "overlap");
}

static void test_names(void **state)
{
    (void)state;
    static const uint64_t SHAPE[] = {8};
    assert_tensor_refused("a", F32, 1, SHAPE, NEXT_OFFSET, "the tensor 'a' occurs twice");
    assert_tensor_refused("", F32, 1, SHAPE, NEXT_OFFSET, "tensor 3 of 3: the name is empty");
    assert_tensor_refused("\xed\xa0\x80", F32, 1, SHAPE, NEXT_OFFSET, "tensor 3 of 3: the name is not valid UTF-8");
    char name[257] = "";
    memset(name, 'n', 256);
    assert_tensor_refused(name, F32, 1, SHAPE, NEXT_OFFSET, "tensor 3 of 3: a string claims 256 bytes; at most 255");
}

/* The error names the byte where the second record begins. */
static void test_place_of_a_duplicate(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    struct nj_bytes bytes = {0};
    gguf_file_start_valid(&writer);
    int64_t record = 24 + (int64_t)writer.entries.count + (int64_t)writer.tensors.count;
    gguf_writer_add_tensor(&writer, "a", F32, 1, (const uint64_t[]){8}, 32);
    gguf_file_finish(&writer, &bytes);
    gguf_file_assert_refused_bytes(&bytes, "occurs twice", record);
}

/* A name of the greatest length is quoted without cutting a character. */
static void test_long_names_are_quoted_as_utf8(void **state)
{
    (void)state;
    char name[256] = "x";
    for (int i = 1; i < 255; i += 2)
        memcpy(name + i, "\xc3\xa9", 2);
    name[255] = '\0';
    assert_tensor_refused(name, F32, 0, (const uint64_t[]){1}, NEXT_OFFSET, "\xc3\xa9 has 0 dimensions");
}

/* The control for all of the above: the same file with a good third tensor opens. */
static void test_a_good_tensor_is_accepted(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    struct nj_error error;
    gguf_file_start_valid(&writer);
    assert_int_equal(writer.data_bytes, DATA_BYTES);
    gguf_writer_add_tensor_at(&writer, "bad", F32, 1, (const uint64_t[]){256}, NEXT_OFFSET);
    writer.data_bytes = NEXT_OFFSET + 1024;
    struct nj_gguf *gguf = gguf_file_open(&writer, &error);
    assert_non_null(gguf);
    gguf_close(gguf);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, gguf_file_set_up, gguf_file_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(test_dimension_count),
        FILE_TEST(test_dimensions),
        FILE_TEST(test_bytes),
        FILE_TEST(test_offsets),
        FILE_TEST(test_overlaps),
        FILE_TEST(test_names),
        FILE_TEST(test_place_of_a_duplicate),
        FILE_TEST(test_long_names_are_quoted_as_utf8),
        FILE_TEST(test_a_good_tensor_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
