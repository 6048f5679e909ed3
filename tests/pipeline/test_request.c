/* Lines of input: what is accepted, what each mistake is called. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/request/request.h"
#include "tests/pipeline/cmocka_headers.h"

static bool parses(const char *line)
{
    struct nj_request request;
    struct nj_problem problem;
    int result = request_parse(line, strlen(line), &request, &problem);
    if (result != 0)
        print_message("%s: %s: %s\n", line, problem.code, problem.message);
    request_free(&request);
    return result == 0;
}

static void check_bad_bytes(const char *line, size_t length, const char *code, const char *says)
{
    struct nj_request request;
    struct nj_problem problem = {.code = "", .message = ""};
    int result = request_parse(line, length, &request, &problem);
    if (result != -1 || strcmp(problem.code, code) != 0 || strstr(problem.message, says) == NULL)
        fail_msg("%.200s: %d %s: %s (wanted %s: %s)", line, result, problem.code, problem.message, code, says);
    request_free(&request);
}

static void check_bad(const char *line, const char *code, const char *says)
{
    check_bad_bytes(line, strlen(line), code, says);
}

static void test_plain_defaults(void **state)
{
    (void)state;
    const char line[] = "{\"id\":\"a\",\"prompt\":\"hello\"}";
    struct nj_request request;
    struct nj_problem problem;
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_int_equal(request.shape, NJ_SHAPE_PLAIN);
    assert_string_equal(request.id, "a");
    assert_int_equal(request.prompt.length, 5);
    assert_null(request.messages);
    assert_int_equal(request.max_tokens, 512);
    assert_true(request.temperature == 0 && request.top_p == 1 && request.min_p == 0);
    assert_int_equal(request.top_k, 0);
    assert_int_equal(request.seed, 0);
    assert_int_equal(request.stop_count, 0);
    assert_int_equal(request.ignored, 0);
    request_free(&request);
}

static void test_all_parameters(void **state)
{
    (void)state;
    const char line[] =
        "{\"id\":\"a\",\"prompt\":\"p\\u0000q\",\"temperature\":1.5,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.25,"
        "\"max_completion_tokens\":9,\"stop\":[\"x\",\"yz\"],\"seed\":-1,\"model\":\"m\",\"store\":true}";
    struct nj_request request;
    struct nj_problem problem;
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_true(request.temperature == 1.5f && request.top_p == 0.5f && request.min_p == 0.25f);
    assert_int_equal(request.top_k, 7);
    assert_int_equal(request.max_tokens, 9);
    assert_int_equal(request.prompt.length, 3);
    assert_memory_equal(request.prompt.bytes, "p\0q", 3);
    assert_int_equal(request.stop_count, 2);
    assert_memory_equal(request.stop[1].bytes, "yz", 2);
    assert_true(request.seed == UINT64_MAX);
    assert_int_equal(request.ignored, 1 | 8);
    assert_string_equal(request_ignored_name(0), "model");
    assert_string_equal(request_ignored_name(3), "store");
    request_free(&request);
}

static void test_batch_lines(void **state)
{
    (void)state;
    struct nj_request request;
    struct nj_problem problem;
    const char chat[] =
        "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":{\"model\":\"m\","
        "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":3}}";
    assert_int_equal(request_parse(chat, strlen(chat), &request, &problem), 0);
    assert_int_equal(request.shape, NJ_SHAPE_BATCH_CHAT);
    assert_string_equal(request.id, "c");
    assert_int_equal(json_array_size(request.messages), 1);
    request_free(&request);
    const char completion[] =
        "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"x\"}}";
    assert_int_equal(request_parse(completion, strlen(completion), &request, &problem), 0);
    assert_int_equal(request.shape, NJ_SHAPE_BATCH_COMPLETION);
    request_free(&request);
    /* As some services write them: without method and url. */
    const char bare[] = "{\"custom_id\":\"c\",\"body\":{\"prompt\":\"x\"}}";
    assert_int_equal(request_parse(bare, strlen(bare), &request, &problem), 0);
    assert_int_equal(request.shape, NJ_SHAPE_BATCH_COMPLETION);
    request_free(&request);
}

