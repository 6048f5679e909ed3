/* Statements. */
#include <string.h>

#include "engine/chat_template/render.h"

/* ---- assignment ---- */

static void assign_namespace(struct render *render, const struct node *target, struct value value)
{
    struct value object = evaluate(render, target->attribute.object);
    render->offset = target->offset;
    if (object.kind != VALUE_NAMESPACE)
        render_fail(render, "only a namespace has attributes to set, not a %s", value_type_name(object));
    const struct name *name = target->attribute.name;
    dict_set(render, object.dict, value_literal(render, name->text), value);
}

void assign_target(struct render *render, const struct node *target, struct value value)
{
    if (target->kind == NODE_NAME) {
        scope_set(render, target->name, value);
        return;
    }
    if (target->kind == NODE_NAMESPACE_TARGET) {
        assign_namespace(render, target, value);
        return;
    }
    struct items items = value_iterate(render, value);
    if (items.count != target->list.count) {
        render->offset = target->offset;
        render_fail(render, "%zu values for %zu names", items.count, target->list.count);
    }
    render_enter(render);
    for (size_t i = 0; i < items.count; i++)
        assign_target(render, target->list.items[i], items.items[i]);
    render_leave(render);
}

/* ---- output ---- */

/* Runs a body in a scope of its own; what it writes is the result. */
static struct value capture(struct render *render, const struct node_list *body, enum flow *flow)
{
    struct builder builder = {0}, *out = render->out;
    struct scope *scope = arena_allocate(&render->arena, sizeof *scope);
    scope_push(render, scope);
    render->out = &builder;
    *flow = execute_list(render, body);
    render->out = out;
    render->scope = scope->parent;
    return builder_finish(render, &builder);
}

static void execute_output(struct render *render, const struct node *node)
{
    for (size_t i = 0; i < node->list.count; i++) {
        struct value value = evaluate(render, node->list.items[i]);
        render->offset = node->list.items[i]->offset;
        value_append_text(render, render->out, value);
    }
}

/* ---- if, for ---- */

static enum flow execute_if(struct render *render, const struct node *node)
{
    for (size_t i = 0; i < node->branch.count; i++) {
        const struct if_branch *branch = &node->branch.branches[i];
        if (branch->condition == NULL || value_is_true(evaluate(render, branch->condition)))
            return execute_list(render, &branch->body);
    }
    return FLOW_NEXT;
}

static enum flow execute_body(struct render *render, const struct node_list *body)
{
    struct scope *scope = arena_allocate(&render->arena, sizeof *scope);
    scope_push(render, scope);
    enum flow flow = execute_list(render, body);
    render->scope = scope->parent;
    return flow;
}

static enum flow execute_for(struct render *render, const struct node *node)
{
    struct loop *loop = arena_allocate(&render->arena, sizeof *loop);
    loop->node = node;
    loop->outer = render->scope;
    struct value iterable = evaluate(render, node->loop.iterable);
    render->offset = node->loop.iterable->offset;
    loop->source = value_iterate(render, iterable);
    loop->taken = value_sequence(render, SEQUENCE_LIST, 0).sequence;
    loop->changed_to = value_missing();
    struct value loop_value = {.kind = VALUE_LOOP, .from_template = true, .loop = loop};
    struct scope *scope = NULL;
    enum flow flow = FLOW_NEXT;
    bool has_finished = false; /* an iteration that reached its end: as Jinja2, `else` looks at that */
    while (flow != FLOW_BREAK && loop_take(render, loop, loop->position + 1)) {
        loop->position++;
        if (scope == NULL || scope->is_captured)
            scope = arena_allocate(&render->arena, sizeof *scope);
        scope->count = 0;
        scope_push(render, scope);
        if (render->loop_name != NULL)
            scope_set(render, render->loop_name, loop_value);
        assign_target(render, node->loop.target, loop->taken->items[loop->position - 1]);
        flow = execute_list(render, &node->loop.body);
        has_finished |= flow == FLOW_NEXT;
        render->scope = loop->outer;
    }
    return has_finished ? FLOW_NEXT : execute_body(render, &node->loop.otherwise);
}

/* ---- macros ---- */

static struct value make_macro(struct render *render, const struct macro_definition *definition)
{
    struct macro *macro = arena_allocate(&render->arena, sizeof *macro);
    *macro = (struct macro){definition, render->scope};
    scope_capture(render->scope);
    return (struct value){.kind = VALUE_MACRO, .from_template = true, .macro = macro};
}

static const char *macro_name(const struct macro *macro)
{
    return macro->definition->name == NULL ? "caller" : macro->definition->name->text;
}

static struct value find_keyword(const struct arguments *arguments, const char *name)
{
    for (size_t i = 0; i < arguments->keyword_count; i++)
        if (strcmp(arguments->keywords[i], name) == 0)
            return arguments->keyword_values[i];
    return value_missing();
}

/* Sets the parameters in the macro's own scope, defaults from left to right. */
static void bind_parameters(struct render *render, const struct macro *macro, const struct arguments *arguments)
{
    const struct node_list *parameters = &macro->definition->parameters;
    const struct node_list *defaults = &macro->definition->defaults;
    size_t without_default = parameters->count - defaults->count;
    for (size_t i = 0; i < parameters->count; i++) {
        const struct name *name = parameters->items[i]->name;
        struct value keyword = find_keyword(arguments, name->text);
        if (i < arguments->count && keyword.kind != VALUE_MISSING)
            render_fail(render, "macro '%.60s' got the argument '%.60s' twice", macro_name(macro), name->text);
        struct value value = i < arguments->count ? arguments->positional[i] : keyword;
        if (value.kind == VALUE_MISSING && i >= without_default)
            value = evaluate(render, defaults->items[i - without_default]);
        if (value.kind == VALUE_MISSING)
            value = value_undefined(name->text);
        scope_set(render, name, value);
    }
}

