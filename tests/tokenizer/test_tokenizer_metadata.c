/* Every kind of bad tokenizer metadata is refused by an error that names the key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tokenizer/metadata.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temporary_directory.h"
#include "tests/tokenizer/tokenizer_file.h"

enum { TOKEN_COUNT = 5 };
static const char *const good_tokens[TOKEN_COUNT] = {"a", "b", "ab", "<s>", "\xC4\xA0"};
static const int32_t good_types[TOKEN_COUNT] = {1, 1, 1, 3, 1};
static const char *const good_merges[] = {"a b"};

static struct tokenizer_file good_file(void)
{
    struct tokenizer_file file = tokenizer_file_empty();
    file.tokens = good_tokens;
    file.types = good_types;
    file.token_count = file.type_count = TOKEN_COUNT;
    file.merges = good_merges;
    file.merge_count = 1;
    return file;
}

static void assert_refused(const struct tokenizer_file *file, const char *key, const char *reason)
{
    struct nj_error error = {0};
    assert_null(tokenizer_file_open(file, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    if (strstr(error.message, key) == NULL || strstr(error.message, reason) == NULL)
        fail_msg("\"%s\" names neither \"%s\" nor \"%s\"", error.message, key, reason);
    assert_non_null(strstr(error.file, "tokenizer.gguf"));
}

static void test_good_file(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(&file, &error);
    assert_non_null(tokenizer);
    assert_int_equal(tokenizer_bos(tokenizer), -1);
    assert_int_equal(tokenizer_eos(tokenizer), -1);
    assert_false(tokenizer_adds_bos(tokenizer));
    tokenizer_destroy(tokenizer);
}

static void test_missing_keys(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    file.model = NULL;
    assert_refused(&file, "tokenizer.ggml.model", "missing");
    file = good_file();
    file.pre = NULL;
    assert_refused(&file, "tokenizer.ggml.pre", "missing");
    file = good_file();
    file.tokens = NULL;
    assert_refused(&file, "tokenizer.ggml.tokens", "missing");
    file = good_file();
    file.types = NULL;
    assert_refused(&file, "tokenizer.ggml.token_type", "missing");
    file = good_file();
    file.merges = NULL;
    assert_refused(&file, "tokenizer.ggml.merges", "missing");
}

static void test_unknown_names(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    file.model = "llama";
    assert_refused(&file, "tokenizer.ggml.model = \"llama\"", "gpt2");
    file.model = "gpt2x";
    assert_refused(&file, "tokenizer.ggml.model = \"gpt2x\"", "gpt2");
    file = good_file();
    file.pre = "no-such-thing";
    assert_refused(&file, "tokenizer.ggml.pre = \"no-such-thing\"",
                   "knows: gpt-2, phi-2, smollm, starcoder, refact, qwen2, llama-bpe");
    file.pre = "smollm2";
    assert_refused(&file, "tokenizer.ggml.pre = \"smollm2\"", "knows: gpt-2");
    file.pre = "";
    assert_refused(&file, "tokenizer.ggml.pre = \"\"", "knows: gpt-2");
}

static void test_bad_tokens(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    file.type_count = TOKEN_COUNT - 1;
    assert_refused(&file, "tokenizer.ggml.token_type has 4 entries", "5 tokens");
    file = good_file();
    file.token_count = TOKEN_COUNT - 1;
    file.merge_count = 0;
    assert_refused(&file, "tokenizer.ggml.token_type has 5 entries", "4 tokens");
    file.token_count = file.type_count = 0;
    assert_refused(&file, "tokenizer.ggml.tokens", "0 tokens");

    const int32_t bad_types[] = {0, 6, -1, 7, INT32_MAX};
    for (int i = 0; i < 5; i++) {
        int32_t types[TOKEN_COUNT] = {1, 1, 1, bad_types[i], 1};
        file = good_file();
        file.types = types;
        assert_refused(&file, "tokenizer.ggml.token_type of token 3", "types 1 to 5");
    }
}

static void test_token_text_is_checked(void **state)
{
    (void)state;
    const char *tokens[TOKEN_COUNT] = {"a", "b", "ab", "<s>", "x\xC4"};
    struct tokenizer_file file = good_file();
    file.tokens = tokens;
    assert_refused(&file, "UTF-8", "");

    char *long_token = malloc(NJ_TOKEN_BYTES_MOST + 2);
    assert_non_null(long_token);
    memset(long_token, 'a', NJ_TOKEN_BYTES_MOST + 1);
    long_token[NJ_TOKEN_BYTES_MOST + 1] = '\0';
    tokens[4] = long_token;
    assert_refused(&file, "token 4 has 65537 bytes", "65536");
    long_token[NJ_TOKEN_BYTES_MOST] = '\0';
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(&file, &error);
    assert_non_null(tokenizer);
    tokenizer_destroy(tokenizer);
    free(long_token);
}

static void assert_merge_refused(const char *merge, const char *reason)
{
    const char *const merges[] = {"a b", merge};
    struct tokenizer_file file = good_file();
    file.merges = merges;
    file.merge_count = 2;
    assert_refused(&file, "tokenizer.ggml.merges, entry 1", reason);
}

static void test_bad_merges(void **state)
{
    (void)state;
    assert_merge_refused("", "space");
    assert_merge_refused(" ", "space");
    assert_merge_refused("ab", "space");
    assert_merge_refused("a ", "space");
    assert_merge_refused(" a", "space");
    assert_merge_refused("a  b", "right half");
    assert_merge_refused("a b a", "right half");
    assert_merge_refused("q b", "left half");
    assert_merge_refused("a q", "right half");
    assert_merge_refused("b a", "what it makes");
}

/* Else plain text could become a control token. */
static void test_merge_to_a_control_token(void **state)
{
    (void)state;
    static const char *const tokens[TOKEN_COUNT] = {"a", "b", "c", "ab", "bc"};
    static const int32_t control[TOKEN_COUNT] = {1, 1, 1, 3, 1}, user_defined[TOKEN_COUNT] = {1, 1, 1, 4, 1};
    struct tokenizer_file file = good_file();
    file.tokens = tokens;
    file.types = control;
    assert_refused(&file, "tokenizer.ggml.merges, entry 0 \"a b\"", "control token");
    file.types = user_defined;
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(&file, &error);
    assert_non_null(tokenizer);
    tokenizer_destroy(tokenizer);
}