static void test_neutral_values(void **state)
{
    (void)state;
    static const char *const neutral[] = {"\"stream\":false",
                                          "\"stream_options\":null",
                                          "\"n\":1",
                                          "\"best_of\":1",
                                          "\"echo\":false",
                                          "\"suffix\":\"\"",
                                          "\"logprobs\":false",
                                          "\"logprobs\":null",
                                          "\"top_logprobs\":0",
                                          "\"logit_bias\":{}",
                                          "\"presence_penalty\":0",
                                          "\"frequency_penalty\":0.0",
                                          "\"repetition_penalty\":1.0",
                                          "\"min_tokens\":0",
                                          "\"ignore_eos\":false",
                                          "\"skip_special_tokens\":true",
                                          "\"chat_template_kwargs\":{}",
                                          "\"response_format\":{\"type\":\"text\"}",
                                          "\"tools\":[]",
                                          "\"tool_choice\":\"none\"",
                                          "\"temperature\":null",
                                          "\"stop\":null",
                                          "\"stop\":[]",
                                          "\"seed\":null",
                                          "\"max_tokens\":null",
                                          "\"n\":null",
                                          "\"id\":null",
                                          "\"messages\":null",
                                          "\"top_k\":-1"};
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0]; i++) {
        char line[200];
        snprintf(line, sizeof line, "{\"prompt\":\"a\",%s}", neutral[i]);
        assert_true(parses(line));
    }
}

static void test_refused_values(void **state)
{
    (void)state;
    static const char *const refused[] = {"stream\":true",
                                          "best_of\":3",
                                          "echo\":true",
                                          "suffix\":\"x\"",
                                          "presence_penalty\":0.1",
                                          "frequency_penalty\":1",
                                          "repetition_penalty\":1.1",
                                          "min_tokens\":1",
                                          "ignore_eos\":true",
                                          "skip_special_tokens\":false",
                                          "response_format\":{\"type\":\"json_object\"}",
                                          "tools\":[{}]",
                                          "tool_choice\":\"auto\""};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char line[200], name[40] = "";
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"%s}", refused[i]);
        memcpy(name, refused[i], strcspn(refused[i], "\""));
        check_bad(line, "not_supported", name);
    }
}

static void parse_well(const char *line, struct nj_request *request)
{
    struct nj_problem problem;
    if (request_parse(line, strlen(line), request, &problem) != 0)
        fail_msg("%s: %s", line, problem.message);
}

static void test_number_of_choices(void **state)
{
    (void)state;
    struct nj_request request;
    parse_well("{\"prompt\":\"a\"}", &request);
    assert_int_equal(request.n, 1);
    request_free(&request);
    parse_well("{\"prompt\":\"a\",\"n\":16}", &request);
    assert_int_equal(request.n, 16);
    assert_int_equal(request_samples(&request), 1); /* greedy: all are equal */
    request_free(&request);
    parse_well("{\"prompt\":\"a\",\"n\":16,\"temperature\":0.1}", &request);
    assert_int_equal(request_samples(&request), 16);
    request_free(&request);
    check_bad("{\"prompt\":\"a\",\"n\":0}", "invalid_request", "n must be at least 1 and at most 16; it is 0");
    check_bad("{\"prompt\":\"a\",\"n\":17}", "invalid_request", "n must be at least 1");
    check_bad("{\"prompt\":\"a\",\"n\":\"2\"}", "invalid_request", "n must be an integer");
}

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]"
#define CHAT_BODY(fields) "{\"url\":\"/v1/chat/completions\",\"body\":{" CHAT "," fields "}}"
#define PROMPT_BODY(fields) "{\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"," fields "}}"

