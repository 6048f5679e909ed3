#include "engine/chat_template/value.h"

#include <string.h>

#include "engine/chat_template/render.h"
#include "engine/chat_template/unicode.h"

/* ---- making values ---- */

struct value value_missing(void)
{
    return (struct value){.kind = VALUE_MISSING, .from_template = true};
}

struct value value_undefined(const char *hint)
{
    return (struct value){.kind = VALUE_UNDEFINED, .from_template = true, .hint = hint};
}

struct value value_none(void)
{
    return (struct value){.kind = VALUE_NONE, .from_template = true};
}

struct value value_bool(bool boolean)
{
    return (struct value){.kind = VALUE_BOOL, .from_template = true, .boolean = boolean};
}

struct value value_int(int64_t integer)
{
    return (struct value){.kind = VALUE_INT, .from_template = true, .integer = integer};
}

struct value value_float(double real)
{
    return (struct value){.kind = VALUE_FLOAT, .from_template = true, .real = real};
}

struct value value_of_text(const struct text *text)
{
    return (struct value){.kind = VALUE_TEXT, .from_template = true, .text = text};
}

struct value value_of_dict(struct dict *dict)
{
    return (struct value){.kind = VALUE_DICT, .from_template = true, .dict = dict};
}

struct value value_with_origin(struct value value, bool from_template)
{
    value.from_template = from_template;
    return value;
}

static struct value make_text(struct render *render, const char *bytes, const uint8_t *marks, size_t length)
{
    static const uint8_t no_marks[1];
    struct text *text = arena_allocate(&render->arena, sizeof *text);
    *text = (struct text){.bytes = "", .marks = no_marks};
    if (length > 0)
        *text = (struct text){.bytes = bytes, .marks = marks, .length = length};
    return value_of_text(text);
}

struct value value_part(struct render *render, const struct text *whole, size_t start, size_t length)
{
    struct text *text = arena_allocate(&render->arena, sizeof *text);
    *text = (struct text){whole->bytes + start, whole->marks + start, length, whole->is_safe};
    return value_of_text(text);
}

struct value value_literal(struct render *render, const char *text)
{
    size_t length = strlen(text);
    uint8_t *marks = arena_allocate(&render->arena, length);
    memset(marks, 1, length);
    return make_text(render, text, marks, length);
}

struct value value_sequence(struct render *render, enum sequence_flavour flavour, size_t capacity)
{
    struct sequence *sequence = arena_allocate(&render->arena, sizeof *sequence);
    sequence->flavour = flavour;
    sequence->capacity = capacity;
    if (capacity > 0)
        sequence->items = arena_allocate_array(&render->arena, capacity, sizeof sequence->items[0]);
    return (struct value){.kind = VALUE_SEQUENCE, .from_template = true, .sequence = sequence};
}

void sequence_append(struct render *render, struct sequence *sequence, struct value item)
{
    if (sequence->count == sequence->capacity) {
        size_t capacity = sequence->capacity == 0 ? 4 : sequence->capacity * 2;
        sequence->items =
            arena_grow_array(&render->arena, sequence->items, sequence->count, capacity, sizeof sequence->items[0]);
        sequence->capacity = capacity;
    }
    sequence->items[sequence->count++] = item;
}

struct value value_list_of(struct render *render, enum sequence_flavour flavour, const struct value *items,
                           size_t count)
{
    render_count_steps(render, count / 8);
    struct value list = value_sequence(render, flavour, count);
    if (count > 0)
        memcpy(list.sequence->items, items, count * sizeof items[0]);
    list.sequence->count = count;
    return list;
}

struct value value_pair(struct render *render, struct value first, struct value second)
{
    struct value pair[] = {first, second};
    return value_list_of(render, SEQUENCE_TUPLE, pair, 2);
}

static uint64_t count_range(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    return (span - 1) / stride + 1;
}

