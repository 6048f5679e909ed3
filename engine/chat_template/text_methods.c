/* Methods of strings. */
#include <string.h>

#include "engine/chat_template/methods.h"
#include "engine/chat_template/text_operations.h"
#include "engine/chat_template/unicode.h"

#define METHOD_ARGUMENTS                                                                                               \
    struct render *render, const struct method *method, struct value object, const struct value *bound,                \
        const struct arguments *arguments

static const struct text *optional_text(struct render *render, const struct method *method, struct value value)
{
    if (value.kind == VALUE_MISSING || value.kind == VALUE_NONE)
        return NULL;
    return argument_text(render, &method->signature, value);
}

static int64_t optional_integer(struct render *render, const struct method *method, struct value value, int64_t absent)
{
    return value.kind == VALUE_MISSING ? absent : argument_integer(render, &method->signature, value);
}

/* ---- case, strip, pad ---- */

static struct value call_change_case(METHOD_ARGUMENTS)
{
    (void)bound, (void)arguments;
    return text_change_case(render, object.text, (enum case_change)method->variant);
}

static struct value call_strip(METHOD_ARGUMENTS)
{
    (void)arguments;
    return text_strip(render, object.text, optional_text(render, method, bound[0]), method->variant);
}

static struct value call_pad(METHOD_ARGUMENTS)
{
    (void)arguments;
    int64_t width = argument_integer(render, &method->signature, bound[0]);
    const struct text *fill = bound[1].kind == VALUE_MISSING ? value_literal(render, " ").text
                                                             : argument_text(render, &method->signature, bound[1]);
    if (unicode_count(fill->bytes, fill->length) != 1)
        render_fail(render, "'%s' needs a single character to fill with", method->signature.name);
    return text_pad(render, object.text, width, fill, method->variant);
}

static struct value call_zfill(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = object.text;
    int64_t width = argument_integer(render, &method->signature, bound[0]);
    size_t sign = text->length > 0 && (text->bytes[0] == '-' || text->bytes[0] == '+');
    struct value rest = value_part(render, text, sign, text->length - sign);
    struct builder builder = {0};
    builder_append(render, &builder, text->bytes, text->marks, sign);
    struct value padded =
        text_pad(render, rest.text, width > INT64_MIN ? width - (int64_t)sign : 0, value_literal(render, "0").text, 2);
    builder_append_text(render, &builder, padded.text);
    return text_mark_safe(render, builder_finish(render, &builder), text->is_safe);
}

static struct value call_remove_affix(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = object.text, *affix = argument_text(render, &method->signature, bound[0]);
    bool is_prefix = method->variant == STRIP_LEFT;
    if (affix->length == 0 || affix->length > text->length)
        return object;
    size_t at = is_prefix ? 0 : text->length - affix->length;
    if (memcmp(text->bytes + at, affix->bytes, affix->length) != 0)
        return object;
    return value_part(render, text, is_prefix ? affix->length : 0, text->length - affix->length);
}

/* ---- split and join ---- */

static bool is_space_at(const struct text *text, size_t at)
{
    uint32_t character;
    unicode_decode(text->bytes + at, &character);
    return unicode_is_space(character);
}

static struct value split_words(struct render *render, const struct text *text, int64_t limit)
{
    struct value parts = value_sequence(render, SEQUENCE_LIST, 0);
    size_t at = 0;
    for (;;) {
        render_count_steps(render, 1);
        while (at < text->length && is_space_at(text, at))
            at += unicode_length_of(text->bytes[at]);
        if (at == text->length)
            return parts;
        size_t start = at;
        bool is_last = limit >= 0 && (int64_t)parts.sequence->count == limit;
        while (at < text->length && (is_last || !is_space_at(text, at)))
            at += unicode_length_of(text->bytes[at]);
        sequence_append(render, parts.sequence, value_part(render, text, start, at - start));
    }
}

static void reverse_items(struct sequence *sequence)
{
    for (size_t i = 0, k = sequence->count; i + 1 < k; i++) {
        struct value swap = sequence->items[i];
        sequence->items[i] = sequence->items[--k];
        sequence->items[k] = swap;
    }
}

static struct value split_words_from_right(struct render *render, const struct text *text, int64_t limit)
{
    struct value parts = value_sequence(render, SEQUENCE_LIST, 0);
    size_t end = text->length;
    for (;;) {
        render_count_steps(render, 1);
        while (end > 0 && is_space_at(text, text_step_back(text, end)))
            end = text_step_back(text, end);
        if (end == 0)
            break;
        size_t start = end;
        bool is_last = limit >= 0 && (int64_t)parts.sequence->count == limit;
        while (start > 0 && (is_last || !is_space_at(text, text_step_back(text, start))))
            start = text_step_back(text, start);
        sequence_append(render, parts.sequence, value_part(render, text, start, end - start));
        end = start;
    }
    reverse_items(parts.sequence);
    return parts;
}

