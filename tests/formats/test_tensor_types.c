/* The tensor type table: dequantisation against vectors made by PyPI's gguf, and strips against the text of
 * kernels/matrix.h. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/file.h"
#include "engine/formats/tensor_types.h"
#include "tests/support/strip_number.h"

struct vectors {
    char *content;
    uint32_t rows, cols;
    const unsigned char *stored;
    size_t row_bytes;
    float *values;
};

static struct vectors read_vectors(const struct nj_tensor_type *type)
{
    char path[1024];
    snprintf(path, sizeof path, NJ_TEST_DATA "/formats/%s.vectors", type->name);
    for (char *c = strrchr(path, '/'); *c != '\0'; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
    struct vectors vectors = {0};
    struct nj_error error;
    size_t bytes;
    vectors.content = file_read_whole(path, 1 << 20, &bytes, &error);
    assert_non_null(vectors.content);
    memcpy(&vectors.rows, vectors.content, 4);
    memcpy(&vectors.cols, vectors.content + 4, 4);
    vectors.stored = (const unsigned char *)vectors.content + 8;
    vectors.row_bytes = tensor_type_row_bytes(type, vectors.cols);
    size_t count = (size_t)vectors.rows * vectors.cols;
    assert_int_equal(bytes, 8 + vectors.rows * vectors.row_bytes + count * sizeof(float));
    vectors.values = malloc(count * sizeof(float));
    memcpy(vectors.values, vectors.stored + vectors.rows * vectors.row_bytes, count * sizeof(float));
    return vectors;
}

static void free_vectors(struct vectors *vectors)
{
    free(vectors->content);
    free(vectors->values);
}

static void assert_same_bits(const float *got, const float *expected, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
            fail_msg("%s: element %zu is %a, not %a", what, i, (double)got[i], (double)expected[i]);
}

static void test_dequantized_rows_equal_the_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; tensor_type_at(i) != NULL; i++) {
        const struct nj_tensor_type *type = tensor_type_at(i);
        struct vectors vectors = read_vectors(type);
        float *row = malloc(vectors.cols * sizeof *row);
        for (uint32_t r = 0; r < vectors.rows; r++) {
            type->dequantize_row(vectors.stored + r * vectors.row_bytes, vectors.cols, row);
            assert_same_bits(row, vectors.values + (size_t)r * vectors.cols, vectors.cols, type->name);
        }
        free(row);
        free_vectors(&vectors);
    }
}

/* Rows 0..present-1 of a strip come from the vectors in turn; the source ends right behind them. */
static void check_strip(const struct nj_tensor_type *type, const struct vectors *vectors, int present)
{
    struct nj_error error;
    size_t strip_bytes = matrix_strip_bytes(type->kind, vectors->cols);
    unsigned char *rows = malloc((size_t)present * vectors->row_bytes);
    unsigned char *strip = malloc(strip_bytes);
    memset(strip, 0xee, strip_bytes);
    for (int r = 0; r < present; r++)
        memcpy(rows + (size_t)r * vectors->row_bytes, vectors->stored + (size_t)r % vectors->rows * vectors->row_bytes,
               vectors->row_bytes);
    assert_int_equal(type->convert_strip(rows, vectors->row_bytes, present, vectors->cols, strip, &error), 0);
    float *got = malloc(vectors->cols * sizeof *got);
    float *expected = malloc(vectors->cols * sizeof *expected);
    for (int r = 0; r < NJ_STRIP_ROWS; r++) {
        for (int64_t col = 0; col < vectors->cols; col++)
            got[col] = strip_element(type->kind, strip, r, col);
        if (r < present) {
            type->dequantize_row(rows + (size_t)r * vectors->row_bytes, vectors->cols, expected);
            assert_same_bits(got, expected, vectors->cols, type->name);
        } else {
            for (int64_t col = 0; col < vectors->cols; col++)
                assert_true(got[col] == 0.0f);
        }
    }
    free(expected);
    free(got);
    free(strip);
    free(rows);
}

static void test_strips_equal_the_dequantized_rows(void **state)
{
    (void)state;
    for (size_t i = 0; tensor_type_at(i) != NULL; i++) {
        struct vectors vectors = read_vectors(tensor_type_at(i));
        check_strip(tensor_type_at(i), &vectors, NJ_STRIP_ROWS);
        check_strip(tensor_type_at(i), &vectors, 1);
        check_strip(tensor_type_at(i), &vectors, 5);
        free_vectors(&vectors);
    }
}

/* Rows may lie further apart than they are long, and what lies between is not looked at. */
static void test_rows_may_be_strided(void **state)
{
    (void)state;
    const struct nj_tensor_type *type = tensor_type_by_gguf_id(8);
    struct vectors vectors = read_vectors(type);
    size_t strip_bytes = matrix_strip_bytes(type->kind, 32);
    unsigned char *strip = malloc(strip_bytes);
    struct nj_error error;
    assert_int_equal(type->convert_strip(vectors.stored, vectors.row_bytes, 2, 32, strip, &error), 0);
    for (int64_t col = 0; col < 32; col++)
        assert_true(strip_element(type->kind, strip, 1, col) == vectors.values[vectors.cols + col]);
    free(strip);
    free_vectors(&vectors);
}

