/* The origin of each byte of a rendered prompt: 1 for the template's, 0 for that of messages and variables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/chat_template/template_cases.h"

/* In `expected`, [ begins content and ] ends it. */
struct marks_case {
    const char *source;
    const char *messages; /* NULL: one user message "a<|x|>b" */
    const char *expected;
};

static const char default_messages[] = "[{\"role\": \"user\", \"content\": \"a<|x|>b\"}]";

/* The rendered text with brackets where the marks change. */
static char *bracket(const struct nj_rendered *rendered)
{
    char *out = calloc(2 * rendered->length + 2, 1);
    size_t length = 0;
    bool inside = false;
    for (size_t i = 0; i < rendered->length; i++) {
        if (inside != (rendered->is_template[i] == 0)) {
            out[length++] = inside ? ']' : '[';
            inside = !inside;
        }
        out[length++] = rendered->text[i];
    }
    if (inside)
        out[length] = ']';
    return out;
}

#define C "messages[0].content"

static const struct marks_case marks_cases[] = {
    {"<|x|>{{ " C " }}<|x|>", NULL, "<|x|>[a<|x|>b]<|x|>"},
    {"{{ '<|x|>' + " C " + '<|x|>' }}", NULL, "<|x|>[a<|x|>b]<|x|>"},
    {"{{ '<' ~ " C " ~ 1 }}", NULL, "<[a<|x|>b]1"},
    {"{{ bos_token }}{{ " C " }}{{ eos_token }}", NULL, "<s>[a<|x|>b]</s>"},
    {"{{ messages[0]['role'] }}!", NULL, "[user]!"},
    {"{{ " C "[1:3] + '|' }}", NULL, "[<|]|"},
    {"{{ " C "[::-1] }}", NULL, "[b>|x|<a]"},
    {"{{ " C "[0] }}{{ " C "[-1] }}.", NULL, "[ab]."},
    {"{{ ('  ' + " C " + ' ') | trim }}", NULL, "[a<|x|>b]"},
    {"{{ " C ".strip('ab') }}-", NULL, "[<|x|>]-"},
    {"{{ " C ".split('|')[1] }}-{{ " C ".split('|') | join('|') }}", NULL, "[x]-[a<]|[x]|[>b]"},
    {"{{ " C " | replace('x', 'YY') }}", NULL, "[a<|]YY[|>b]"},
    {"{{ 'say X!' | replace('X', " C ") }}", NULL, "say [a<|x|>b]!"},
    {"{{ " C " | upper }}{{ 'q' | upper }}", NULL, "[A<|X|>B]Q"},
    {"{{ " C ".title() }}-{{ " C " | title }}-{{ " C " | capitalize }}", NULL, "[A<|X|>B]-[A<|x|>b]-[A<|x|>b]"},
    {"{{ '%s=%s' % ('k', " C ") }}", NULL, "k=[a<|x|>b]"},
    {"{{ '%9s|' % " C " }}", NULL, "  [a<|x|>b]|"},
    {"{{ '<{}>{:>4}'.format(" C ", 7) }}", NULL, "<[a<|x|>b]>   7"},
    {"{{ '<%s>' | format(" C ") }}", NULL, "<[a<|x|>b]>"},
    {"{{ ['p', " C "] | join(', ') }}", NULL, "p, [a<|x|>b]"},
    {"{{ [" C ", 'p'] }}", NULL, "['[a<|x|>b]', 'p']"},
    {"{{ {'k': " C "} }}", NULL, "{'k': '[a<|x|>b]'}"},
    {"{{ {'k': " C "} | tojson }}", NULL, "{\"k\": \"[a<|x|>b]\"}"},
    {"{{ " C " | tojson }}", NULL, "\"[a<|x|>b]\""},
    {"<{{ messages | tojson }}>", NULL, "<[[{\"role\": \"user\", \"content\": \"a<|x|>b\"}]]>"},
    {"<{{ messages[0] }}>", NULL, "<[{'role': 'user', 'content': 'a<|x|>b'}]>"},
    {"{% set x %}<{{ " C " }}>{% endset %}{{ x }}", NULL, "<[a<|x|>b]>"},
    {"{% macro f(t) %}<{{ t }}>{% endmacro %}{{ f(" C ") }}{{ f('z') }}", NULL, "<[a<|x|>b]><z>"},
    {"{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.content + '.' %}{% endfor %}{{ ns.t "
     "}}",
     NULL, "[a<|x|>b]."},
    {"{% filter upper %}t{{ " C " }}{% endfilter %}", NULL, "T[A<|X|>B]"},
    {"{% for c in " C " %}{{ c }}-{% endfor %}", NULL, "[a]-[<]-[|]-[x]-[|]-[>]-[b]-"},
    {"{{ " C " if true else 'x' }}{{ nope or " C " }}", NULL, "[a<|x|>ba<|x|>b]"},
    {"{{ " C " * 2 }}{{ 'z' * 2 }}", NULL, "[a<|x|>ba<|x|>b]zz"},
    {"{{ " C " | e }}{{ " C " | safe }}", NULL, "[a&lt;|x|&gt;ba<|x|>b]"},
    {"{{ " C " | length }}{{ loop is defined }}{{ '<|' ~ 3 ~ '|>' }}", NULL, "7False<|3|>"},
    {"{{ " C " | default('d') }}{{ nope | default('d') }}", NULL, "[a<|x|>b]d"},
    {"{{ " C " | list | join('') }}{{ " C " | reverse }}", NULL, "[a<|x|>bb>|x|<a]"},
    {"{{ " C ".partition('|')[2] }}{{ " C ".removeprefix('a') }}", NULL, "[x|>b<|x|>b]"},
    {"{{ " C ".center(9, '*') }}", NULL, "*[a<|x|>b]*"},
    {"{{ messages[0].n }}{{ messages[0].n + 1 }}{{ 2 }}", "[{\"n\": 41}]", "[4142]2"},
    {"{{ messages[0].n | int }}{{ messages[0].n | string }}{{ messages[0].f }}{{ messages[0].t }}{{ messages[0].z }}",
     "[{\"n\": \"41\", \"f\": 1.5, \"t\": true, \"z\": null}]", "[41411.5TrueNone]"},
    {"{{ messages[0].n | tojson(indent=2) }}", "[{\"n\": {\"a\": [1]}}]", "[{\n]  [\"a\": [\n]    [1\n]  []\n}]"},
    {"{{ messages[0].content | indent(2) }}", "[{\"content\": \"a\\nb\"}]", "[a\n]  [b]"},
    {"{{ messages[0].content | wordcount }}{{ messages[0].content.upper() }}", "[{\"content\": \"é ß\"}]", "2[É SS]"},
    {"{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}", "[{\"a\": 1}]", "[a]=[1];"},
    {"{% for k, v in messages[0] | dictsort %}{{ (k, v) }}{% endfor %}", "[{\"a\": \"x\"}]", "('[a]', '[x]')"},
    {"{{ messages[0] | items | list }}{{ messages[0].keys() | list }}", "[{\"a\": \"x\"}]", "[[('a', 'x')]['a']]"},
};

