/* The generator of synthetic models: what it writes opens, has the shape asked for, and is deterministic. */
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
#include "engine/formats/gguf.h"
#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"

static char *directory;
static char *path;

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "model.gguf");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

static void write_model(const struct nj_synthetic_shape *shape, const char *template_path)
{
    struct nj_error error;
    if (synthetic_model_write(shape, NJ_TEST_DATA "/synthetic", template_path, path, &error) != 0)
        fail_msg("%s", error.message);
}

static struct nj_gguf *open_model(void)
{
    struct nj_error error;
    struct nj_gguf *gguf = gguf_open(path, &error);
    if (gguf == NULL)
        fail_msg("%s", error.message);
    return gguf;
}

static void assert_tensor(const struct nj_gguf *gguf, const char *name, const char *type, uint64_t cols, uint64_t rows)
{
    const struct nj_gguf_tensor *tensor = gguf_tensor_find(gguf, name);
    if (tensor == NULL)
        fail_msg("%s is missing", name);
    assert_string_equal(tensor->type->name, type);
    assert_int_equal(tensor->shape[0], cols);
    assert_int_equal(tensor->shape[1], rows);
}

static void test_shape(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = {.layers = 3,
                                       .width = 96,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_width = 32,
                                       .feed_forward = 160,
                                       .context = 512,
                                       .type = "q4_0",
                                       .embedding_type = "f16"};
    write_model(&shape, NULL);
    struct nj_gguf *gguf = open_model();
    assert_int_equal(gguf_tensor_count(gguf), 3 * 9 + 3);
    assert_tensor(gguf, "token_embd.weight", "F16", 96, 768);
    assert_tensor(gguf, "output.weight", "F16", 96, 768);
    assert_tensor(gguf, "output_norm.weight", "F32", 96, 1);
    assert_tensor(gguf, "blk.2.attn_norm.weight", "F32", 96, 1);
    assert_tensor(gguf, "blk.2.attn_q.weight", "Q4_0", 96, 64);
    assert_tensor(gguf, "blk.2.attn_k.weight", "Q4_0", 96, 32);
    assert_tensor(gguf, "blk.2.attn_v.weight", "Q4_0", 96, 32);
    assert_tensor(gguf, "blk.2.attn_output.weight", "Q4_0", 64, 96);
    assert_tensor(gguf, "blk.2.ffn_norm.weight", "F32", 96, 1);
    assert_tensor(gguf, "blk.2.ffn_gate.weight", "Q4_0", 96, 160);
    assert_tensor(gguf, "blk.2.ffn_up.weight", "Q4_0", 96, 160);
    assert_tensor(gguf, "blk.2.ffn_down.weight", "Q4_0", 160, 96);
    struct nj_error error;
    uint64_t value;
    assert_int_equal(gguf_get_u64(gguf, "llama.attention.key_length", 1000, &value, &error), 1);
    assert_int_equal(value, 32);
    assert_int_equal(gguf_get_u64(gguf, "llama.context_length", 1000, &value, &error), 1);
    assert_int_equal(value, 512);
    gguf_close(gguf);
}

static void test_qwen2_has_biases(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.architecture = "qwen2";
    write_model(&shape, NULL);
    struct nj_gguf *gguf = open_model();
    assert_int_equal(gguf_tensor_count(gguf), 2 * 12 + 2);
    assert_tensor(gguf, "blk.1.attn_q.bias", "F32", 64, 1);
    assert_tensor(gguf, "blk.1.attn_k.bias", "F32", 32, 1);
    assert_tensor(gguf, "blk.1.attn_v.bias", "F32", 32, 1);
    struct nj_error error;
    uint64_t value;
    assert_int_equal(gguf_get_u64(gguf, "qwen2.context_length", 10000, &value, &error), 1);
    assert_int_equal(value, 4096);
    gguf_close(gguf);
}

static void test_vocabulary(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    write_model(&shape, NULL);
    struct nj_gguf *gguf = open_model();
    struct nj_error error;
    const struct nj_text *tokens, *merges;
    const int64_t *types;
    size_t count, merge_count, type_count;
    assert_int_equal(gguf_get_texts(gguf, "tokenizer.ggml.tokens", &tokens, &count, &error), 1);
    assert_int_equal(gguf_get_texts(gguf, "tokenizer.ggml.merges", &merges, &merge_count, &error), 1);
    assert_int_equal(gguf_get_integers(gguf, "tokenizer.ggml.token_type", &types, &type_count, &error), 1);
    assert_int_equal(count, 768);
    assert_int_equal(type_count, 768);
    assert_int_equal(merge_count, 768 - 256 - 3);
    assert_memory_equal(tokens[2].bytes, "<|im_end|>", 10);
    assert_true(types[2] == 3 && types[3] == 1);
    for (size_t i = 0; i < count; i++)
        assert_true(tokens[i].length > 0);
    for (size_t i = 0; i < merge_count; i++)
        assert_non_null(memchr(merges[i].bytes, ' ', merges[i].length));
    assert_null(gguf_tensor_find(gguf, "output.weight"));
    gguf_close(gguf);
}

