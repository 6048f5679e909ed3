/* Filters on sequences and dicts. */
#include <string.h>

#include "engine/chat_template/filters.h"
#include "engine/chat_template/text_operations.h"

static bool is_given(struct value value)
{
    return value.kind != VALUE_MISSING && value.kind != VALUE_NONE;
}

/* ---- attributes of items ---- */

static struct value read_path_part(struct render *render, struct value item, const struct text *part,
                                   struct value fallback)
{
    bool is_number = part->length > 0 && part->length < 18;
    int64_t number = 0;
    for (size_t i = 0; i < part->length && is_number; i++) {
        is_number = part->bytes[i] >= '0' && part->bytes[i] <= '9';
        number = number * 10 + (part->bytes[i] - '0');
    }
    item = evaluate_subscript(render, item, is_number ? value_int(number) : value_of_text(part));
    return item.kind == VALUE_UNDEFINED && is_given(fallback) ? fallback : item;
}

struct value filter_read_attribute(struct render *render, struct value item, struct value path, struct value fallback)
{
    if (!is_given(path))
        return item;
    if (path.kind != VALUE_TEXT) {
        item = evaluate_subscript(render, item, path);
        return item.kind == VALUE_UNDEFINED && is_given(fallback) ? fallback : item;
    }
    const struct text *text = path.text;
    for (size_t start = 0, at = 0; at <= text->length; at++) {
        if (at < text->length && text->bytes[at] != '.')
            continue;
        render_count_steps(render, 1);
        item = read_path_part(render, item, value_part(render, text, start, at - start).text, fallback);
        start = at + 1;
    }
    return item;
}

/* Strings compare without case unless asked otherwise. */
static struct value fold_case(struct render *render, struct value value, bool is_case_sensitive)
{
    return value.kind == VALUE_TEXT && !is_case_sensitive ? text_change_case(render, value.text, CASE_LOWER) : value;
}

/* ---- sorting ---- */

/* A key for "a,b": the list of both attributes. */
static struct value read_sort_key(struct render *render, struct value item, struct value path, bool is_case_sensitive)
{
    if (path.kind != VALUE_TEXT || memchr(path.text->bytes, ',', path.text->length) == NULL)
        return fold_case(render, filter_read_attribute(render, item, path, value_none()), is_case_sensitive);
    struct value keys = value_sequence(render, SEQUENCE_LIST, 0);
    for (size_t start = 0, at = 0; at <= path.text->length; at++) {
        if (at < path.text->length && path.text->bytes[at] != ',')
            continue;
        struct value part = value_part(render, path.text, start, at - start);
        struct value key = filter_read_attribute(render, item, part, value_none());
        sequence_append(render, keys.sequence, fold_case(render, key, is_case_sensitive));
        start = at + 1;
    }
    return keys;
}

static struct value apply_sort(FILTER_ARGUMENTS)
{
    (void)filter, (void)arguments;
    struct items items = value_iterate(render, subject);
    struct value *keys = arena_allocate_array(&render->arena, items.count, sizeof keys[0]);
    for (size_t i = 0; i < items.count; i++)
        keys[i] = read_sort_key(render, items.items[i], bound[2], value_is_true(bound[1]));
    const size_t *order = value_sort(render, keys, items.count, value_is_true(bound[0]));
    struct value sorted = value_sequence(render, SEQUENCE_LIST, items.count);
    for (size_t i = 0; i < items.count; i++)
        sequence_append(render, sorted.sequence, items.items[order[i]]);
    return value_with_origin(sorted, subject.from_template);
}

static void require_dict(struct render *render, const struct filter *filter, struct value subject)
{
    if (subject.kind != VALUE_DICT)
        render_fail(render, "'%s' needs a dict, not a %s", filter->signature.name, value_type_name(subject));
}

static struct value apply_dictsort(FILTER_ARGUMENTS)
{
    (void)arguments;
    require_dict(render, filter, subject);
    bool by_value = false;
    if (bound[1].kind != VALUE_MISSING) {
        by_value = bound[1].kind == VALUE_TEXT && text_is(bound[1].text, "value");
        if (!by_value && (bound[1].kind != VALUE_TEXT || !text_is(bound[1].text, "key")))
            render_fail(render, "'dictsort' sorts by 'key' or 'value'");
    }
    const struct dict *dict = subject.dict;
    struct value *keys = arena_allocate_array(&render->arena, dict->count, sizeof keys[0]);
    for (size_t i = 0; i < dict->count; i++)
        keys[i] = fold_case(render, by_value ? dict->entries[i].value : dict->entries[i].key, value_is_true(bound[0]));
    const size_t *order = value_sort(render, keys, dict->count, value_is_true(bound[2]));
    struct value sorted = value_sequence(render, SEQUENCE_LIST, dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        const struct dict_entry *entry = &dict->entries[order[i]];
        struct value pair = value_pair(render, entry->key, entry->value);
        sequence_append(render, sorted.sequence, value_with_origin(pair, subject.from_template));
    }
    return value_with_origin(sorted, subject.from_template);
}