/* Each endpoint in its own way; plain lines by what they hold, whichever comes first. */
static void test_logprobs(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum nj_logprobs_form form;
        int top;
    } cases[] = {
        {"{\"logprobs\":true,\"top_logprobs\":20," CHAT "}", NJ_LOGPROBS_CHAT, 20},
        {CHAT_BODY("\"top_logprobs\":2,\"logprobs\":true"), NJ_LOGPROBS_CHAT, 2},
        {CHAT_BODY("\"logprobs\":true"), NJ_LOGPROBS_CHAT, 0},
        {CHAT_BODY("\"logprobs\":false,\"top_logprobs\":0"), NJ_LOGPROBS_OFF, 0},
        {CHAT_BODY("\"logprobs\":null"), NJ_LOGPROBS_OFF, 0},
        {"{\"prompt\":\"a\",\"logprobs\":5}", NJ_LOGPROBS_COMPLETION, 5},
        {"{\"logprobs\":0,\"top_logprobs\":0,\"prompt\":\"a\"}", NJ_LOGPROBS_COMPLETION, 0},
        {PROMPT_BODY("\"logprobs\":3"), NJ_LOGPROBS_COMPLETION, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nj_request request;
        parse_well(cases[i].line, &request);
        assert_int_equal(request.logprobs, cases[i].form);
        assert_int_equal(request.top_logprobs, cases[i].top);
        request_free(&request);
    }
}

static void test_refused_logprobs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {CHAT_BODY("\"logprobs\":2"), "logprobs must be true or false with messages"},
        {CHAT_BODY("\"logprobs\":0"), "logprobs must be true or false with messages"},
        {CHAT_BODY("\"logprobs\":\"yes\""), "logprobs must be true or false (with messages) or an integer"},
        {CHAT_BODY("\"logprobs\":true,\"top_logprobs\":21"), "top_logprobs must be at least 0 and at most 20"},
        {CHAT_BODY("\"logprobs\":true,\"top_logprobs\":true"), "top_logprobs must be an integer"},
        {CHAT_BODY("\"top_logprobs\":1"), "top_logprobs needs"},
        {PROMPT_BODY("\"logprobs\":true"), "logprobs must be an integer from 0 to 5 with a prompt"},
        {PROMPT_BODY("\"logprobs\":6"), "logprobs must be at least 0 and at most 5"},
        {PROMPT_BODY("\"logprobs\":-1"), "logprobs must be at least 0"},
        {PROMPT_BODY("\"logprobs\":2.5"), "logprobs must be true or false (with messages) or an integer"},
        {PROMPT_BODY("\"top_logprobs\":1"), "top_logprobs needs messages"},
        {PROMPT_BODY("\"logprobs\":1,\"top_logprobs\":2"), "both logprobs and top_logprobs give a number"},
        {PROMPT_BODY("\"top_logprobs\":2,\"logprobs\":1"), "both logprobs and top_logprobs give a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_bad(cases[i][0], "invalid_request", cases[i][1]);
}

static void test_logit_bias(void **state)
{
    (void)state;
    struct nj_request request;
    parse_well("{\"prompt\":\"a\",\"logit_bias\":{\"50\":-100,\"0\":0.25,\"7\":100,\"2147483647\":1}}", &request);
    static const struct nj_logit_bias expected[] = {{0, 0.25f}, {7, 100}, {50, -100}, {INT32_MAX, 1}};
    assert_int_equal(request.bias_count, 4);
    assert_memory_equal(request.bias, expected, sizeof expected);
    request_free(&request);

    static const char *const refused[][2] = {
        {"[]", "logit_bias must be an object"},
        {"{\"a\":1}", "such as \"123\"; one name is \"a\""},
        {"{\"\":1}", "name tokens by their number"},
        {"{\"-1\":1}", "name tokens by their number"},
        {"{\"05\":1}", "name tokens by their number"},
        {"{\"2147483648\":1}", "name tokens by their number"},
        {"{\"5\":\"1\"}", "that of \"5\" is a string"},
        {"{\"5\":null}", "that of \"5\" is null"},
        {"{\"5\":100.5}", "logit_bias must be at least -100 and at most 100"},
        {"{\"5\":-101}", "logit_bias must be at least -100 and at most 100"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char line[200];
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"logit_bias\":%s}", refused[i][0]);
        check_bad(line, "invalid_request", refused[i][1]);
    }
}

