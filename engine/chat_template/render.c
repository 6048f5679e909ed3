#include "engine/chat_template/render.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void render_fail(struct render *render, const char *format, ...)
{
    char message[640];
    size_t line, column;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    source_find_place(render->tree->source, render->offset, &line, &column);
    arena_fail(&render->arena, NJ_BAD_DATA, "chat template, line %zu, column %zu: %s", line, column, message);
}

void render_count_steps(struct render *render, size_t steps)
{
    render->steps += steps;
    if (render->steps > RENDER_STEP_LIMIT)
        render_fail(render, "more than %d steps", RENDER_STEP_LIMIT);
}

void render_enter(struct render *render)
{
    if (++render->depth > RENDER_DEPTH_LIMIT)
        render_fail(render, "nested too deeply");
}

void render_leave(struct render *render)
{
    render->depth--;
}

/* ---- arguments ---- */

static size_t count_parameters(const struct signature *signature)
{
    size_t count = 0;
    while (count < PARAMETER_LIMIT && signature->parameters[count] != NULL)
        count++;
    return count;
}

static void bind_keyword(struct render *render, const struct signature *signature, const char *keyword,
                         struct value value, struct value bound[PARAMETER_LIMIT])
{
    for (size_t i = 0; i < PARAMETER_LIMIT && signature->parameters[i] != NULL; i++) {
        if (strcmp(signature->parameters[i], keyword) != 0 || keyword[0] == '\0')
            continue;
        if (bound[i].kind != VALUE_MISSING)
            render_fail(render, "'%s' got the argument '%.60s' twice", signature->name, keyword);
        bound[i] = value;
        return;
    }
    render_fail(render, "'%s' has no argument '%.60s'", signature->name, keyword);
}

void arguments_bind(struct render *render, const struct signature *signature, const struct arguments *arguments,
                    struct value bound[PARAMETER_LIMIT])
{
    for (size_t i = 0; i < PARAMETER_LIMIT; i++)
        bound[i] = value_missing();
    if (signature->is_variadic)
        return;
    if (arguments->count > count_parameters(signature))
        render_fail(render, "'%s' takes at most %zu arguments, not %zu", signature->name, count_parameters(signature),
                    arguments->count);
    for (size_t i = 0; i < arguments->count; i++)
        bound[i] = arguments->positional[i];
    for (size_t i = 0; i < arguments->keyword_count; i++)
        bind_keyword(render, signature, arguments->keywords[i], arguments->keyword_values[i], bound);
    for (size_t i = 0; i < signature->required; i++)
        if (bound[i].kind == VALUE_MISSING)
            render_fail(render, "'%s' needs %zu argument(s)", signature->name, signature->required);
}

const struct text *argument_text(struct render *render, const struct signature *signature, struct value value)
{
    if (value.kind != VALUE_TEXT)
        render_fail(render, "'%s' needs a string, not a %s", signature->name, value_type_name(value));
    return value.text;
}

int64_t argument_integer(struct render *render, const struct signature *signature, struct value value)
{
    if (!value_is_integral(value))
        render_fail(render, "'%s' needs an integer, not a %s", signature->name, value_type_name(value));
    return value_to_integer(value);
}
