/* Encoding and the properties of tokens, on the vocabulary of the synthetic models and on tiny ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"
#include "tests/tokenizer/token_vectors.h"
#include "tests/tokenizer/tokenizer_file.h"

static struct nj_tokenizer *synthetic;

static int open_synthetic(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    char *directory = temporary_directory_create(), *path = temporary_path(directory, "model.gguf");
    assert_int_equal(synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", NULL, path, &error), 0);
    synthetic = tokenizer_from_gguf(path);
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

static int close_synthetic(void **state)
{
    (void)state;
    tokenizer_destroy(synthetic);
    return 0;
}

static void check_line(void *context, const json_t *line)
{
    (void)context;
    check_vector(synthetic, line, "ids", false);
}

static void test_vectors(void **state)
{
    (void)state;
    assert_true(jsonl_visit("tokenizer/synthetic.tokens.jsonl", check_line, NULL) > 400);
}

static void assert_ids(const struct nj_ids *ids, const int32_t *expected, size_t count)
{
    assert_int_equal(ids->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(ids->id[i], expected[i]);
}

static struct nj_ids encode_plain(const struct nj_tokenizer *tokenizer, const char *text)
{
    struct nj_ids ids = {0};
    struct nj_error error;
    if (tokenizer_encode_text(tokenizer, text, strlen(text), &ids, &error) != 0)
        fail_msg("%s", error.message);
    return ids;
}

/* Ids of a text in which '[' and ']' enclose template bytes; they are no part of it. */
static struct nj_ids encode_marked(const struct nj_tokenizer *tokenizer, const char *marked)
{
    char text[256];
    uint8_t is_template[256], mark = 0;
    size_t length = 0;
    for (; *marked != '\0'; marked++) {
        assert_true(length < sizeof text);
        if (*marked == '[' || *marked == ']') {
            mark = *marked == '[';
            continue;
        }
        text[length] = *marked;
        is_template[length++] = mark;
    }
    struct nj_ids ids = {0};
    struct nj_error error;
    if (tokenizer_encode_rendered(tokenizer, text, is_template, length, &ids, &error) != 0)
        fail_msg("%s", error.message);
    return ids;
}

/* Two tiny tokenizers. The text "x" has no token; BOS is <s>; <s><t> is a longer special token than <s>, and
 * <u> is user-defined. The tokens 13 and 14 have the same text, so do merges 1 and 3. */
static const char *const tiny_tokens[] = {"a",   "b",    "c",     "<",  ">",  "s",  "t",        "u", "<s>",  "<s><t>",
                                          "<u>", "</s>", "<eot>", "ab", "ab", "bc", "\xC4\xA0", "1", "spare"};
enum {
    S = 8,
    S_T = 9,
    U = 10,
    END = 11,
    EOT = 12,
    AB = 14,
    BC = 15,
    SPACE = 16,
    ONE = 17,
    SPARE = 18,
    TINY_COUNT = 19
};
static const int32_t tiny_types[TINY_COUNT] = {1, 1, 1, 1, 1, 1, 1, 1, 3, 3, 4, 3, 2, 1, 1, 1, 1, 1, 5};
static const char *const tiny_merges[] = {"b c", "a b"};
static const char *const tiny_merges_repeated[] = {"b c", "a b", "b c"};

static struct tokenizer_file tiny_file(void)
{
    struct tokenizer_file file = tokenizer_file_empty();
    file.tokens = tiny_tokens;
    file.types = tiny_types;
    file.token_count = file.type_count = TINY_COUNT;
    file.merges = tiny_merges;
    file.merge_count = 2;
    file.bos = S;
    return file;
}

static struct nj_tokenizer *open_file(const struct tokenizer_file *file)
{
    struct nj_error error;
    struct nj_tokenizer *tokenizer = tokenizer_file_open(file, &error);
    if (tokenizer == NULL)
        fail_msg("%s", error.message);
    return tokenizer;
}

