#include "engine/chat_template/value.h"

#include <math.h>
#include <string.h>

#include "engine/chat_template/render.h"
#include "engine/chat_template/unicode.h"

const char *value_type_name(struct value value)
{
    static const char *const names[] = {
        [VALUE_MISSING] = "nothing",   [VALUE_UNDEFINED] = "undefined value",
        [VALUE_NONE] = "none",         [VALUE_BOOL] = "bool",
        [VALUE_INT] = "int",           [VALUE_FLOAT] = "float",
        [VALUE_TEXT] = "string",       [VALUE_SEQUENCE] = "list",
        [VALUE_DICT] = "dict",         [VALUE_NAMESPACE] = "namespace",
        [VALUE_LOOP] = "loop",         [VALUE_MACRO] = "macro",
        [VALUE_FUNCTION] = "function", [VALUE_METHOD] = "method",
    };
    static const char *const flavours[] = {
        [SEQUENCE_LIST] = "list",      [SEQUENCE_TUPLE] = "tuple",         [SEQUENCE_RANGE] = "range",
        [SEQUENCE_VIEW] = "dict view", [SEQUENCE_GENERATOR] = "generator",
    };
    return value.kind == VALUE_SEQUENCE ? flavours[value.sequence->flavour] : names[value.kind];
}

bool value_is_integral(struct value value)
{
    return value.kind == VALUE_INT || value.kind == VALUE_BOOL;
}

bool value_is_number(struct value value)
{
    return value_is_integral(value) || value.kind == VALUE_FLOAT;
}

bool value_is_generator(struct value value)
{
    return value.kind == VALUE_SEQUENCE && value.sequence->flavour == SEQUENCE_GENERATOR;
}

int64_t value_to_integer(struct value value)
{
    return value.kind == VALUE_BOOL ? value.boolean : value.integer;
}

double value_to_float(struct value value)
{
    return value.kind == VALUE_FLOAT ? value.real : (double)value_to_integer(value);
}

bool value_is_true(struct value value)
{
    switch (value.kind) {
    case VALUE_MISSING:
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return false;
    case VALUE_BOOL:
        return value.boolean;
    case VALUE_INT:
        return value.integer != 0;
    case VALUE_FLOAT:
        return value.real != 0;
    case VALUE_TEXT:
        return value.text->length > 0;
    case VALUE_SEQUENCE:
        return value.sequence->flavour == SEQUENCE_GENERATOR || value.sequence->count > 0;
    case VALUE_DICT:
        return value.dict->count > 0;
    default:
        return true;
    }
}

static bool items_equal(struct render *render, const struct sequence *a, const struct sequence *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!value_equals(render, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool sequences_equal(struct render *render, const struct sequence *a, const struct sequence *b)
{
    if (a == b)
        return true;
    if (a->flavour != b->flavour || a->flavour == SEQUENCE_GENERATOR)
        return false;
    if (a->flavour == SEQUENCE_VIEW && (strcmp(a->view, "dict_values") == 0 || strcmp(a->view, b->view) != 0))
        return false;
    return items_equal(render, a, b);
}

static bool dicts_equal(struct render *render, const struct dict *a, const struct dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct value *other = dict_find(render, b, a->entries[i].key);
        if (other == NULL || !value_equals(render, a->entries[i].value, *other))
            return false;
    }
    return true;
}

static bool numbers_equal(struct value a, struct value b)
{
    if (value_is_integral(a) && value_is_integral(b))
        return value_to_integer(a) == value_to_integer(b);
    return value_to_float(a) == value_to_float(b);
}

static bool containers_equal(struct render *render, struct value a, struct value b)
{
    render_enter(render);
    bool equal = a.kind == VALUE_SEQUENCE ? sequences_equal(render, a.sequence, b.sequence)
                                          : dicts_equal(render, a.dict, b.dict);
    render_leave(render);
    return equal;
}

bool value_equals(struct render *render, struct value a, struct value b)
{
    if (value_is_number(a) && value_is_number(b))
        return numbers_equal(a, b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return true;
    case VALUE_TEXT:
        render_count_steps(render, a.text->length / 64);
        return text_equals(a.text, b.text);
    case VALUE_SEQUENCE:
    case VALUE_DICT:
        render_count_steps(render, 1);
        return containers_equal(render, a, b);
    case VALUE_METHOD:
        return false;
    default:
        return a.dict == b.dict; /* namespaces, loops, macros, functions: the same object */
    }
}

static enum order order_of(double a, double b)
{
    return a < b ? ORDER_LESS : a > b ? ORDER_GREATER : a == b ? ORDER_EQUAL : ORDER_NONE;
}

static enum order compare_texts(struct render *render, const struct text *a, const struct text *b)
{
    size_t shorter = a->length < b->length ? a->length : b->length;
    render_count_steps(render, shorter / 64);
    int order = shorter == 0 ? 0 : memcmp(a->bytes, b->bytes, shorter);
    if (order == 0)
        return a->length < b->length ? ORDER_LESS : a->length > b->length ? ORDER_GREATER : ORDER_EQUAL;
    return order < 0 ? ORDER_LESS : ORDER_GREATER;
}

static enum order compare_sequences(struct render *render, const struct sequence *a, const struct sequence *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        render_count_steps(render, 1);
        if (!value_equals(render, a->items[i], b->items[i]))
            return value_compare(render, a->items[i], b->items[i]);
    }
    return a->count < b->count ? ORDER_LESS : a->count > b->count ? ORDER_GREATER : ORDER_EQUAL;
}

