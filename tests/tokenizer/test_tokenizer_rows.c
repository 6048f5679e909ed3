/* Every pre-tokenizer of the table on the synthetic vocabulary, and what a row says beside its patterns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer/token_vectors.h"
#include "tests/tokenizer/tokenizer_file.h"

enum { LINES_MOST = 1024, ROWS = 6 };

/* A text file's lines; `text` owns them. */
struct lines {
    char *text;
    const char *line[LINES_MOST];
    size_t count;
};

static void read_lines(const char *name, struct lines *lines)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/synthetic/%s", NJ_TEST_DATA, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t capacity = 0;
    assert_true(getdelim(&lines->text, &capacity, '\0', file) > 0);
    fclose(file);
    lines->count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(lines->text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        assert_true(lines->count < LINES_MOST);
        lines->line[lines->count++] = line;
    }
}

static struct nj_tokenizer *open_file(const struct tokenizer_file *file)
{
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(file, &error);
    if (tokenizer == NULL)
        fail_msg("%s", error.message);
    return tokenizer;
}

static struct nj_tokenizer *open_synthetic(const char *pre)
{
    enum { CONTROL_TOKENS = 3 };
    int32_t type[LINES_MOST];
    struct lines tokens = {0}, merges = {0};
    read_lines("tokens.txt", &tokens);
    read_lines("merges.txt", &merges);
    for (size_t i = 0; i < tokens.count; i++)
        type[i] = i < CONTROL_TOKENS ? 3 : 1;
    struct tokenizer_file file = tokenizer_file_empty();
    file.pre = pre;
    file.tokens = tokens.line;
    file.types = type;
    file.token_count = file.type_count = tokens.count;
    file.merges = merges.line;
    file.merge_count = merges.count;
    struct nj_tokenizer *tokenizer = open_file(&file);
    free(tokens.text);
    free(merges.text);
    return tokenizer;
}

/* The rows by name; `vectors` names the ids in the file of vectors. Relatives split as the row they follow. */
static const struct {
    const char *pre, *vectors, *file;
} rows[ROWS] = {
    {"gpt-2", "gpt-2", "tokenizer/rows.tokens.jsonl"},        {"phi-2", "gpt-2", "tokenizer/rows.tokens.jsonl"},
    {"qwen2", "qwen2", "tokenizer/rows.tokens.jsonl"},        {"llama-bpe", "llama-bpe", "tokenizer/rows.tokens.jsonl"},
    {"starcoder", "ids", "tokenizer/synthetic.tokens.jsonl"}, {"refact", "ids", "tokenizer/synthetic.tokens.jsonl"},
};

struct row_check {
    struct nj_tokenizer *tokenizer;
    const char *vectors;
};

static void check_line(void *context, const json_t *line)
{
    const struct row_check *check = context;
    check_vector(check->tokenizer, line, check->vectors, false);
}

static void test_vectors_of_every_row(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        struct row_check check = {open_synthetic(rows[i].pre), rows[i].vectors};
        assert_true(jsonl_visit(rows[i].file, check_line, &check) > 400);
        tokenizer_destroy(check.tokenizer);
    }
}

/* No merge makes "ab" (which is there twice), "abc" or "Ġc"; the token " c" holds a space that no text becomes,
 * and the user-defined token is for the template only. */
static const char *const tokens[] = {"a", "b", "c", "\xC4\xA0", "ab", "abc", "ab", "\xC4\xA0\x63", " c", "bb", "bc"};
static const int32_t types[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 1};
enum { A, B, C, SPACE, ABC = 5, AB = 6, SPACE_C = 7, BC = 10, COUNT = 11 };
static const char *const merges[] = {"b c"};

static struct nj_tokenizer *open_tiny(const char *pre)
{
    struct tokenizer_file file = tokenizer_file_empty();
    file.pre = pre;
    file.tokens = tokens;
    file.types = types;
    file.token_count = file.type_count = COUNT;
    file.merges = merges;
    file.merge_count = 1;
    return open_file(&file);
}

static void check_ids(const struct nj_tokenizer *tokenizer, const char *text, const int32_t *expected, size_t count)
{
    struct nj_ids ids = {0};
    struct nj_error error;
    assert_int_equal(tokenizer_encode_text(tokenizer, text, strlen(text), &ids, &error), 0);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids.id[i], expected[i]);
    ids_free(&ids);
}

#define CHECK(tokenizer, text, ...)                                                                                    \
    check_ids(tokenizer, text, (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void test_a_piece_that_is_a_token_is_taken_whole(void **state)
{
    (void)state;
    struct nj_tokenizer *tokenizer = open_tiny("llama-bpe");
    CHECK(tokenizer, "abc", ABC);
    CHECK(tokenizer, "ab", AB);
    CHECK(tokenizer, "ab c", AB, SPACE_C);
    CHECK(tokenizer, "abcb", A, BC, B); /* only whole pieces */
    CHECK(tokenizer, "bb", B, B);
    CHECK(tokenizer, "a", A);
    tokenizer_destroy(tokenizer);
}

static void test_other_rows_follow_the_merges(void **state)
{
    (void)state;
    struct nj_tokenizer *tokenizer = open_tiny("qwen2");
    CHECK(tokenizer, "abc", A, BC);
    CHECK(tokenizer, "ab", A, B);
    CHECK(tokenizer, "a c", A, SPACE, C);
    CHECK(tokenizer, "bb", B, B);
    tokenizer_destroy(tokenizer);
}

/* Rows with the same patterns are the same tokenizer; others are not. */
static void test_digest_tells_rows_apart(void **state)
{
    (void)state;
    static const char *const different[] = {"gpt-2", "smollm", "qwen2", "llama-bpe"};
    char digest[4][33], relative[33];
    for (int i = 0; i < 4; i++) {
        struct nj_tokenizer *tokenizer = open_tiny(different[i]);
        tokenizer_digest(tokenizer, digest[i]);
        tokenizer_destroy(tokenizer);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(digest[i], digest[j]);
    }
    struct nj_tokenizer *tokenizer = open_tiny("phi-2");
    tokenizer_digest(tokenizer, relative);
    tokenizer_destroy(tokenizer);
    assert_string_equal(relative, digest[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_of_every_row),
        cmocka_unit_test(test_a_piece_that_is_a_token_is_taken_whole),
        cmocka_unit_test(test_other_rows_follow_the_merges),
        cmocka_unit_test(test_digest_tells_rows_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