#define CHECK(call, ...)                                                                                               \
    do {                                                                                                               \
        const int32_t expected[] = {__VA_ARGS__};                                                                      \
        struct nj_ids ids = call;                                                                                      \
        assert_ids(&ids, expected, sizeof expected / sizeof expected[0]);                                              \
        ids_free(&ids);                                                                                                \
    } while (0)

static void test_merges_lowest_rank_first(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_plain(tokenizer, "abc"), 0, BC);
    CHECK(encode_plain(tokenizer, "abab"), AB, AB);
    CHECK(encode_plain(tokenizer, "a1b"), 0, ONE, 1);
    CHECK(encode_plain(tokenizer, "ab ab"), AB, SPACE, AB);
    tokenizer_destroy(tokenizer);
}

/* The last of equal merges counts: "b c" now comes after "a b". */
static void test_last_of_equal_merges_counts(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    file.merges = tiny_merges_repeated;
    file.merge_count = 3;
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_plain(tokenizer, "abc"), AB, 2);
    tokenizer_destroy(tokenizer);
}

static void test_bytes_without_token_are_left_out(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_plain(tokenizer, "axb"), AB);
    struct nj_ids ids = encode_plain(tokenizer, "xxx");
    assert_int_equal(ids.count, 0);
    ids_free(&ids);
    tokenizer_destroy(tokenizer);
}

static void test_special_text_counts_only_in_the_template(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_plain(tokenizer, "<s>"), 3, 5, 4);
    CHECK(encode_plain(tokenizer, "<u>"), 3, 7, 4);
    CHECK(encode_marked(tokenizer, "[<s>]<s>[<u>]"), S, 3, 5, 4, U);
    CHECK(encode_marked(tokenizer, "[<s]>"), 3, 5, 4);
    CHECK(encode_marked(tokenizer, "<[s>]"), 3, 5, 4);
    CHECK(encode_marked(tokenizer, "[<]s[>]"), 3, 5, 4);
    tokenizer_destroy(tokenizer);
}

static void test_longest_special_token_wins(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_marked(tokenizer, "[<s><t>]"), S_T);
    CHECK(encode_marked(tokenizer, "[<s><s><t>]"), S, S_T);
    CHECK(encode_marked(tokenizer, "[<s>]<t>"), S, 3, 6, 4);
    CHECK(encode_marked(tokenizer, "[<s><t]>"), S, 3, 6, 4);
    CHECK(encode_marked(tokenizer, "[<<s>]"), 3, S);
    tokenizer_destroy(tokenizer);
}

/* A stretch between special tokens is one string, whoever wrote its parts. */
static void test_plain_stretch_is_one_string(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    CHECK(encode_marked(tokenizer, "[<s>a]b[<s>]a[b]"), S, AB, S, AB);
    CHECK(encode_marked(tokenizer, "a[<s>]b"), 0, S, 1);
    tokenizer_destroy(tokenizer);
}

static void test_bos_is_there_once(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    file.adds_bos = 1;
    struct nj_tokenizer *tokenizer = open_file(&file);
    assert_true(tokenizer_adds_bos(tokenizer));
    CHECK(encode_marked(tokenizer, "ab"), S, AB);
    CHECK(encode_marked(tokenizer, "[<s>ab]"), S, AB);
    CHECK(encode_marked(tokenizer, "<s>"), S, 3, 5, 4);
    CHECK(encode_marked(tokenizer, ""), S);
    CHECK(encode_marked(tokenizer, "[<s><s>]"), S, S);
    CHECK(encode_plain(tokenizer, "ab"), AB);
    struct nj_ids ids = {0};
    struct nj_error error;
    assert_int_equal(ids_append(&ids, S, &error), 0);
    assert_int_equal(tokenizer_encode_rendered(tokenizer, "ab", (const uint8_t *)"\1\1", 2, &ids, &error), 0);
    assert_ids(&ids, (const int32_t[]){S, S, AB}, 3);
    ids_free(&ids);
    tokenizer_destroy(tokenizer);
}

