/* Expressions. */
#include <string.h>

#include "engine/chat_template/filters.h"
#include "engine/chat_template/functions.h"
#include "engine/chat_template/is_tests.h"
#include "engine/chat_template/methods.h"
#include "engine/chat_template/render.h"
#include "engine/chat_template/unicode.h"

/* ---- attributes, subscripts, slices ---- */

/* object.name without the items of a dict; VALUE_MISSING if there is none. */
static struct value find_attribute(struct render *render, struct value object, const struct text *name)
{
    if (object.kind == VALUE_UNDEFINED)
        render_fail(render, "'%.200s' is undefined, so it has no attribute '%.100s'", object.hint,
                    text_copy(render, name));
    if (object.kind == VALUE_LOOP)
        return loop_attribute(render, object.loop, name);
    if (object.kind == VALUE_NAMESPACE) {
        const struct value *found = dict_find(render, object.dict, value_of_text(name));
        return found == NULL ? value_missing() : *found;
    }
    return method_find(render, object, name);
}

struct value evaluate_attribute(struct render *render, struct value object, const struct text *name)
{
    struct value found = find_attribute(render, object, name);
    if (found.kind != VALUE_MISSING)
        return found;
    const struct value *item = object.kind == VALUE_DICT ? dict_find(render, object.dict, value_of_text(name)) : NULL;
    return item != NULL ? *item : value_undefined(text_copy(render, name));
}

/* The index counted from the start, or -1 if it is outside. */
static int64_t resolve_index(int64_t index, size_t count)
{
    int64_t length = (int64_t)count;
    if (index < 0)
        index += length;
    return index >= 0 && index < length ? index : -1;
}

/* Byte offset of a character. */
static size_t offset_of(struct render *render, const struct text *text, size_t character)
{
    size_t at = 0;
    while (character-- > 0)
        at += unicode_length_of(text->bytes[at]);
    render_count_steps(render, at / 64);
    return at;
}

static struct value find_item(struct render *render, struct value object, struct value index)
{
    if (object.kind == VALUE_DICT) {
        const struct value *found = value_is_hashable(render, index) ? dict_find(render, object.dict, index) : NULL;
        return found == NULL ? value_missing() : *found;
    }
    if (!value_is_integral(index))
        return value_missing();
    if (object.kind == VALUE_TEXT) {
        int64_t at = resolve_index(value_to_integer(index), value_length(render, object));
        if (at < 0)
            return value_missing();
        size_t start = offset_of(render, object.text, (size_t)at);
        return value_part(render, object.text, start, unicode_length_of(object.text->bytes[start]));
    }
    if (object.kind == VALUE_SEQUENCE && object.sequence->flavour <= SEQUENCE_RANGE) {
        int64_t at = resolve_index(value_to_integer(index), object.sequence->count);
        return at < 0 ? value_missing() : object.sequence->items[at];
    }
    return value_missing();
}

struct value evaluate_subscript(struct render *render, struct value object, struct value index)
{
    if (object.kind == VALUE_UNDEFINED)
        render_fail(render, "'%.200s' is undefined, so it has no items", object.hint);
    struct value found = find_item(render, object, index);
    if (found.kind == VALUE_MISSING && index.kind == VALUE_TEXT)
        found = find_attribute(render, object, index.text);
    if (found.kind != VALUE_MISSING)
        return found;
    struct builder hint = {0};
    value_append_repr(render, &hint, index.kind == VALUE_SEQUENCE ? value_none() : index);
    return value_undefined(text_copy(render, builder_finish(render, &hint).text));
}

static struct value evaluate_subscript_node(struct render *render, const struct node *node)
{
    struct value object = evaluate(render, node->subscript.object);
    const struct node *index = node->subscript.index;
    if (index->kind != NODE_SLICE) {
        struct value at = evaluate(render, index);
        render->offset = node->offset;
        return evaluate_subscript(render, object, at);
    }
    const struct node *parts[] = {index->slice.start, index->slice.stop, index->slice.step};
    struct value bounds[3];
    for (size_t i = 0; i < 3; i++)
        bounds[i] = parts[i] == NULL ? value_none() : evaluate(render, parts[i]);
    render->offset = node->offset;
    return evaluate_slice(render, object, bounds);
}

/* ---- calls ---- */

static void append_starred(struct render *render, struct sequence *positional, struct value starred)
{
    struct items items = value_iterate(render, starred);
    render_count_steps(render, items.count);
    for (size_t i = 0; i < items.count; i++)
        sequence_append(render, positional, items.items[i]);
}

struct keyword_list {
    const char **names;
    struct sequence *values;
};

static void append_keyword(struct render *render, struct keyword_list *list, const char *name, struct value value)
{
    size_t count = list->values->count;
    for (size_t i = 0; i < count; i++)
        if (strcmp(list->names[i], name) == 0)
            render_fail(render, "keyword argument '%.60s' is repeated", name);
    if (count % 4 == 0)
        list->names = arena_grow_array(&render->arena, list->names, count, count + 4, sizeof list->names[0]);
    list->names[count] = name;
    sequence_append(render, list->values, value);
}

