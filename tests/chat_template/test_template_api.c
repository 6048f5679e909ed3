/* The public interface: input, errors, limits, threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/chat_template/template_cases.h"

static const char one_message[] = "[{\"role\": \"user\", \"content\": \"hi\"}]";

static void expect_compile_error(const char *source, size_t length, const char *message)
{
    struct nj_error error;
    assert_null(chat_template_compile(source, length, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    if (strstr(error.message, message) == NULL)
        fail_msg("'%s' is not in '%s'", message, error.message);
}

static void test_source_must_be_utf8(void **state)
{
    (void)state;
    expect_compile_error("ab\xff", 3, "not valid UTF-8 (byte 2)");
    expect_compile_error("\xC0\x80", 2, "not valid UTF-8 (byte 0)");
    expect_compile_error("\xED\xA0\x80", 3, "not valid UTF-8 (byte 0)");
    expect_compile_error("x\xE2\x98", 3, "not valid UTF-8 (byte 1)");
}

static void test_columns_count_characters(void **state)
{
    (void)state;
    const char source[] = "\xC3\xA9\xE2\x98\x83{{ 1 + }}";
    expect_compile_error(source, strlen(source), "line 1, column 10: expected an expression, found }}");
}

static void test_no_error_wanted(void **state)
{
    (void)state;
    struct nj_rendered rendered;
    assert_null(chat_template_compile("{{", 2, NULL));
    struct nj_chat_template *chat = chat_template_compile("{{ nope.x }}", 12, NULL);
    assert_non_null(chat);
    struct nj_chat_input input = {.messages = json_array()};
    assert_int_equal(chat_template_render(chat, &input, &rendered, NULL), -1);
    assert_null(rendered.text);
    rendered_free(&rendered);
    json_decref(input.messages);
    chat_template_destroy(chat);
    chat_template_destroy(NULL);
}

static void test_empty_template(void **state)
{
    (void)state;
    struct nj_rendered rendered = cases_render_text("", one_message, NULL);
    assert_int_equal(rendered.length, 0);
    assert_string_equal(rendered.text, "");
    assert_non_null(rendered.is_template);
    rendered_free(&rendered);
}

static void test_nul_bytes_survive(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_rendered rendered;
    const char source[] = "a\0{{ messages[0].content ~ '\\x00' }}";
    struct nj_chat_template *chat = chat_template_compile(source, sizeof source - 1, &error);
    assert_non_null(chat);
    const char text[] = "[{\"content\": \"b\\u0000c\"}]";
    struct nj_chat_input input = {.messages = json_loads(text, JSON_ALLOW_NUL, NULL)};
    assert_int_equal(chat_template_render(chat, &input, &rendered, &error), 0);
    assert_int_equal(rendered.length, 6);
    assert_memory_equal(rendered.text, "a\0b\0c\0", 6);
    rendered_free(&rendered);
    json_decref(input.messages);
    chat_template_destroy(chat);
}

static void test_messages_cannot_be_replaced(void **state)
{
    (void)state;
    struct nj_rendered rendered = cases_render_text("{{ messages[0].content }}{{ add_generation_prompt }}", one_message,
                                                    "{\"messages\": [], \"add_generation_prompt\": true}");
    assert_string_equal(rendered.text, "hiFalse");
    rendered_free(&rendered);
}

/* `count` times `part`. */
static char *repeat(const char *part, size_t count)
{
    char *out = malloc(strlen(part) * count + 1);
    assert_non_null(out);
    for (size_t i = 0; i < count; i++)
        memcpy(out + i * strlen(part), part, strlen(part));
    out[strlen(part) * count] = '\0';
    return out;
}

static void test_deep_nesting_is_refused(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "{{ (",
        "{{ [",
        "{{ not ",
        "{{ -",
        "{{ {1:",
        "{% if 1 %}",
        "{% for x in y %}",
        "{{ f(",
        "{{ 1 if 1 else ",
        "{{ a[",
        "{% set x %}",
        "{% macro f() %}",
        "{% call f() %}",
        "{{ 1|abs(",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        /* Only tags repeat as a whole; expressions repeat behind their {{. */
        bool is_tag = parts[i][1] == '%';
        char *inner = repeat(parts[i] + (is_tag ? 0 : 3), 100000);
        char *source = malloc(strlen(inner) + 8);
        sprintf(source, "%s%s", is_tag ? "" : "{{ ", inner);
        struct nj_error error;
        assert_null(chat_template_compile(source, strlen(source), &error));
        assert_int_equal(error.code, NJ_BAD_DATA);
        free(source);
        free(inner);
    }
}