static void test_unused_tokens_take_no_part_in_merges(void **state)
{
    (void)state;
    static const int32_t types[TOKEN_COUNT] = {1, 1, 5, 3, 1};
    struct tokenizer_file file = good_file();
    file.types = types;
    assert_refused(&file, "tokenizer.ggml.merges, entry 0", "what it makes");
}

static void test_ids_out_of_range(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    file.bos = TOKEN_COUNT;
    assert_refused(&file, "tokenizer.ggml.bos_token_id", "5");
    file = good_file();
    file.eos = UINT32_MAX;
    assert_refused(&file, "tokenizer.ggml.eos_token_id", "4294967295");
    file = good_file();
    file.eot = TOKEN_COUNT;
    assert_refused(&file, "tokenizer.ggml.eot_token_id", "5");
    file = good_file();
    file.eom = TOKEN_COUNT;
    assert_refused(&file, "tokenizer.ggml.eom_token_id", "5");
}

static void test_switches(void **state)
{
    (void)state;
    struct tokenizer_file file = good_file();
    file.adds_bos = 1;
    assert_refused(&file, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id");
    file = good_file();
    file.adds_space = 1;
    assert_refused(&file, "tokenizer.ggml.add_space_prefix", "true");
    file.adds_space = 0;
    file.adds_bos = 0;
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(&file, &error);
    assert_non_null(tokenizer);
    tokenizer_destroy(tokenizer);
}

/* A value of another type under one key. */
static void assert_type_refused(const char *key)
{
    struct nj_gguf_writer writer;
    struct nj_bytes bytes = {0};
    gguf_writer_start(&writer);
    const char *const keys[] = {"tokenizer.ggml.model",        "tokenizer.ggml.pre",    "tokenizer.ggml.tokens",
                                "tokenizer.ggml.token_type",   "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id",
                                "tokenizer.ggml.add_bos_token"};
    for (int i = 0; i < 7; i++) {
        if (strcmp(keys[i], key) == 0)
            gguf_writer_add_f32(&writer, key, 1.0f);
        else if (i < 2)
            gguf_writer_add_text(&writer, keys[i], i == 0 ? "gpt2" : "smollm");
        else if (i == 2)
            gguf_writer_add_texts(&writer, keys[i], good_tokens, TOKEN_COUNT);
        else if (i == 3)
            gguf_writer_add_integers(&writer, keys[i], good_types, TOKEN_COUNT);
        else if (i == 4)
            gguf_writer_add_texts(&writer, keys[i], good_merges, 1);
        else if (i == 5)
            gguf_writer_add_u32(&writer, keys[i], 3);
        else
            gguf_writer_add_bool(&writer, keys[i], true);
    }
    gguf_writer_finish(&writer, &bytes);
    gguf_writer_free(&writer);
    char *directory = temporary_directory_create(), *path = temporary_path(directory, "types.gguf");
    temporary_write_file(path, bytes.data, bytes.count);
    bytes_free(&bytes);
    struct nj_error error = {0};
    struct nj_gguf *gguf = gguf_open(path, &error);
    assert_non_null(gguf);
    assert_null(tokenizer_create(gguf, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, key));
    gguf_close(gguf);
    free(path);
    temporary_directory_remove(directory);
}

static void test_values_of_another_type(void **state)
{
    (void)state;
    assert_type_refused("tokenizer.ggml.model");
    assert_type_refused("tokenizer.ggml.pre");
    assert_type_refused("tokenizer.ggml.tokens");
    assert_type_refused("tokenizer.ggml.token_type");
    assert_type_refused("tokenizer.ggml.merges");
    assert_type_refused("tokenizer.ggml.bos_token_id");
    assert_type_refused("tokenizer.ggml.add_bos_token");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_file),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_unknown_names),
        cmocka_unit_test(test_bad_tokens),
        cmocka_unit_test(test_token_text_is_checked),
        cmocka_unit_test(test_bad_merges),
        cmocka_unit_test(test_merge_to_a_control_token),
        cmocka_unit_test(test_unused_tokens_take_no_part_in_merges),
        cmocka_unit_test(test_ids_out_of_range),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_values_of_another_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