static void test_token_properties(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    file.eos = 2; /* not a control token, and yet the end */
    file.eot = U;
    file.eom = EOT;
    struct nj_tokenizer *tokenizer = open_file(&file);
    assert_int_equal(tokenizer_vocabulary(tokenizer), TINY_COUNT);
    assert_int_equal(tokenizer_bos(tokenizer), S);
    assert_int_equal(tokenizer_eos(tokenizer), 2);
    assert_false(tokenizer_adds_bos(tokenizer));
    const bool ends[TINY_COUNT] = {[2] = true, [U] = true, [END] = true, [EOT] = true};
    const bool control[TINY_COUNT] = {[S] = true, [S_T] = true, [END] = true, [EOT] = true};
    for (int32_t id = 0; id < TINY_COUNT; id++) {
        assert_int_equal(tokenizer_ends_generation(tokenizer, id), ends[id]);
        assert_int_equal(tokenizer_is_control(tokenizer, id), control[id]);
        struct nj_text bytes = tokenizer_token_bytes(tokenizer, id);
        const char *expected = id == SPACE ? " " : id == SPARE ? "" : tiny_tokens[id];
        assert_int_equal(bytes.length, strlen(expected));
        assert_memory_equal(bytes.bytes, expected, bytes.length);
    }
    tokenizer_destroy(tokenizer);
}

static void test_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    const int32_t outside[] = {-1, INT32_MIN, INT32_MAX, tokenizer_vocabulary(synthetic)};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tokenizer_token_bytes(synthetic, outside[i]).length, 0);
        assert_false(tokenizer_is_control(synthetic, outside[i]));
        assert_false(tokenizer_ends_generation(synthetic, outside[i]));
    }
}

static void test_control_text_is_found(void **state)
{
    (void)state;
    struct tokenizer_file file = tiny_file();
    struct nj_tokenizer *tokenizer = open_file(&file);
    assert_true(tokenizer_text_has_control(tokenizer, "ab<s>", 5));
    assert_false(tokenizer_text_has_control(tokenizer, "ab<s>", 4));
    assert_false(tokenizer_text_has_control(tokenizer, "<u>spare", 8));
    assert_false(tokenizer_text_has_control(tokenizer, "", 0));
    assert_true(tokenizer_text_has_control(synthetic, "say <|im_end|> now", 18));
    assert_false(tokenizer_text_has_control(synthetic, "say <|im_end| now", 17));
    tokenizer_destroy(tokenizer);
}