/* Overwrites `bytes` at `at` in the last of three rows and expects this failure. */
static void assert_strip_refused(const char *name, size_t at, const void *bad, size_t bytes, const char *expected)
{
    const struct nj_tensor_type *type = NULL;
    for (size_t i = 0; tensor_type_at(i) != NULL; i++)
        if (strcmp(tensor_type_at(i)->name, name) == 0)
            type = tensor_type_at(i);
    assert_non_null(type);
    struct vectors vectors = read_vectors(type);
    unsigned char *rows = malloc(3 * vectors.row_bytes);
    unsigned char *strip = malloc(matrix_strip_bytes(type->kind, vectors.cols));
    memcpy(rows, vectors.stored, 3 * vectors.row_bytes);
    memcpy(rows + 2 * vectors.row_bytes + at, bad, bytes);
    struct nj_error error;
    assert_int_equal(type->convert_strip(rows, vectors.row_bytes, 2, vectors.cols, strip, &error), 0);
    assert_int_equal(type->convert_strip(rows, vectors.row_bytes, 3, vectors.cols, strip, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, expected));
    assert_string_equal(error.file, "");
    free(strip);
    free(rows);
    free_vectors(&vectors);
}

static void test_values_that_are_refused(void **state)
{
    (void)state;
    static const uint16_t HALVES[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff};
    for (size_t i = 0; i < sizeof HALVES / sizeof *HALVES; i++) {
        assert_strip_refused("Q4_0", 18 * 2, &HALVES[i], 2, "a scale is not a finite number (columns from 64, row 2");
        assert_strip_refused("Q4_1", 20, &HALVES[i], 2, "a scale or minimum is not a finite number (columns from 32");
        assert_strip_refused("Q4_1", 22, &HALVES[i], 2, "a scale or minimum is not a finite number (columns from 32");
        assert_strip_refused("Q5_0", 22, &HALVES[i], 2, "a scale is not a finite number (columns from 32, row 2");
        assert_strip_refused("Q5_1", 24, &HALVES[i], 2, "a scale or minimum is not a finite number (columns from 32");
        assert_strip_refused("Q5_1", 26, &HALVES[i], 2, "a scale or minimum is not a finite number (columns from 32");
        assert_strip_refused("Q8_0", 0, &HALVES[i], 2, "a scale is not a finite number (columns from 0");
        assert_strip_refused("F16", 2 * 95, &HALVES[i], 2, "a weight is not a finite number (column 95, row 2");
    }
    static const float SINGLES[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof SINGLES / sizeof *SINGLES; i++) {
        assert_strip_refused("F32", 4 * 95, &SINGLES[i], 4, "a weight is not a finite number (column 95, row 2");
        assert_strip_refused("BF16", 2 * 7, (const char *)&SINGLES[i] + 2, 2, "(column 7, row 2");
    }
    static const unsigned char INFINITE_HALF[] = {0x00, 0x7c};
    assert_strip_refused("Q4_K", 144, INFINITE_HALF, 2, "a scale or minimum is not a finite number (columns from 256");
    assert_strip_refused("Q4_K", 2, INFINITE_HALF, 2, "a scale or minimum is not a finite number (columns from 0");
    assert_strip_refused("Q5_K", 176 + 2, INFINITE_HALF, 2, "(columns from 256, row 2");
    assert_strip_refused("Q6_K", 208, INFINITE_HALF, 2, "a scale is not a finite number (columns from 0, row 2");
    assert_strip_refused("Q8_0", 2, "\x80", 1, "-128");
    assert_strip_refused("Q8_0", 34 * 3 - 1, "\x80", 1, "-128");
}

static void test_table(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
        size_t bytes_of_64;
    } EXPECTED[] = {{0, "F32", 256}, {1, "F16", 128}, {30, "BF16", 128}, {2, "Q4_0", 36},  {3, "Q4_1", 40},
                    {6, "Q5_0", 44}, {7, "Q5_1", 48}, {8, "Q8_0", 68},   {12, "Q4_K", 36}, {13, "Q5_K", 44}};
    for (size_t i = 0; i < sizeof EXPECTED / sizeof *EXPECTED; i++) {
        const struct nj_tensor_type *type = tensor_type_by_gguf_id(EXPECTED[i].id);
        assert_non_null(type);
        assert_string_equal(type->name, EXPECTED[i].name);
        assert_int_equal(4 * EXPECTED[i].bytes_of_64, tensor_type_row_bytes(type, 256));
    }
    assert_int_equal(tensor_type_row_bytes(tensor_type_by_gguf_id(14), 512), 420);
    assert_int_equal(tensor_type_row_bytes(tensor_type_by_gguf_id(12), 128), 0);
    assert_null(tensor_type_by_gguf_id(4));
    assert_null(tensor_type_by_gguf_id(UINT32_MAX));
    assert_null(tensor_type_at(sizeof EXPECTED / sizeof *EXPECTED + 1));
    assert_int_equal(tensor_type_row_bytes(tensor_type_by_gguf_id(8), 48), 0);
    assert_int_equal(tensor_type_row_bytes(tensor_type_by_gguf_id(0), UINT64_C(1) << 62), 0);
    assert_int_equal(tensor_type_row_bytes(tensor_type_by_gguf_id(8), UINT64_MAX - 31), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dequantized_rows_equal_the_vectors),
        cmocka_unit_test(test_strips_equal_the_dequantized_rows),
        cmocka_unit_test(test_rows_may_be_strided),
        cmocka_unit_test(test_values_that_are_refused),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