static void test_template_of_the_callers(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    char *template_path = temporary_path(directory, "template");
    temporary_write_file(template_path, "{{ 1 }}", 7);
    write_model(&shape, template_path);
    struct nj_gguf *gguf = open_model();
    struct nj_error error;
    struct nj_text text;
    assert_int_equal(gguf_get_text(gguf, "tokenizer.chat_template", &text, &error), 1);
    assert_int_equal(text.length, 7);
    assert_memory_equal(text.bytes, "{{ 1 }}", 7);
    gguf_close(gguf);
    free(template_path);
}

static char *read_model(size_t *bytes)
{
    struct nj_error error;
    char *content = file_read_whole(path, 1 << 24, bytes, &error);
    assert_non_null(content);
    return content;
}

static void test_same_seed_same_bytes(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    size_t first_bytes, second_bytes, third_bytes;
    write_model(&shape, NULL);
    char *first = read_model(&first_bytes);
    write_model(&shape, NULL);
    char *second = read_model(&second_bytes);
    shape.seed = 2;
    write_model(&shape, NULL);
    char *third = read_model(&third_bytes);
    assert_int_equal(first_bytes, second_bytes);
    assert_memory_equal(first, second, first_bytes);
    assert_int_equal(first_bytes, third_bytes);
    assert_memory_not_equal(first, third, first_bytes);
    free(third);
    free(second);
    free(first);
}

static void test_weights_are_alike_in_every_type(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double most; /* of the error, relative to the weights' spread */
    } TYPES[] = {{"f32", 0},     {"f16", 0.001}, {"bf16", 0.008}, {"q8_0", 0.01}, {"q5_0", 0.1}, {"q5_1", 0.08},
                 {"q6_k", 0.05}, {"q5_k", 0.1},  {"q4_k", 0.2},   {"q4_1", 0.15}, {"q4_0", 0.2}};
    enum { WIDTH = 256, ROWS = 512, COUNT = WIDTH * ROWS };
    static float exact[COUNT], got[COUNT];
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        struct nj_synthetic_shape shape = synthetic_shape_small();
        shape.type = TYPES[i].type;
        shape.width = WIDTH;
        shape.feed_forward = ROWS;
        write_model(&shape, NULL);
        struct nj_gguf *gguf = open_model();
        const struct nj_gguf_tensor *tensor = gguf_tensor_find(gguf, "blk.1.ffn_up.weight");
        unsigned char stored[WIDTH * 4];
        struct nj_error error;
        size_t row_bytes = tensor_type_row_bytes(tensor->type, WIDTH);
        for (size_t r = 0; r < ROWS; r++) {
            assert_int_equal(gguf_read(gguf, tensor, r * row_bytes, stored, row_bytes, &error), 0);
            tensor->type->dequantize_row(stored, WIDTH, got + r * WIDTH);
        }
        if (i == 0)
            memcpy(exact, got, sizeof exact);
        double squares = 0, errors = 0;
        for (size_t j = 0; j < COUNT; j++) {
            squares += (double)exact[j] * exact[j];
            errors += ((double)got[j] - exact[j]) * ((double)got[j] - exact[j]);
        }
        assert_true(fabs(sqrt(squares / COUNT) * sqrt(WIDTH) - 1) < 0.05); /* outputs as large as inputs */
        assert_true(sqrt(errors / squares) <= TYPES[i].most);
        gguf_close(gguf);
    }
}

static void assert_refused(const struct nj_synthetic_shape *shape)
{
    struct nj_error error;
    assert_int_equal(synthetic_model_write(shape, NJ_TEST_DATA "/synthetic", NULL, path, &error), -1);
    assert_int_equal(error.code, NJ_BAD_USAGE);
}

static void test_bad_shapes(void **state)
{
    (void)state;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.width = 80;
    assert_refused(&shape);
    shape = synthetic_shape_small();
    shape.kv_heads = 3;
    assert_refused(&shape);
    shape = synthetic_shape_small();
    shape.type = "q3_k";
    assert_refused(&shape);
    shape.type = "q4_k"; /* rows of 64 */
    assert_refused(&shape);
    shape = synthetic_shape_small();
    shape.layers = 0;
    assert_refused(&shape);
    shape = synthetic_shape_small();
    shape.architecture = "mamba";
    assert_refused(&shape);
    shape = synthetic_shape_small();
    struct nj_error error;
    assert_int_equal(synthetic_model_write(&shape, directory, NULL, path, &error), -1);
    assert_int_equal(error.code, NJ_NO_INPUT);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(test_shape),
        FILE_TEST(test_qwen2_has_biases),
        FILE_TEST(test_vocabulary),
        FILE_TEST(test_template_of_the_callers),
        FILE_TEST(test_same_seed_same_bytes),
        FILE_TEST(test_weights_are_alike_in_every_type),
        FILE_TEST(test_bad_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
