/* The tokenizer and the chat template of Qwen2.5-Coder-1.5B-Instruct against reference results. The file's path is
 * in NJ_QWEN15. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/chat_template.h"
#include "tests/tokenizer/token_vectors.h"
#include "tests/tokenizer/tokenizer_file.h"

enum { END_OF_TEXT = 151643, IM_START = 151644, IM_END = 151645 };

static struct nj_tokenizer *tokenizer;
static struct nj_chat_template *chat;

static int open_model(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_text source;
    tokenizer = tokenizer_from_gguf(getenv("NJ_QWEN15"));
    struct nj_gguf *gguf = gguf_open(getenv("NJ_QWEN15"), &error);
    if (gguf == NULL || gguf_get_text(gguf, "tokenizer.chat_template", &source, &error) != 1 ||
        (chat = chat_template_compile(source.bytes, source.length, &error)) == NULL)
        fail_msg("%s", error.message);
    gguf_close(gguf);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    tokenizer_destroy(tokenizer);
    chat_template_destroy(chat);
    return 0;
}

static void check_line(void *context, const json_t *line)
{
    (void)context;
    check_vector(tokenizer, line, "ids", false);
}

static void test_reference_tokens(void **state)
{
    (void)state;
    assert_int_equal(jsonl_visit("reference/qwen15.tokens.jsonl", check_line, NULL), 56);
}

static void check_rendered(const json_t *line)
{
    struct nj_text expected = json_text(line, "rendered");
    struct nj_chat_input input = {.messages = json_object_get(line, "messages"),
                                  .add_generation_prompt = true,
                                  .bos_token = "",
                                  .eos_token = "<|im_end|>"};
    struct nj_rendered rendered;
    struct nj_error error;
    if (chat_template_render(chat, &input, &rendered, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(rendered.length, expected.length);
    assert_memory_equal(rendered.text, expected.bytes, expected.length);
    rendered_free(&rendered);
}

static void check_greedy(void *context, const json_t *line)
{
    (void)context;
    check_rendered(line);
    check_chat(tokenizer, line);
}

static void test_reference_chats(void **state)
{
    (void)state;
    assert_int_equal(jsonl_visit("reference/qwen15.greedy.jsonl", check_greedy, NULL), 12);
}

static void test_special_tokens(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_vocabulary(tokenizer), 151936);
    assert_int_equal(tokenizer_eos(tokenizer), IM_END);
    assert_false(tokenizer_adds_bos(tokenizer));
    assert_true(tokenizer_ends_generation(tokenizer, END_OF_TEXT));
    assert_false(tokenizer_ends_generation(tokenizer, IM_START));
    assert_true(tokenizer_ends_generation(tokenizer, IM_END));
    assert_true(tokenizer_is_control(tokenizer, IM_START));
    assert_false(tokenizer_is_control(tokenizer, 0));
}

int main(void)
{
    if (getenv("NJ_QWEN15") == NULL) {
        puts("skipped: NJ_QWEN15 does not name the model Qwen2.5-Coder-1.5B-Instruct Q4_K_M (GGUF)");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_tokens),
        cmocka_unit_test(test_reference_chats),
        cmocka_unit_test(test_special_tokens),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
