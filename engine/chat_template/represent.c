/* Values as text: Python's str() and repr(), and json.dumps(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/render.h"
#include "engine/chat_template/unicode.h"

static void append_plain(struct render *render, struct builder *builder, const char *text, bool from_template)
{
    builder_append_marked(render, builder, text, strlen(text), from_template);
}

static void append_integer(struct render *render, struct builder *builder, int64_t integer, bool from_template)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", (long long)integer);
    append_plain(render, builder, digits, from_template);
}

/* The shortest digits that read back as the same number: "d.ddde±xx". */
static int find_shortest_digits(double real, char *digits, size_t size, int *exponent)
{
    char scientific[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(scientific, sizeof scientific, "%.*e", precision, real);
        if (strtod(scientific, NULL) == real)
            break;
    }
    char *mark = strchr(scientific, 'e');
    *exponent = atoi(mark + 1);
    int count = 0;
    for (const char *at = scientific; at < mark && (size_t)count + 1 < size; at++)
        if (*at >= '0' && *at <= '9')
            digits[count++] = *at;
    digits[count] = '\0';
    return count;
}

void value_append_float(struct render *render, struct builder *builder, double real, bool from_template)
{
    char digits[32], out[64];
    if (!isfinite(real)) {
        append_plain(render, builder, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf", from_template);
        return;
    }
    int exponent, count = find_shortest_digits(fabs(real), digits, sizeof digits, &exponent);
    const char *sign = signbit(real) ? "-" : "";
    if (exponent < -4 || exponent >= 16)
        snprintf(out, sizeof out, "%s%c%s%se%c%02d", sign, digits[0], count > 1 ? "." : "", digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out, sizeof out, "%s0.%.*s%s", sign, -exponent - 1, "0000", digits);
    else if (count <= exponent + 1)
        snprintf(out, sizeof out, "%s%s%.*s.0", sign, digits, exponent + 1 - count, "0000000000000000");
    else
        snprintf(out, sizeof out, "%s%.*s.%s", sign, exponent + 1, digits, digits + exponent + 1);
    append_plain(render, builder, out, from_template);
}

/* ---- repr ---- */

/* The quotes of a string inside a container have the container's origin, like its brackets. */
static struct value inner_value(struct value item, bool from_template)
{
    return item.kind == VALUE_TEXT ? value_with_origin(item, from_template) : item;
}

static void append_character_repr(struct render *render, struct builder *builder, uint32_t character, bool mark,
                                  char quote)
{
    static const char specials[] = "\t\n\r\\", letters[] = "tnr\\";
    const char *special = character < 0x80 && character != 0 ? strchr(specials, (int)character) : NULL;
    char escape[16];
    if (special != NULL || character == (uint32_t)quote) {
        escape[0] = '\\';
        escape[1] = special != NULL ? letters[special - specials] : quote;
        builder_append_marked(render, builder, escape, 2, mark);
    } else if (unicode_is_printable(character)) {
        builder_append_character(render, builder, character, mark);
    } else {
        const char *format = character < 0x100 ? "\\x%02x" : character < 0x10000 ? "\\u%04x" : "\\U%08x";
        snprintf(escape, sizeof escape, format, (unsigned)character);
        append_plain(render, builder, escape, mark);
    }
}

static void append_text_repr(struct render *render, struct builder *builder, const struct text *text, bool mark)
{
    bool has_single = memchr(text->bytes, '\'', text->length) != NULL;
    bool has_double = memchr(text->bytes, '"', text->length) != NULL;
    char quote = has_single && !has_double ? '"' : '\'';
    if (text->is_safe)
        append_plain(render, builder, "Markup(", mark);
    builder_append_marked(render, builder, &quote, 1, mark);
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        size_t length = unicode_decode(text->bytes + at, &character);
        append_character_repr(render, builder, character, text->marks[at] != 0, quote);
        at += length;
    }
    builder_append_marked(render, builder, &quote, 1, mark);
    if (text->is_safe)
        append_plain(render, builder, ")", mark);
}

static void append_dict_repr(struct render *render, struct builder *builder, const struct dict *dict, bool mark)
{
    append_plain(render, builder, "{", mark);
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0)
            append_plain(render, builder, ", ", mark);
        value_append_repr(render, builder, inner_value(dict->entries[i].key, mark));
        append_plain(render, builder, ": ", mark);
        value_append_repr(render, builder, inner_value(dict->entries[i].value, mark));
    }
    append_plain(render, builder, "}", mark);
}

static void append_range_repr(struct render *render, struct builder *builder, const struct sequence *range)
{
    /* Its bounds are kept behind the items. */
    const struct value *bounds = range->items + range->count;
    append_plain(render, builder, "range(", true);
    for (size_t i = 0; i < (value_to_integer(bounds[2]) == 1 ? 2u : 3u); i++) {
        if (i > 0)
            append_plain(render, builder, ", ", true);
        value_append_repr(render, builder, bounds[i]);
    }
    append_plain(render, builder, ")", true);
}

