/* Filters on strings. What is no string is made one first, as Jinja2 does. */
#include <string.h>

#include "engine/chat_template/filters.h"
#include "engine/chat_template/text_operations.h"
#include "engine/chat_template/unicode.h"

static struct value apply_change_case(FILTER_ARGUMENTS)
{
    (void)bound, (void)arguments;
    return text_change_case(render, value_to_text(render, subject).text, (enum case_change)filter->variant);
}

/* Words for `title`: they begin behind spaces, hyphens and opening brackets. */
static bool begins_word(const struct text *text, size_t at)
{
    uint32_t character;
    unicode_decode(text->bytes + at, &character);
    return unicode_is_space(character) || (character != 0 && character < 0x80 && strchr("-({[<", (int)character));
}

static struct value apply_title(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    const struct text *text = value_to_text(render, subject).text;
    struct builder builder = {0};
    for (size_t at = 0; at < text->length;) {
        size_t first = unicode_length_of(text->bytes[at]), end = at + first;
        bool is_separator = begins_word(text, at);
        while (end < text->length && begins_word(text, end) == is_separator)
            end += unicode_length_of(text->bytes[end]);
        const struct text *head = value_part(render, text, at, first).text;
        const struct text *tail = value_part(render, text, at + first, end - at - first).text;
        builder_append_text(render, &builder, text_change_case(render, head, CASE_UPPER).text);
        builder_append_text(render, &builder, text_change_case(render, tail, CASE_LOWER).text);
        render_count_steps(render, 1);
        at = end;
    }
    return builder_finish(render, &builder);
}

static struct value apply_trim(FILTER_ARGUMENTS)
{
    (void)arguments;
    const struct text *characters = bound[0].kind == VALUE_MISSING || bound[0].kind == VALUE_NONE
                                        ? NULL
                                        : argument_text(render, &filter->signature, bound[0]);
    return text_strip(render, value_to_text(render, subject).text, characters, STRIP_LEFT | STRIP_RIGHT);
}

static struct value apply_replace(FILTER_ARGUMENTS)
{
    (void)arguments;
    int64_t limit = bound[2].kind == VALUE_MISSING || bound[2].kind == VALUE_NONE
                        ? -1
                        : argument_integer(render, &filter->signature, bound[2]);
    return text_replace(render, value_to_text(render, subject).text, value_to_text(render, bound[0]).text,
                        value_to_text(render, bound[1]).text, limit);
}

static struct value apply_safe(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    return text_mark_safe(render, value_to_text(render, subject), true);
}

static struct value apply_escape(FILTER_ARGUMENTS)
{
    (void)bound, (void)arguments;
    const struct text *text = value_to_text(render, subject).text;
    bool is_forced = filter->variant != 0;
    struct builder builder = {0};
    text_append_escaped(render, &builder, text, is_forced || !text->is_safe);
    return text_mark_safe(render, builder_finish(render, &builder), true);
}

static struct value apply_indent(FILTER_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = argument_text(render, &filter->signature, subject);
    struct value width = bound[0].kind == VALUE_MISSING ? value_int(4) : bound[0];
    const struct text *indent = width.kind == VALUE_TEXT ? width.text
                                                         : text_pad(render, value_literal(render, "").text,
                                                                    argument_integer(render, &filter->signature, width),
                                                                    value_literal(render, " ").text, 0)
                                                               .text;
    bool indents_first = value_is_true(bound[1]), indents_blank = value_is_true(bound[2]);
    struct builder whole = {0}, builder = {0};
    builder_append_text(render, &whole, text);
    builder_append_marked(render, &whole, "\n", 1, true);
    struct value lines = text_split_lines(render, builder_finish(render, &whole).text, false);
    for (size_t i = 0; i < lines.sequence->count; i++) {
        const struct text *line = lines.sequence->items[i].text;
        if (i > 0) /* the line end that was there, whatever it was, becomes \n with its origin */
            builder_append_marked(render, &builder, "\n", 1, text->marks[line->bytes - whole.bytes - 1] != 0);
        if (i == 0 ? indents_first : indents_blank || line->length > 0)
            builder_append_text(render, &builder, indent);
        builder_append_text(render, &builder, line);
    }
    return text_mark_safe(render, builder_finish(render, &builder), text->is_safe);
}

