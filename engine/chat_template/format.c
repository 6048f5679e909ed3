/* Strings with a format: printf-style ('%s' % x) and str.format ('{}'.format(x)). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/chat_template/render.h"
#include "engine/chat_template/text_operations.h"
#include "engine/chat_template/unicode.h"

/* One conversion of either kind. */
struct conversion {
    bool left, sign, space, zero, alternate, comma;
    char align;           /* '<', '>', '^', '=', 0: the type's own */
    uint32_t fill;        /* a character */
    int width, precision; /* precision -1: none */
    char type;            /* 0: none given */
    bool mark;            /* of padding */
};

enum { FORMAT_SIZE_LIMIT = 100000 };

static int read_number(struct render *render, const struct text *format, size_t *at)
{
    int number = 0;
    while (*at < format->length && format->bytes[*at] >= '0' && format->bytes[*at] <= '9') {
        number = number * 10 + (format->bytes[(*at)++] - '0');
        if (number > FORMAT_SIZE_LIMIT)
            render_fail(render, "a width or precision in a format is too large");
    }
    return number;
}

static char peek(const struct text *format, size_t at)
{
    return at < format->length ? format->bytes[at] : '\0';
}

/* Pads `body` and appends it; for '=' the padding goes behind the sign. */
static void append_padded(struct render *render, struct builder *builder, const struct conversion *conversion,
                          const struct text *body, size_t sign_length, char default_align)
{
    char align = conversion->align != 0 ? conversion->align : default_align;
    size_t count = unicode_count(body->bytes, body->length);
    size_t missing = (size_t)conversion->width > count ? (size_t)conversion->width - count : 0;
    size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    size_t head = align == '=' ? sign_length : 0;
    builder_append(render, builder, body->bytes, body->marks, head);
    for (size_t i = 0; i < before; i++)
        builder_append_character(render, builder, conversion->fill, conversion->mark);
    builder_append(render, builder, body->bytes + head, body->marks + head, body->length - head);
    for (size_t i = before; i < missing; i++)
        builder_append_character(render, builder, conversion->fill, conversion->mark);
}

/* Groups the digits of the integer part by three. */
static void append_grouped(struct render *render, struct builder *builder, const char *digits, bool mark)
{
    size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; i < whole; i++) {
        if (i > 0 && (whole - i) % 3 == 0)
            builder_append_marked(render, builder, ",", 1, mark);
        builder_append_marked(render, builder, digits + i, 1, mark);
    }
    builder_append_marked(render, builder, digits + whole, strlen(digits + whole), mark);
}

/* Appends sign, prefix and digits of a number, padded. */
static void append_number(struct render *render, struct builder *builder, const struct conversion *conversion,
                          bool is_negative, const char *prefix, const char *digits, bool mark)
{
    struct builder body = {0};
    const char *sign = is_negative ? "-" : conversion->sign ? "+" : conversion->space ? " " : "";
    builder_append_marked(render, &body, sign, strlen(sign), mark);
    builder_append_marked(render, &body, prefix, strlen(prefix), mark);
    size_t head = body.length;
    if (conversion->comma && conversion->zero && conversion->width > 0)
        render_fail(render, "a format with both ',' and zero padding is not supported");
    if (conversion->comma)
        append_grouped(render, &body, digits, mark);
    else
        builder_append_marked(render, &body, digits, strlen(digits), mark);
    append_padded(render, builder, conversion, builder_finish(render, &body).text, head, '>');
}

static void append_integer(struct render *render, struct builder *builder, const struct conversion *conversion,
                           int64_t integer, bool mark)
{
    static const char digit_letters[] = "0123456789abcdef";
    char digits[72], *at = digits + sizeof digits - 1;
    uint64_t rest = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
    unsigned base = conversion->type == 'x' || conversion->type == 'X' ? 16
                    : conversion->type == 'o'                          ? 8
                    : conversion->type == 'b'                          ? 2
                                                                       : 10;
    *at = '\0';
    do
        *--at = digit_letters[rest % base];
    while ((rest /= base) > 0);
    for (char *c = at; conversion->type == 'X' && *c != '\0'; c++)
        *c = *c >= 'a' ? (char)(*c - 'a' + 'A') : *c;
    char prefix[] = {'0', conversion->type, '\0'};
    append_number(render, builder, conversion, integer < 0, conversion->alternate && base != 10 ? prefix : "", at,
                  mark);
}

/* The digits of a float without sign, as C writes them; `type` is one of eEfFgG. */
static const char *write_float(struct render *render, double real, char type, int precision, bool alternate)
{
    char format[] = "%#.*f";
    size_t size = 400 + (size_t)precision;
    char *digits = arena_allocate(&render->arena, size);
    if (!isfinite(real)) {
        bool is_upper = type >= 'A' && type <= 'Z';
        snprintf(digits, size, "%s", isnan(real) ? (is_upper ? "NAN" : "nan") : is_upper ? "INF" : "inf");
        return digits;
    }
    format[4] = type;
    if (!alternate)
        memmove(format + 1, format + 2, sizeof format - 2);
    snprintf(digits, size, format, precision, fabs(real));
    return digits;
}