static void test_long_chains_are_refused(void **state)
{
    (void)state;
    static const char *const parts[] = {" + 1", ".x", "|upper", " and 1", "[0]", " if 1", "()", " is odd"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char *chain = repeat(parts[i], 5000);
        char *source = malloc(strlen(chain) + 16);
        sprintf(source, "{{ x%s }}", chain);
        expect_compile_error(source, strlen(source), i == 7 ? "chained" : "nested too deeply");
        free(source);
        free(chain);
    }
}

static void test_wide_templates_are_fine(void **state)
{
    (void)state;
    char *source = repeat("{% if true %}{{ 1 }}{% elif 2 %}{% endif %}", 3000);
    struct nj_rendered rendered = cases_render_text(source, one_message, NULL);
    assert_int_equal(rendered.length, 3000);
    rendered_free(&rendered);
    free(source);
    source = repeat("~ 'ab' ", 3000);
    char *whole = malloc(strlen(source) + 16);
    sprintf(whole, "{{ '' %s}}", source);
    rendered = cases_render_text(whole, one_message, NULL);
    assert_int_equal(rendered.length, 6000);
    rendered_free(&rendered);
    free(whole);
    free(source);
}

static void test_deep_messages_are_refused(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_rendered rendered;
    struct nj_chat_template *chat = chat_template_compile("{{ messages }}", 14, &error);
    json_t *deep = json_array();
    for (int i = 0; i < 5000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    struct nj_chat_input input = {.messages = deep};
    assert_int_equal(chat_template_render(chat, &input, &rendered, &error), -1);
    assert_non_null(strstr(error.message, "nested too deeply"));
    json_decref(deep);
    chat_template_destroy(chat);
}

/* Values that a template nests itself, deeper than any walk over them may go. */
static void test_deep_values_are_refused(void **state)
{
    (void)state;
    static const char *const uses[] = {
        "{{ ns.t }}",
        "{{ ns.t | tojson }}",
        "{{ ns.t == ns.u }}",
        "{{ ns.t < ns.u }}",
        "{{ {}[ns.t] }}",
        "{{ {ns.t: 1} }}",
        "{{ [ns.t, ns.u] | unique }}",
        "{{ [ns.t, ns.u] | sort }}",
        "{{ ns.t in [ns.u] }}",
        "{{ '%s' % [ns.t] }}",
        "{{ {'a': ns.t} == {'a': ns.u} }}",
    };
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        char source[512];
        struct nj_error error;
        struct nj_rendered rendered;
        snprintf(source, sizeof source,
                 "{%% set ns = namespace(t=(), u=()) %%}{%% for i in range(50000) %%}{%% set ns.t = (ns.t,) %%}"
                 "{%% set ns.u = (ns.u,) %%}{%% endfor %%}%s",
                 uses[i]);
        struct nj_chat_template *chat = chat_template_compile(source, strlen(source), &error);
        assert_non_null(chat);
        struct nj_chat_input input = {.messages = json_array()};
        assert_int_equal(chat_template_render(chat, &input, &rendered, &error), -1);
        if (strstr(error.message, "nested too deeply") == NULL)
            fail_msg("%s: %s", uses[i], error.message);
        json_decref(input.messages);
        chat_template_destroy(chat);
    }
}