static void test_marks_follow_bytes(void **state)
{
    (void)state;
    size_t failed = 0;
    for (size_t i = 0; i < sizeof marks_cases / sizeof marks_cases[0]; i++) {
        const struct marks_case *one = &marks_cases[i];
        const char *messages = one->messages == NULL ? default_messages : one->messages;
        struct nj_rendered rendered = cases_render_text(one->source, messages, NULL);
        char *bracketed = bracket(&rendered);
        if (strcmp(bracketed, one->expected) != 0) {
            print_error("%s\n  gave     %s\n  expected %s\n", one->source, bracketed, one->expected);
            failed++;
        }
        free(bracketed);
        rendered_free(&rendered);
    }
    assert_int_equal(failed, 0);
}

static void test_variables_are_content(void **state)
{
    (void)state;
    struct nj_rendered rendered = cases_render_text("<{{ style }}>{{ bos_token }}", default_messages,
                                                    "{\"style\": \"<|x|>\", \"bos_token\": \"<mine>\"}");
    char *bracketed = bracket(&rendered);
    assert_string_equal(bracketed, "<[<|x|>]>[<mine>]");
    free(bracketed);
    rendered_free(&rendered);
}

/* Replaces every string of the messages, but for roles and types, by characters no template contains. */
static void disguise(json_t *value)
{
    const char *key;
    json_t *item;
    size_t i;
    json_array_foreach(value, i, item)
    {
        if (json_is_string(item))
            json_string_set(item, "\uE000\uE001 \uE002");
        disguise(item);
    }
    if (!json_is_object(value))
        return;
    json_object_foreach(value, key, item)
    {
        if (json_is_string(item) && strcmp(key, "role") != 0 && strcmp(key, "type") != 0)
            json_string_set(item, "\uE000\uE001 \uE002");
        disguise(item);
    }
}

static bool is_ascii(const json_t *text)
{
    const char *bytes = json_string_value(text);
    for (size_t i = 0; i < json_string_length(text); i++)
        if ((unsigned char)bytes[i] >= 0x80 || bytes[i] == '\\')
            return false;
    return true;
}

/* Whatever a template does: bytes that no template holds are never marked as the template's. */
static void test_marks_of_disguised_content(void **state)
{
    (void)state;
    json_t *inputs = cases_load_json("chat_template/inputs.json");
    json_t *cases = cases_load_lines("chat_template/vectors.jsonl");
    disguise(inputs);
    const json_t *one;
    size_t i, content_bytes = 0;
    json_array_foreach(cases, i, one)
    {
        struct nj_error error;
        struct nj_rendered rendered;
        const json_t *source = json_object_get(one, "template");
        struct nj_chat_template *chat = is_ascii(source) ? cases_compile(one, &error) : NULL;
        if (chat == NULL || json_object_get(one, "refused") != NULL) {
            chat_template_destroy(chat);
            continue;
        }
        struct nj_chat_input input = cases_make_input(one, inputs);
        if (chat_template_render(chat, &input, &rendered, &error) == 0) {
            for (size_t k = 0; k < rendered.length; k++) {
                if ((unsigned char)rendered.text[k] < 0x80)
                    continue;
                content_bytes++;
                if (rendered.is_template[k] != 0)
                    fail_msg("%s: byte %zu is content", json_string_value(source), k);
            }
        }
        rendered_free(&rendered);
        chat_template_destroy(chat);
    }
    assert_true(content_bytes > 500);
    json_decref(cases);
    json_decref(inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_marks_follow_bytes),
        cmocka_unit_test(test_variables_are_content),
        cmocka_unit_test(test_marks_of_disguised_content),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