static void test_most_biased_tokens(void **state)
{
    (void)state;
    for (int count = NJ_BIASED_TOKENS_MOST; count <= NJ_BIASED_TOKENS_MOST + 1; count++) {
        static char line[32 * NJ_BIASED_TOKENS_MOST];
        char *at = line + sprintf(line, "{\"prompt\":\"a\",\"logit_bias\":{");
        for (int i = 0; i < count; i++)
            at += sprintf(at, "%s\"%d\":1", i > 0 ? "," : "", i);
        sprintf(at, "}}");
        if (count <= NJ_BIASED_TOKENS_MOST)
            assert_true(parses(line));
        else
            check_bad(line, "invalid_request", "logit_bias may name at most 1024 tokens; it names 1025");
    }
}

static void test_template_variables(void **state)
{
    (void)state;
    struct nj_request request;
    struct nj_problem problem;
    const char line[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
                        "\"chat_template_kwargs\":{\"enable_thinking\":false,\"tools\":[]}}";
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_true(json_is_false(json_object_get(request.variables, "enable_thinking")));
    request_free(&request);
    const char empty[] = "{\"prompt\":\"a\",\"chat_template_kwargs\":{}}";
    assert_int_equal(request_parse(empty, strlen(empty), &request, &problem), 0);
    assert_null(request.variables);
    request_free(&request);
    check_bad("{\"prompt\":\"a\",\"chat_template_kwargs\":[]}", "invalid_request",
              "chat_template_kwargs must be an object");
    check_bad("{\"prompt\":\"a\",\"chat_template_kwargs\":{\"messages\":[]}}", "invalid_request",
              "chat_template_kwargs must not hold messages");
    check_bad("{\"prompt\":\"a\",\"chat_template_kwargs\":{\"add_generation_prompt\":false}}", "invalid_request",
              "must not hold add_generation_prompt");
}

/* Every field with a value of every type that it cannot have. */
static void test_wrong_types(void **state)
{
    (void)state;
    static const struct {
        const char *field, *accepts;
    } fields[] = {{"id", "s0"},           {"prompt", "s0"},     {"messages", "0"},
                  {"temperature", "if0"}, {"top_p", "if0"},     {"top_k", "i0"},
                  {"min_p", "f0"},        {"max_tokens", "i0"}, {"max_completion_tokens", "i0"},
                  {"stop", "s0"},         {"seed", "i0"}};
    static const struct {
        char type;
        const char *value;
    } values[] = {{'s', "\"x\""}, {'i', "1"},    {'f', "0.5"}, {'b', "true"},
                  {'b', "false"}, {'a', "[[]]"}, {'o', "{}"},  {'0', "null"}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            char line[200];
            bool is_prompt = strcmp(fields[i].field, "prompt") == 0;
            snprintf(line, sizeof line, "{%s\"%s\":%s}", is_prompt ? "" : "\"prompt\":\"a\",", fields[i].field,
                     values[j].value);
            bool missing = is_prompt && values[j].type == '0';
            if (strchr(fields[i].accepts, values[j].type) != NULL && !missing)
                assert_true(parses(line));
            else
                check_bad(line, "invalid_request", fields[i].field);
        }
    }
}