static void append_float(struct render *render, struct builder *builder, const struct conversion *conversion,
                         double real, bool mark)
{
    bool is_percent = conversion->type == '%';
    int precision = conversion->precision < 0 ? 6 : conversion->precision;
    const char *digits = write_float(render, is_percent ? real * 100 : real, is_percent ? 'f' : conversion->type,
                                     precision, conversion->alternate);
    if (is_percent) {
        char *with_sign = arena_allocate(&render->arena, strlen(digits) + 2);
        memcpy(with_sign, digits, strlen(digits));
        with_sign[strlen(digits)] = '%';
        digits = with_sign;
    }
    append_number(render, builder, conversion, signbit(real) != 0, "", digits, mark);
}

static void append_text(struct render *render, struct builder *builder, const struct conversion *conversion,
                        const struct text *text)
{
    size_t end = 0;
    for (int i = 0; end < text->length && (conversion->precision < 0 || i < conversion->precision); i++)
        end += unicode_length_of(text->bytes[end]);
    append_padded(render, builder, conversion, value_part(render, text, 0, end).text, 0, '<');
}

/* ---- % ---- */

static void read_percent_flags(const struct text *format, size_t *at, struct conversion *conversion)
{
    for (;; ++*at) {
        switch (peek(format, *at)) {
        case '-':
            conversion->left = true;
            break;
        case '+':
            conversion->sign = true;
            break;
        case ' ':
            conversion->space = true;
            break;
        case '0':
            conversion->zero = true;
            break;
        case '#':
            conversion->alternate = true;
            break;
        default:
            return;
        }
    }
}

static bool is_integer_type(char type)
{
    return strchr("diuxXo", type) != NULL && type != '\0';
}
static bool is_float_type(char type)
{
    return strchr("eEfFgG", type) != NULL && type != '\0';
}

static void append_percent_text(struct render *render, struct builder *builder, struct conversion *conversion,
                                struct value value)
{
    struct builder body = {0};
    if (conversion->type == 'r')
        value_append_repr(render, &body, value);
    else
        value_append_text(render, &body, value);
    conversion->align = conversion->left ? '<' : '>';
    append_text(render, builder, conversion, builder_finish(render, &body).text);
}

static void append_percent(struct render *render, struct builder *builder, struct conversion *conversion,
                           struct value value)
{
    char type = conversion->type;
    if (type == 's' || type == 'r') {
        append_percent_text(render, builder, conversion, value);
        return;
    }
    if (!is_integer_type(type) && !is_float_type(type))
        render_fail(render, "the format '%%%c' is not supported", type >= ' ' && type < 0x7F ? type : '?');
    bool is_decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value_is_number(value) || (is_integer_type(type) && !is_decimal && value.kind == VALUE_FLOAT))
        render_fail(render, "the format '%%%c' needs a number, not a %s", type, value_type_name(value));
    conversion->align = conversion->left ? '<' : conversion->zero ? '=' : '>';
    if (conversion->align == '=')
        conversion->fill = '0';
    if (is_float_type(type)) {
        append_float(render, builder, conversion, value_to_float(value), value.from_template);
        return;
    }
    if (conversion->precision >= 0)
        render_fail(render, "a precision with '%%%c' is not supported", type);
    double real = value_to_float(value);
    if (value.kind == VALUE_FLOAT && !(fabs(real) < 9.2e18))
        render_fail(render, "the format '%%%c' needs an integer of 64 bits", type);
    append_integer(render, builder, conversion, value.kind == VALUE_FLOAT ? (int64_t)real : value_to_integer(value),
                   value.from_template);
}

/* The value for %(name)s, `at` being at the parenthesis. */
static struct value find_percent_name(struct render *render, const struct text *format, size_t *at,
                                      struct value arguments)
{
    size_t start = ++*at;
    while (*at < format->length && format->bytes[*at] != ')')
        ++*at;
    if (*at == format->length || arguments.kind != VALUE_DICT)
        render_fail(render, "a format with names needs a dict");
    struct value name = value_part(render, format, start, *at - start);
    ++*at;
    const struct value *found = dict_find(render, arguments.dict, name);
    if (found == NULL)
        render_fail(render, "a format uses '%s', which is not given", text_copy(render, name.text));
    return *found;
}