static struct value split_at(struct render *render, const struct text *text, const struct text *separator,
                             int64_t limit)
{
    struct value parts = value_sequence(render, SEQUENCE_LIST, 0);
    size_t from = 0;
    while (limit < 0 || (int64_t)parts.sequence->count < limit) {
        render_count_steps(render, 1);
        size_t found = text_find(render, text, separator, from);
        if (found == SIZE_MAX)
            break;
        sequence_append(render, parts.sequence, value_part(render, text, from, found - from));
        from = found + separator->length;
    }
    sequence_append(render, parts.sequence, value_part(render, text, from, text->length - from));
    return parts;
}

/* The last occurrence of `part` that ends at or before `end`; SIZE_MAX if there is none. */
static size_t find_last(struct render *render, const struct text *whole, const struct text *part, size_t from,
                        size_t end)
{
    if (part->length > end || end - part->length < from || end > whole->length)
        return SIZE_MAX;
    if (part->length == 0)
        return end;
    size_t limit = end - part->length + 1; /* a match begins before */
    while (limit > from) {
        const char *candidate = memrchr(whole->bytes + from, part->bytes[0], limit - from);
        size_t at = candidate == NULL ? from : (size_t)(candidate - whole->bytes);
        render_count_steps(render, 1 + (limit - at + part->length) / 64);
        if (candidate == NULL)
            break;
        if (memcmp(candidate, part->bytes, part->length) == 0)
            return at;
        limit = at;
    }
    return SIZE_MAX;
}

static struct value split_at_from_right(struct render *render, const struct text *text, const struct text *separator,
                                        int64_t limit)
{
    struct value parts = value_sequence(render, SEQUENCE_LIST, 0);
    size_t end = text->length;
    while (limit < 0 || (int64_t)parts.sequence->count < limit) {
        render_count_steps(render, 1);
        size_t found = find_last(render, text, separator, 0, end);
        if (found == SIZE_MAX)
            break;
        size_t start = found + separator->length;
        sequence_append(render, parts.sequence, value_part(render, text, start, end - start));
        end = found;
    }
    sequence_append(render, parts.sequence, value_part(render, text, 0, end));
    reverse_items(parts.sequence);
    return parts;
}

static struct value call_split(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *separator = optional_text(render, method, bound[0]);
    int64_t limit = optional_integer(render, method, bound[1], -1);
    bool from_right = method->variant == STRIP_RIGHT;
    if (separator != NULL && separator->length == 0)
        render_fail(render, "'%s' with an empty separator", method->signature.name);
    if (separator == NULL)
        return from_right ? split_words_from_right(render, object.text, limit)
                          : split_words(render, object.text, limit);
    return from_right ? split_at_from_right(render, object.text, separator, limit)
                      : split_at(render, object.text, separator, limit);
}

static struct value call_splitlines(METHOD_ARGUMENTS)
{
    (void)arguments, (void)method;
    return text_split_lines(render, object.text, value_is_true(bound[0]));
}

static struct value call_partition(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = object.text, *separator = argument_text(render, &method->signature, bound[0]);
    bool from_right = method->variant == STRIP_RIGHT;
    if (separator->length == 0)
        render_fail(render, "'%s' with an empty separator", method->signature.name);
    size_t found =
        from_right ? find_last(render, text, separator, 0, text->length) : text_find(render, text, separator, 0);
    struct value nothing = value_part(render, text, 0, 0), parts[] = {nothing, nothing, nothing};
    if (found == SIZE_MAX) {
        parts[from_right ? 2 : 0] = object;
    } else {
        size_t behind = found + separator->length;
        parts[0] = value_part(render, text, 0, found);
        parts[1] = bound[0];
        parts[2] = value_part(render, text, behind, text->length - behind);
    }
    return value_list_of(render, SEQUENCE_TUPLE, parts, 3);
}

static struct value call_join(METHOD_ARGUMENTS)
{
    (void)arguments, (void)method;
    text_refuse_safe(render, object.text, "join");
    struct items items = value_iterate(render, bound[0]);
    struct builder builder = {0};
    for (size_t i = 0; i < items.count; i++) {
        if (items.items[i].kind != VALUE_TEXT)
            render_fail(render, "'join' needs strings, not a %s", value_type_name(items.items[i]));
        render_count_steps(render, 1);
        if (i > 0)
            builder_append_text(render, &builder, object.text);
        builder_append_text(render, &builder, items.items[i].text);
    }
    return builder_finish(render, &builder);
}

static struct value call_replace(METHOD_ARGUMENTS)
{
    (void)arguments;
    text_refuse_safe(render, object.text, "replace");
    return text_replace(render, object.text, argument_text(render, &method->signature, bound[0]),
                        argument_text(render, &method->signature, bound[1]),
                        optional_integer(render, method, bound[2], -1));
}