struct value value_range(struct render *render, int64_t start, int64_t stop, int64_t step)
{
    if (step == 0)
        render_fail(render, "the step of a range is zero");
    uint64_t count = count_range(start, stop, step);
    if (count > RENDER_RANGE_LIMIT)
        render_fail(render, "a range of more than %d numbers", RENDER_RANGE_LIMIT);
    render_count_steps(render, count / 8);
    struct value range = value_sequence(render, SEQUENCE_RANGE, count + 3);
    for (uint64_t i = 0; i < count; i++)
        sequence_append(render, range.sequence, value_int(start + (int64_t)i * step));
    struct value *bounds = range.sequence->items + count;
    bounds[0] = value_int(start);
    bounds[1] = value_int(stop);
    bounds[2] = value_int(step);
    return range;
}

/* ---- from JSON ---- */

static struct value text_from_json(struct render *render, const char *bytes, size_t length)
{
    /* The marks are the arena's zeroes: content. */
    uint8_t *marks = arena_allocate(&render->arena, length);
    return make_text(render, bytes, marks, length);
}

static struct value container_from_json(struct render *render, const json_t *json)
{
    render_enter(render);
    struct value out;
    if (json_is_array(json)) {
        out = value_sequence(render, SEQUENCE_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++)
            sequence_append(render, out.sequence, value_from_json(render, json_array_get(json, i)));
    } else {
        out = value_of_dict(dict_new(render));
        json_t *object = (json_t *)json; /* jansson's iterator wants it so, but changes nothing */
        for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
            size_t length = json_object_iter_key_len(at);
            struct value key = text_from_json(render, json_object_iter_key(at), length);
            dict_set(render, out.dict, key, value_from_json(render, json_object_iter_value(at)));
        }
    }
    render_leave(render);
    return value_with_origin(out, false);
}

struct value value_from_json(struct render *render, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_NULL:
        return value_with_origin(value_none(), false);
    case JSON_TRUE:
    case JSON_FALSE:
        return value_with_origin(value_bool(json_is_true(json)), false);
    case JSON_INTEGER:
        return value_with_origin(value_int(json_integer_value(json)), false);
    case JSON_REAL:
        return value_with_origin(value_float(json_real_value(json)), false);
    case JSON_STRING:
        return text_from_json(render, json_string_value(json), json_string_length(json));
    default:
        return container_from_json(render, json);
    }
}

/* ---- dicts ---- */

enum { SMALL_DICT = 8 };

struct dict *dict_new(struct render *render)
{
    return arena_allocate(&render->arena, sizeof(struct dict));
}

/* The slot of `key`, or the free one where it belongs. */
static size_t find_slot(struct render *render, const struct dict *dict, struct value key)
{
    size_t mask = dict->slot_count - 1, slot = value_hash(render, key) & mask;
    while (dict->slots[slot] != 0 && !value_equals(render, dict->entries[dict->slots[slot] - 1].key, key)) {
        render_count_steps(render, 1);
        slot = (slot + 1) & mask;
    }
    return slot;
}

static void rebuild_slots(struct render *render, struct dict *dict)
{
    dict->slot_count = dict->capacity * 2;
    dict->slots = arena_allocate_array(&render->arena, dict->slot_count, sizeof dict->slots[0]);
    for (size_t i = 0; i < dict->count; i++)
        dict->slots[find_slot(render, dict, dict->entries[i].key)] = (uint32_t)(i + 1);
}

static struct dict_entry *find_entry(struct render *render, const struct dict *dict, struct value key)
{
    value_hash(render, key); /* fails for lists and dicts, as Python does */
    if (dict->slots != NULL) {
        uint32_t found = dict->slots[find_slot(render, dict, key)];
        return found == 0 ? NULL : &dict->entries[found - 1];
    }
    for (size_t i = 0; i < dict->count; i++)
        if (value_equals(render, dict->entries[i].key, key))
            return &dict->entries[i];
    return NULL;
}