static struct value next_positional(struct render *render, struct value arguments, size_t *used)
{
    bool is_tuple = arguments.kind == VALUE_SEQUENCE && arguments.sequence->flavour == SEQUENCE_TUPLE;
    size_t count = is_tuple ? arguments.sequence->count : 1;
    if (*used == count)
        render_fail(render, "not enough values for a format");
    struct value value = is_tuple ? arguments.sequence->items[*used] : arguments;
    ++*used;
    return value;
}

/* One conversion behind its '%'. */
static void convert_percent(struct render *render, struct builder *builder, const struct text *format, size_t *at,
                            struct value arguments, size_t *used)
{
    struct conversion conversion = {.fill = ' ', .precision = -1, .mark = format->marks[*at - 1] != 0};
    struct value value = value_missing();
    if (peek(format, *at) == '(')
        value = find_percent_name(render, format, at, arguments);
    read_percent_flags(format, at, &conversion);
    conversion.width = read_number(render, format, at);
    if (peek(format, *at) == '.') {
        ++*at;
        conversion.precision = read_number(render, format, at);
    }
    if (*at == format->length)
        render_fail(render, "a format ends in the middle of a conversion");
    conversion.type = format->bytes[(*at)++];
    if (conversion.type == '%') {
        builder_append_marked(render, builder, "%", 1, conversion.mark);
        return;
    }
    if (value.kind == VALUE_MISSING)
        value = next_positional(render, arguments, used);
    append_percent(render, builder, &conversion, value);
}

struct value format_percent(struct render *render, const struct text *format, struct value arguments)
{
    struct builder builder = {0};
    size_t used = 0, at = 0;
    text_refuse_safe(render, format, "%");
    while (at < format->length) {
        const char *percent = memchr(format->bytes + at, '%', format->length - at);
        size_t end = percent == NULL ? format->length : (size_t)(percent - format->bytes);
        builder_append(render, &builder, format->bytes + at, format->marks + at, end - at);
        at = end;
        if (percent == NULL)
            break;
        render_count_steps(render, 1);
        at++;
        convert_percent(render, &builder, format, &at, arguments, &used);
    }
    bool is_tuple = arguments.kind == VALUE_SEQUENCE && arguments.sequence->flavour == SEQUENCE_TUPLE;
    bool may_be_left = arguments.kind == VALUE_DICT || (arguments.kind == VALUE_SEQUENCE && !is_tuple) ||
                       arguments.kind == VALUE_UNDEFINED;
    if (!may_be_left && used < (is_tuple ? arguments.sequence->count : 1))
        render_fail(render, "not all values were used by a format");
    return builder_finish(render, &builder);
}

/* ---- str.format ---- */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static struct conversion read_specification(struct render *render, const struct text *format, bool mark)
{
    struct conversion conversion = {.fill = ' ', .precision = -1, .mark = mark};
    size_t at = 0, first = format->length > 0 ? unicode_length_of(format->bytes[0]) : 0;
    if (first > 0 && is_align(peek(format, first))) {
        unicode_decode(format->bytes, &conversion.fill);
        conversion.align = format->bytes[first];
        at = first + 1;
    } else if (is_align(peek(format, 0))) {
        conversion.align = format->bytes[at++];
    }
    if (peek(format, at) == '+' || peek(format, at) == '-' || peek(format, at) == ' ') {
        conversion.sign = format->bytes[at] == '+';
        conversion.space = format->bytes[at++] == ' ';
    }
    if (peek(format, at) == '#') {
        conversion.alternate = true;
        at++;
    }
    if (peek(format, at) == '0') {
        conversion.zero = true;
        at++;
    }
    conversion.width = read_number(render, format, &at);
    if (peek(format, at) == ',') {
        conversion.comma = true;
        at++;
    }
    if (peek(format, at) == '.') {
        at++;
        conversion.precision = read_number(render, format, &at);
    }
    if (at < format->length)
        conversion.type = format->bytes[at++];
    if (at < format->length)
        render_fail(render, "the format '%.60s' is not supported", text_copy(render, format));
    if (conversion.zero && conversion.align == 0) {
        conversion.align = '=';
        conversion.fill = '0';
    }
    return conversion;
}

static void append_braces_number(struct render *render, struct builder *builder, struct conversion *conversion,
                                 struct value value)
{
    char type = conversion->type;
    bool is_float = value.kind == VALUE_FLOAT || is_float_type(type) || type == '%';
    if (is_float && type == 0) {
        if (conversion->precision >= 0 || conversion->alternate || conversion->comma)
            render_fail(render, "a float format without a type is not supported; add 'f', 'e' or 'g'");
        struct builder digits = {0};
        value_append_float(render, &digits, fabs(value.real), value.from_template);
        append_number(render, builder, conversion, signbit(value.real) != 0, "",
                      text_copy(render, builder_finish(render, &digits).text), value.from_template);
    } else if (is_float && (is_float_type(type) || type == '%')) {
        append_float(render, builder, conversion, value_to_float(value), value.from_template);
    } else if (!is_float && (type == 0 || strchr("dxXob", type) != NULL) && conversion->precision < 0) {
        append_integer(render, builder, conversion, value_to_integer(value), value.from_template);
    } else {
        render_fail(render, "this format does not fit a %s", value_type_name(value));
    }
}

