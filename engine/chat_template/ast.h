/* The syntax tree of a template. Nodes live in the arena of the compiled template and are never changed
 * after compilation. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_AST_H
#define NJ_ENGINE_CHAT_TEMPLATE_AST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/chat_template/arena.h"

/* Deepest nesting of the tree; bounds the recursion of parser and evaluator. */
enum { TREE_DEPTH_LIMIT = 200 };

/* A variable's name, interned: the same text is the same object, numbered from 0. */
struct name {
    const char *text;
    size_t length;
    size_t id;
    struct name *next;
    uint32_t first_load_offset; /* of its first use as a variable */
    bool is_loaded;
    bool is_assigned;  /* by set, for, macro, with, or as a parameter */
    bool is_tested;    /* some `is defined` asks for it */
    bool is_attribute; /* of a namespace, a dict literal or a keyword argument: may hold a macro */
};

enum node_kind {
    /* expressions */
    NODE_NONE,
    NODE_BOOL,
    NODE_INT,
    NODE_FLOAT,
    NODE_STRING,
    NODE_NAME,
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,
    NODE_ATTRIBUTE,
    NODE_SUBSCRIPT,
    NODE_SLICE,
    NODE_CALL,
    NODE_FILTER,
    NODE_TEST,
    NODE_NOT,
    NODE_NEGATIVE,
    NODE_POSITIVE,
    NODE_AND,
    NODE_OR,
    NODE_ARITHMETIC,
    NODE_CONCATENATE,
    NODE_COMPARE,
    NODE_CONDITIONAL,
    NODE_NAMESPACE_TARGET,
    /* statements */
    NODE_TEXT,
    NODE_OUTPUT,
    NODE_IF,
    NODE_FOR,
    NODE_BREAK,
    NODE_CONTINUE,
    NODE_SET,
    NODE_SET_BLOCK,
    NODE_MACRO,
    NODE_CALL_BLOCK,
    NODE_FILTER_BLOCK,
    NODE_WITH,
    NODE_GENERATION,
};

enum arithmetic { ADD, SUBTRACT, MULTIPLY, DIVIDE, FLOOR_DIVIDE, MODULO, POWER };
enum comparison { EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL, IN, NOT_IN };

struct node_list {
    struct node **items;
    size_t count, capacity;
};

/* foo(a, key=b, *c, **d) */
struct call_arguments {
    struct node_list positional;
    struct node_list keyword_values;
    struct name **keywords; /* as many as keyword_values */
    struct node *star, *double_star;
};

struct if_branch {
    struct node *condition; /* NULL: else */
    struct node_list body;
};

struct macro_definition {
    struct name *name; /* NULL: the body of a call block */
    struct node_list parameters;
    struct node_list defaults; /* of the last parameters */
    struct node_list body;
    bool uses_caller, uses_kwargs, uses_varargs;
};

/* Filters, tests: the table entry they were resolved to when compiled. */
struct filter;
struct test;

struct node {
    enum node_kind kind;
    uint16_t depth;  /* height of the tree below, from 1 */
    uint32_t offset; /* in the source: gives line and column */
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct {
            const char *bytes;
            const uint8_t *marks; /* all 1 */
            size_t length;
        } text; /* NODE_STRING, NODE_TEXT */
        struct name *name;
        struct node_list list; /* NODE_LIST, NODE_TUPLE, NODE_CONCATENATE, NODE_OUTPUT, NODE_GENERATION */
        struct {
            struct node_list keys, values;
        } dict;
        struct {
            struct node *object;
            struct name *name;
        } attribute; /* NODE_ATTRIBUTE; NODE_NAMESPACE_TARGET: object is a NODE_NAME */
        struct {
            struct node *object, *index;
        } subscript;
        struct {
            struct node *start, *stop, *step; /* NULL where left out */
        } slice;
        struct {
            struct node *callee;
            struct call_arguments arguments;
        } call;
        struct {
            struct node *operand; /* NULL: the body of a block */
            const char *name;
            const struct filter *filter; /* NULL: there is none of this name; fails when it is reached */
            struct call_arguments arguments;
        } filter;
        struct {
            struct node *operand;
            const char *name;
            const struct test *test; /* NULL: as above */
            struct call_arguments arguments;
        } test;
        struct node *operand; /* NODE_NOT, NODE_NEGATIVE, NODE_POSITIVE */
        struct {
            enum arithmetic operation;
            struct node *left, *right;
        } binary; /* also NODE_AND, NODE_OR */
        struct {
            struct node *first;
            enum comparison *operations;
            struct node_list others;
        } compare;
        struct {
            struct node *condition, *yes, *no; /* no: NULL without else */
        } conditional;
        struct {
            struct if_branch *branches;
            size_t count;
        } branch;
        struct {
            struct node *target, *iterable, *condition; /* condition: NULL or the `if` of the loop */
            struct node_list body, otherwise;
        } loop;
        struct {
            struct node *target, *value;
        } set;
        struct {
            struct node *target, *filter; /* filter: NULL or a chain ending in a NULL operand */
            struct node_list body;
        } block; /* NODE_SET_BLOCK; NODE_FILTER_BLOCK without target */
        struct macro_definition macro;
        struct {
            struct node *call;
            struct macro_definition body;
        } call_block;
        struct {
            struct node_list targets, values, body;
        } with;
    };
};

struct syntax_tree {
    struct node_list body;
    struct name *names; /* linked, newest first */
    size_t name_count;
    const char *source; /* normalised */
    size_t source_length;
};

/* Parses `source` into `tree`, all of it in the arena; fails through it. */
void parser_parse(struct arena *arena, const char *source, size_t length, struct syntax_tree *tree);

/* Line and column (in characters) of a place in the source, both from 1. */
void source_find_place(const char *source, size_t offset, size_t *line, size_t *column);

#endif