static struct value apply_center(FILTER_ARGUMENTS)
{
    (void)arguments;
    int64_t width = bound[0].kind == VALUE_MISSING ? 80 : argument_integer(render, &filter->signature, bound[0]);
    return text_pad(render, value_to_text(render, subject).text, width, value_literal(render, " ").text, 1);
}

static struct value apply_wordcount(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    const struct text *text = value_to_text(render, subject).text;
    int64_t words = 0;
    bool in_word = false;
    render_count_steps(render, text->length / 8);
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        at += unicode_decode(text->bytes + at, &character);
        bool is_word = character == '_' || unicode_is_alphabetic(character) || unicode_is_numeric(character);
        words += is_word && !in_word;
        in_word = is_word;
    }
    return value_int(words);
}

static struct value apply_format(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound;
    struct value values = value_list_of(render, SEQUENCE_TUPLE, arguments->positional, arguments->count);
    if (arguments->keyword_count > 0) {
        if (arguments->count > 0)
            render_fail(render, "'format' takes positional or keyword arguments, not both");
        values = value_of_dict(dict_new(render));
        for (size_t i = 0; i < arguments->keyword_count; i++)
            dict_set(render, values.dict, value_literal(render, arguments->keywords[i]), arguments->keyword_values[i]);
    }
    return format_percent(render, value_to_text(render, subject).text, values);
}

/* The text up to its `count`th character. */
static struct value take_characters(struct render *render, const struct text *text, int64_t count)
{
    struct value bounds[] = {value_none(), value_int(count), value_none()};
    return evaluate_slice(render, value_of_text(text), bounds);
}

static struct value apply_truncate(FILTER_ARGUMENTS)
{
    (void)arguments;
    const struct text *text = argument_text(render, &filter->signature, subject);
    int64_t length = bound[0].kind == VALUE_MISSING ? 255 : argument_integer(render, &filter->signature, bound[0]);
    const struct text *end = bound[2].kind == VALUE_MISSING ? value_literal(render, "...").text
                                                            : argument_text(render, &filter->signature, bound[2]);
    bool is_leeway_given = bound[3].kind != VALUE_MISSING && bound[3].kind != VALUE_NONE;
    int64_t leeway = is_leeway_given ? argument_integer(render, &filter->signature, bound[3]) : 5;
    int64_t end_length = (int64_t)unicode_count(end->bytes, end->length);
    if (length < end_length || leeway < 0)
        render_fail(render, "'truncate' needs a length of at least that of its end, and no negative leeway");
    if ((int64_t)unicode_count(text->bytes, text->length) - leeway <= length)
        return subject;
    struct value kept = take_characters(render, text, length - end_length);
    if (!value_is_true(bound[1])) {
        const char *space = kept.text->length == 0 ? NULL : memrchr(kept.text->bytes, ' ', kept.text->length);
        if (space != NULL)
            kept = value_part(render, kept.text, 0, (size_t)(space - kept.text->bytes));
    }
    return evaluate_arithmetic(render, ADD, kept, value_of_text(end));
}

const struct filter text_filters[] = {
    {.signature = {.name = "upper"}, .apply = apply_change_case, .variant = CASE_UPPER},
    {.signature = {.name = "lower"}, .apply = apply_change_case, .variant = CASE_LOWER},
    {.signature = {.name = "capitalize"}, .apply = apply_change_case, .variant = CASE_CAPITALIZE},
    {.signature = {.name = "title"}, .apply = apply_title},
    {.signature = {"trim", {"chars"}, 0, false}, .apply = apply_trim},
    {.signature = {"replace", {"old", "new", "count"}, 2, false}, .apply = apply_replace},
    {.signature = {.name = "safe"}, .apply = apply_safe},
    {.signature = {.name = "escape"}, .apply = apply_escape},
    {.signature = {.name = "e"}, .apply = apply_escape},
    {.signature = {.name = "forceescape"}, .apply = apply_escape, .variant = 1},
    {.signature = {"indent", {"width", "first", "blank"}, 0, false}, .apply = apply_indent},
    {.signature = {"center", {"width"}, 0, false}, .apply = apply_center},
    {.signature = {.name = "wordcount"}, .apply = apply_wordcount},
    {.signature = {.name = "format", .is_variadic = true}, .apply = apply_format},
    {.signature = {"truncate", {"length", "killwords", "end", "leeway"}, 0, false}, .apply = apply_truncate},
};
const size_t text_filter_count = sizeof text_filters / sizeof text_filters[0];
