/* Finding and applying filters; those on any value and on numbers. */
#include "engine/chat_template/filters.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/methods.h"
#include "engine/chat_template/text_operations.h"
#include "engine/chat_template/unicode.h"

/* ---- any value ---- */

static struct value apply_default(FILTER_ARGUMENTS)
{
    (void)filter, (void)arguments;
    bool replaces = subject.kind == VALUE_UNDEFINED || (value_is_true(bound[1]) && !value_is_true(subject));
    if (!replaces)
        return subject;
    return bound[0].kind == VALUE_MISSING ? value_literal(render, "") : bound[0];
}

static struct value apply_string(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    return value_to_text(render, subject);
}

static struct value apply_attr(FILTER_ARGUMENTS)
{
    (void)arguments;
    const struct text *name = argument_text(render, &filter->signature, bound[0]);
    if (subject.kind == VALUE_DICT) { /* only what Python calls attributes, not the items */
        struct value found = method_find(render, subject, name);
        return found.kind == VALUE_MISSING ? value_undefined(text_copy(render, name)) : found;
    }
    return evaluate_attribute(render, subject, name);
}

/* An indent: a number of spaces, or the text itself. */
static const struct text *read_indent(struct render *render, const struct filter *filter, struct value value)
{
    if (value.kind == VALUE_MISSING || value.kind == VALUE_NONE)
        return NULL;
    if (value.kind == VALUE_TEXT)
        return value.text;
    struct value nothing = value_literal(render, "");
    int64_t width = argument_integer(render, &filter->signature, value);
    return text_pad(render, nothing.text, width, value_literal(render, " ").text, 0).text;
}

static void read_separators(struct render *render, const struct filter *filter, struct value value,
                            struct json_style *style)
{
    style->item_separator = value_literal(render, style->indent == NULL ? ", " : ",").text;
    style->key_separator = value_literal(render, ": ").text;
    if (value.kind == VALUE_MISSING || value.kind == VALUE_NONE)
        return;
    if (value.kind != VALUE_SEQUENCE || value.sequence->count != 2)
        render_fail(render, "'tojson' needs two separators");
    style->item_separator = argument_text(render, &filter->signature, value.sequence->items[0]);
    style->key_separator = argument_text(render, &filter->signature, value.sequence->items[1]);
}

static struct value apply_tojson(FILTER_ARGUMENTS)
{
    (void)arguments;
    struct json_style style = {.ascii_only = value_is_true(bound[0]), .sort_keys = value_is_true(bound[3])};
    style.indent = read_indent(render, filter, bound[1]);
    read_separators(render, filter, bound[2], &style);
    struct builder builder = {0};
    value_append_json(render, &builder, subject, &style);
    return builder_finish(render, &builder);
}

/* ---- numbers ---- */

static bool comes_from_template(struct value value)
{
    if (value.kind != VALUE_TEXT)
        return value.from_template;
    return value.text->length == 0 || memchr(value.text->marks, 0, value.text->length) == NULL;
}

/* Python reads the digits of every script. */
static void refuse_foreign_digit(struct render *render, const char *bytes)
{
    uint32_t character;
    unicode_decode(bytes, &character);
    if (unicode_is_digit(character))
        render_fail(render, "numbers with digits other than 0 to 9 are not supported");
}

/* The text as a C number: without surrounding spaces and single underscores between digits; false if it is
 * no decimal number. */
static bool clean_number(struct render *render, const struct text *text, const char **out)
{
    const struct text *stripped = text_strip(render, text, NULL, STRIP_LEFT | STRIP_RIGHT).text;
    char *clean = arena_allocate(&render->arena, stripped->length + 1);
    size_t length = 0;
    for (size_t i = 0; i < stripped->length; i++) {
        char c = stripped->bytes[i];
        if (c == '\0')
            return false;
        if ((unsigned char)c >= 0xC0)
            refuse_foreign_digit(render, stripped->bytes + i);
        bool is_between = i > 0 && i + 1 < stripped->length && strchr("0123456789", stripped->bytes[i - 1]) != NULL &&
                          strchr("0123456789", stripped->bytes[i + 1]) != NULL;
        if (c == '_' && is_between)
            continue;
        clean[length++] = c;
    }
    *out = clean;
    return length > 0;
}

