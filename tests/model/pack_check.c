#include "tests/model/pack_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/pack_layout.h"
#include "tests/support/strip_number.h"

struct test_source test_source_open(const char *path)
{
    struct test_source source;
    struct nj_error error;
    source.gguf = gguf_open(path, &error);
    if (source.gguf == NULL)
        fail_msg("gguf_open: %s", error.message);
    if (hyperparameters_read(source.gguf, &source.shape, &error) != 0)
        fail_msg("hyperparameters_read: %s", error.message);
    return source;
}

void test_source_close(struct test_source *source)
{
    gguf_close(source->gguf);
}

struct nj_pack_options test_pack_options(const struct test_source *source, const char *directory)
{
    return (struct nj_pack_options){
        .directory = directory, .gguf = source->gguf, .shape = &source->shape, .model_digest = TEST_DIGEST};
}

void *test_section_read(struct nj_pack *pack, int index, struct nj_error *error)
{
    size_t bytes = (size_t)pack_section_at(pack, index)->bytes;
    void *memory = aligned_alloc(NJ_PACK_ALIGNMENT, bytes);
    assert_non_null(memory);
    memset(memory, 0xa5, bytes);
    if (pack_read_section(pack, index, memory, error) == 0)
        return memory;
    free(memory);
    return NULL;
}

static void read_row(const struct test_source *source, const struct nj_gguf_tensor *tensor, int64_t row, float *out)
{
    size_t bytes = tensor_type_row_bytes(tensor->type, tensor->shape[0]);
    unsigned char *raw = malloc(bytes);
    struct nj_error error;
    assert_non_null(raw);
    if (gguf_read(source->gguf, tensor, (uint64_t)row * bytes, raw, bytes, &error) != 0)
        fail_msg("gguf_read: %s", error.message);
    tensor->type->dequantize_row(raw, (int64_t)tensor->shape[0], out);
    free(raw);
}

static void matrix_equals(const struct nj_pack_tensor *tensor, const unsigned char *data,
                          const struct test_source *source, const struct nj_gguf_tensor *in_file)
{
    float *expected = malloc((size_t)tensor->cols * sizeof *expected);
    assert_non_null(expected);
    size_t strip_bytes = matrix_strip_bytes(tensor->kind, tensor->cols);
    int64_t padded = (tensor->rows + NJ_STRIP_ROWS - 1) / NJ_STRIP_ROWS * NJ_STRIP_ROWS;
    assert_int_equal(tensor->bytes, (uint64_t)(padded / NJ_STRIP_ROWS) * strip_bytes);
    for (int64_t row = 0; row < padded; row++) {
        memset(expected, 0, (size_t)tensor->cols * sizeof *expected);
        if (row < tensor->rows)
            read_row(source, in_file, row, expected);
        const unsigned char *strip = data + (size_t)(row / NJ_STRIP_ROWS) * strip_bytes;
        for (int64_t col = 0; col < tensor->cols; col++) {
            float found = strip_element(tensor->kind, strip, (int)(row % NJ_STRIP_ROWS), col);
            if (found != expected[col])
                fail_msg("slot %d layer %d: element [%d][%d] is %.9g, not %.9g", (int)tensor->slot, (int)tensor->layer,
                         (int)row, (int)col, (double)found, (double)expected[col]);
        }
    }
    free(expected);
}

static void vector_equals(const struct nj_pack_tensor *tensor, const unsigned char *data,
                          const struct test_source *source, const struct nj_gguf_tensor *in_file)
{
    float *expected = malloc((size_t)tensor->cols * sizeof *expected);
    assert_non_null(expected);
    assert_int_equal(tensor->kind, NJ_KIND_F32);
    assert_int_equal(tensor->rows, 1);
    assert_int_equal(tensor->bytes, (size_t)tensor->cols * sizeof *expected);
    read_row(source, in_file, 0, expected);
    assert_memory_equal(data, expected, tensor->bytes);
    free(expected);
}

void test_pack_equals_source(struct nj_pack *pack, const struct test_source *source)
{
    size_t seen = 0;
    for (int i = 0; i < pack_section_count(pack); i++) {
        const struct nj_pack_section *section = pack_section_at(pack, i);
        struct nj_error error;
        unsigned char *memory = test_section_read(pack, i, &error);
        if (memory == NULL)
            fail_msg("pack_read_section: %s", error.message);
        for (int t = section->first_tensor; t < section->first_tensor + section->tensors; t++, seen++) {
            const struct nj_pack_tensor *tensor = pack_tensor_at(pack, t);
            char name[NJ_TENSOR_NAME_BYTES];
            pack_tensor_name(tensor->slot, tensor->layer, name);
            const struct nj_gguf_tensor *in_file = gguf_tensor_find(source->gguf, name);
            assert_non_null(in_file);
            const unsigned char *data = memory + (tensor->offset - section->offset);
            if (tensor->is_vector)
                vector_equals(tensor, data, source, in_file);
            else
                matrix_equals(tensor, data, source, in_file);
        }
        free(memory);
    }
    assert_int_equal(seen, gguf_tensor_count(source->gguf));
}