void dict_set(struct render *render, struct dict *dict, struct value key, struct value value)
{
    struct dict_entry *entry = find_entry(render, dict, key);
    if (entry != NULL) {
        entry->value = value;
        return;
    }
    if (dict->count == dict->capacity) {
        dict->capacity = dict->capacity == 0 ? 4 : dict->capacity * 2;
        dict->entries =
            arena_grow_array(&render->arena, dict->entries, dict->count, dict->capacity, sizeof dict->entries[0]);
        if (dict->capacity > SMALL_DICT)
            rebuild_slots(render, dict);
    }
    dict->entries[dict->count++] = (struct dict_entry){key, value};
    if (dict->slots != NULL)
        dict->slots[find_slot(render, dict, key)] = (uint32_t)dict->count;
}

const struct value *dict_find(struct render *render, const struct dict *dict, struct value key)
{
    const struct dict_entry *entry = find_entry(render, dict, key);
    return entry == NULL ? NULL : &entry->value;
}

/* ---- text ---- */

static void reserve(struct render *render, struct builder *builder, size_t more)
{
    if (more > RENDER_TEXT_LIMIT_BYTES || builder->length > RENDER_TEXT_LIMIT_BYTES - more)
        render_fail(render, "text longer than %zu MiB", RENDER_TEXT_LIMIT_BYTES >> 20);
    render_count_steps(render, more / 64);
    if (builder->length + more <= builder->capacity)
        return;
    size_t capacity = builder->capacity * 2;
    if (capacity < builder->length + more)
        capacity = builder->length + more;
    builder->bytes = arena_grow_array(&render->arena, builder->bytes, builder->length, capacity, 1);
    builder->marks = arena_grow_array(&render->arena, builder->marks, builder->length, capacity, 1);
    builder->capacity = capacity;
}

void builder_append(struct render *render, struct builder *builder, const char *bytes, const uint8_t *marks,
                    size_t length)
{
    if (length == 0)
        return;
    reserve(render, builder, length);
    memcpy(builder->bytes + builder->length, bytes, length);
    memcpy(builder->marks + builder->length, marks, length);
    builder->length += length;
}

void builder_append_marked(struct render *render, struct builder *builder, const char *bytes, size_t length,
                           bool from_template)
{
    if (length == 0)
        return;
    reserve(render, builder, length);
    memcpy(builder->bytes + builder->length, bytes, length);
    memset(builder->marks + builder->length, from_template, length);
    builder->length += length;
}

void builder_append_text(struct render *render, struct builder *builder, const struct text *text)
{
    builder_append(render, builder, text->bytes, text->marks, text->length);
}

void builder_append_character(struct render *render, struct builder *builder, uint32_t character, bool from_template)
{
    char bytes[4];
    builder_append_marked(render, builder, bytes, unicode_encode(character, bytes), from_template);
}

struct value builder_finish(struct render *render, struct builder *builder)
{
    return make_text(render, builder->bytes, builder->marks, builder->length);
}

bool text_is(const struct text *text, const char *other)
{
    return text->length == strlen(other) && memcmp(text->bytes, other, text->length) == 0;
}

bool text_equals(const struct text *a, const struct text *b)
{
    return a->length == b->length && (a->length == 0 || memcmp(a->bytes, b->bytes, a->length) == 0);
}

size_t text_find(struct render *render, const struct text *whole, const struct text *part, size_t from)
{
    if (from > whole->length || part->length > whole->length - from)
        return SIZE_MAX;
    if (part->length == 0)
        return from;
    const char *found = memmem(whole->bytes + from, whole->length - from, part->bytes, part->length);
    size_t end = found == NULL ? whole->length : (size_t)(found - whole->bytes);
    render_count_steps(render, (end - from) / 64);
    return found == NULL ? SIZE_MAX : end;
}

const char *text_copy(struct render *render, const struct text *text)
{
    char *copy = arena_allocate(&render->arena, text->length + 1);
    if (text->length > 0)
        memcpy(copy, text->bytes, text->length);
    return copy;
}
