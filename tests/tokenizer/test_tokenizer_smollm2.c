/* The real model's tokenizer against reference results. The file's path is in NJ_SMOLLM2. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/tokenizer/token_vectors.h"
#include "tests/tokenizer/tokenizer_file.h"

static struct nj_tokenizer *tokenizer;

static int open_model(void **state)
{
    (void)state;
    tokenizer = tokenizer_from_gguf(getenv("NJ_SMOLLM2"));
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

/* The references differ on numbers that are not ASCII digits: transformers, reading the GGUF file, leaves out the
 * splitting of digits (which the vocabulary makes visible only there); llama.cpp has it for the name `smollm`, as
 * the model's own tokenizer.json does. That one decides. */
static void check_reference(void *context, const json_t *line)
{
    int *differing = context;
    bool agreed = json_object_get(line, "ids") != NULL;
    check_vector(tokenizer, line, agreed ? "ids" : "llama.cpp", true);
    if (!agreed) {
        ++*differing;
        printf("as llama.cpp, unlike transformers: %s\n", json_text(line, "text").bytes);
    }
}

static void test_reference_tokens(void **state)
{
    (void)state;
    int differing = 0;
    int count = jsonl_visit("reference/smol.tokens.jsonl", check_reference, &differing);
    assert_int_equal(count, 56);
    assert_int_equal(differing, 2);
}

static void check_line(void *context, const json_t *line)
{
    (void)context;
    check_vector(tokenizer, line, "ids", true);
}

static void test_vectors(void **state)
{
    (void)state;
    assert_true(jsonl_visit("tokenizer/smollm2.tokens.jsonl", check_line, NULL) > 400);
}

static void check_greedy(void *context, const json_t *line)
{
    (void)context;
    check_chat(tokenizer, line);
}

static void test_reference_chats(void **state)
{
    (void)state;
    assert_int_equal(jsonl_visit("reference/smol.greedy.jsonl", check_greedy, NULL), 12);
}

static void test_special_tokens(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_vocabulary(tokenizer), 49152);
    assert_int_equal(tokenizer_bos(tokenizer), 1);
    assert_int_equal(tokenizer_eos(tokenizer), 2);
    assert_false(tokenizer_adds_bos(tokenizer));
    assert_true(tokenizer_ends_generation(tokenizer, 0));
    assert_false(tokenizer_ends_generation(tokenizer, 1));
    assert_true(tokenizer_ends_generation(tokenizer, 2));
    assert_true(tokenizer_is_control(tokenizer, 16));
    assert_false(tokenizer_is_control(tokenizer, 17));
}

int main(void)
{
    if (getenv("NJ_SMOLLM2") == NULL) {
        puts("skipped: NJ_SMOLLM2 does not name the model SmolLM2-135M-Instruct.Q4_1.gguf");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_tokens),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_reference_chats),
        cmocka_unit_test(test_special_tokens),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
