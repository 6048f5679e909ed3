/* for loops: taking items, and the attributes of `loop`. */
#include <string.h>

#include "engine/chat_template/methods.h"
#include "engine/chat_template/render.h"

/* Does the loop's own condition accept the item? */
static bool accepts(struct render *render, struct loop *loop, struct value item)
{
    if (loop->node->loop.condition == NULL)
        return true;
    struct scope *current = render->scope;
    struct scope *scope = arena_allocate(&render->arena, sizeof *scope);
    render->scope = loop->outer;
    scope_push(render, scope);
    assign_target(render, loop->node->loop.target, item);
    bool accepted = value_is_true(evaluate(render, loop->node->loop.condition));
    render->scope = current;
    return accepted;
}

bool loop_take(struct render *render, struct loop *loop, size_t count)
{
    while (loop->taken->count < count && loop->source_used < loop->source.count) {
        struct value item = loop->source.items[loop->source_used++];
        render_count_steps(render, 1);
        if (accepts(render, loop, item))
            sequence_append(render, loop->taken, item);
    }
    return loop->taken->count >= count;
}

static struct value neighbour(struct render *render, struct loop *loop, size_t position, const char *hint)
{
    if (position == 0 || !loop_take(render, loop, position))
        return value_undefined(hint);
    return loop->taken->items[position - 1];
}

static struct value length_of(struct render *render, struct loop *loop)
{
    loop_take(render, loop, SIZE_MAX);
    return value_int((int64_t)loop->taken->count);
}

struct value loop_attribute(struct render *render, struct loop *loop, const struct text *name)
{
    int64_t position = (int64_t)loop->position;
    if (text_is(name, "index"))
        return value_int(position);
    if (text_is(name, "index0"))
        return value_int(position - 1);
    if (text_is(name, "first"))
        return value_bool(position == 1);
    if (text_is(name, "last"))
        return value_bool(!loop_take(render, loop, loop->position + 1));
    if (text_is(name, "length"))
        return length_of(render, loop);
    if (text_is(name, "revindex"))
        return value_int(length_of(render, loop).integer - position + 1);
    if (text_is(name, "revindex0"))
        return value_int(length_of(render, loop).integer - position);
    if (text_is(name, "depth"))
        return value_int(1); /* recursive loops are refused */
    if (text_is(name, "depth0"))
        return value_int(0);
    if (text_is(name, "previtem"))
        return neighbour(render, loop, loop->position - 1, "loop.previtem");
    if (text_is(name, "nextitem"))
        return neighbour(render, loop, loop->position + 1, "loop.nextitem");
    if (!text_is(name, "cycle") && !text_is(name, "changed"))
        return value_undefined(text_copy(render, name));
    struct bound_method *method = arena_allocate(&render->arena, sizeof *method);
    method->object = (struct value){.kind = VALUE_LOOP, .from_template = true, .loop = loop};
    method->loop_method = text_copy(render, name);
    return (struct value){.kind = VALUE_METHOD, .from_template = true, .method = method};
}

struct value loop_call(struct render *render, struct loop *loop, const char *method, const struct arguments *arguments)
{
    if (arguments->keyword_count > 0)
        render_fail(render, "loop.%s takes no keyword arguments", method);
    if (strcmp(method, "cycle") == 0) {
        if (arguments->count == 0)
            render_fail(render, "loop.cycle needs at least one item");
        return arguments->positional[(loop->position - 1) % arguments->count];
    }
    struct value now = value_list_of(render, SEQUENCE_TUPLE, arguments->positional, arguments->count);
    bool changed = loop->changed_to.kind == VALUE_MISSING || !value_equals(render, loop->changed_to, now);
    loop->changed_to = now;
    return value_bool(changed);
}
