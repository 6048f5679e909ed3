/* Chat templates: an interpreter of the template language (Jinja2 as transformers sets it up: trim_blocks,
 * lstrip_blocks, loop controls, raise_exception, strftime_now, tojson). A construct it does not know is
 * refused when the template is compiled, by name, line and column. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H
#define NJ_ENGINE_CHAT_TEMPLATE_CHAT_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

struct nj_chat_template;

/* Compiles `source` (UTF-8). NJ_BAD_DATA on a syntax error or an unknown construct. */
struct nj_chat_template *chat_template_compile(const char *source, size_t length, struct nj_error *error);
void chat_template_destroy(struct nj_chat_template *chat);

/* What a rendering sees. `tools` and `documents` are none unless `variables` has them, as in transformers. */
struct nj_chat_input {
    json_t *messages;                  /* array of objects, borrowed */
    json_t *variables;                 /* object of further variables (chat_template_kwargs), borrowed; may be NULL */
    bool add_generation_prompt;        /* true for generation */
    const char *bos_token, *eos_token; /* text; "" if none */
    int64_t now;                       /* seconds since the epoch, for strftime_now (UTC) */
};

/* A rendered prompt. is_template[i] is 1 where byte i was written by the template (its literal text and
 * string constants, bos_token, eos_token), 0 where it came from messages or variables. Marks follow bytes
 * through every operation. */
struct nj_rendered {
    char *text; /* NUL-terminated beyond length */
    uint8_t *is_template;
    size_t length;
};
void rendered_free(struct nj_rendered *rendered);

/* Renders. NJ_BAD_DATA when the template raises an exception, meets a type error, or exceeds a limit
 * (output of 64 MiB, ten million steps). Safe to call from several threads. */
int chat_template_render(const struct nj_chat_template *chat, const struct nj_chat_input *input,
                         struct nj_rendered *out, struct nj_error *error);

#endif