static void append_double_starred(struct render *render, struct keyword_list *list, struct value starred)
{
    if (starred.kind != VALUE_DICT)
        render_fail(render, "** needs a dict, not a %s", value_type_name(starred));
    for (size_t i = 0; i < starred.dict->count; i++) {
        const struct dict_entry *entry = &starred.dict->entries[i];
        if (entry->key.kind != VALUE_TEXT)
            render_fail(render, "** needs strings as keys");
        render_count_steps(render, 1 + i);
        append_keyword(render, list, text_copy(render, entry->key.text), entry->value);
    }
}

struct arguments evaluate_arguments(struct render *render, const struct call_arguments *arguments,
                                    const char *extra_keyword, struct value extra_value)
{
    struct sequence *positional = value_sequence(render, SEQUENCE_LIST, arguments->positional.count).sequence;
    struct keyword_list keywords = {NULL, value_sequence(render, SEQUENCE_LIST, 0).sequence};
    for (size_t i = 0; i < arguments->positional.count; i++)
        sequence_append(render, positional, evaluate(render, arguments->positional.items[i]));
    for (size_t i = 0; i < arguments->keyword_values.count; i++)
        append_keyword(render, &keywords, arguments->keywords[i]->text,
                       evaluate(render, arguments->keyword_values.items[i]));
    if (extra_keyword != NULL)
        append_keyword(render, &keywords, extra_keyword, extra_value);
    if (arguments->star != NULL)
        append_starred(render, positional, evaluate(render, arguments->star));
    if (arguments->double_star != NULL)
        append_double_starred(render, &keywords, evaluate(render, arguments->double_star));
    return (struct arguments){positional->items, positional->count, keywords.names, keywords.values->items,
                              keywords.values->count};
}

static struct value call_method(struct render *render, const struct bound_method *bound,
                                const struct arguments *arguments)
{
    if (bound->method == NULL)
        return loop_call(render, bound->object.loop, bound->loop_method, arguments);
    struct value values[PARAMETER_LIMIT];
    arguments_bind(render, &bound->method->signature, arguments, values);
    return bound->method->call(render, bound->method, bound->object, values, arguments);
}

static struct value call_function(struct render *render, const struct function *function,
                                  const struct arguments *arguments)
{
    struct value values[PARAMETER_LIMIT];
    arguments_bind(render, &function->signature, arguments, values);
    return function->call(render, values, arguments);
}

struct value evaluate_call(struct render *render, struct value callee, const struct arguments *arguments)
{
    if (callee.kind == VALUE_METHOD)
        return call_method(render, callee.method, arguments);
    if (callee.kind == VALUE_FUNCTION)
        return call_function(render, callee.function, arguments);
    if (callee.kind == VALUE_MACRO)
        return execute_macro(render, callee.macro, arguments);
    if (callee.kind == VALUE_UNDEFINED)
        render_fail(render, "'%.200s' is undefined and cannot be called", callee.hint);
    render_fail(render, "a %s cannot be called", value_type_name(callee));
}

static struct value evaluate_call_node(struct render *render, const struct node *node)
{
    struct value callee = evaluate(render, node->call.callee);
    struct arguments arguments = evaluate_arguments(render, &node->call.arguments, NULL, value_missing());
    render->offset = node->offset;
    return evaluate_call(render, callee, &arguments);
}

struct value evaluate_filter(struct render *render, const struct node *node, struct value operand)
{
    if (node->filter.operand != NULL) /* else the operand is the body of a block */
        operand = node->filter.operand->kind == NODE_FILTER ? evaluate_filter(render, node->filter.operand, operand)
                                                            : evaluate(render, node->filter.operand);
    struct arguments arguments = evaluate_arguments(render, &node->filter.arguments, NULL, value_missing());
    render->offset = node->offset;
    if (node->filter.filter == NULL)
        render_fail(render, "unknown filter '%.60s'", node->filter.name);
    return filter_apply(render, node->filter.filter, operand, &arguments);
}

static struct value evaluate_test(struct render *render, const struct node *node)
{
    struct value operand = evaluate(render, node->test.operand);
    struct arguments arguments = evaluate_arguments(render, &node->test.arguments, NULL, value_missing());
    render->offset = node->offset;
    if (node->test.test == NULL)
        render_fail(render, "unknown test '%.60s'", node->test.name);
    return value_bool(test_apply(render, node->test.test, operand, &arguments));
}

/* ---- operators and literals ---- */

static struct value evaluate_list(struct render *render, const struct node *node)
{
    enum sequence_flavour flavour = node->kind == NODE_LIST ? SEQUENCE_LIST : SEQUENCE_TUPLE;
    struct value list = value_sequence(render, flavour, node->list.count);
    for (size_t i = 0; i < node->list.count; i++)
        sequence_append(render, list.sequence, evaluate(render, node->list.items[i]));
    return list;
}