static bool parse_float(struct render *render, const struct text *text, double *out)
{
    const char *clean;
    if (!clean_number(render, text, &clean) || strpbrk(clean, "xX(") != NULL)
        return false;
    char *end;
    *out = strtod(clean, &end);
    return *end == '\0' && (unsigned char)clean[0] > ' ';
}

static bool parse_integer(struct render *render, const struct text *text, int base, int64_t *out)
{
    const char *clean;
    if (!clean_number(render, text, &clean) || (unsigned char)clean[0] <= ' ')
        return false;
    if (base != 10 && base != 2 && base != 8 && base != 16)
        render_fail(render, "'int' supports the bases 2, 8, 10 and 16");
    const char *digits = clean + (clean[0] == '-' || clean[0] == '+');
    bool has_prefix =
        digits[0] == '0' && ((base == 2 && (digits[1] | 32) == 'b') || (base == 8 && (digits[1] | 32) == 'o') ||
                             (base == 16 && (digits[1] | 32) == 'x'));
    if (has_prefix)
        digits += 2;
    if (*digits == '-' || *digits == '+' || (unsigned char)*digits <= ' ' ||
        (!has_prefix && base == 16 && (digits[1] | 32) == 'x'))
        return false;
    char *end;
    errno = 0;
    unsigned long long magnitude = strtoull(digits, &end, base);
    if (*end != '\0')
        return false;
    if (errno == ERANGE || magnitude > INT64_MAX)
        render_fail(render, "integer beyond 64 bits");
    *out = clean[0] == '-' ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* int(x) of a float; false where Python raises. */
static bool truncate_float(struct render *render, double real, int64_t *out)
{
    if (!isfinite(real))
        return false;
    if (!(fabs(real) < 9.2e18))
        render_fail(render, "integer beyond 64 bits");
    *out = (int64_t)real;
    return true;
}

static void refuse_undefined(struct render *render, const struct filter *filter, struct value subject)
{
    if (subject.kind == VALUE_UNDEFINED)
        render_fail(render, "'%.200s' is undefined, so '%s' cannot use it", subject.hint, filter->signature.name);
}

static struct value apply_int(FILTER_ARGUMENTS)
{
    (void)arguments;
    refuse_undefined(render, filter, subject);
    int64_t base = bound[1].kind == VALUE_MISSING ? 10 : argument_integer(render, &filter->signature, bound[1]);
    int64_t integer = 0;
    double real;
    bool is_known = false;
    if (value_is_integral(subject)) {
        integer = value_to_integer(subject);
        is_known = true;
    } else if (subject.kind == VALUE_FLOAT) {
        is_known = truncate_float(render, subject.real, &integer);
        if (!is_known && isinf(subject.real))
            render_fail(render, "an infinite number has no integer");
    } else if (subject.kind == VALUE_TEXT) {
        is_known = parse_integer(render, subject.text, (int)(base < 0 || base > 36 ? -1 : base), &integer) ||
                   (parse_float(render, subject.text, &real) && truncate_float(render, real, &integer));
    }
    if (is_known)
        return value_with_origin(value_int(integer), comes_from_template(subject));
    return bound[0].kind == VALUE_MISSING ? value_int(0) : bound[0];
}

static struct value apply_float(FILTER_ARGUMENTS)
{
    (void)arguments;
    refuse_undefined(render, filter, subject);
    double real = 0;
    bool is_known = value_is_number(subject);
    if (is_known)
        real = value_to_float(subject);
    else if (subject.kind == VALUE_TEXT)
        is_known = parse_float(render, subject.text, &real);
    if (is_known)
        return value_with_origin(value_float(real), comes_from_template(subject));
    return bound[0].kind == VALUE_MISSING ? value_float(0) : bound[0];
}

static struct value apply_abs(FILTER_ARGUMENTS)
{
    (void)bound, (void)arguments;
    if (!value_is_number(subject))
        render_fail(render, "'%s' needs a number, not a %s", filter->signature.name, value_type_name(subject));
    if (subject.kind == VALUE_FLOAT)
        return value_with_origin(value_float(fabs(subject.real)), subject.from_template);
    bool is_negative = value_to_integer(subject) < 0;
    return evaluate_arithmetic(render, is_negative ? SUBTRACT : ADD,
                               value_with_origin(value_int(0), subject.from_template), subject);
}

/* Python's round(): to even on exact ties, judged on the exact binary value, as printf does. */
static double round_decimal(struct render *render, double real, int64_t digits)
{
    char text[400];
    if (!isfinite(real) || digits > 300)
        return real;
    if (digits < 0)
        render_fail(render, "'round' with a negative precision is not supported");
    if (fabs(real) >= 1e22)
        return real;
    int length = snprintf(text, sizeof text, "%.*f", (int)digits, real);
    return length < 0 || (size_t)length >= sizeof text ? real : strtod(text, NULL);
}

static struct value apply_round(FILTER_ARGUMENTS)
{
    (void)arguments;
    int64_t digits = bound[0].kind == VALUE_MISSING ? 0 : argument_integer(render, &filter->signature, bound[0]);
    const struct text *way =
        bound[1].kind == VALUE_MISSING ? NULL : argument_text(render, &filter->signature, bound[1]);
    if (!value_is_number(subject))
        render_fail(render, "'round' needs a number, not a %s", value_type_name(subject));
    bool is_common = way == NULL || text_is(way, "common");
    double result;
    if (is_common && value_is_integral(subject)) {
        if (digits < 0)
            render_fail(render, "'round' with a negative precision is not supported");
        return value_with_origin(value_int(value_to_integer(subject)), subject.from_template);
    }
    if (is_common) {
        result = round_decimal(render, subject.real, digits);
    } else if (text_is(way, "ceil") || text_is(way, "floor")) {
        double scale = pow(10, (double)digits), scaled = value_to_float(subject) * scale;
        result = (text_is(way, "ceil") ? ceil(scaled) : floor(scaled)) / scale;
    } else {
        render_fail(render, "'round' knows common, ceil and floor");
    }
    return value_with_origin(value_float(result), subject.from_template);
}

const struct filter number_filters[] = {
    {.signature = {"default", {"default_value", "boolean"}, 0, false}, .apply = apply_default},
    {.signature = {"d", {"default_value", "boolean"}, 0, false}, .apply = apply_default},
    {.signature = {.name = "string"}, .apply = apply_string},
    {.signature = {"attr", {"name"}, 1, false}, .apply = apply_attr},
    {.signature = {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, false}, .apply = apply_tojson},
    {.signature = {"int", {"default", "base"}, 0, false}, .apply = apply_int},
    {.signature = {"float", {"default"}, 0, false}, .apply = apply_float},
    {.signature = {.name = "abs"}, .apply = apply_abs},
    {.signature = {"round", {"precision", "method"}, 0, false}, .apply = apply_round},
};
const size_t number_filter_count = sizeof number_filters / sizeof number_filters[0];

/* ---- finding and applying ---- */

static const struct filter *find_in(const struct filter *filters, size_t count, const struct text *name)
{
    for (size_t i = 0; i < count; i++)
        if (text_is(name, filters[i].signature.name))
            return &filters[i];
    return NULL;
}

const struct filter *filter_find(const char *name, size_t length)
{
    struct text text = {.bytes = name, .length = length};
    const struct filter *found = find_in(text_filters, text_filter_count, &text);
    if (found == NULL)
        found = find_in(number_filters, number_filter_count, &text);
    if (found == NULL)
        found = find_in(sequence_filters, sequence_filter_count, &text);
    return found != NULL ? found : find_in(selection_filters, selection_filter_count, &text);
}

struct value filter_apply(struct render *render, const struct filter *filter, struct value subject,
                          const struct arguments *arguments)
{
    struct value bound[PARAMETER_LIMIT];
    arguments_bind(render, &filter->signature, arguments, bound);
    return filter->apply(render, filter, subject, bound, arguments);
}