static bool is_parameter(const struct macro_definition *definition, const char *name)
{
    for (size_t i = 0; i < definition->parameters.count; i++)
        if (strcmp(definition->parameters.items[i]->name->text, name) == 0)
            return true;
    return false;
}

/* caller, kwargs and varargs, for the macros that use them. */
static void bind_specials(struct render *render, const struct macro *macro, const struct arguments *arguments)
{
    const struct macro_definition *definition = macro->definition;
    bool takes_caller = definition->uses_caller && !is_parameter(definition, "caller");
    struct dict *others = dict_new(render);
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        const char *keyword = arguments->keywords[i];
        if (is_parameter(definition, keyword) || (takes_caller && strcmp(keyword, "caller") == 0))
            continue;
        if (!definition->uses_kwargs)
            render_fail(render, "macro '%.60s' takes no argument '%.60s'", macro_name(macro), keyword);
        dict_set(render, others, value_literal(render, keyword), arguments->keyword_values[i]);
    }
    size_t count = definition->parameters.count;
    size_t more = arguments->count > count ? arguments->count - count : 0;
    if (more > 0 && !definition->uses_varargs)
        render_fail(render, "macro '%.60s' takes at most %zu arguments", macro_name(macro), count);
    struct value caller = takes_caller ? find_keyword(arguments, "caller") : value_missing();
    if (takes_caller)
        scope_set(render, render->caller_name, caller.kind == VALUE_MISSING ? value_undefined("caller") : caller);
    if (definition->uses_kwargs)
        scope_set(render, render->kwargs_name, value_of_dict(others));
    if (definition->uses_varargs)
        scope_set(render, render->varargs_name,
                  value_list_of(render, SEQUENCE_TUPLE, arguments->positional + (more > 0 ? count : 0), more));
}

struct value execute_macro(struct render *render, const struct macro *macro, const struct arguments *arguments)
{
    render_enter(render);
    struct scope *outer = render->scope;
    struct scope *scope = arena_allocate(&render->arena, sizeof *scope);
    render->scope = macro->scope;
    scope_push(render, scope);
    bind_specials(render, macro, arguments);
    bind_parameters(render, macro, arguments);
    enum flow flow;
    struct value text = capture(render, &macro->definition->body, &flow);
    render->scope = outer;
    render_leave(render);
    return text;
}

static void execute_call_block(struct render *render, const struct node *node)
{
    const struct node *call = node->call_block.call;
    struct value callee = evaluate(render, call->call.callee);
    struct value caller = make_macro(render, &node->call_block.body);
    struct arguments arguments = evaluate_arguments(render, &call->call.arguments, "caller", caller);
    render->offset = node->offset;
    value_append_text(render, render->out, evaluate_call(render, callee, &arguments));
}

/* ---- set, filter, with ---- */

static enum flow execute_set_block(struct render *render, const struct node *node)
{
    enum flow flow;
    struct value text = capture(render, &node->block.body, &flow);
    if (flow != FLOW_NEXT)
        return flow; /* a break inside: what was written is lost */
    if (node->block.filter != NULL)
        text = evaluate_filter(render, node->block.filter, text);
    if (node->kind == NODE_SET_BLOCK)
        assign_target(render, node->block.target, text);
    else
        value_append_text(render, render->out, text);
    return FLOW_NEXT;
}

static enum flow execute_with(struct render *render, const struct node *node)
{
    struct scope *scope = arena_allocate(&render->arena, sizeof *scope);
    struct value values = value_sequence(render, SEQUENCE_LIST, node->with.values.count);
    for (size_t i = 0; i < node->with.values.count; i++)
        sequence_append(render, values.sequence, evaluate(render, node->with.values.items[i]));
    scope_push(render, scope);
    for (size_t i = 0; i < node->with.targets.count; i++)
        assign_target(render, node->with.targets.items[i], values.sequence->items[i]);
    enum flow flow = execute_list(render, &node->with.body);
    render->scope = scope->parent;
    return flow;
}

static enum flow execute(struct render *render, const struct node *node)
{
    switch (node->kind) {
    case NODE_TEXT:
        builder_append(render, render->out, node->text.bytes, node->text.marks, node->text.length);
        return FLOW_NEXT;
    case NODE_OUTPUT:
        execute_output(render, node);
        return FLOW_NEXT;
    case NODE_IF:
        return execute_if(render, node);
    case NODE_FOR:
        return execute_for(render, node);
    case NODE_BREAK:
        return FLOW_BREAK;
    case NODE_CONTINUE:
        return FLOW_CONTINUE;
    case NODE_SET:
        assign_target(render, node->set.target, evaluate(render, node->set.value));
        return FLOW_NEXT;
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK:
        return execute_set_block(render, node);
    case NODE_MACRO:
        scope_set(render, node->macro.name, make_macro(render, &node->macro));
        return FLOW_NEXT;
    case NODE_CALL_BLOCK:
        execute_call_block(render, node);
        return FLOW_NEXT;
    case NODE_WITH:
        return execute_with(render, node);
    case NODE_GENERATION:
        return execute_body(render, &node->list);
    default:
        render_fail(render, "not a statement");
    }
}

enum flow execute_list(struct render *render, const struct node_list *list)
{
    enum flow flow = FLOW_NEXT;
    render_enter(render);
    for (size_t i = 0; i < list->count && flow == FLOW_NEXT; i++) {
        render_count_steps(render, 1);
        render->offset = list->items[i]->offset;
        flow = execute(render, list->items[i]);
    }
    render_leave(render);
    return flow;
}
