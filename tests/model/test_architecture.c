/* What hyperparameters_read reads, what it takes for granted, and what it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/architecture.h"
#include "tests/model/model_file.h"
#include "tests/support/temporary_directory.h"

static char *directory, *path;

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

static int read_recipe(const struct model_recipe *recipe, struct nj_hyperparameters *out, struct nj_error *error)
{
    model_file_write(recipe, path);
    struct nj_gguf *gguf = gguf_open(path, error);
    if (gguf == NULL)
        fail_msg("gguf_open: %s", error->message);
    int result = hyperparameters_read(gguf, out, error);
    gguf_close(gguf);
    return result;
}

static struct nj_hyperparameters read_good(const struct model_recipe *recipe)
{
    struct nj_hyperparameters shape;
    struct nj_error error;
    if (read_recipe(recipe, &shape, &error) != 0)
        fail_msg("%s", error.message);
    return shape;
}

/* The file is refused, by name of the file, and the message contains each text. */
static void expect_refused(const struct model_recipe *recipe, const char *text, const char *another)
{
    struct nj_hyperparameters shape;
    struct nj_error error;
    assert_int_equal(read_recipe(recipe, &shape, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, path);
    if (strstr(error.message, text) == NULL || (another != NULL && strstr(error.message, another) == NULL))
        fail_msg("\"%s\" and \"%s\" are not both in: %s", text, another != NULL ? another : "", error.message);
}

static void reads_every_value(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    struct nj_hyperparameters shape = read_good(&recipe);
    assert_string_equal(shape.architecture->name, "llama");
    assert_int_equal(shape.architecture->rope, NJ_ROPE_ADJACENT);
    assert_int_equal(shape.layers, 2);
    assert_int_equal(shape.width, 64);
    assert_int_equal(shape.feed_forward, 96);
    assert_int_equal(shape.heads, 4);
    assert_int_equal(shape.kv_heads, 1);
    assert_int_equal(shape.head_width, 24);
    assert_int_equal(shape.rotated, 24);
    assert_int_equal(shape.context, 2048);
    assert_int_equal(shape.vocabulary, 37);
    assert_true(shape.norm_epsilon == 1e-5f);
    assert_true(shape.rope_base == 10000);
    assert_true(shape.rope_scale == 1);
    assert_true(shape.tied_embeddings);
    recipe.tied = false;
    assert_false(read_good(&recipe).tied_embeddings);
}

static void traits_are_the_architectures(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    assert_false(read_good(&recipe).architecture->has_attention_biases);
    recipe.architecture = "qwen2";
    recipe.with_biases = true;
    struct nj_hyperparameters shape = read_good(&recipe);
    assert_string_equal(shape.architecture->name, "qwen2");
    assert_int_equal(shape.architecture->rope, NJ_ROPE_HALVES);
    assert_true(shape.architecture->has_attention_biases);
    assert_int_equal(shape.head_width, 24);
    recipe.without_key = "qwen2.block_count";
    expect_refused(&recipe, "has no", "qwen2.block_count");
}

static void absent_optional_keys_have_defaults(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.head_width = 16;
    recipe.without_key = "llama.attention.key_length";
    assert_int_equal(read_good(&recipe).head_width, 16);
    recipe.without_key = "llama.attention.value_length";
    assert_int_equal(read_good(&recipe).head_width, 16);
    recipe.kv_heads = 4;
    recipe.without_key = "llama.attention.head_count_kv";
    assert_int_equal(read_good(&recipe).kv_heads, 4);
}

static void missing_keys_are_named(void **state)
{
    (void)state;
    static const char *const keys[] = {"general.architecture",
                                       "llama.block_count",
                                       "llama.context_length",
                                       "llama.embedding_length",
                                       "llama.feed_forward_length",
                                       "llama.attention.head_count",
                                       "llama.attention.layer_norm_rms_epsilon",
                                       "tokenizer.ggml.tokens"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        struct model_recipe recipe = model_recipe_small();
        recipe.without_key = keys[i];
        expect_refused(&recipe, "has no", keys[i]);
    }
    struct model_recipe recipe = model_recipe_small();
    recipe.without_tensor = "token_embd.weight";
    expect_refused(&recipe, "has no tensor", "token_embd.weight");
}

/* Set for the recipe's add_keys, which takes no context. */
static struct {
    const char *key;
    enum { VALUE_U32, VALUE_F32, VALUE_TEXT, VALUE_INTEGERS } kind;
    uint32_t u32;
    float f32;
    const char *text;
    int32_t integers[3];
} added;

static void add_it(struct nj_gguf_writer *writer)
{
    switch (added.kind) {
    case VALUE_U32:
        gguf_writer_add_u32(writer, added.key, added.u32);
        break;
    case VALUE_F32:
        gguf_writer_add_f32(writer, added.key, added.f32);
        break;
    case VALUE_TEXT:
        gguf_writer_add_text(writer, added.key, added.text);
        break;
    case VALUE_INTEGERS:
        gguf_writer_add_integers(writer, added.key, added.integers, 3);
        break;
    }
}

static struct model_recipe with_u32(const char *key, uint32_t value)
{
    struct model_recipe recipe = model_recipe_small();
    added.key = recipe.without_key = key;
    added.kind = VALUE_U32;
    added.u32 = value;
    recipe.add_keys = add_it;
    return recipe;
}

static struct model_recipe with_f32(const char *key, float value)
{
    struct model_recipe recipe = with_u32(key, 0);
    added.kind = VALUE_F32;
    added.f32 = value;
    return recipe;
}

static struct model_recipe with_text(const char *key, const char *value)
{
    struct model_recipe recipe = with_u32(key, 0);
    added.kind = VALUE_TEXT;
    added.text = value;
    return recipe;
}

static struct model_recipe with_integers(const char *key, int32_t a, int32_t b, int32_t c)
{
    struct model_recipe recipe = with_u32(key, 0);
    added.kind = VALUE_INTEGERS;
    added.integers[0] = a;
    added.integers[1] = b;
    added.integers[2] = c;
    return recipe;
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *message;
    } cases[] = {
        {"llama.block_count", 0, "is 0"},
        {"llama.block_count", 1025, "1024"},
        {"llama.embedding_length", 0, "is 0"},
        {"llama.embedding_length", 65568, "65536"},
        {"llama.embedding_length", 72, "multiple of 32"},
        {"llama.feed_forward_length", 0, "is 0"},
        {"llama.feed_forward_length", 1048608, "1048576"},
        {"llama.feed_forward_length", 100, "multiple of 32"},
        {"llama.context_length", 0, "is 0"},
        {"llama.context_length", 16777217, "16777216"},
        {"llama.attention.head_count", 0, "is 0"},
        {"llama.attention.head_count", 1025, "1024"},
        {"llama.attention.head_count", 3, "multiple of 32"}, /* 3 * 24 */
        {"llama.attention.head_count_kv", 0, "is 0"},
        {"llama.attention.head_count_kv", 3, "not a multiple of head_count_kv"},
        {"llama.attention.key_length", 0, "is 0"},
        {"llama.attention.key_length", 513, "512"},
        {"llama.attention.key_length", 32, "value_length is 24"},
        {"llama.attention.value_length", 32, "value_length is 32"},
        {"llama.rope.dimension_count", 0, "is 0"},
        {"llama.rope.dimension_count", 26, "24"},
        {"llama.rope.dimension_count", 7, "multiple of 2"},
        {"llama.expert_count", 8, "experts"},
        {"llama.attention.sliding_window", 2047, "sliding-window"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_recipe recipe = with_u32(cases[i].key, cases[i].value);
        expect_refused(&recipe, cases[i].message, NULL);
    }
}

static void odd_head_width_is_refused(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.heads = 32;
    recipe.head_width = 3;
    expect_refused(&recipe, "head width", "multiple of 2");
}

static void head_width_must_be_given_if_the_width_has_none(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.heads = 5;
    recipe.kv_heads = 5;
    recipe.matrix_type = 0; /* F32: rows of any length */
    recipe.without_key = "llama.attention.key_length";
    expect_refused(&recipe, "has no", "llama.attention.key_length");
}

static void harmless_values_are_taken(void **state)
{
    (void)state;
    struct model_recipe recipe = with_u32("llama.expert_count", 0);
    read_good(&recipe);
    recipe = with_u32("llama.attention.sliding_window", 2048);
    read_good(&recipe);
    recipe = with_f32("llama.logit_scale", 1);
    read_good(&recipe);
    recipe = with_u32("llama.rope.dimension_count", 8);
    assert_int_equal(read_good(&recipe).rotated, 8);
}

static void numbers_per_layer_must_be_equal(void **state)
{
    (void)state;
    struct model_recipe recipe = with_integers("llama.attention.head_count_kv", 2, 2, 2);
    assert_int_equal(read_good(&recipe).kv_heads, 2);
    recipe = with_integers("llama.attention.head_count_kv", 2, 2, 4);
    expect_refused(&recipe, "llama.attention.head_count_kv differs between layers", "4 in layer 2");
    recipe = with_integers("llama.attention.head_count_kv", -1, -1, -1);
    expect_refused(&recipe, "llama.attention.head_count_kv is -1", NULL);
    recipe = with_text("llama.attention.head_count_kv", "two");
    expect_refused(&recipe, "llama.attention.head_count_kv", "integer");
}

static void floats_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        float value;
    } cases[] = {
        {"llama.attention.layer_norm_rms_epsilon", 0},
        {"llama.attention.layer_norm_rms_epsilon", 1},
        {"llama.attention.layer_norm_rms_epsilon", -1e-5f},
        {"llama.rope.freq_base", 0},
        {"llama.rope.freq_base", 1e20f},
        {"llama.rope.scaling.factor", 0},
        {"llama.rope.scaling.factor", 1e9f},
        {"llama.attn_logit_softcapping", 50},
        {"llama.attention.scale", 0.5f},
        {"llama.embedding_scale", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_recipe recipe = with_f32(cases[i].key, cases[i].value);
        expect_refused(&recipe, cases[i].key, NULL);
    }
}