static void check_invalid(const char *text, size_t length, int64_t byte)
{
    struct nj_ids ids = {0};
    struct nj_error error = {0};
    uint8_t is_template[16] = {1};
    assert_int_equal(ids_append(&ids, 7, &error), 0);
    assert_int_equal(tokenizer_encode_text(synthetic, text, length, &ids, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_int_equal(error.byte, byte);
    assert_non_null(strstr(error.message, "UTF-8"));
    assert_int_equal(tokenizer_encode_rendered(synthetic, text, is_template, length, &ids, &error), -1);
    assert_int_equal(error.byte, byte);
    assert_int_equal(ids.count, 1);
    ids_free(&ids);
}

static void test_invalid_utf8_is_refused(void **state)
{
    (void)state;
    check_invalid("\xff", 1, 0);
    check_invalid("abcdefghij\x80", 11, 10);
    check_invalid("a\xc3", 2, 1);
    check_invalid("\xed\xa0\x80", 3, 0);
    check_invalid("\xc0\x80", 2, 0);
    check_invalid("\xf4\x90\x80\x80", 4, 0);
    check_invalid("\xe2\x82\xac\xe2\x82", 5, 3);
}

static void check_long(const char *unit, size_t unit_length, size_t repeats)
{
    size_t length = unit_length * repeats;
    char *text = malloc(length);
    assert_non_null(text);
    for (size_t i = 0; i < repeats; i++)
        memcpy(text + i * unit_length, unit, unit_length);
    struct nj_ids ids = {0};
    struct nj_error error;
    if (tokenizer_encode_text(synthetic, text, length, &ids, &error) != 0)
        fail_msg("%s", error.message);
    size_t at = 0;
    for (size_t i = 0; i < ids.count; i++) {
        struct nj_text bytes = tokenizer_token_bytes(synthetic, ids.id[i]);
        assert_true(bytes.length <= length - at);
        assert_memory_equal(text + at, bytes.bytes, bytes.length);
        at += bytes.length;
    }
    assert_int_equal(at, length);
    size_t least = tokenizer_least_tokens(synthetic, text, length);
    assert_true(least > 0 && least <= ids.count);
    ids_free(&ids);
    free(text);
}

/* Quadratic time would take hours here, and a match limit would end the text early. */
static void test_long_texts_without_a_break(void **state)
{
    (void)state;
    check_long("a", 1, 1000000);
    check_long(" ", 1, 1000000);
    check_long("1", 1, 1000000);
    check_long("the", 3, 300000);
    check_long("\xF0\x9F\x98\x80", 4, 250000);
    check_long("\n", 1, 1000000);
    check_long(".-", 2, 500000);
}

static void test_digest_covers_what_decides(void **state)
{
    (void)state;
    const char *other_tokens[TINY_COUNT];
    memcpy(other_tokens, tiny_tokens, sizeof other_tokens);
    other_tokens[SPARE] = "other";
    int32_t other_types[TINY_COUNT];
    memcpy(other_types, tiny_types, sizeof other_types);
    other_types[U] = 3;
    struct tokenizer_file file[] = {tiny_file(), tiny_file(), tiny_file(), tiny_file(), tiny_file(),
                                    tiny_file(), tiny_file(), tiny_file(), tiny_file()};
    enum { VARIANTS = sizeof file / sizeof file[0] };
    file[1].tokens = other_tokens;
    file[2].types = other_types;
    file[3].merges = tiny_merges_repeated;
    file[3].merge_count = 3;
    file[4].bos = 0;
    file[5].eos = 0;
    file[6].eot = 0;
    file[7].eom = 0;
    file[8].adds_bos = 1;
    char digest[VARIANTS][33], again[33];
    for (int i = 0; i < VARIANTS; i++) {
        struct nj_tokenizer *tokenizer = open_file(&file[i]);
        tokenizer_digest(tokenizer, digest[i]);
        tokenizer_destroy(tokenizer);
        assert_int_equal(strlen(digest[i]), 32);
        assert_int_equal(strspn(digest[i], "0123456789abcdef"), 32);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(digest[i], digest[j]);
    }
    struct nj_tokenizer *tokenizer = open_file(&file[0]);
    tokenizer_digest(tokenizer, again);
    tokenizer_destroy(tokenizer);
    assert_string_equal(digest[0], again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_merges_lowest_rank_first),
        cmocka_unit_test(test_last_of_equal_merges_counts),
        cmocka_unit_test(test_bytes_without_token_are_left_out),
        cmocka_unit_test(test_special_text_counts_only_in_the_template),
        cmocka_unit_test(test_longest_special_token_wins),
        cmocka_unit_test(test_plain_stretch_is_one_string),
        cmocka_unit_test(test_bos_is_there_once),
        cmocka_unit_test(test_token_properties),
        cmocka_unit_test(test_ids_outside_the_vocabulary),
        cmocka_unit_test(test_control_text_is_found),
        cmocka_unit_test(test_invalid_utf8_is_refused),
        cmocka_unit_test(test_long_texts_without_a_break),
        cmocka_unit_test(test_digest_covers_what_decides),
    };
    return cmocka_run_group_tests(tests, open_synthetic, close_synthetic);
}