static void append_braces(struct render *render, struct builder *builder, const struct text *specification,
                          struct value value, bool mark)
{
    bool is_number = value_is_number(value) && value.kind != VALUE_BOOL;
    if (specification->length == 0) {
        value_append_text(render, builder, value);
        return;
    }
    struct conversion conversion = read_specification(render, specification, mark);
    if (is_number || (value.kind == VALUE_BOOL && conversion.type != 0)) {
        append_braces_number(render, builder, &conversion, value);
    } else if (value.kind == VALUE_BOOL) {
        value.kind = VALUE_INT; /* as Python: formatted as 0 or 1 once there is a format */
        value.integer = value.boolean;
        append_braces_number(render, builder, &conversion, value);
    } else if (value.kind == VALUE_TEXT && (conversion.type == 0 || conversion.type == 's') &&
               conversion.align != '=' && !conversion.sign && !conversion.space && !conversion.alternate &&
               !conversion.comma) {
        append_text(render, builder, &conversion, value.text);
    } else {
        render_fail(render, "this format does not fit a %s", value_type_name(value));
    }
}

/* The value a field names: "", a number or a keyword. */
static struct value find_field(struct render *render, const struct text *field, const struct arguments *arguments,
                               int64_t *automatic)
{
    size_t at = 0;
    const char *name = text_copy(render, field);
    int64_t position = read_number(render, field, &at);
    if (field->length > 0 && at < field->length) {
        for (size_t i = 0; i < arguments->keyword_count; i++)
            if (strcmp(arguments->keywords[i], name) == 0)
                return arguments->keyword_values[i];
        render_fail(render, "the field '{%.60s}' of a format is not given or not supported", name);
    }
    bool is_automatic = field->length == 0;
    if (is_automatic ? *automatic < 0 : *automatic > 0)
        render_fail(render, "a format mixes {} and {0}");
    if (is_automatic)
        position = (*automatic)++;
    else
        *automatic = -1;
    if ((size_t)position >= arguments->count)
        render_fail(render, "not enough values for a format");
    return arguments->positional[position];
}

/* One {field!conversion:specification}, `at` being behind the brace. */
static void convert_field(struct render *render, struct builder *builder, const struct text *format, size_t *at,
                          const struct arguments *arguments, int64_t *automatic)
{
    bool mark = format->marks[*at - 1] != 0;
    size_t start = *at, end = start;
    while (end < format->length && format->bytes[end] != '{' && format->bytes[end] != '}')
        end++;
    if (peek(format, end) != '}')
        render_fail(render, "a format has an unclosed or nested '{'");
    size_t field_end = start;
    while (field_end < end && format->bytes[field_end] != '!' && format->bytes[field_end] != ':')
        field_end++;
    struct value value =
        find_field(render, value_part(render, format, start, field_end - start).text, arguments, automatic);
    size_t behind = field_end;
    if (peek(format, behind) == '!') {
        char kind = peek(format, behind + 1);
        struct builder text = {0};
        if (kind == 'r')
            value_append_repr(render, &text, value);
        else if (kind == 's')
            value_append_text(render, &text, value);
        else
            render_fail(render, "the conversion '!%c' of a format is not supported", kind >= ' ' ? kind : '?');
        value = builder_finish(render, &text);
        behind += 2;
    }
    if (behind < end && format->bytes[behind] != ':')
        render_fail(render, "a format has text behind its conversion");
    behind += behind < end;
    append_braces(render, builder, value_part(render, format, behind, end - behind).text, value, mark);
    *at = end + 1;
}

struct value format_braces(struct render *render, const struct text *format, const struct arguments *arguments)
{
    struct builder builder = {0};
    int64_t automatic = 0; /* the next {}; -1 once {0} was used */
    for (size_t at = 0; at < format->length;) {
        char c = format->bytes[at];
        render_count_steps(render, 1);
        if (c != '{' && c != '}') {
            size_t start = at;
            while (at < format->length && format->bytes[at] != '{' && format->bytes[at] != '}')
                at++;
            builder_append(render, &builder, format->bytes + start, format->marks + start, at - start);
        } else if (peek(format, at + 1) == c) {
            builder_append(render, &builder, format->bytes + at, format->marks + at, 1);
            at += 2;
        } else if (c == '}') {
            render_fail(render, "a format has a single '}'");
        } else {
            at++;
            convert_field(render, &builder, format, &at, arguments, &automatic);
        }
    }
    return builder_finish(render, &builder);
}
