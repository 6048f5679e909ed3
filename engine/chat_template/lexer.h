/* Splits a template into text and tokens, applying whitespace control (-, +, trim_blocks, lstrip_blocks). */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_LEXER_H
#define NJ_ENGINE_CHAT_TEMPLATE_LEXER_H

#include <stdint.h>

#include "engine/chat_template/arena.h"

enum token_kind {
    TOKEN_END,
    TOKEN_TEXT,
    TOKEN_OUTPUT_BEGIN,
    TOKEN_OUTPUT_END,
    TOKEN_TAG_BEGIN,
    TOKEN_TAG_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

struct token {
    enum token_kind kind;
    uint32_t offset;   /* in the normalised source */
    const char *bytes; /* text, name, operator; a string's value without quotes and escapes */
    size_t length;
    int64_t integer;
    double real;
};

struct token_list {
    struct token *items; /* ends with TOKEN_END */
    size_t count;
    const char *source; /* line ends normalised to \n, one trailing line end removed */
    size_t source_length;
};

/* Fails through the arena with line and column. */
void lexer_split(struct arena *arena, const char *source, size_t length, struct token_list *out);

#endif
