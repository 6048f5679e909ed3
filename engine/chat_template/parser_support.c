/* Tokens and nodes: what both halves of the parser build on. */
#include "engine/chat_template/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- tokens ---- */

const struct token *parser_peek(const struct parser *parser)
{
    return &parser->tokens.items[parser->position];
}

const struct token *parser_peek_next(const struct parser *parser)
{
    size_t next = parser->position + 1;
    return &parser->tokens.items[next < parser->tokens.count ? next : parser->position];
}

const struct token *parser_take(struct parser *parser)
{
    const struct token *token = parser_peek(parser);
    if (token->kind != TOKEN_END)
        parser->position++;
    return token;
}

bool token_has_text(const struct token *token, enum token_kind kind, const char *text)
{
    return token->kind == kind && token->length == strlen(text) && memcmp(token->bytes, text, token->length) == 0;
}

bool token_is_word(const struct token *token, const char *text)
{
    return token_has_text(token, TOKEN_NAME, text);
}

bool parser_is_operator(const struct parser *parser, const char *text)
{
    return token_has_text(parser_peek(parser), TOKEN_OPERATOR, text);
}

bool parser_is_word(const struct parser *parser, const char *text)
{
    return token_is_word(parser_peek(parser), text);
}

bool parser_accept_operator(struct parser *parser, const char *text)
{
    bool matches = parser_is_operator(parser, text);
    parser->position += matches;
    return matches;
}

bool parser_accept_word(struct parser *parser, const char *text)
{
    bool matches = parser_is_word(parser, text);
    parser->position += matches;
    return matches;
}

void parser_expect_operator(struct parser *parser, const char *text)
{
    if (!parser_accept_operator(parser, text))
        parser_fail_unexpected(parser, text);
}

void parser_expect_word(struct parser *parser, const char *text)
{
    if (!parser_accept_word(parser, text))
        parser_fail_unexpected(parser, text);
}

struct name *parser_expect_name(struct parser *parser)
{
    const struct token *token = parser_peek(parser);
    if (token->kind != TOKEN_NAME)
        parser_fail_unexpected(parser, "a name");
    parser_take(parser);
    return parser_intern(parser, token->bytes, token->length);
}

void parser_fail(struct parser *parser, size_t offset, const char *format, ...)
{
    char message[512];
    size_t line, column;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    source_find_place(parser->tokens.source, offset, &line, &column);
    arena_fail(parser->arena, NJ_BAD_DATA, "chat template, line %zu, column %zu: %s", line, column, message);
}

void parser_fail_unexpected(struct parser *parser, const char *expected)
{
    static const char *const names[] = {
        [TOKEN_END] = "the end of the template",
        [TOKEN_TEXT] = "text",
        [TOKEN_OUTPUT_BEGIN] = "{{",
        [TOKEN_OUTPUT_END] = "}}",
        [TOKEN_TAG_BEGIN] = "{%",
        [TOKEN_TAG_END] = "%}",
        [TOKEN_STRING] = "a string",
    };
    const struct token *token = parser_peek(parser);
    const char *found = token->kind < TOKEN_NAME || token->kind == TOKEN_STRING ? names[token->kind] : NULL;
    int shown = token->length > 60 ? 60 : (int)token->length;
    if (found != NULL)
        parser_fail(parser, token->offset, "expected %s, found %s", expected, found);
    parser_fail(parser, token->offset, "expected %s, found '%.*s'", expected, shown, token->bytes);
}

void parser_enter(struct parser *parser)
{
    if (++parser->nesting > 2 * TREE_DEPTH_LIMIT) /* an expression in brackets counts twice */
        parser_fail(parser, parser_peek(parser)->offset, "nested too deeply");
}

void parser_leave(struct parser *parser)
{
    parser->nesting--;
}

/* ---- nodes ---- */

struct node *parser_new_node(struct parser *parser, enum node_kind kind, size_t offset)
{
    struct node *node = arena_allocate(parser->arena, sizeof *node);
    node->kind = kind;
    node->offset = (uint32_t)offset;
    node->depth = 1;
    return node;
}

struct node *parser_adopt(struct parser *parser, struct node *parent, struct node *child)
{
    if (child == NULL)
        return NULL;
    if (child->depth >= TREE_DEPTH_LIMIT)
        parser_fail(parser, child->offset, "nested too deeply");
    if (parent->depth <= child->depth)
        parent->depth = (uint16_t)(child->depth + 1);
    return child;
}

void parser_append(struct parser *parser, struct node *parent, struct node_list *list, struct node *child)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 4 : list->capacity * 2;
        list->items = arena_grow_array(parser->arena, list->items, list->count, capacity, sizeof list->items[0]);
        list->capacity = capacity;
    }
    list->items[list->count++] = parent == NULL ? child : parser_adopt(parser, parent, child);
}

struct name *parser_intern(struct parser *parser, const char *bytes, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * 16777619u;
    struct name **bucket = &parser->buckets[hash % NAME_BUCKETS];
    for (struct name *name = *bucket; name != NULL; name = parser->bucket_next[name->id])
        if (name->length == length && memcmp(name->text, bytes, length) == 0)
            return name;
    struct syntax_tree *tree = parser->tree;
    if (tree->name_count == parser->bucket_capacity) {
        size_t capacity = tree->name_count == 0 ? 64 : tree->name_count * 2;
        parser->bucket_next = arena_grow_array(parser->arena, parser->bucket_next, tree->name_count, capacity,
                                               sizeof parser->bucket_next[0]);
        parser->bucket_capacity = capacity;
    }
    struct name *name = arena_allocate(parser->arena, sizeof *name);
    char *text = arena_allocate(parser->arena, length + 1);
    memcpy(text, bytes, length);
    *name = (struct name){.text = text, .length = length, .id = tree->name_count++, .next = tree->names};
    tree->names = name;
    parser->bucket_next[name->id] = *bucket;
    *bucket = name;
    return name;
}

void parser_set_text(struct parser *parser, struct node *node, const char *bytes, size_t length)
{
    uint8_t *marks = arena_allocate(parser->arena, length + 1);
    memset(marks, 1, length);
    node->text.bytes = bytes;
    node->text.length = length;
    node->text.marks = marks;
}