enum order value_compare(struct render *render, struct value a, struct value b)
{
    if (value_is_integral(a) && value_is_integral(b)) {
        int64_t left = value_to_integer(a), right = value_to_integer(b);
        return left < right ? ORDER_LESS : left > right ? ORDER_GREATER : ORDER_EQUAL;
    }
    if (value_is_number(a) && value_is_number(b))
        return order_of(value_to_float(a), value_to_float(b));
    if (a.kind == VALUE_TEXT && b.kind == VALUE_TEXT)
        return compare_texts(render, a.text, b.text);
    bool are_sequences = a.kind == VALUE_SEQUENCE && b.kind == VALUE_SEQUENCE;
    if (are_sequences && a.sequence->flavour == b.sequence->flavour && a.sequence->flavour <= SEQUENCE_TUPLE) {
        render_enter(render);
        enum order order = compare_sequences(render, a.sequence, b.sequence);
        render_leave(render);
        return order;
    }
    if (a.kind == VALUE_UNDEFINED || b.kind == VALUE_UNDEFINED)
        render_fail(render, "%s is undefined and cannot be compared", a.kind == VALUE_UNDEFINED ? a.hint : b.hint);
    render_fail(render, "a %s cannot be compared with a %s", value_type_name(a), value_type_name(b));
}

/* Merges two sorted runs of indices. */
static void merge_runs(struct render *render, const struct value *keys, const size_t *left, size_t left_count,
                       const size_t *right, size_t right_count, size_t *out, bool is_descending)
{
    size_t l = 0, r = 0;
    while (l < left_count || r < right_count) {
        bool take_right = l == left_count;
        if (l < left_count && r < right_count) {
            struct value a = keys[left[l]], b = keys[right[r]];
            render_count_steps(render, 1);
            take_right = (is_descending ? value_compare(render, a, b) : value_compare(render, b, a)) == ORDER_LESS;
        }
        *out++ = take_right ? right[r++] : left[l++];
    }
}

size_t *value_sort(struct render *render, const struct value *keys, size_t count, bool is_descending)
{
    size_t *from = arena_allocate_array(&render->arena, count, sizeof from[0]);
    size_t *to = arena_allocate_array(&render->arena, count, sizeof to[0]);
    for (size_t i = 0; i < count; i++)
        from[i] = i;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t start = 0; start < count; start += 2 * run) {
            size_t middle = start + run < count ? start + run : count;
            size_t end = middle + run < count ? middle + run : count;
            merge_runs(render, keys, from + start, middle - start, from + middle, end - middle, to + start,
                       is_descending);
        }
        size_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

bool value_contains(struct render *render, struct value container, struct value item)
{
    if (container.kind == VALUE_DICT)
        return dict_find(render, container.dict, item) != NULL;
    if (container.kind == VALUE_TEXT) {
        if (item.kind != VALUE_TEXT)
            render_fail(render, "'in' a string needs a string, not a %s", value_type_name(item));
        return text_find(render, container.text, item.text, 0) != SIZE_MAX;
    }
    struct items items = value_iterate(render, container);
    render_count_steps(render, items.count / 8);
    for (size_t i = 0; i < items.count; i++)
        if (value_equals(render, items.items[i], item))
            return true;
    return false;
}