static void test_large_content(void **state)
{
    (void)state;
    char *text = repeat("0123456789abcde\n", 1 << 16);
    json_t *message = json_object();
    json_object_set_new(message, "content", json_string(text));
    struct nj_chat_input input = {.messages = json_array()};
    json_array_append_new(input.messages, message);
    struct nj_error error;
    struct nj_rendered rendered;
    const char source[] =
        "{{ messages[0].content | trim | replace('a', 'AA') }}{{ messages[0].content.split('\n')|length }}";
    struct nj_chat_template *chat = chat_template_compile(source, sizeof source - 1, &error);
    assert_non_null(chat);
    if (chat_template_render(chat, &input, &rendered, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(rendered.length, (17 << 16) - 1 + 5);
    rendered_free(&rendered);
    chat_template_destroy(chat);
    json_decref(input.messages);
    free(text);
}

struct thread_work {
    const struct nj_chat_template *chat;
    json_t *messages;
    const char *expected;
    int failures;
};

static void *render_often(void *context)
{
    struct thread_work *work = context;
    struct nj_chat_input input = {.messages = work->messages, .bos_token = BOS_TOKEN};
    for (int i = 0; i < 200; i++) {
        struct nj_rendered rendered;
        struct nj_error error;
        bool is_right = chat_template_render(work->chat, &input, &rendered, &error) == 0 &&
                        strcmp(rendered.text, work->expected) == 0;
        work->failures += !is_right;
        rendered_free(&rendered);
    }
    return NULL;
}

static void test_threads_share_a_template(void **state)
{
    (void)state;
    const char source[] = "{% macro f(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n=0) %}{% for m in messages %}"
                          "{% set ns.n = ns.n + 1 %}{{ f(m.content) }}{{ ns.n }}{% endfor %}";
    struct nj_error error;
    struct nj_chat_template *chat = chat_template_compile(source, sizeof source - 1, &error);
    assert_non_null(chat);
    struct thread_work work[2] = {
        {chat, json_loads("[{\"content\": \"a\"}]", 0, NULL), "<a>1", 0},
        {chat, json_loads("[{\"content\": \"b\"}, {\"content\": \"c\"}]", 0, NULL), "<b>1<c>2", 0},
    };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, &work[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(work[i].failures, 0);
        json_decref(work[i].messages);
    }
    chat_template_destroy(chat);
}

/* Recursion stops at limits that a thread's smaller stack can bear. */
static void *recurse_deeply(void *context)
{
    json_t *deep = json_array();
    for (int i = 0; i < 990; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    static const char *const sources[] = {
        "{% macro f(n) %}{{ [(n + 1, f((n + 1) * 1) | upper)] | tojson }}{% endmacro %}{{ f(0) }}",
        "{{ messages }}{{ messages | tojson }}{{ messages == messages | list }}",
        ("{% macro f(n) %}{% call g(n) %}{{ f(n) }}{% endcall %}{% endmacro %}{% macro g(n) %}{{ caller() }}"
         "{% endmacro %}{{ f(0) }}"),
    };
    struct nj_chat_input input = {.messages = deep};
    size_t *compiled = context;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        struct nj_error error;
        struct nj_rendered rendered;
        struct nj_chat_template *chat = chat_template_compile(sources[i], strlen(sources[i]), &error);
        if (chat == NULL)
            continue;
        ++*compiled;
        chat_template_render(chat, &input, &rendered, &error);
        rendered_free(&rendered);
        chat_template_destroy(chat);
    }
    json_decref(deep);
    return NULL;
}

static void test_recursion_fits_a_small_stack(void **state)
{
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    size_t compiled = 0;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 2 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attributes, recurse_deeply, &compiled), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    assert_int_equal(compiled, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_must_be_utf8),
        cmocka_unit_test(test_columns_count_characters),
        cmocka_unit_test(test_no_error_wanted),
        cmocka_unit_test(test_empty_template),
        cmocka_unit_test(test_nul_bytes_survive),
        cmocka_unit_test(test_messages_cannot_be_replaced),
        cmocka_unit_test(test_deep_nesting_is_refused),
        cmocka_unit_test(test_long_chains_are_refused),
        cmocka_unit_test(test_wide_templates_are_fine),
        cmocka_unit_test(test_deep_messages_are_refused),
        cmocka_unit_test(test_recursion_fits_a_small_stack),
        cmocka_unit_test(test_deep_values_are_refused),
        cmocka_unit_test(test_large_content),
        cmocka_unit_test(test_threads_share_a_template),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
