#include "engine/chat_template/is_tests.h"

#include "engine/chat_template/filters.h"
#include "engine/chat_template/text_operations.h"

#define TEST_ARGUMENTS struct render *render, struct value subject, struct value argument

static bool remainder_is(struct render *render, struct value subject, struct value divisor, int64_t wanted)
{
    struct value rest = evaluate_arithmetic(render, MODULO, subject, divisor);
    return value_equals(render, rest, value_int(wanted));
}

static bool check_defined(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind != VALUE_UNDEFINED;
}

static bool check_undefined(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_UNDEFINED;
}

static bool check_none(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_NONE;
}

static bool check_boolean(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_BOOL;
}

static bool check_true(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_BOOL && subject.boolean;
}

static bool check_false(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_BOOL && !subject.boolean;
}

static bool check_integer(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_INT;
}

static bool check_float(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_FLOAT;
}

static bool check_number(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return value_is_number(subject);
}

static bool check_string(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_TEXT;
}

static bool check_mapping(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_DICT;
}

/* What has a length and items by position or key. */
static bool check_sequence(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    bool is_view = subject.kind == VALUE_SEQUENCE && subject.sequence->flavour == SEQUENCE_VIEW;
    return value_has_length(subject) && !is_view && subject.kind != VALUE_LOOP;
}

static bool check_iterable(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return value_is_iterable(subject) || subject.kind == VALUE_LOOP;
}

static bool check_callable(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_UNDEFINED || subject.kind == VALUE_MACRO || subject.kind == VALUE_FUNCTION ||
           subject.kind == VALUE_METHOD || subject.kind == VALUE_LOOP;
}

static bool check_escaped(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_TEXT && subject.text->is_safe;
}

static bool check_lower(TEST_ARGUMENTS)
{
    (void)argument;
    return text_is_case(render, value_to_text(render, subject).text, false);
}

static bool check_upper(TEST_ARGUMENTS)
{
    (void)argument;
    return text_is_case(render, value_to_text(render, subject).text, true);
}

static bool check_odd(TEST_ARGUMENTS)
{
    (void)argument;
    return remainder_is(render, subject, value_int(2), 1);
}

static bool check_even(TEST_ARGUMENTS)
{
    (void)argument;
    return remainder_is(render, subject, value_int(2), 0);
}

static bool check_divisible(TEST_ARGUMENTS)
{
    return remainder_is(render, subject, argument, 0);
}

static bool check_in(TEST_ARGUMENTS)
{
    return value_contains(render, argument, subject);
}

/* Python's `is`: sure for constants and objects; equal numbers and strings may or may not be one object. */
static bool check_same(TEST_ARGUMENTS)
{
    if (subject.kind != argument.kind)
        return false;
    if (subject.kind == VALUE_NONE || subject.kind == VALUE_BOOL)
        return value_equals(render, subject, argument);
    if (subject.kind == VALUE_INT || subject.kind == VALUE_FLOAT || subject.kind == VALUE_TEXT)
        render_fail(render,
                    "'sameas' between two values of type %s is not supported; use ==", value_type_name(subject));
    return subject.kind != VALUE_UNDEFINED && subject.dict == argument.dict;
}

static bool check_filter(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_TEXT && filter_find(subject.text->bytes, subject.text->length) != NULL;
}

static bool check_test(TEST_ARGUMENTS)
{
    (void)render, (void)argument;
    return subject.kind == VALUE_TEXT && test_find(subject.text->bytes, subject.text->length) != NULL;
}

static bool check_equal(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, EQUAL, subject, argument);
}
static bool check_not_equal(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, NOT_EQUAL, subject, argument);
}
static bool check_less(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, LESS, subject, argument);
}
static bool check_less_equal(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, LESS_EQUAL, subject, argument);
}
static bool check_greater(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, GREATER, subject, argument);
}
static bool check_greater_equal(TEST_ARGUMENTS)
{
    return evaluate_comparison(render, GREATER_EQUAL, subject, argument);
}

static const struct test tests[] = {
    {"defined", 0, check_defined},
    {"undefined", 0, check_undefined},
    {"none", 0, check_none},
    {"boolean", 0, check_boolean},
    {"true", 0, check_true},
    {"false", 0, check_false},
    {"integer", 0, check_integer},
    {"float", 0, check_float},
    {"number", 0, check_number},
    {"string", 0, check_string},
    {"mapping", 0, check_mapping},
    {"sequence", 0, check_sequence},
    {"iterable", 0, check_iterable},
    {"callable", 0, check_callable},
    {"escaped", 0, check_escaped},
    {"lower", 0, check_lower},
    {"upper", 0, check_upper},
    {"odd", 0, check_odd},
    {"even", 0, check_even},
    {"filter", 0, check_filter},
    {"test", 0, check_test},
    {"divisibleby", 1, check_divisible},
    {"in", 1, check_in},
    {"sameas", 1, check_same},
    {"eq", 1, check_equal},
    {"equalto", 1, check_equal},
    {"==", 1, check_equal},
    {"ne", 1, check_not_equal},
    {"!=", 1, check_not_equal},
    {"lt", 1, check_less},
    {"lessthan", 1, check_less},
    {"<", 1, check_less},
    {"le", 1, check_less_equal},
    {"<=", 1, check_less_equal},
    {"gt", 1, check_greater},
    {"greaterthan", 1, check_greater},
    {">", 1, check_greater},
    {"ge", 1, check_greater_equal},
    {">=", 1, check_greater_equal},
};

const struct test *test_find(const char *name, size_t length)
{
    struct text text = {.bytes = name, .length = length};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (text_is(&text, tests[i].name))
            return &tests[i];
    return NULL;
}

bool test_apply(struct render *render, const struct test *test, struct value subject, const struct arguments *arguments)
{
    if (arguments->count != test->argument_count || arguments->keyword_count > 0)
        render_fail(render, "the test '%s' takes %zu argument(s)", test->name, test->argument_count);
    return test->check(render, subject, test->argument_count > 0 ? arguments->positional[0] : value_none());
}