static void add_linear_scaling(struct nj_gguf_writer *writer)
{
    gguf_writer_add_text(writer, "llama.rope.scaling.type", "linear");
    gguf_writer_add_f32(writer, "llama.rope.scaling.factor", 4);
}

static void rope_scaling_is_none_or_linear(void **state)
{
    (void)state;
    struct model_recipe recipe = with_f32("llama.rope.freq_base", 500000);
    assert_true(read_good(&recipe).rope_base == 500000);
    recipe = with_text("llama.rope.scaling.type", "none");
    assert_true(read_good(&recipe).rope_scale == 1);
    recipe = model_recipe_small();
    recipe.add_keys = add_linear_scaling;
    assert_true(read_good(&recipe).rope_scale == 4);
    recipe = with_f32("llama.rope.scale_linear", 8);
    assert_true(read_good(&recipe).rope_scale == 8);
    recipe = with_text("llama.rope.scaling.type", "linear");
    expect_refused(&recipe, "has no", "llama.rope.scaling.factor");
    recipe = with_text("llama.rope.scaling.type", "yarn");
    expect_refused(&recipe, "llama.rope.scaling.type", "yarn");
    recipe = model_recipe_small();
    recipe.extra_tensor = "rope_freqs.weight";
    expect_refused(&recipe, "rope_freqs.weight", "does not support");
}