static uint64_t hash_bytes(const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ at[i]) * 1099511628211u;
    return hash ^ hash >> 29;
}

bool value_is_hashable(struct render *render, struct value value)
{
    if (value.kind != VALUE_SEQUENCE)
        return value.kind != VALUE_DICT;
    if (value.sequence->flavour != SEQUENCE_TUPLE)
        return value.sequence->flavour == SEQUENCE_RANGE;
    bool is_hashable = true;
    render_enter(render);
    for (size_t i = 0; i < value.sequence->count && is_hashable; i++)
        is_hashable = value_is_hashable(render, value.sequence->items[i]);
    render_leave(render);
    return is_hashable;
}

uint64_t value_hash(struct render *render, struct value value)
{
    double number = value_is_number(value) ? value_to_float(value) + 0.0 : 0; /* -0.0 hashes as 0.0 */
    uint64_t hash = 7;
    switch (value.kind) {
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        return hash_bytes(&number, sizeof number);
    case VALUE_TEXT:
        render_count_steps(render, value.text->length / 64);
        return hash_bytes(value.text->bytes, value.text->length);
    case VALUE_UNDEFINED:
    case VALUE_NONE:
        return value.kind;
    case VALUE_DICT:
        render_fail(render, "a dict cannot be a key");
    case VALUE_SEQUENCE:
        if (value.sequence->flavour != SEQUENCE_TUPLE && value.sequence->flavour != SEQUENCE_RANGE)
            render_fail(render, "a %s cannot be a key", value_type_name(value));
        render_enter(render);
        for (size_t i = 0; i < value.sequence->count; i++)
            hash = hash * 31 + value_hash(render, value.sequence->items[i]);
        render_leave(render);
        return hash;
    default:
        return hash_bytes(&value.dict, sizeof value.dict);
    }
}

bool value_has_length(struct value value)
{
    return value.kind == VALUE_UNDEFINED || value.kind == VALUE_TEXT || value.kind == VALUE_DICT ||
           value.kind == VALUE_LOOP || (value.kind == VALUE_SEQUENCE && !value_is_generator(value));
}

size_t value_length(struct render *render, struct value value)
{
    if (!value_has_length(value))
        render_fail(render, "a %s has no length", value_type_name(value));
    switch (value.kind) {
    case VALUE_UNDEFINED:
        return 0;
    case VALUE_TEXT:
        render_count_steps(render, value.text->length / 64);
        return unicode_count(value.text->bytes, value.text->length);
    case VALUE_DICT:
        return value.dict->count;
    case VALUE_LOOP:
        loop_take(render, value.loop, SIZE_MAX);
        return value.loop->taken->count;
    default:
        return value.sequence->count;
    }
}

bool value_is_iterable(struct value value)
{
    return value.kind == VALUE_UNDEFINED || value.kind == VALUE_TEXT || value.kind == VALUE_DICT ||
           value.kind == VALUE_SEQUENCE;
}

static struct items iterate_text(struct render *render, const struct text *text)
{
    size_t count = unicode_count(text->bytes, text->length);
    struct items out = {arena_allocate_array(&render->arena, count, sizeof out.items[0]), 0};
    struct text plain = *text;
    plain.is_safe = false; /* Python's iteration gives plain strings */
    for (size_t at = 0; at < text->length;) {
        size_t length = unicode_length_of(text->bytes[at]);
        out.items[out.count++] = value_part(render, &plain, at, length);
        at += length;
    }
    return out;
}

struct items value_iterate(struct render *render, struct value value)
{
    switch (value.kind) {
    case VALUE_UNDEFINED:
        return (struct items){NULL, 0};
    case VALUE_TEXT:
        return iterate_text(render, value.text);
    case VALUE_SEQUENCE: {
        struct sequence *sequence = value.sequence;
        struct items rest = {sequence->items + sequence->used, sequence->count - sequence->used};
        if (sequence->flavour == SEQUENCE_GENERATOR)
            sequence->used = sequence->count;
        return rest;
    }
    case VALUE_DICT: {
        struct items keys = {arena_allocate_array(&render->arena, value.dict->count, sizeof keys.items[0]), 0};
        for (; keys.count < value.dict->count; keys.count++)
            keys.items[keys.count] = value.dict->entries[keys.count].key;
        return keys;
    }
    default:
        render_fail(render, "a %s cannot be iterated", value_type_name(value));
    }
}
