/* Values of a rendering. All live in the rendering's arena; strings never change once made. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_VALUE_H
#define NJ_ENGINE_CHAT_TEMPLATE_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct render;

enum value_kind {
    VALUE_MISSING, /* an argument that was not given; never seen by a template */
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_TEXT,
    VALUE_SEQUENCE,
    VALUE_DICT,
    VALUE_NAMESPACE,
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD, /* bound to its object */
};

/* UTF-8 with the origin of each byte: 1 template, 0 messages and variables. */
struct text {
    const char *bytes; /* not NUL-terminated */
    const uint8_t *marks;
    size_t length;
    bool is_safe; /* made by `safe` or `escape`: what is added to it gets escaped */
};

struct value {
    enum value_kind kind;
    bool from_template; /* origin of the bytes that printing it makes (digits, brackets) */
    union {
        const char *hint; /* VALUE_UNDEFINED: what was looked up, for messages */
        bool boolean;
        int64_t integer;
        double real;
        const struct text *text;
        struct sequence *sequence;
        struct dict *dict; /* VALUE_DICT, VALUE_NAMESPACE */
        struct loop *loop;
        const struct macro *macro;
        const struct function *function;
        const struct bound_method *method;
    };
};

enum sequence_flavour {
    SEQUENCE_LIST,
    SEQUENCE_TUPLE,
    SEQUENCE_RANGE,
    SEQUENCE_VIEW,      /* of a dict: keys(), values(), items() */
    SEQUENCE_GENERATOR, /* of filters such as map: items are used up by iterating */
};

struct sequence {
    enum sequence_flavour flavour;
    const char *view; /* SEQUENCE_VIEW: "dict_keys", ... */
    struct value *items;
    size_t count, capacity;
    size_t used; /* SEQUENCE_GENERATOR: items already taken */
};

struct dict_entry {
    struct value key, value;
};

/* Insertion-ordered hash table. */
struct dict {
    struct dict_entry *entries;
    size_t count, capacity;
    uint32_t *slots; /* 1 + index of an entry, 0 free; a power of two, NULL while small */
    size_t slot_count;
};

/* A run of values. */
struct items {
    struct value *items;
    size_t count;
};

/* Text being made. */
struct builder {
    char *bytes;
    uint8_t *marks;
    size_t length, capacity;
};

/* ---- making values ---- */

struct value value_missing(void);
struct value value_undefined(const char *hint);
struct value value_none(void);
struct value value_bool(bool boolean);
struct value value_int(int64_t integer);
struct value value_float(double real);
struct value value_of_text(const struct text *text);
struct value value_of_dict(struct dict *dict);
struct value value_with_origin(struct value value, bool from_template);

/* A part of another text. */
struct value value_part(struct render *render, const struct text *whole, size_t start, size_t length);
struct value value_literal(struct render *render, const char *text); /* marked as template; not copied */
struct value value_from_json(struct render *render, const json_t *json);

struct value value_sequence(struct render *render, enum sequence_flavour flavour, size_t capacity);
void sequence_append(struct render *render, struct sequence *sequence, struct value item);
struct value value_list_of(struct render *render, enum sequence_flavour flavour, const struct value *items,
                           size_t count);
/* Python's range; start, stop and step stand behind the items. */
struct value value_range(struct render *render, int64_t start, int64_t stop, int64_t step);
struct value value_pair(struct render *render, struct value first, struct value second);

struct dict *dict_new(struct render *render);
void dict_set(struct render *render, struct dict *dict, struct value key, struct value value);
/* NULL if absent; a key that cannot be hashed fails. */
const struct value *dict_find(struct render *render, const struct dict *dict, struct value key);

/* ---- text ---- */

void builder_append(struct render *render, struct builder *builder, const char *bytes, const uint8_t *marks,
                    size_t length);
/* Bytes that all have the same origin. */
void builder_append_marked(struct render *render, struct builder *builder, const char *bytes, size_t length,
                           bool from_template);
void builder_append_text(struct render *render, struct builder *builder, const struct text *text);
void builder_append_character(struct render *render, struct builder *builder, uint32_t character, bool from_template);
struct value builder_finish(struct render *render, struct builder *builder);

bool text_is(const struct text *text, const char *other);
bool text_equals(const struct text *a, const struct text *b);
/* Offset of `part` in `whole` at or behind `from`; SIZE_MAX if there is none. */
size_t text_find(struct render *render, const struct text *whole, const struct text *part, size_t from);
/* A NUL-terminated copy, for names. */
const char *text_copy(struct render *render, const struct text *text);

/* ---- what Python's operators do ---- */

const char *value_type_name(struct value value);
bool value_is_number(struct value value);   /* bool, int, float */
bool value_is_integral(struct value value); /* bool, int */
bool value_is_generator(struct value value);
int64_t value_to_integer(struct value value); /* of an integral value */
double value_to_float(struct value value);    /* of a number */
bool value_is_true(struct value value);
bool value_equals(struct render *render, struct value a, struct value b);
enum order { ORDER_LESS = -1, ORDER_EQUAL, ORDER_GREATER, ORDER_NONE };
enum order value_compare(struct render *render, struct value a, struct value b);
/* Indices of the keys in ascending (or descending) order; equal ones keep their order. */
size_t *value_sort(struct render *render, const struct value *keys, size_t count, bool is_descending);
bool value_contains(struct render *render, struct value container, struct value item);
bool value_is_hashable(struct render *render, struct value value); /* can it be a key? */
uint64_t value_hash(struct render *render, struct value value);
bool value_has_length(struct value value);
size_t value_length(struct render *render, struct value value);

bool value_is_iterable(struct value value);
/* All items; uses a generator up. Fails for what cannot be iterated. */
struct items value_iterate(struct render *render, struct value value);

/* str(value), repr(value), json.dumps(value). */
struct value value_to_text(struct render *render, struct value value);
void value_append_text(struct render *render, struct builder *builder, struct value value);
void value_append_repr(struct render *render, struct builder *builder, struct value value);
void value_append_float(struct render *render, struct builder *builder, double real, bool from_template);

struct json_style {
    bool ascii_only, sort_keys;
    const struct text *indent; /* NULL: all on one line */
    const struct text *item_separator, *key_separator;
};
void value_append_json(struct render *render, struct builder *builder, struct value value,
                       const struct json_style *style);

#endif
