/* What the two halves of the parser share: expressions (parser.c) and statements (parser_statements.c). */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_PARSER_H
#define NJ_ENGINE_CHAT_TEMPLATE_PARSER_H

#include "engine/chat_template/ast.h"
#include "engine/chat_template/lexer.h"

enum { NAME_BUCKETS = 256 };

/* A macro or call block being parsed; uses of its special variables are noted in all that enclose them. */
struct open_macro {
    struct macro_definition *definition;
    struct open_macro *outer;
};

struct parser {
    struct arena *arena;
    struct syntax_tree *tree;
    struct token_list tokens;
    size_t position;
    size_t nesting; /* of the parser's own recursion */
    size_t loop_depth;
    size_t if_depth;
    struct open_macro *macros;
    struct name *buckets[NAME_BUCKETS]; /* chained by bucket_next */
    struct name **bucket_next;          /* by id */
    size_t bucket_capacity;
    struct node_list calls; /* every NODE_CALL, for the check of callees */
    /* Every NODE_FILTER and NODE_TEST but those in an if statement or a conditional expression: the names there may
     * be unknown, as in Jinja2, as long as rendering does not come to them. */
    struct node_list always_named;
};

/* Tokens. */
const struct token *parser_peek(const struct parser *parser);
const struct token *parser_peek_next(const struct parser *parser); /* the one behind it */
const struct token *parser_take(struct parser *parser);
bool parser_is_operator(const struct parser *parser, const char *text);
bool parser_is_word(const struct parser *parser, const char *text);
bool parser_accept_operator(struct parser *parser, const char *text);
bool parser_accept_word(struct parser *parser, const char *text);
void parser_expect_operator(struct parser *parser, const char *text);
void parser_expect_word(struct parser *parser, const char *text);
struct name *parser_expect_name(struct parser *parser);
bool token_has_text(const struct token *token, enum token_kind kind, const char *text);
bool token_is_word(const struct token *token, const char *text);

/* Fails with the place of a token or of an offset. */
_Noreturn void parser_fail(struct parser *parser, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
_Noreturn void parser_fail_unexpected(struct parser *parser, const char *expected);

/* The parser's recursion; fails when it is too deep. */
void parser_enter(struct parser *parser);
void parser_leave(struct parser *parser);

/* Nodes. parser_adopt keeps the parent's depth and returns the child. */
struct node *parser_new_node(struct parser *parser, enum node_kind kind, size_t offset);
struct node *parser_adopt(struct parser *parser, struct node *parent, struct node *child);
void parser_append(struct parser *parser, struct node *parent, struct node_list *list, struct node *child);
struct name *parser_intern(struct parser *parser, const char *bytes, size_t length);
void parser_set_text(struct parser *parser, struct node *node, const char *bytes, size_t length);

/* Expressions. */
struct node *parser_parse_expression(struct parser *parser);
/* `a, b` makes a tuple; without_condition: an `if` ends the expression; it also ends before `stop_word`. */
struct node *parser_parse_tuple(struct parser *parser, bool without_condition, const char *stop_word);
/* Names, tuples of names and, if allowed, namespace attributes. */
struct node *parser_parse_target(struct parser *parser, const char *stop_word, bool with_namespace);
/* A chain of filters on `operand` (NULL: the body of a block); begins at the name if `is_inline`. */
struct node *parser_parse_filters(struct parser *parser, struct node *operand, bool is_inline);

/* Refuses names of filters and tests that do not exist here. */
void parser_check_names(struct parser *parser, const struct node *node);

/* Statements up to the end of the template. */
void parser_parse_body(struct parser *parser, struct node_list *body);

#endif