static void test_ranges(void **state)
{
    (void)state;
    static const char *const bad[] = {"temperature\":-0.1",
                                      "temperature\":101",
                                      "top_p\":0",
                                      "top_p\":1.01",
                                      "min_p\":1",
                                      "min_p\":-1",
                                      "top_k\":-2",
                                      "top_k\":4294967296",
                                      "max_tokens\":0",
                                      "max_tokens\":-1",
                                      "max_completion_tokens\":0"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char line[200], name[40] = "";
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"%s}", bad[i]);
        memcpy(name, bad[i], strcspn(bad[i], "\""));
        check_bad(line, "invalid_request", name);
    }
    static const char *const good[] = {"temperature\":0",
                                       "temperature\":2",
                                       "temperature\":-0.0",
                                       "top_p\":1",
                                       "top_p\":1e-300",
                                       "min_p\":0.99999999999",
                                       "max_tokens\":1",
                                       "max_tokens\":9223372036854775807",
                                       "seed\":-9223372036854775808"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char line[200];
        snprintf(line, sizeof line, "{\"prompt\":\"a\",\"%s}", good[i]);
        assert_true(parses(line));
    }
    assert_true(parses("{\"prompt\":\"a\",\"max_tokens\":5,\"max_completion_tokens\":5}"));
    check_bad("{\"prompt\":\"a\",\"max_tokens\":5,\"max_completion_tokens\":6}", "invalid_request", "differ");
    check_bad("{\"prompt\":\"a\",\"max_tokens\":0}", "invalid_request", "max_tokens must be at least 1; it is 0");
}

/* Rounding to float must not reach an end that is excluded. */
static void test_open_ends_stay_open(void **state)
{
    (void)state;
    const char line[] = "{\"prompt\":\"a\",\"top_p\":1e-300,\"min_p\":0.99999999999}";
    struct nj_request request;
    struct nj_problem problem;
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), 0);
    assert_true(request.top_p > 0);
    assert_true(request.min_p < 1);
    request_free(&request);
}

static void test_broken_lines(void **state)
{
    (void)state;
    check_bad("{\"id\":\"a\",\"prompt\":\"x", "invalid_json", "JSON");
    check_bad("{\"id\":\"a\",\"prompt\":\"x\"", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"x\"} {}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"\xFF\"}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"\xC0\xAF\"}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"\xED\xA0\x80\"}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"\\ud800\"}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"\\udc00x\"}", "invalid_json", "JSON");
    check_bad("{\"prompt\":\"a\",\"prompt\":\"b\"}", "invalid_json", "duplicate");
    check_bad("{\"prompt\":\"a\",\"seed\":99999999999999999999}", "invalid_json", "integer");
    check_bad("{\"prompt\":\"a\",\"temperature\":1e400}", "invalid_json", "real");
    check_bad("null", "invalid_request", "null");
    check_bad("5", "invalid_request", "integer");
    check_bad("[]", "invalid_request", "array");
    check_bad("\"a\"", "invalid_request", "string");
    check_bad("true", "invalid_request", "boolean");
    check_bad("{}", "invalid_request", "prompt");
    check_bad("", "invalid_json", "JSON");
    check_bad_bytes("{\"prompt\":\"a\0b\"}", 17, "invalid_json", "JSON");
    check_bad_bytes("{\"prompt\":\"a\"}\0", 15, "invalid_json", "JSON");
    check_bad("{\"prompt\":\"a\",\"temprature\":1}", "unknown_field", "temprature");
    check_bad("{\"prompt\":\"a\",\"x\\u001b[31m\":1}", "unknown_field", "x?[31m");
    check_bad("{\"prompt\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"b\"}]}", "invalid_request", "both");
}

static void test_nesting(void **state)
{
    (void)state;
    enum { DEPTH = 10000 };
    char *line = malloc(2 * DEPTH + 64);
    assert_non_null(line);
    size_t length = (size_t)sprintf(line, "{\"prompt\":");
    memset(line + length, '[', DEPTH);
    memset(line + length + DEPTH, ']', DEPTH);
    strcpy(line + length + 2 * DEPTH, "}");
    check_bad(line, "invalid_json", "depth");
    free(line);
}

