#include "engine/chat_template/render.h"

void scope_push(struct render *render, struct scope *scope)
{
    scope->parent = render->scope;
    render->scope = scope;
}

static struct variable *find_here(const struct scope *scope, const struct name *name)
{
    for (size_t i = 0; i < scope->count; i++)
        if (scope->variables[i].name == name)
            return &scope->variables[i];
    return NULL;
}

void scope_set(struct render *render, const struct name *name, struct value value)
{
    struct scope *scope = render->scope;
    if (scope->parent == NULL) { /* the template's own level */
        render->globals[name->id] = value;
        return;
    }
    struct variable *variable = find_here(scope, name);
    if (variable != NULL) {
        variable->value = value;
        return;
    }
    if (scope->count == scope->capacity) {
        size_t capacity = scope->capacity == 0 ? 4 : scope->capacity * 2;
        scope->variables =
            arena_grow_array(&render->arena, scope->variables, scope->count, capacity, sizeof scope->variables[0]);
        scope->capacity = capacity;
    }
    scope->variables[scope->count++] = (struct variable){name, value};
}

struct value scope_find(struct render *render, const struct name *name)
{
    for (const struct scope *scope = render->scope; scope->parent != NULL; scope = scope->parent) {
        const struct variable *variable = find_here(scope, name);
        if (variable != NULL)
            return variable->value;
    }
    struct value global = render->globals[name->id];
    return global.kind == VALUE_MISSING ? value_undefined(name->text) : global;
}

void scope_capture(struct scope *scope)
{
    for (; scope != NULL; scope = scope->parent)
        scope->is_captured = true;
}