static void append_sequence_repr(struct render *render, struct builder *builder, struct value value)
{
    const struct sequence *sequence = value.sequence;
    bool mark = value.from_template, is_tuple = sequence->flavour == SEQUENCE_TUPLE;
    if (sequence->flavour == SEQUENCE_GENERATOR)
        render_fail(render, "a generator (what filters such as map give) cannot be printed; use |list or |join");
    if (sequence->flavour == SEQUENCE_RANGE) {
        append_range_repr(render, builder, sequence);
        return;
    }
    if (sequence->flavour == SEQUENCE_VIEW) {
        append_plain(render, builder, sequence->view, mark);
        append_plain(render, builder, "(", mark);
    }
    append_plain(render, builder, is_tuple ? "(" : "[", mark);
    for (size_t i = 0; i < sequence->count; i++) {
        if (i > 0)
            append_plain(render, builder, ", ", mark);
        value_append_repr(render, builder, inner_value(sequence->items[i], mark));
    }
    if (is_tuple && sequence->count == 1)
        append_plain(render, builder, ",", mark);
    append_plain(render, builder, is_tuple ? ")" : "]", mark);
    if (sequence->flavour == SEQUENCE_VIEW)
        append_plain(render, builder, ")", mark);
}

static void append_object_repr(struct render *render, struct builder *builder, struct value value)
{
    char text[128];
    if (value.kind == VALUE_NAMESPACE) {
        append_plain(render, builder, "<Namespace ", true);
        append_dict_repr(render, builder, value.dict, true);
        append_plain(render, builder, ">", true);
    } else if (value.kind == VALUE_MACRO && value.macro->definition->name != NULL) {
        append_plain(render, builder, "<Macro '", true);
        append_plain(render, builder, value.macro->definition->name->text, true);
        append_plain(render, builder, "'>", true);
    } else if (value.kind == VALUE_LOOP) {
        loop_take(render, value.loop, SIZE_MAX);
        snprintf(text, sizeof text, "<LoopContext %zu/%zu>", value.loop->position, value.loop->taken->count);
        append_plain(render, builder, text, true);
    } else {
        render_fail(render, "a %s cannot be printed", value_type_name(value));
    }
}

void value_append_repr(struct render *render, struct builder *builder, struct value value)
{
    render_enter(render);
    bool mark = value.from_template;
    switch (value.kind) {
    case VALUE_UNDEFINED:
        append_plain(render, builder, "Undefined", mark);
        break;
    case VALUE_NONE:
        append_plain(render, builder, "None", mark);
        break;
    case VALUE_BOOL:
        append_plain(render, builder, value.boolean ? "True" : "False", mark);
        break;
    case VALUE_INT:
        append_integer(render, builder, value.integer, mark);
        break;
    case VALUE_FLOAT:
        value_append_float(render, builder, value.real, mark);
        break;
    case VALUE_TEXT:
        append_text_repr(render, builder, value.text, mark);
        break;
    case VALUE_SEQUENCE:
        append_sequence_repr(render, builder, value);
        break;
    case VALUE_DICT:
        append_dict_repr(render, builder, value.dict, mark);
        break;
    default:
        append_object_repr(render, builder, value);
    }
    render_leave(render);
}

void value_append_text(struct render *render, struct builder *builder, struct value value)
{
    if (value.kind == VALUE_TEXT)
        builder_append_text(render, builder, value.text);
    else if (value.kind != VALUE_UNDEFINED)
        value_append_repr(render, builder, value);
}

struct value value_to_text(struct render *render, struct value value)
{
    if (value.kind == VALUE_TEXT)
        return value;
    struct builder builder = {0};
    value_append_text(render, &builder, value);
    return builder_finish(render, &builder);
}

/* ---- JSON ---- */

static void append_json_escape(struct render *render, struct builder *builder, uint32_t character, bool mark)
{
    static const char specials[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
    const char *special = character < 0x80 && character != 0 ? strchr(specials, (int)character) : NULL;
    char escape[16];
    if (special != NULL)
        snprintf(escape, sizeof escape, "\\%c", letters[special - specials]);
    else if (character < 0x10000)
        snprintf(escape, sizeof escape, "\\u%04x", (unsigned)character);
    else
        snprintf(escape, sizeof escape, "\\u%04x\\u%04x", 0xD800 + ((unsigned)(character - 0x10000) >> 10),
                 0xDC00 + ((unsigned)(character - 0x10000) & 0x3FF));
    append_plain(render, builder, escape, mark);
}

static void append_json_text(struct render *render, struct builder *builder, const struct text *text, bool mark,
                             bool ascii_only)
{
    append_plain(render, builder, "\"", mark);
    size_t plain_from = 0;
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        size_t length = unicode_decode(text->bytes + at, &character);
        if (character < 0x20 || character == '"' || character == '\\' || (ascii_only && character > 0x7E)) {
            builder_append(render, builder, text->bytes + plain_from, text->marks + plain_from, at - plain_from);
            append_json_escape(render, builder, character, text->marks[at] != 0);
            plain_from = at + length;
        }
        at += length;
    }
    builder_append(render, builder, text->bytes + plain_from, text->marks + plain_from, text->length - plain_from);
    append_plain(render, builder, "\"", mark);
}