static struct value apply_extreme(FILTER_ARGUMENTS)
{
    (void)arguments;
    struct items items = value_iterate(render, subject);
    if (items.count == 0)
        return value_undefined(filter->signature.name);
    enum order wanted = (enum order)filter->variant;
    bool is_case_sensitive = value_is_true(bound[0]);
    size_t best = 0;
    struct value best_key = value_missing();
    for (size_t i = 0; i < items.count; i++) {
        struct value key =
            fold_case(render, filter_read_attribute(render, items.items[i], bound[1], value_none()), is_case_sensitive);
        render_count_steps(render, 1);
        if (i > 0 && value_compare(render, key, best_key) != wanted)
            continue;
        best = i;
        best_key = key;
    }
    return items.items[best];
}

static struct value apply_unique(FILTER_ARGUMENTS)
{
    (void)filter, (void)arguments;
    struct items items = value_iterate(render, subject);
    struct value kept = value_sequence(render, SEQUENCE_GENERATOR, 0);
    struct dict *seen = dict_new(render);
    for (size_t i = 0; i < items.count; i++) {
        struct value key = fold_case(render, filter_read_attribute(render, items.items[i], bound[1], value_none()),
                                     value_is_true(bound[0]));
        if (dict_find(render, seen, key) != NULL)
            continue;
        dict_set(render, seen, key, value_none());
        sequence_append(render, kept.sequence, items.items[i]);
    }
    return value_with_origin(kept, subject.from_template);
}

/* ---- items ---- */

static struct value apply_length(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    return value_int((int64_t)value_length(render, subject));
}

static struct value apply_list(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    struct items items = value_iterate(render, subject);
    struct value list = value_list_of(render, SEQUENCE_LIST, items.items, items.count);
    return value_with_origin(list, subject.kind == VALUE_TEXT || subject.from_template);
}

static struct value apply_first(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    if (value_is_generator(subject)) { /* takes one, leaves the others */
        struct sequence *generator = subject.sequence;
        if (generator->used < generator->count)
            return generator->items[generator->used++];
    }
    struct items items = value_iterate(render, subject);
    return items.count == 0 ? value_undefined("first of nothing") : items.items[0];
}

static struct value apply_last(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    if (value_is_generator(subject))
        render_fail(render, "'last' does not work on a generator; use |list before");
    struct items items = value_iterate(render, subject);
    return items.count == 0 ? value_undefined("last of nothing") : items.items[items.count - 1];
}

static struct value apply_reverse(FILTER_ARGUMENTS)
{
    (void)filter, (void)bound, (void)arguments;
    struct items items = value_iterate(render, subject);
    bool is_list = value_is_generator(subject);
    struct value reversed = value_sequence(render, is_list ? SEQUENCE_LIST : SEQUENCE_GENERATOR, items.count);
    struct builder builder = {0};
    for (size_t i = items.count; i-- > 0;) {
        if (subject.kind == VALUE_TEXT)
            builder_append_text(render, &builder, items.items[i].text);
        else
            sequence_append(render, reversed.sequence, items.items[i]);
    }
    if (subject.kind == VALUE_TEXT)
        return text_mark_safe(render, builder_finish(render, &builder), subject.text->is_safe);
    return value_with_origin(reversed, subject.from_template);
}

static struct value apply_join(FILTER_ARGUMENTS)
{
    (void)filter, (void)arguments;
    struct items items = value_iterate(render, subject);
    struct value separator =
        bound[0].kind == VALUE_MISSING ? value_literal(render, "") : value_to_text(render, bound[0]);
    struct builder builder = {0};
    for (size_t i = 0; i < items.count; i++) {
        render_count_steps(render, 1);
        if (i > 0)
            builder_append_text(render, &builder, separator.text);
        value_append_text(render, &builder, filter_read_attribute(render, items.items[i], bound[1], value_none()));
    }
    return builder_finish(render, &builder);
}