static void test_place_of_json_mistakes(void **state)
{
    (void)state;
    const char line[] = "{\"id\":\"a\",\"prompt\":nonsense}";
    struct nj_request request;
    struct nj_problem problem;
    assert_int_equal(request_parse(line, strlen(line), &request, &problem), -1);
    assert_in_range((uint64_t)problem.byte, 19, 27);
    assert_null(strstr(problem.message, "nonsense")); /* no prompt text in messages */
    request_free(&request);
}

static void test_ids(void **state)
{
    (void)state;
    char line[1200], id[600];
    memset(id, 'i', sizeof id);
    snprintf(line, sizeof line, "{\"id\":\"%.512s\",\"prompt\":\"a\"}", id);
    assert_true(parses(line));
    snprintf(line, sizeof line, "{\"id\":\"%.513s\",\"prompt\":\"a\"}", id);
    check_bad(line, "invalid_request", "id must have");
    check_bad("{\"id\":\"\",\"prompt\":\"a\"}", "invalid_request", "id must have");
    check_bad("{\"id\":7,\"prompt\":\"a\"}", "invalid_request", "put it in quotes");
    check_bad("{\"id\":\"a\\u0000b\",\"prompt\":\"a\"}", "invalid_request", "NUL");
    check_bad("{\"custom_id\":7,\"body\":{\"prompt\":\"a\"}}", "invalid_request", "custom_id");
}

/* A bad line keeps its id, so that its error record has it. */
static void test_bad_line_keeps_id_and_shape(void **state)
{
    (void)state;
    struct nj_request request;
    struct nj_problem problem;
    const char plain[] = "{\"prompt\":5,\"id\":\"late\"}";
    assert_int_equal(request_parse(plain, strlen(plain), &request, &problem), -1);
    assert_string_equal(request.id, "late");
    request_free(&request);
    const char batch[] = "{\"body\":{\"prompt\":5},\"url\":\"/v1/completions\",\"custom_id\":\"c\"}";
    assert_int_equal(request_parse(batch, strlen(batch), &request, &problem), -1);
    assert_string_equal(request.id, "c");
    assert_int_equal(request.shape, NJ_SHAPE_BATCH_COMPLETION);
    request_free(&request);
}

static void test_messages(void **state)
{
    (void)state;
    check_bad("{\"messages\":[]}", "invalid_request", "empty");
    check_bad("{\"messages\":[5]}", "invalid_request", "messages[0]");
    check_bad("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\"}]}", "invalid_request",
              "messages[1].content");
    check_bad("{\"messages\":[{\"role\":5,\"content\":\"a\"}]}", "invalid_request", "messages[0].role");
    check_bad("{\"messages\":[{\"role\":\"\",\"content\":\"a\"}]}", "invalid_request", "messages[0].role");
    check_bad("{\"messages\":[{\"content\":\"a\"}]}", "invalid_request", "messages[0].role");
    check_bad("{\"messages\":[{\"role\":\"user\",\"content\":5}]}", "invalid_request", "messages[0].content");
    assert_true(parses("{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[]}]}"));
}

/* A message whose content is this array of parts. */
#define PARTS(parts) "{\"messages\":[{\"role\":\"user\",\"content\":[" parts "]}]}"