static void append_json_float(struct render *render, struct builder *builder, struct value value)
{
    if (isfinite(value.real))
        value_append_float(render, builder, value.real, value.from_template);
    else
        append_plain(render, builder,
                     isnan(value.real) ? "NaN"
                     : value.real < 0  ? "-Infinity"
                                       : "Infinity",
                     value.from_template);
}

static void append_json_line(struct render *render, struct builder *builder, const struct json_style *style,
                             size_t level, bool mark)
{
    if (style->indent == NULL)
        return;
    append_plain(render, builder, "\n", mark);
    for (size_t i = 0; i < level; i++)
        builder_append_text(render, builder, style->indent);
}

static void append_json(struct render *render, struct builder *builder, struct value value,
                        const struct json_style *style, size_t level);

static void append_json_list(struct render *render, struct builder *builder, struct value value,
                             const struct json_style *style, size_t level)
{
    const struct sequence *list = value.sequence;
    bool mark = value.from_template;
    append_plain(render, builder, "[", mark);
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0)
            builder_append_marked(render, builder, style->item_separator->bytes, style->item_separator->length, mark);
        append_json_line(render, builder, style, level + 1, mark);
        append_json(render, builder, inner_value(list->items[i], mark), style, level + 1);
    }
    if (list->count > 0)
        append_json_line(render, builder, style, level, mark);
    append_plain(render, builder, "]", mark);
}

/* A key as text: json.dumps turns numbers, booleans and None into strings. */
static struct value json_key(struct render *render, struct value key)
{
    struct builder builder = {0};
    if (key.kind == VALUE_TEXT)
        return key;
    if (!value_is_number(key) && key.kind != VALUE_NONE)
        render_fail(render, "a %s cannot be a key in JSON", value_type_name(key));
    struct json_style style = {0};
    append_json(render, &builder, key, &style, 0);
    return builder_finish(render, &builder);
}

/* Indices of the entries in the order of writing. */
static const size_t *order_entries(struct render *render, const struct dict *dict, bool sort_keys)
{
    struct value *keys = arena_allocate_array(&render->arena, dict->count, sizeof keys[0]);
    for (size_t i = 0; i < dict->count; i++)
        keys[i] = sort_keys ? dict->entries[i].key : value_int((int64_t)i);
    return value_sort(render, keys, dict->count, false);
}

static void append_json_dict(struct render *render, struct builder *builder, struct value value,
                             const struct json_style *style, size_t level)
{
    const struct dict *dict = value.dict;
    bool mark = value.from_template;
    const size_t *order = order_entries(render, dict, style->sort_keys);
    append_plain(render, builder, "{", mark);
    for (size_t i = 0; i < dict->count; i++) {
        const struct dict_entry *entry = &dict->entries[order[i]];
        if (i > 0)
            builder_append_marked(render, builder, style->item_separator->bytes, style->item_separator->length, mark);
        append_json_line(render, builder, style, level + 1, mark);
        append_json_text(render, builder, json_key(render, entry->key).text, mark, style->ascii_only);
        builder_append_marked(render, builder, style->key_separator->bytes, style->key_separator->length, mark);
        append_json(render, builder, inner_value(entry->value, mark), style, level + 1);
    }
    if (dict->count > 0)
        append_json_line(render, builder, style, level, mark);
    append_plain(render, builder, "}", mark);
}

static void append_json(struct render *render, struct builder *builder, struct value value,
                        const struct json_style *style, size_t level)
{
    render_enter(render);
    bool is_list = value.kind == VALUE_SEQUENCE && value.sequence->flavour <= SEQUENCE_TUPLE;
    if (value.kind == VALUE_NONE)
        append_plain(render, builder, "null", value.from_template);
    else if (value.kind == VALUE_BOOL)
        append_plain(render, builder, value.boolean ? "true" : "false", value.from_template);
    else if (value.kind == VALUE_INT)
        append_integer(render, builder, value.integer, value.from_template);
    else if (value.kind == VALUE_FLOAT)
        append_json_float(render, builder, value);
    else if (value.kind == VALUE_TEXT)
        append_json_text(render, builder, value.text, value.from_template, style->ascii_only);
    else if (value.kind == VALUE_DICT)
        append_json_dict(render, builder, value, style, level);
    else if (is_list)
        append_json_list(render, builder, value, style, level);
    else
        render_fail(render, "a %s cannot be turned into JSON", value_type_name(value));
    render_leave(render);
}

void value_append_json(struct render *render, struct builder *builder, struct value value,
                       const struct json_style *style)
{
    append_json(render, builder, value, style, 0);
}
