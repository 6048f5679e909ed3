/* Shapes of records, and reading back what they are about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/output/record.h"
#include "tests/pipeline/cmocka_headers.h"

static const struct nj_record_context CONTEXT = {
    .job_digest = {.low = 5, .high = 6}, .model_name = "model-x", .job_time = 1769896800};

static struct nj_record_subject subject_of(const char *id, enum nj_shape shape)
{
    return (struct nj_record_subject){
        .id = id, .shape = shape, .digest = {.low = 0x1234, .high = 0xABCD}, .attempt = 3};
}

static char *make_result(const char *id, enum nj_shape shape, const char *text, size_t length)
{
    struct nj_error error;
    struct nj_record_subject subject = subject_of(id, shape);
    struct nj_sequence_result result = {
        .finish = NJ_FINISH_LENGTH, .generated_count = 7, .prompt_count = 11, .text = {text, length}};
    struct nj_record_answer answer = {.samples = &result, .sample_count = 1, .n = 1};
    char *record = record_make_result(&CONTEXT, &subject, &answer, &error);
    assert_non_null(record);
    return record;
}

/* Three choices: three samples, or three times the one. */
static char *make_choices(enum nj_shape shape, int32_t samples)
{
    struct nj_error error;
    struct nj_record_subject subject = subject_of("c", shape);
    const struct nj_sequence_result results[] = {
        {.finish = NJ_FINISH_LENGTH, .generated_count = 7, .prompt_count = 11, .text = {"one", 3}},
        {.finish = NJ_FINISH_STOP, .generated_count = 2, .prompt_count = 11, .text = {"two", 3}},
        {.finish = NJ_FINISH_STOP, .generated_count = 1, .prompt_count = 11, .text = {"", 0}}};
    struct nj_record_answer answer = {.samples = results, .sample_count = samples, .n = 3};
    char *record = record_make_result(&CONTEXT, &subject, &answer, &error);
    assert_non_null(record);
    return record;
}

/* The line as the log writes it, with a crc32 of some value. */
static char *seal(char *record)
{
    char *line;
    assert_true(asprintf(&line, "%.*s,\"crc32\":\"01234567\"}", (int)strlen(record) - 1, record) > 0);
    free(record);
    return line;
}

static void check_public(const char *line, const char *wanted)
{
    size_t length = record_public_length(line, strlen(line));
    assert_int_equal(length + 1, strlen(wanted));
    assert_memory_equal(line, wanted, length);
}

static void check_key(const char *line, const char *id, uint32_t prompt_tokens, uint32_t new_tokens)
{
    struct nj_record_key key;
    assert_int_equal(record_read_key(line, strlen(line), &key), 0);
    assert_true(digest_equal(key.id_hash, digest_of(id, strlen(id))));
    assert_true(key.digest.low == 0x1234 && key.digest.high == 0xABCD);
    assert_int_equal(key.attempt, 3);
    assert_int_equal(key.prompt_tokens, prompt_tokens);
    assert_int_equal(key.new_tokens, new_tokens);
}

static void test_plain_result(void **state)
{
    (void)state;
    char *line = seal(make_result("a", NJ_SHAPE_PLAIN, "x\0\"y", 4));
    check_public(line, "{\"id\":\"a\",\"text\":\"x\\u0000\\\"y\",\"finish_reason\":\"length\",\"prompt_tokens\":11,"
                       "\"completion_tokens\":7}");
    check_key(line, "a", 11, 7);
    assert_non_null(
        strstr(line, ",\"schema\":1,\"attempt\":3,\"digest\":\"000000000000abcd0000000000001234\",\"crc32\""));
    free(line);
}

static void test_empty_text(void **state)
{
    (void)state;
    char *line = seal(make_result("a", NJ_SHAPE_PLAIN, NULL, 0));
    assert_non_null(strstr(line, "\"text\":\"\""));
    free(line);
}

static void test_plain_choices(void **state)
{
    (void)state;
    char *line = seal(make_choices(NJ_SHAPE_PLAIN, 3));
    check_public(line, "{\"id\":\"c\",\"choices\":["
                       "{\"index\":0,\"text\":\"one\",\"finish_reason\":\"length\",\"completion_tokens\":7},"
                       "{\"index\":1,\"text\":\"two\",\"finish_reason\":\"stop\",\"completion_tokens\":2},"
                       "{\"index\":2,\"text\":\"\",\"finish_reason\":\"stop\",\"completion_tokens\":1}],"
                       "\"prompt_tokens\":11,\"completion_tokens\":10}");
    check_key(line, "c", 11, 10);
    free(line);
    line = seal(make_choices(NJ_SHAPE_PLAIN, 1));
    assert_non_null(strstr(line, "{\"index\":2,\"text\":\"one\",\"finish_reason\":\"length\",\"completion_tokens\":7}],"
                                 "\"prompt_tokens\":11,\"completion_tokens\":21,"));
    free(line);
}

static void test_batch_choices(void **state)
{
    (void)state;
    char *line = seal(make_choices(NJ_SHAPE_BATCH_CHAT, 3));
    assert_non_null(strstr(line, "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"one\"},"
                                 "\"logprobs\":null,\"finish_reason\":\"length\"},{\"index\":1,"));
    assert_non_null(strstr(line, "\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":10,\"total_tokens\":21}"));
    check_key(line, "c", 11, 10);
    free(line);
    line = seal(make_choices(NJ_SHAPE_BATCH_COMPLETION, 3));
    assert_non_null(
        strstr(line, "{\"index\":2,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\""));
    check_key(line, "c", 11, 10);
    free(line);
}