static void test_content_in_parts(void **state)
{
    (void)state;
    assert_true(parses(PARTS("{\"type\":\"text\",\"text\":\"a\"},{\"text\":\"\",\"type\":\"text\",\"id\":null}")));
    check_bad(PARTS(""), "invalid_request", "messages[0].content");
    check_bad(PARTS("\"a\""), "invalid_request", "messages[0].content[0]");
    check_bad(PARTS("{\"text\":\"a\"}"), "invalid_request", "messages[0].content[0].type");
    check_bad(PARTS("{\"type\":1,\"text\":\"a\"}"), "invalid_request", "messages[0].content[0].type");
    check_bad(PARTS("{\"type\":\"text\"}"), "invalid_request", "messages[0].content[0].text");
    check_bad(PARTS("{\"type\":\"text\",\"text\":null}"), "invalid_request", "messages[0].content[0].text");
    check_bad(PARTS("{\"type\":\"text\",\"text\":\"a\",\"cache\":1}"), "unknown_field", "\"cache\"");
    check_bad(PARTS("{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}"),
              "not_supported", "messages[0].content[1] is of type \"image_url\"");
    check_bad(PARTS("{\"type\":\"input_audio\",\"input_audio\":{}}"), "not_supported", "\"input_audio\"");
}

static void test_stop_strings(void **state)
{
    (void)state;
    char line[40000] = "{\"prompt\":\"a\",\"stop\":[\"s\"";
    for (int i = 0; i < 15; i++)
        strcat(line, ",\"s\"");
    size_t sixteen = strlen(line);
    strcat(line, "]}");
    assert_true(parses(line));
    strcpy(line + sixteen, ",\"s\"]}");
    check_bad(line, "invalid_request", "at most 16");
    check_bad("{\"prompt\":\"a\",\"stop\":\"\"}", "invalid_request", "stop string");
    check_bad("{\"prompt\":\"a\",\"stop\":[\"a\",1]}", "invalid_request", "stop must hold strings");
    char text[1030];
    memset(text, 's', sizeof text);
    snprintf(line, sizeof line, "{\"prompt\":\"a\",\"stop\":\"%.1024s\"}", text);
    assert_true(parses(line));
    snprintf(line, sizeof line, "{\"prompt\":\"a\",\"stop\":\"%.1025s\"}", text);
    check_bad(line, "invalid_request", "stop string");
}

static void test_batch_mistakes(void **state)
{
    (void)state;
    check_bad("{\"custom_id\":\"c\",\"url\":\"/v1/completions\"}", "invalid_request", "body");
    check_bad("{\"custom_id\":\"c\",\"body\":5}", "invalid_request", "body");
    check_bad("{\"custom_id\":\"c\",\"method\":\"GET\",\"body\":{\"prompt\":\"a\"}}", "invalid_request", "method");
    check_bad("{\"custom_id\":\"c\",\"url\":\"/v1/embeddings\",\"body\":{\"prompt\":\"a\"}}", "invalid_request", "url");
    check_bad("{\"custom_id\":\"c\",\"url\":5,\"body\":{\"prompt\":\"a\"}}", "invalid_request", "url");
    check_bad("{\"custom_id\":\"c\",\"prompt\":\"a\",\"body\":{\"prompt\":\"a\"}}", "unknown_field", "prompt");
    check_bad("{\"custom_id\":\"c\",\"url\":\"/v1/chat/completions\",\"body\":{\"prompt\":\"a\"}}", "invalid_request",
              "prompt");
    check_bad("{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{\"messages\":[]}}", "invalid_request",
              "messages");
    check_bad("{\"custom_id\":\"c\",\"body\":{\"prompt\":\"a\",\"id\":\"x\"}}", "unknown_field", "id");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_defaults),
        cmocka_unit_test(test_all_parameters),
        cmocka_unit_test(test_batch_lines),
        cmocka_unit_test(test_neutral_values),
        cmocka_unit_test(test_number_of_choices),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_refused_logprobs),
        cmocka_unit_test(test_logit_bias),
        cmocka_unit_test(test_most_biased_tokens),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_template_variables),
        cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_open_ends_stay_open),
        cmocka_unit_test(test_broken_lines),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_place_of_json_mistakes),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_bad_line_keeps_id_and_shape),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_content_in_parts),
        cmocka_unit_test(test_stop_strings),
        cmocka_unit_test(test_batch_mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