static void unknown_architectures_are_named(void **state)
{
    (void)state;
    struct model_recipe recipe = with_text("general.architecture", "mamba");
    expect_refused(&recipe, "mamba", "llama");
    recipe = with_text("general.architecture", "llam");
    expect_refused(&recipe, "\"llam\"", NULL);
}

static void vocabulary_must_equal_the_tokenizers(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.changed_tensor = "token_embd.weight";
    recipe.changed_type = recipe.embedding_type;
    recipe.changed_shape[1] = 38;
    expect_refused(&recipe, "token_embd.weight has 38 rows", "37 entries");
}

static void the_table_ends(void **state)
{
    (void)state;
    assert_string_equal(architecture_at(0)->name, "llama");
    assert_string_equal(architecture_at(1)->name, "qwen2");
    assert_null(architecture_at(2));
    assert_null(architecture_at(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_value),
        cmocka_unit_test(traits_are_the_architectures),
        cmocka_unit_test(absent_optional_keys_have_defaults),
        cmocka_unit_test(missing_keys_are_named),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(odd_head_width_is_refused),
        cmocka_unit_test(head_width_must_be_given_if_the_width_has_none),
        cmocka_unit_test(harmless_values_are_taken),
        cmocka_unit_test(numbers_per_layer_must_be_equal),
        cmocka_unit_test(floats_out_of_range_are_refused),
        cmocka_unit_test(rope_scaling_is_none_or_linear),
        cmocka_unit_test(unknown_architectures_are_named),
        cmocka_unit_test(vocabulary_must_equal_the_tokenizers),
        cmocka_unit_test(the_table_ends),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