static struct value apply_sum(FILTER_ARGUMENTS)
{
    (void)filter, (void)arguments;
    struct items items = value_iterate(render, subject);
    struct value sum = bound[1].kind == VALUE_MISSING ? value_int(0) : bound[1];
    if (sum.kind == VALUE_TEXT)
        render_fail(render, "'sum' cannot begin with a string");
    for (size_t i = 0; i < items.count; i++) {
        struct value item = filter_read_attribute(render, items.items[i], bound[0], value_none());
        render_count_steps(render, 1);
        sum = evaluate_arithmetic(render, ADD, sum, item);
    }
    return sum;
}

static struct value apply_items(FILTER_ARGUMENTS)
{
    (void)bound, (void)arguments;
    struct value pairs = value_sequence(render, SEQUENCE_GENERATOR, 0);
    if (subject.kind == VALUE_UNDEFINED)
        return pairs;
    require_dict(render, filter, subject);
    for (size_t i = 0; i < subject.dict->count; i++) {
        struct value pair = value_pair(render, subject.dict->entries[i].key, subject.dict->entries[i].value);
        sequence_append(render, pairs.sequence, value_with_origin(pair, subject.from_template));
    }
    return value_with_origin(pairs, subject.from_template);
}

/* Rows of `count` items. */
static struct value apply_batch(FILTER_ARGUMENTS)
{
    (void)arguments;
    struct items items = value_iterate(render, subject);
    int64_t count = argument_integer(render, &filter->signature, bound[0]);
    struct value rows = value_sequence(render, SEQUENCE_GENERATOR, 0), row = value_missing();
    for (size_t i = 0; i < items.count; i++) {
        if (i == 0 || (int64_t)row.sequence->count == count) {
            row = value_sequence(render, SEQUENCE_LIST, 0);
            sequence_append(render, rows.sequence, row);
        }
        render_count_steps(render, 1);
        sequence_append(render, row.sequence, items.items[i]);
    }
    while (items.count > 0 && is_given(bound[1]) && (int64_t)row.sequence->count < count) {
        render_count_steps(render, 1);
        sequence_append(render, row.sequence, bound[1]);
    }
    return rows;
}

/* `count` columns of nearly equal length. */
static struct value apply_slice(FILTER_ARGUMENTS)
{
    (void)arguments;
    struct items items = value_iterate(render, subject);
    int64_t count = argument_integer(render, &filter->signature, bound[0]);
    if (count == 0)
        render_fail(render, "'slice' into no parts");
    struct value columns = value_sequence(render, SEQUENCE_GENERATOR, 0);
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t share = items.count / (size_t)count, longer = items.count % (size_t)count;
        size_t length = share + ((size_t)i < longer);
        struct value column = value_list_of(render, SEQUENCE_LIST, items.items + at, length);
        if (is_given(bound[1]) && (size_t)i >= longer)
            sequence_append(render, column.sequence, bound[1]);
        render_count_steps(render, 1);
        sequence_append(render, columns.sequence, column);
        at += length;
    }
    return columns;
}

const struct filter sequence_filters[] = {
    {.signature = {.name = "length"}, .apply = apply_length},
    {.signature = {.name = "count"}, .apply = apply_length},
    {.signature = {.name = "list"}, .apply = apply_list},
    {.signature = {.name = "first"}, .apply = apply_first},
    {.signature = {.name = "last"}, .apply = apply_last},
    {.signature = {.name = "reverse"}, .apply = apply_reverse},
    {.signature = {.name = "items"}, .apply = apply_items},
    {.signature = {"join", {"d", "attribute"}, 0, false}, .apply = apply_join},
    {.signature = {"sum", {"attribute", "start"}, 0, false}, .apply = apply_sum},
    {.signature = {"min", {"case_sensitive", "attribute"}, 0, false}, .apply = apply_extreme, .variant = ORDER_LESS},
    {.signature = {"max", {"case_sensitive", "attribute"}, 0, false}, .apply = apply_extreme, .variant = ORDER_GREATER},
    {.signature = {"sort", {"reverse", "case_sensitive", "attribute"}, 0, false}, .apply = apply_sort},
    {.signature = {"dictsort", {"case_sensitive", "by", "reverse"}, 0, false}, .apply = apply_dictsort},
    {.signature = {"unique", {"case_sensitive", "attribute"}, 0, false}, .apply = apply_unique},
    {.signature = {"batch", {"linecount", "fill_with"}, 1, false}, .apply = apply_batch},
    {.signature = {"slice", {"slices", "fill_with"}, 1, false}, .apply = apply_slice},
};
const size_t sequence_filter_count = sizeof sequence_filters / sizeof sequence_filters[0];
