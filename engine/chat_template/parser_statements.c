/* Statements, and the checks of the whole template. */
#include "engine/chat_template/parser.h"

#include <string.h>

#include "engine/chat_template/functions.h"
#include "engine/chat_template/methods.h"

/* The tags that may end the body being parsed, NULL-terminated. */
typedef const char *const end_words[4];

/* Parses statements until a tag whose word is among `ends` (its word is left as the next token), or, without
 * `ends`, to the end of the template. */
static void parse_statements(struct parser *parser, struct node *owner, struct node_list *body, end_words *ends,
                             size_t opened_at);

static void expect_tag_end(struct parser *parser)
{
    if (parser_peek(parser)->kind != TOKEN_TAG_END)
        parser_fail_unexpected(parser, "%}");
    parser_take(parser);
}

/* A body of statements behind the current tag's end. */
static void parse_block(struct parser *parser, struct node *owner, struct node_list *body, end_words *ends)
{
    parser_accept_operator(parser, ":"); /* Python's habit, allowed */
    expect_tag_end(parser);
    parse_statements(parser, owner, body, ends, owner->offset);
}

static void parse_block_to(struct parser *parser, struct node *owner, struct node_list *body, const char *end)
{
    end_words ends = {end, NULL};
    parse_block(parser, owner, body, &ends);
    parser_take(parser);
}

static struct node *parse_if(struct parser *parser, size_t offset)
{
    static end_words ends = {"elif", "else", "endif", NULL}, last = {"endif", NULL};
    struct node *node = parser_new_node(parser, NODE_IF, offset);
    size_t capacity = 0;
    bool has_condition = true;
    parser->if_depth++;
    for (;;) {
        if (node->branch.count == capacity) {
            node->branch.branches = arena_grow_array(parser->arena, node->branch.branches, node->branch.count,
                                                     capacity * 2 + 2, sizeof node->branch.branches[0]);
            capacity = capacity * 2 + 2;
        }
        struct if_branch *branch = &node->branch.branches[node->branch.count++];
        if (has_condition)
            branch->condition = parser_adopt(parser, node, parser_parse_tuple(parser, true, NULL));
        parse_block(parser, node, &branch->body, has_condition ? &ends : &last);
        const struct token *end = parser_take(parser);
        if (token_is_word(end, "endif"))
            break;
        has_condition = token_is_word(end, "elif");
    }
    parser->if_depth--;
    return node;
}

/* The body could not reach its own `loop`. */
static void refuse_loop_target(struct parser *parser, const struct node *target)
{
    if (target->kind == NODE_NAME && strcmp(target->name->text, "loop") == 0)
        parser_fail(parser, target->offset, "cannot assign to 'loop' in a for loop");
    for (size_t i = 0; target->kind == NODE_TUPLE && i < target->list.count; i++)
        refuse_loop_target(parser, target->list.items[i]);
}

static struct node *parse_for(struct parser *parser, size_t offset)
{
    static end_words ends = {"endfor", "else", NULL};
    struct node *node = parser_new_node(parser, NODE_FOR, offset);
    node->loop.target = parser_adopt(parser, node, parser_parse_target(parser, "in", false));
    refuse_loop_target(parser, node->loop.target);
    parser_expect_word(parser, "in");
    node->loop.iterable = parser_adopt(parser, node, parser_parse_tuple(parser, true, "recursive"));
    if (parser_accept_word(parser, "if"))
        node->loop.condition = parser_adopt(parser, node, parser_parse_expression(parser));
    if (parser_is_word(parser, "recursive"))
        parser_fail(parser, parser_peek(parser)->offset, "'recursive' loops are not supported");
    parser->loop_depth++;
    parse_block(parser, node, &node->loop.body, &ends);
    parser->loop_depth--;
    if (token_is_word(parser_take(parser), "else"))
        parse_block_to(parser, node, &node->loop.otherwise, "endfor");
    return node;
}

static struct node *parse_set(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_SET, offset);
    struct node *target = parser_adopt(parser, node, parser_parse_target(parser, NULL, true));
    if (parser_accept_operator(parser, "=")) {
        node->set.target = target;
        node->set.value = parser_adopt(parser, node, parser_parse_tuple(parser, false, NULL));
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    node->block.target = target;
    node->block.filter = parser_adopt(parser, node, parser_parse_filters(parser, NULL, false));
    parse_block_to(parser, node, &node->block.body, "endset");
    return node;
}

static struct node *parse_plain_name(struct parser *parser)
{
    size_t offset = parser_peek(parser)->offset;
    struct node *node = parser_new_node(parser, NODE_NAME, offset);
    node->name = parser_expect_name(parser);
    node->name->is_assigned = true;
    return node;
}

