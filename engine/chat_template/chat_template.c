#include "engine/chat_template/chat_template.h"

#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/functions.h"
#include "engine/chat_template/render.h"

#define COMPILE_MEMORY_LIMIT_BYTES ((size_t)256 << 20)

struct nj_chat_template {
    struct arena arena; /* holds the tree */
    struct syntax_tree tree;
};

struct compilation {
    struct nj_chat_template *chat;
    const char *source;
    size_t length;
};

static void compile_all(void *context)
{
    struct compilation *compilation = context;
    parser_parse(&compilation->chat->arena, compilation->source, compilation->length, &compilation->chat->tree);
}

struct nj_chat_template *chat_template_compile(const char *source, size_t length, struct nj_error *error)
{
    struct nj_chat_template *chat = calloc(1, sizeof *chat);
    if (chat == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory for the chat template");
        return NULL;
    }
    arena_init(&chat->arena, COMPILE_MEMORY_LIMIT_BYTES, error);
    struct compilation compilation = {chat, source, length};
    if (!arena_run(&chat->arena, compile_all, &compilation)) {
        chat_template_destroy(chat);
        return NULL;
    }
    chat->arena.error = NULL;
    return chat;
}

void chat_template_destroy(struct nj_chat_template *chat)
{
    if (chat == NULL)
        return;
    arena_free(&chat->arena);
    free(chat);
}

/* ---- what a template sees ---- */

static bool name_is(const struct name *name, const char *text)
{
    return strcmp(name->text, text) == 0;
}

static struct value token_text(struct render *render, const char *text)
{
    return value_literal(render, text == NULL ? "" : text);
}

/* A global variable. The job's own variables may replace the tokens, but not the messages. */
static struct value find_global(struct render *render, const struct name *name)
{
    const struct nj_chat_input *input = render->input;
    if (name_is(name, "messages"))
        return value_from_json(render, input->messages);
    if (name_is(name, "add_generation_prompt"))
        return value_bool(input->add_generation_prompt);
    const json_t *variable = input->variables == NULL ? NULL : json_object_get(input->variables, name->text);
    if (variable != NULL)
        return value_from_json(render, variable);
    if (name_is(name, "bos_token"))
        return token_text(render, input->bos_token);
    if (name_is(name, "eos_token"))
        return token_text(render, input->eos_token);
    if (name_is(name, "tools") || name_is(name, "documents"))
        return value_none(); /* transformers always passes them */
    return function_find(name->text, name->length);
}

static void prepare_names(struct render *render)
{
    render->globals = arena_allocate_array(&render->arena, render->tree->name_count, sizeof render->globals[0]);
    for (const struct name *name = render->tree->names; name != NULL; name = name->next) {
        render->globals[name->id] = name->is_loaded ? find_global(render, name) : value_missing();
        if (name_is(name, "loop"))
            render->loop_name = name->is_loaded ? name : NULL;
        else if (name_is(name, "caller"))
            render->caller_name = name;
        else if (name_is(name, "kwargs"))
            render->kwargs_name = name;
        else if (name_is(name, "varargs"))
            render->varargs_name = name;
    }
}

/* ---- rendering ---- */

static void copy_out(struct render *render, const struct builder *builder, struct nj_rendered *out)
{
    out->text = calloc(builder->length + 1, 1);
    out->is_template = calloc(builder->length + 1, 1);
    if (out->text == NULL || out->is_template == NULL) {
        rendered_free(out);
        arena_fail(&render->arena, NJ_INTERNAL, "out of memory for a rendered prompt");
    }
    if (builder->length > 0) {
        memcpy(out->text, builder->bytes, builder->length);
        memcpy(out->is_template, builder->marks, builder->length);
    }
    out->length = builder->length;
}

static void render_all(void *context)
{
    struct render *render = context;
    struct builder builder = {0};
    struct scope root = {0};
    render->out = &builder;
    render->scope = &root;
    prepare_names(render);
    execute_list(render, &render->tree->body);
    copy_out(render, &builder, render->rendered);
}

int chat_template_render(const struct nj_chat_template *chat, const struct nj_chat_input *input,
                         struct nj_rendered *out, struct nj_error *error)
{
    memset(out, 0, sizeof *out);
    struct render render = {.tree = &chat->tree, .input = input, .rendered = out};
    arena_init(&render.arena, RENDER_MEMORY_LIMIT_BYTES, error);
    bool succeeded = arena_run(&render.arena, render_all, &render);
    arena_free(&render.arena);
    return succeeded ? 0 : -1;
}

void rendered_free(struct nj_rendered *rendered)
{
    free(rendered->text);
    free(rendered->is_template);
    memset(rendered, 0, sizeof *rendered);
}