static struct value evaluate_dict(struct render *render, const struct node *node)
{
    struct dict *dict = dict_new(render);
    for (size_t i = 0; i < node->dict.keys.count; i++) {
        struct value key = evaluate(render, node->dict.keys.items[i]);
        dict_set(render, dict, key, evaluate(render, node->dict.values.items[i]));
    }
    return value_of_dict(dict);
}

static struct value evaluate_concatenation(struct render *render, const struct node *node)
{
    struct builder builder = {0};
    for (size_t i = 0; i < node->list.count; i++)
        value_append_text(render, &builder, evaluate(render, node->list.items[i]));
    return builder_finish(render, &builder);
}

static struct value evaluate_comparisons(struct render *render, const struct node *node)
{
    struct value left = evaluate(render, node->compare.first);
    for (size_t i = 0; i < node->compare.others.count; i++) {
        struct value right = evaluate(render, node->compare.others.items[i]);
        render->offset = node->offset;
        if (!evaluate_comparison(render, node->compare.operations[i], left, right))
            return value_bool(false);
        left = right;
    }
    return value_bool(true);
}

static struct value evaluate_sign(struct render *render, const struct node *node)
{
    struct value operand = evaluate(render, node->operand);
    render->offset = node->offset;
    if (!value_is_number(operand))
        render_fail(render, "a sign before a %s", value_type_name(operand));
    struct value zero = value_with_origin(value_int(0), operand.from_template);
    if (node->kind == NODE_POSITIVE)
        return evaluate_arithmetic(render, ADD, operand, zero);
    if (operand.kind == VALUE_FLOAT)
        return value_with_origin(value_float(-operand.real), operand.from_template);
    return evaluate_arithmetic(render, SUBTRACT, zero, operand);
}

static struct value evaluate_binary(struct render *render, const struct node *node)
{
    struct value left = evaluate(render, node->binary.left);
    if (node->kind != NODE_ARITHMETIC && value_is_true(left) == (node->kind == NODE_OR))
        return left;
    struct value right = evaluate(render, node->binary.right);
    if (node->kind != NODE_ARITHMETIC)
        return right;
    render->offset = node->offset;
    return evaluate_arithmetic(render, node->binary.operation, left, right);
}

static struct value evaluate_conditional(struct render *render, const struct node *node)
{
    if (value_is_true(evaluate(render, node->conditional.condition)))
        return evaluate(render, node->conditional.yes);
    if (node->conditional.no == NULL)
        return value_undefined("the inline if without else");
    return evaluate(render, node->conditional.no);
}

static struct value evaluate_text(struct render *render, const struct node *node)
{
    struct text *text = arena_allocate(&render->arena, sizeof *text);
    *text = (struct text){node->text.bytes, node->text.marks, node->text.length, false};
    return value_of_text(text);
}

static struct value evaluate_attribute_node(struct render *render, const struct node *node)
{
    struct value object = evaluate(render, node->attribute.object);
    struct text name = {.bytes = node->attribute.name->text, .length = node->attribute.name->length};
    render->offset = node->offset;
    return evaluate_attribute(render, object, &name);
}

static struct value evaluate_node(struct render *render, const struct node *node)
{
    switch (node->kind) {
    case NODE_NONE:
        return value_none();
    case NODE_BOOL:
        return value_bool(node->boolean);
    case NODE_INT:
        return value_int(node->integer);
    case NODE_FLOAT:
        return value_float(node->real);
    case NODE_STRING:
        return evaluate_text(render, node);
    case NODE_NAME:
        return scope_find(render, node->name);
    case NODE_LIST:
    case NODE_TUPLE:
        return evaluate_list(render, node);
    case NODE_DICT:
        return evaluate_dict(render, node);
    case NODE_ATTRIBUTE:
        return evaluate_attribute_node(render, node);
    case NODE_SUBSCRIPT:
        return evaluate_subscript_node(render, node);
    case NODE_CALL:
        return evaluate_call_node(render, node);
    case NODE_FILTER:
        return evaluate_filter(render, node, value_missing());
    case NODE_TEST:
        return evaluate_test(render, node);
    case NODE_NOT:
        return value_bool(!value_is_true(evaluate(render, node->operand)));
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return evaluate_sign(render, node);
    case NODE_AND:
    case NODE_OR:
    case NODE_ARITHMETIC:
        return evaluate_binary(render, node);
    case NODE_CONCATENATE:
        return evaluate_concatenation(render, node);
    case NODE_COMPARE:
        return evaluate_comparisons(render, node);
    case NODE_CONDITIONAL:
        return evaluate_conditional(render, node);
    default:
        render_fail(render, "not an expression");
    }
}

struct value evaluate(struct render *render, const struct node *node)
{
    render_enter(render);
    render_count_steps(render, 1);
    render->offset = node->offset;
    struct value value = evaluate_node(render, node);
    render_leave(render);
    return value;
}