static void parse_signature(struct parser *parser, struct node *owner, struct macro_definition *macro)
{
    parser_expect_operator(parser, "(");
    while (!parser_is_operator(parser, ")")) {
        if (macro->parameters.count > 0)
            parser_expect_operator(parser, ",");
        struct node *parameter = parse_plain_name(parser);
        for (size_t i = 0; i < macro->parameters.count; i++)
            if (macro->parameters.items[i]->name == parameter->name)
                parser_fail(parser, parameter->offset, "parameter '%.60s' is repeated", parameter->name->text);
        parser_append(parser, owner, &macro->parameters, parameter);
        if (parser_accept_operator(parser, "="))
            parser_append(parser, owner, &macro->defaults, parser_parse_expression(parser));
        else if (macro->defaults.count > 0)
            parser_fail(parser, parameter->offset, "parameter without default behind one with a default");
    }
    parser_expect_operator(parser, ")");
}

/* The body of a macro or call block: a loop around it is out of reach for its break and continue. */
static void parse_macro_body(struct parser *parser, struct node *owner, struct macro_definition *macro, const char *end)
{
    struct open_macro open = {macro, parser->macros};
    size_t loop_depth = parser->loop_depth;
    parser->macros = &open;
    parser->loop_depth = 0;
    parse_block_to(parser, owner, &macro->body, end);
    parser->loop_depth = loop_depth;
    parser->macros = open.outer;
}

static struct node *parse_macro(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_MACRO, offset);
    node->macro.name = parse_plain_name(parser)->name;
    parse_signature(parser, node, &node->macro);
    parse_macro_body(parser, node, &node->macro, "endmacro");
    return node;
}

static struct node *parse_call_block(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_CALL_BLOCK, offset);
    if (parser_is_operator(parser, "("))
        parse_signature(parser, node, &node->call_block.body);
    struct node *call = parser_parse_expression(parser);
    if (call->kind != NODE_CALL)
        parser_fail(parser, call->offset, "expected a call behind 'call'");
    node->call_block.call = parser_adopt(parser, node, call);
    parse_macro_body(parser, node, &node->call_block.body, "endcall");
    return node;
}

static struct node *parse_filter_block(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_FILTER_BLOCK, offset);
    node->block.filter = parser_adopt(parser, node, parser_parse_filters(parser, NULL, true));
    parse_block_to(parser, node, &node->block.body, "endfilter");
    return node;
}

static struct node *parse_with(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_WITH, offset);
    while (parser_peek(parser)->kind != TOKEN_TAG_END) {
        if (node->with.targets.count > 0)
            parser_expect_operator(parser, ",");
        parser_append(parser, node, &node->with.targets, parse_plain_name(parser));
        parser_expect_operator(parser, "=");
        parser_append(parser, node, &node->with.values, parser_parse_expression(parser));
    }
    parse_block_to(parser, node, &node->with.body, "endwith");
    return node;
}

static struct node *parse_print(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_OUTPUT, offset);
    while (parser_peek(parser)->kind != TOKEN_TAG_END) {
        if (node->list.count > 0)
            parser_expect_operator(parser, ",");
        parser_append(parser, node, &node->list, parser_parse_expression(parser));
    }
    return node;
}

/* {% generation %} marks what the assistant wrote, for training; rendering is that of its body. */
static struct node *parse_generation(struct parser *parser, size_t offset)
{
    struct node *node = parser_new_node(parser, NODE_GENERATION, offset);
    size_t loop_depth = parser->loop_depth;
    parser->loop_depth = 0;
    parse_block_to(parser, node, &node->list, "endgeneration");
    parser->loop_depth = loop_depth;
    return node;
}

static struct node *parse_loop_control(struct parser *parser, size_t offset)
{
    bool is_break = parser->tokens.items[parser->position - 1].bytes[0] == 'b';
    if (parser->loop_depth == 0)
        parser_fail(parser, offset, "'%s' outside of a loop", is_break ? "break" : "continue");
    return parser_new_node(parser, is_break ? NODE_BREAK : NODE_CONTINUE, offset);
}

struct tag {
    const char *word;
    struct node *(*parse)(struct parser *parser, size_t offset); /* the word is taken */
};

static const struct tag tags[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"print", parse_print},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
};

