/* Methods of dicts and lists, and looking methods up. */
#include "engine/chat_template/methods.h"

#include <string.h>

#define METHOD_ARGUMENTS                                                                                               \
    struct render *render, const struct method *method, struct value object, const struct value *bound,                \
        const struct arguments *arguments

static struct value call_get(METHOD_ARGUMENTS)
{
    (void)method, (void)arguments;
    const struct value *found = dict_find(render, object.dict, bound[0]);
    if (found != NULL)
        return *found;
    return bound[1].kind == VALUE_MISSING ? value_none() : bound[1];
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static struct value call_view(METHOD_ARGUMENTS)
{
    static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
    (void)bound, (void)arguments;
    const struct dict *dict = object.dict;
    struct value view = value_sequence(render, SEQUENCE_VIEW, dict->count);
    view.sequence->view = names[method->variant];
    render_count_steps(render, dict->count / 8);
    for (size_t i = 0; i < dict->count; i++) {
        const struct dict_entry *entry = &dict->entries[i];
        struct value item = method->variant == VIEW_KEYS     ? entry->key
                            : method->variant == VIEW_VALUES ? entry->value
                                                             : value_pair(render, entry->key, entry->value);
        if (method->variant == VIEW_ITEMS)
            item.from_template = object.from_template;
        sequence_append(render, view.sequence, item);
    }
    return value_with_origin(view, object.from_template);
}

/* Values never change, so a copy is the value itself. */
static struct value call_copy(METHOD_ARGUMENTS)
{
    (void)render, (void)method, (void)bound, (void)arguments;
    return object;
}

static struct value call_count(METHOD_ARGUMENTS)
{
    (void)method, (void)arguments;
    int64_t count = 0;
    render_count_steps(render, object.sequence->count / 8);
    for (size_t i = 0; i < object.sequence->count; i++)
        count += value_equals(render, object.sequence->items[i], bound[0]);
    return value_int(count);
}

static struct value call_index(METHOD_ARGUMENTS)
{
    (void)method, (void)arguments;
    render_count_steps(render, object.sequence->count / 8);
    for (size_t i = 0; i < object.sequence->count; i++)
        if (value_equals(render, object.sequence->items[i], bound[0]))
            return value_int((int64_t)i);
    render_fail(render, "'index' did not find the item");
}

static const struct method dict_methods[] = {
    {{"get", {"", ""}, 1, false}, call_get, 0},
    {{.name = "keys"}, call_view, VIEW_KEYS},
    {{.name = "values"}, call_view, VIEW_VALUES},
    {{.name = "items"}, call_view, VIEW_ITEMS},
    {{.name = "copy"}, call_copy, 0},
};

static const struct method list_methods[] = {
    {{"count", {""}, 1, false}, call_count, 0},
    {{"index", {""}, 1, false}, call_index, 0},
    {{.name = "copy"}, call_copy, 0},
};

/* What one type has: methods, then what the sandbox forbids, then what Python has and this has not. */
struct type_methods {
    const struct method *methods;
    size_t count;
    const char *const *forbidden, *const *unsupported; /* NULL-terminated */
};

static const char *const none[] = {NULL};
static const char *const text_unsupported[] = {"casefold",     "encode",    "expandtabs", "format_map", "isdecimal",
                                               "isidentifier", "maketrans", "translate",  NULL};
static const char *const dict_forbidden[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
static const char *const dict_unsupported[] = {"fromkeys", NULL};
static const char *const list_forbidden[] = {"append", "clear",   "extend", "insert", "pop",
                                             "remove", "reverse", "sort",   NULL};
static const char *const number_unsupported[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
    "is_integer",       "numerator", "real",       "to_bytes",  NULL};
static const char *const range_unsupported[] = {"start", "stop", "step", NULL};
static const char *const macro_unsupported[] = {
    "name", "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller", NULL};
static const char *const view_unsupported[] = {"isdisjoint", "mapping", NULL};
static const char *const generator_forbidden[] = {"send", "throw", "close", "gi_frame", "gi_code", NULL};

enum { LIST_METHODS = sizeof list_methods / sizeof list_methods[0] };

static struct type_methods find_sequence_methods(const struct sequence *sequence)
{
    switch (sequence->flavour) {
    case SEQUENCE_LIST:
        return (struct type_methods){list_methods, LIST_METHODS, list_forbidden, none};
    case SEQUENCE_TUPLE:
        return (struct type_methods){list_methods, LIST_METHODS - 1, none, none};
    case SEQUENCE_RANGE:
        return (struct type_methods){list_methods, LIST_METHODS - 1, none, range_unsupported};
    case SEQUENCE_VIEW:
        return (struct type_methods){NULL, 0, none, view_unsupported};
    default:
        return (struct type_methods){NULL, 0, generator_forbidden, none};
    }
}

static struct type_methods find_type_methods(struct value object)
{
    switch (object.kind) {
    case VALUE_TEXT:
        return (struct type_methods){text_methods, text_method_count, none, text_unsupported};
    case VALUE_DICT:
        return (struct type_methods){dict_methods, sizeof dict_methods / sizeof dict_methods[0], dict_forbidden,
                                     dict_unsupported};
    case VALUE_SEQUENCE:
        return find_sequence_methods(object.sequence);
    case VALUE_BOOL:
    case VALUE_INT:
    case VALUE_FLOAT:
        return (struct type_methods){NULL, 0, none, number_unsupported};
    case VALUE_MACRO:
        return (struct type_methods){NULL, 0, none, macro_unsupported};
    default:
        return (struct type_methods){NULL, 0, none, none};
    }
}

static bool is_among(const char *const *words, const struct text *name)
{
    for (; *words != NULL; words++)
        if (text_is(name, *words))
            return true;
    return false;
}

static const struct method *find_in(const struct method *methods, size_t count, const struct text *name)
{
    for (size_t i = 0; i < count; i++)
        if (text_is(name, methods[i].signature.name))
            return &methods[i];
    return NULL;
}

struct value method_find(struct render *render, struct value object, const struct text *name)
{
    struct type_methods type = find_type_methods(object);
    const struct method *method = find_in(type.methods, type.count, name);
    if (method != NULL) {
        struct bound_method *bound = arena_allocate(&render->arena, sizeof *bound);
        bound->object = object;
        bound->method = method;
        return (struct value){.kind = VALUE_METHOD, .from_template = true, .method = bound};
    }
    if (is_among(type.forbidden, name))
        return value_undefined(text_copy(render, name));
    if (is_among(type.unsupported, name))
        render_fail(render, "'%s' of a %s is not supported", text_copy(render, name), value_type_name(object));
    return value_missing();
}

bool method_exists(const char *name, size_t length)
{
    struct text text = {.bytes = name, .length = length};
    return find_in(text_methods, text_method_count, &text) != NULL ||
           find_in(dict_methods, sizeof dict_methods / sizeof dict_methods[0], &text) != NULL ||
           find_in(list_methods, LIST_METHODS, &text) != NULL || is_among(dict_forbidden, &text) ||
           is_among(list_forbidden, &text) || text_is(&text, "cycle") || text_is(&text, "changed");
}