/* ---- search ---- */

/* The part of the text that [start, end) in characters selects, as bytes; false if start is behind the end. */
static bool select_part(struct render *render, const struct method *method, const struct text *text,
                        const struct value *bound, size_t *from, size_t *to)
{
    int64_t length = (int64_t)unicode_count(text->bytes, text->length);
    int64_t limits[] = {0, length};
    for (size_t i = 0; i < 2; i++) {
        if (bound[i].kind != VALUE_MISSING && bound[i].kind != VALUE_NONE)
            limits[i] = argument_integer(render, &method->signature, bound[i]);
        if (limits[i] < 0)
            limits[i] = limits[i] + length < 0 ? 0 : limits[i] + length;
    }
    if (limits[1] > length)
        limits[1] = length;
    if (limits[0] > limits[1])
        return false;
    *from = 0;
    for (int64_t i = 0; i < limits[0]; i++)
        *from += unicode_length_of(text->bytes[*from]);
    *to = *from;
    for (int64_t i = limits[0]; i < limits[1]; i++)
        *to += unicode_length_of(text->bytes[*to]);
    render_count_steps(render, text->length / 64);
    return true;
}

enum search { FIND, FIND_LAST, INDEX, INDEX_LAST };

static struct value call_find(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = object.text, *part = argument_text(render, &method->signature, bound[0]);
    size_t from, to, found = SIZE_MAX;
    if (select_part(render, method, text, bound + 1, &from, &to)) {
        struct text selected = {.bytes = text->bytes, .length = to};
        bool is_last = method->variant == FIND_LAST || method->variant == INDEX_LAST;
        found = is_last ? find_last(render, text, part, from, to) : text_find(render, &selected, part, from);
    }
    if (found == SIZE_MAX && method->variant >= INDEX)
        render_fail(render, "'%s' did not find the string", method->signature.name);
    return value_int(found == SIZE_MAX ? -1 : (int64_t)unicode_count(text->bytes, found));
}

static struct value call_count(METHOD_ARGUMENTS)
{
    (void)arguments;
    const struct text *part = argument_text(render, &method->signature, bound[0]);
    size_t from, to;
    int64_t count = 0;
    if (!select_part(render, method, object.text, bound + 1, &from, &to))
        return value_int(0);
    struct text selected = {.bytes = object.text->bytes, .length = to};
    if (part->length == 0)
        return value_int((int64_t)unicode_count(selected.bytes + from, to - from) + 1);
    for (size_t at = from; (at = text_find(render, &selected, part, at)) != SIZE_MAX; at += part->length) {
        render_count_steps(render, 1);
        count++;
    }
    return value_int(count);
}

static bool has_affix(struct render *render, const struct method *method, const struct text *text, size_t from,
                      size_t to, struct value affix)
{
    const struct text *wanted = argument_text(render, &method->signature, affix);
    if (wanted->length > to - from)
        return false;
    size_t at = method->variant == STRIP_LEFT ? from : to - wanted->length;
    return wanted->length == 0 || memcmp(text->bytes + at, wanted->bytes, wanted->length) == 0;
}

static struct value call_has_affix(METHOD_ARGUMENTS)
{
    (void)arguments;
    size_t from, to;
    if (!select_part(render, method, object.text, bound + 1, &from, &to))
        return value_bool(false);
    if (bound[0].kind != VALUE_SEQUENCE || bound[0].sequence->flavour != SEQUENCE_TUPLE)
        return value_bool(has_affix(render, method, object.text, from, to, bound[0]));
    for (size_t i = 0; i < bound[0].sequence->count; i++)
        if (has_affix(render, method, object.text, from, to, bound[0].sequence->items[i]))
            return value_bool(true);
    return value_bool(false);
}

/* ---- what the characters are ---- */

static bool is_ascii(uint32_t character)
{
    return character < 0x80;
}

static bool is_letter_or_number(uint32_t character)
{
    return unicode_is_alphabetic(character) || unicode_is_numeric(character);
}

enum character_class { IS_ALPHA, IS_ALNUM, IS_DIGIT, IS_NUMERIC, IS_SPACE, IS_ASCII, IS_PRINTABLE };

static struct value call_is_all(METHOD_ARGUMENTS)
{
    static bool (*const classes[])(uint32_t) = {
        [IS_ALPHA] = unicode_is_alphabetic,    [IS_ALNUM] = is_letter_or_number, [IS_DIGIT] = unicode_is_digit,
        [IS_NUMERIC] = unicode_is_numeric,     [IS_SPACE] = unicode_is_space,    [IS_ASCII] = is_ascii,
        [IS_PRINTABLE] = unicode_is_printable,
    };
    (void)bound, (void)arguments;
    render_count_steps(render, object.text->length / 8);
    for (size_t at = 0; at < object.text->length;) {
        uint32_t character;
        at += unicode_decode(object.text->bytes + at, &character);
        if (!classes[method->variant](character))
            return value_bool(false);
    }
    return value_bool(object.text->length > 0 || method->variant >= IS_ASCII);
}