static void check_batch(const json_t *root, bool chat)
{
    json_t *body = json_object_get(json_object_get(root, "response"), "body");
    json_t *choice = json_array_get(json_object_get(body, "choices"), 0);
    assert_string_equal(json_string_value(json_object_get(root, "custom_id")), "c");
    assert_true(json_is_null(json_object_get(root, "error")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "response"), "status_code")), 200);
    assert_string_equal(json_string_value(json_object_get(body, "object")),
                        chat ? "chat.completion" : "text_completion");
    assert_int_equal(json_integer_value(json_object_get(body, "created")), 1769896800);
    assert_string_equal(json_string_value(json_object_get(body, "model")), "model-x");
    json_t *holder = chat ? json_object_get(choice, "message") : choice;
    assert_string_equal(json_string_value(json_object_get(holder, chat ? "content" : "text")), "hi");
    assert_true(json_is_null(json_object_get(choice, "logprobs")));
    assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), "length");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(body, "usage"), "total_tokens")), 18);
}

static void test_batch_results(void **state)
{
    (void)state;
    for (int chat = 0; chat < 2; chat++) {
        char *line = seal(make_result("c", chat ? NJ_SHAPE_BATCH_CHAT : NJ_SHAPE_BATCH_COMPLETION, "hi", 2));
        json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        check_batch(root, chat);
        json_decref(root);
        check_key(line, "c", 11, 7);
        free(line);
    }
}

/* Derived ids depend on job and custom_id only. */
static void test_derived_ids_are_stable(void **state)
{
    (void)state;
    char *a = make_result("c", NJ_SHAPE_BATCH_CHAT, "one", 3), *b = make_result("c", NJ_SHAPE_BATCH_CHAT, "two", 3);
    char *other = make_result("d", NJ_SHAPE_BATCH_CHAT, "one", 3);
    assert_memory_equal(a, b, 50);
    assert_memory_equal(a, "{\"id\":\"batch_req_", 17);
    assert_memory_not_equal(a, other, 50);
    free(a);
    free(b);
    free(other);
}

static void test_errors(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_problem problem;
    problem_set(&problem, "invalid_json", "not valid JSON: %s", "cut \xE2\x82");
    struct nj_record_place place = {.file = "a.jsonl", .line = 4, .byte = 77};
    struct nj_record_subject plain = subject_of("a.jsonl:4", NJ_SHAPE_PLAIN),
                             batch = subject_of("c", NJ_SHAPE_BATCH_CHAT);
    char *line = seal(record_make_error(&CONTEXT, &plain, &problem, &place, &error));
    check_public(line,
                 "{\"id\":\"a.jsonl:4\",\"error\":{\"code\":\"invalid_json\",\"message\":\"not valid JSON: cut ??\","
                 "\"file\":\"a.jsonl\",\"line\":4,\"byte\":77}}");
    check_key(line, "a.jsonl:4", 0, 0);
    free(line);
    line = seal(record_make_error(&CONTEXT, &batch, &problem, &place, &error));
    assert_non_null(strstr(line, "\"custom_id\":\"c\",\"response\":null,\"error\":{\"code\":\"invalid_json\""));
    check_key(line, "c", 0, 0);
    free(line);
}

static void test_strange_ids(void **state)
{
    (void)state;
    static const char *const ids[] = {"\"",   "\\", "a\\\"b",    "tab\there",       "\xC3\xA9",
                                      "\x01", "}",  "custom_id", "\xF0\x9F\x98\x80"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        for (int shape = NJ_SHAPE_PLAIN; shape <= NJ_SHAPE_BATCH_CHAT; shape++) {
            char *line = seal(make_result(ids[i], (enum nj_shape)shape, "t", 1));
            check_key(line, ids[i], 11, 7);
            free(line);
        }
    }
}

static void test_foreign_lines(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "",
        "{}",
        "{\"id\":\"a\"}",
        "{\"id\":\"a\",\"crc32\":\"01234567\"}",
        "{\"id\":\"a\",\"schema\":2,\"attempt\":1,\"digest\":\"000000000000abcd0000000000001234\",\"crc32\":"
        "\"01234567\"}",
        "{\"id\":\"a\",\"schema\":1,\"attempt\":1,\"digest\":\"00000000000xabcd0000000000001234\",\"crc32\":"
        "\"01234567\"}",
        "{\"id\":5,\"schema\":1,\"attempt\":1,\"digest\":\"000000000000abcd0000000000001234\",\"crc32\":\"01234567\"}"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct nj_record_key key;
        assert_int_equal(record_read_key(lines[i], strlen(lines[i]), &key), -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_result),  cmocka_unit_test(test_empty_text),
        cmocka_unit_test(test_batch_results), cmocka_unit_test(test_derived_ids_are_stable),
        cmocka_unit_test(test_errors),        cmocka_unit_test(test_strange_ids),
        cmocka_unit_test(test_foreign_lines), cmocka_unit_test(test_plain_choices),
        cmocka_unit_test(test_batch_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