static bool is_known_unsupported(const struct token *token)
{
    static const char *const words[] = {"include",    "import", "from",  "extends", "block",
                                        "autoescape", "do",     "trans", "raw",     "debug"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (token_is_word(token, words[i]))
            return true;
    return false;
}

static struct node *parse_statement(struct parser *parser)
{
    const struct token *token = parser_peek(parser);
    if (token->kind != TOKEN_NAME)
        parser_fail_unexpected(parser, "the name of a tag");
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (!token_is_word(token, tags[i].word))
            continue;
        parser_take(parser);
        parser_enter(parser);
        struct node *node = tags[i].parse(parser, token->offset);
        parser_leave(parser);
        return node;
    }
    int shown = token->length > 60 ? 60 : (int)token->length;
    if (is_known_unsupported(token))
        parser_fail(parser, token->offset, "the tag '%.*s' is not supported", shown, token->bytes);
    parser_fail(parser, token->offset, "unknown tag '%.*s'", shown, token->bytes);
}

static void parse_output(struct parser *parser, struct node *owner, struct node_list *body)
{
    struct node *node = parser_new_node(parser, NODE_OUTPUT, parser_take(parser)->offset);
    parser_append(parser, node, &node->list, parser_parse_tuple(parser, false, NULL));
    if (parser_peek(parser)->kind != TOKEN_OUTPUT_END)
        parser_fail_unexpected(parser, "}}");
    parser_take(parser);
    parser_append(parser, owner, body, node);
}

static bool is_end_word(const struct parser *parser, end_words *ends)
{
    for (size_t i = 0; ends != NULL && (*ends)[i] != NULL; i++)
        if (parser_is_word(parser, (*ends)[i]))
            return true;
    return false;
}

static void parse_statements(struct parser *parser, struct node *owner, struct node_list *body, end_words *ends,
                             size_t opened_at)
{
    parser_enter(parser);
    for (;;) {
        const struct token *token = parser_peek(parser);
        if (token->kind == TOKEN_TEXT) {
            struct node *node = parser_new_node(parser, NODE_TEXT, parser_take(parser)->offset);
            parser_set_text(parser, node, token->bytes, token->length);
            parser_append(parser, owner, body, node);
        } else if (token->kind == TOKEN_OUTPUT_BEGIN) {
            parse_output(parser, owner, body);
        } else if (token->kind == TOKEN_TAG_BEGIN) {
            parser_take(parser);
            if (is_end_word(parser, ends))
                break;
            parser_append(parser, owner, body, parse_statement(parser));
            expect_tag_end(parser);
        } else {
            if (ends != NULL)
                parser_fail(parser, opened_at, "this tag is not closed: {%% %s %%} is missing",
                            (*ends)[(*ends)[1] == NULL   ? 0
                                    : (*ends)[2] == NULL ? 0
                                                         : 2]);
            break;
        }
    }
    parser_leave(parser);
}

void parser_parse_body(struct parser *parser, struct node_list *body)
{
    parse_statements(parser, NULL, body, NULL, 0);
}

/* ---- what can be known before rendering ---- */

/* Refuses calls of functions and methods that do not exist here. What a template assigns itself, passes as a
 * keyword or asks for with `is defined` is left to rendering. */
static void check_call(struct parser *parser, const struct node *call)
{
    const struct node *callee = call->call.callee;
    if (callee->kind == NODE_NAME) {
        const struct name *name = callee->name;
        if (!name->is_assigned && !name->is_tested && !function_exists(name->text, name->length) &&
            strcmp(name->text, "caller") != 0)
            parser_fail(parser, callee->offset, "unknown function '%.60s'", name->text);
    } else if (callee->kind == NODE_ATTRIBUTE) {
        const struct name *name = callee->attribute.name;
        if (!name->is_attribute && !method_exists(name->text, name->length))
            parser_fail(parser, callee->offset, "unknown or unsupported method '%.60s'", name->text);
    }
}

static void check_names(struct parser *parser)
{
    static const char *const refused[] = {"lipsum", "cycler", "joiner", "self", "super"};
    for (const struct name *name = parser->tree->names; name != NULL; name = name->next)
        for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
            if (name->is_loaded && !name->is_assigned && strcmp(name->text, refused[i]) == 0)
                parser_fail(parser, name->first_load_offset, "'%s' is not supported", refused[i]);
}

void parser_parse(struct arena *arena, const char *source, size_t length, struct syntax_tree *tree)
{
    struct parser *parser = arena_allocate(arena, sizeof *parser);
    parser->arena = arena;
    parser->tree = tree;
    lexer_split(arena, source, length, &parser->tokens);
    tree->source = parser->tokens.source;
    tree->source_length = parser->tokens.source_length;
    parser_parse_body(parser, &tree->body);
    for (size_t i = 0; i < parser->calls.count; i++)
        check_call(parser, parser->calls.items[i]);
    for (size_t i = 0; i < parser->always_named.count; i++)
        parser_check_names(parser, parser->always_named.items[i]);
    check_names(parser);
}