static struct value call_is_case(METHOD_ARGUMENTS)
{
    (void)bound, (void)arguments;
    return value_bool(text_is_case(render, object.text, method->variant == CASE_UPPER));
}

static struct value call_is_title(METHOD_ARGUMENTS)
{
    (void)bound, (void)arguments, (void)method;
    bool follows_cased = false, has_cased = false;
    render_count_steps(render, object.text->length / 8);
    for (size_t at = 0; at < object.text->length;) {
        uint32_t character;
        at += unicode_decode(object.text->bytes + at, &character);
        bool begins = unicode_is_uppercase(character) || unicode_is_titlecase(character);
        if (begins ? follows_cased : unicode_is_lowercase(character) && !follows_cased)
            return value_bool(false);
        follows_cased = begins || unicode_is_lowercase(character);
        has_cased |= follows_cased;
    }
    return value_bool(has_cased);
}

static struct value call_format(METHOD_ARGUMENTS)
{
    (void)bound, (void)method;
    text_refuse_safe(render, object.text, "format");
    return format_braces(render, object.text, arguments);
}

const struct method text_methods[] = {
    {{.name = "upper"}, call_change_case, CASE_UPPER},
    {{.name = "lower"}, call_change_case, CASE_LOWER},
    {{.name = "title"}, call_change_case, CASE_TITLE},
    {{.name = "capitalize"}, call_change_case, CASE_CAPITALIZE},
    {{.name = "swapcase"}, call_change_case, CASE_SWAP},
    {{"strip", {""}, 0, false}, call_strip, STRIP_LEFT | STRIP_RIGHT},
    {{"lstrip", {""}, 0, false}, call_strip, STRIP_LEFT},
    {{"rstrip", {""}, 0, false}, call_strip, STRIP_RIGHT},
    {{"ljust", {"", ""}, 1, false}, call_pad, 0},
    {{"center", {"", ""}, 1, false}, call_pad, 1},
    {{"rjust", {"", ""}, 1, false}, call_pad, 2},
    {{"zfill", {""}, 1, false}, call_zfill, 0},
    {{"removeprefix", {""}, 1, false}, call_remove_affix, STRIP_LEFT},
    {{"removesuffix", {""}, 1, false}, call_remove_affix, STRIP_RIGHT},
    {{"split", {"sep", "maxsplit"}, 0, false}, call_split, STRIP_LEFT},
    {{"rsplit", {"sep", "maxsplit"}, 0, false}, call_split, STRIP_RIGHT},
    {{"splitlines", {"keepends"}, 0, false}, call_splitlines, 0},
    {{"partition", {""}, 1, false}, call_partition, STRIP_LEFT},
    {{"rpartition", {""}, 1, false}, call_partition, STRIP_RIGHT},
    {{"join", {""}, 1, false}, call_join, 0},
    {{"replace", {"", "", ""}, 2, false}, call_replace, 0},
    {{"find", {"", "", ""}, 1, false}, call_find, FIND},
    {{"rfind", {"", "", ""}, 1, false}, call_find, FIND_LAST},
    {{"index", {"", "", ""}, 1, false}, call_find, INDEX},
    {{"rindex", {"", "", ""}, 1, false}, call_find, INDEX_LAST},
    {{"count", {"", "", ""}, 1, false}, call_count, 0},
    {{"startswith", {"", "", ""}, 1, false}, call_has_affix, STRIP_LEFT},
    {{"endswith", {"", "", ""}, 1, false}, call_has_affix, STRIP_RIGHT},
    {{.name = "isalpha"}, call_is_all, IS_ALPHA},
    {{.name = "isalnum"}, call_is_all, IS_ALNUM},
    {{.name = "isdigit"}, call_is_all, IS_DIGIT},
    {{.name = "isnumeric"}, call_is_all, IS_NUMERIC},
    {{.name = "isspace"}, call_is_all, IS_SPACE},
    {{.name = "isascii"}, call_is_all, IS_ASCII},
    {{.name = "isprintable"}, call_is_all, IS_PRINTABLE},
    {{.name = "isupper"}, call_is_case, CASE_UPPER},
    {{.name = "islower"}, call_is_case, CASE_LOWER},
    {{.name = "istitle"}, call_is_title, 0},
    {{.name = "format", .is_variadic = true}, call_format, 0},
};
const size_t text_method_count = sizeof text_methods / sizeof text_methods[0];
