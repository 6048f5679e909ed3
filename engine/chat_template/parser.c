/* Expressions. */
#include "engine/chat_template/parser.h"

#include <string.h>

#include "engine/chat_template/filters.h"
#include "engine/chat_template/is_tests.h"

/* ---- primary expressions ---- */

static struct node *parse_string(struct parser *parser)
{
    struct node *node = parser_new_node(parser, NODE_STRING, parser_peek(parser)->offset);
    size_t first = parser->position, length = 0;
    while (parser_peek(parser)->kind == TOKEN_STRING)
        length += parser_take(parser)->length;
    char *bytes = arena_allocate(parser->arena, length + 1);
    size_t at = 0;
    for (size_t i = first; i < parser->position; i++) {
        memcpy(bytes + at, parser->tokens.items[i].bytes, parser->tokens.items[i].length);
        at += parser->tokens.items[i].length;
    }
    parser_set_text(parser, node, bytes, length);
    return node;
}

/* Notes that a variable is read: macros learn which of their special variables they use. */
static void note_load(struct parser *parser, struct name *name, size_t offset)
{
    if (!name->is_loaded)
        name->first_load_offset = (uint32_t)offset;
    name->is_loaded = true;
    for (struct open_macro *macro = parser->macros; macro != NULL; macro = macro->outer) {
        macro->definition->uses_caller |= strcmp(name->text, "caller") == 0;
        macro->definition->uses_kwargs |= strcmp(name->text, "kwargs") == 0;
        macro->definition->uses_varargs |= strcmp(name->text, "varargs") == 0;
    }
}

static struct node *parse_constant_or_name(struct parser *parser, bool is_load)
{
    const struct token *token = parser_take(parser);
    bool is_true = token_is_word(token, "true") || token_is_word(token, "True");
    if (is_true || token_is_word(token, "false") || token_is_word(token, "False")) {
        struct node *node = parser_new_node(parser, NODE_BOOL, token->offset);
        node->boolean = is_true;
        return node;
    }
    if (token_is_word(token, "none") || token_is_word(token, "None"))
        return parser_new_node(parser, NODE_NONE, token->offset);
    struct node *node = parser_new_node(parser, NODE_NAME, token->offset);
    node->name = parser_intern(parser, token->bytes, token->length);
    if (is_load)
        note_load(parser, node->name, token->offset);
    else
        node->name->is_assigned = true;
    return node;
}

static struct node *parse_number(struct parser *parser)
{
    const struct token *token = parser_take(parser);
    bool is_integer = token->kind == TOKEN_INTEGER;
    struct node *node = parser_new_node(parser, is_integer ? NODE_INT : NODE_FLOAT, token->offset);
    if (is_integer)
        node->integer = token->integer;
    else
        node->real = token->real;
    return node;
}

static struct node *parse_parentheses(struct parser *parser)
{
    size_t offset = parser_take(parser)->offset;
    struct node *node;
    if (parser_is_operator(parser, ")"))
        node = parser_new_node(parser, NODE_TUPLE, offset);
    else
        node = parser_parse_tuple(parser, false, NULL);
    parser_expect_operator(parser, ")");
    return node;
}

static struct node *parse_list(struct parser *parser)
{
    struct node *node = parser_new_node(parser, NODE_LIST, parser_take(parser)->offset);
    while (!parser_is_operator(parser, "]")) {
        if (node->list.count > 0)
            parser_expect_operator(parser, ",");
        if (parser_is_operator(parser, "]"))
            break;
        parser_append(parser, node, &node->list, parser_parse_expression(parser));
    }
    parser_expect_operator(parser, "]");
    return node;
}

static struct node *parse_dict(struct parser *parser)
{
    struct node *node = parser_new_node(parser, NODE_DICT, parser_take(parser)->offset);
    while (!parser_is_operator(parser, "}")) {
        if (node->dict.keys.count > 0)
            parser_expect_operator(parser, ",");
        if (parser_is_operator(parser, "}"))
            break;
        struct node *key = parser_parse_expression(parser);
        if (key->kind == NODE_STRING)
            parser_intern(parser, key->text.bytes, key->text.length)->is_attribute = true;
        parser_append(parser, node, &node->dict.keys, key);
        parser_expect_operator(parser, ":");
        parser_append(parser, node, &node->dict.values, parser_parse_expression(parser));
    }
    parser_expect_operator(parser, "}");
    return node;
}

static struct node *parse_primary(struct parser *parser)
{
    const struct token *token = parser_peek(parser);
    if (token->kind == TOKEN_NAME)
        return parse_constant_or_name(parser, true);
    if (token->kind == TOKEN_STRING)
        return parse_string(parser);
    if (token->kind == TOKEN_INTEGER || token->kind == TOKEN_FLOAT)
        return parse_number(parser);
    if (parser_is_operator(parser, "("))
        return parse_parentheses(parser);
    if (parser_is_operator(parser, "["))
        return parse_list(parser);
    if (parser_is_operator(parser, "{"))
        return parse_dict(parser);
    parser_fail_unexpected(parser, "an expression");
}

/* ---- postfix: attributes, subscripts, calls, filters, tests ---- */

static struct node *parse_attribute(struct parser *parser, struct node *object)
{
    size_t offset = parser_take(parser)->offset;
    const struct token *token = parser_peek(parser);
    if (token->kind == TOKEN_INTEGER) {
        struct node *node = parser_new_node(parser, NODE_SUBSCRIPT, offset);
        node->subscript.object = parser_adopt(parser, node, object);
        node->subscript.index = parser_adopt(parser, node, parse_number(parser));
        return node;
    }
    struct node *node = parser_new_node(parser, NODE_ATTRIBUTE, token->offset);
    node->attribute.object = parser_adopt(parser, node, object);
    node->attribute.name = parser_expect_name(parser);
    return node;
}

static bool ends_slice_part(const struct parser *parser)
{
    return parser_is_operator(parser, ":") || parser_is_operator(parser, "]") || parser_is_operator(parser, ",");
}

static struct node *parse_subscript_part(struct parser *parser)
{
    size_t offset = parser_peek(parser)->offset;
    struct node *start = parser_is_operator(parser, ":") ? NULL : parser_parse_expression(parser);
    if (!parser_accept_operator(parser, ":"))
        return start;
    struct node *node = parser_new_node(parser, NODE_SLICE, offset);
    node->slice.start = parser_adopt(parser, node, start);
    if (!ends_slice_part(parser))
        node->slice.stop = parser_adopt(parser, node, parser_parse_expression(parser));
    if (parser_accept_operator(parser, ":") && !ends_slice_part(parser))
        node->slice.step = parser_adopt(parser, node, parser_parse_expression(parser));
    return node;
}

static struct node *parse_subscript(struct parser *parser, struct node *object)
{
    struct node *node = parser_new_node(parser, NODE_SUBSCRIPT, parser_take(parser)->offset);
    struct node *tuple = parser_new_node(parser, NODE_TUPLE, node->offset);
    node->subscript.object = parser_adopt(parser, node, object);
    while (!parser_is_operator(parser, "]")) {
        if (tuple->list.count > 0)
            parser_expect_operator(parser, ",");
        struct node *part = parse_subscript_part(parser);
        if (part->kind == NODE_SLICE && (tuple->list.count > 0 || parser_is_operator(parser, ",")))
            parser_fail(parser, part->offset, "a slice among several subscripts is not supported");
        parser_append(parser, tuple, &tuple->list, part);
    }
    parser_expect_operator(parser, "]");
    node->subscript.index = parser_adopt(parser, node, tuple->list.count == 1 ? tuple->list.items[0] : tuple);
    return node;
}

static void append_keyword(struct parser *parser, struct node *owner, struct call_arguments *arguments)
{
    size_t count = arguments->keyword_values.count;
    struct name *keyword = parser_expect_name(parser);
    keyword->is_attribute = true;
    parser_take(parser);
    for (size_t i = 0; i < count; i++)
        if (arguments->keywords[i] == keyword)
            parser_fail(parser, parser_peek(parser)->offset, "keyword argument '%.60s' is repeated", keyword->text);
    if (count == arguments->keyword_values.capacity)
        arguments->keywords = arena_grow_array(parser->arena, arguments->keywords, count, count == 0 ? 4 : count * 2,
                                               sizeof arguments->keywords[0]);
    arguments->keywords[count] = keyword;
    parser_append(parser, owner, &arguments->keyword_values, parser_parse_expression(parser));
}

static void parse_argument(struct parser *parser, struct node *owner, struct call_arguments *arguments, size_t offset)
{
    bool has_stars = arguments->star != NULL || arguments->double_star != NULL;
    const struct token *next = parser_peek_next(parser);
    bool is_keyword = parser_peek(parser)->kind == TOKEN_NAME && token_has_text(next, TOKEN_OPERATOR, "=");
    if (parser_is_operator(parser, "*") && !has_stars) {
        parser_take(parser);
        arguments->star = parser_adopt(parser, owner, parser_parse_expression(parser));
    } else if (parser_is_operator(parser, "**") && arguments->double_star == NULL) {
        parser_take(parser);
        arguments->double_star = parser_adopt(parser, owner, parser_parse_expression(parser));
    } else if (is_keyword && arguments->double_star == NULL) {
        append_keyword(parser, owner, arguments);
    } else if (!is_keyword && !has_stars && arguments->keyword_values.count == 0) {
        parser_append(parser, owner, &arguments->positional, parser_parse_expression(parser));
    } else {
        parser_fail(parser, offset, "invalid order of arguments in a call");
    }
}

static void parse_arguments(struct parser *parser, struct node *owner, struct call_arguments *arguments)
{
    size_t offset = parser_peek(parser)->offset;
    parser_expect_operator(parser, "(");
    bool needs_comma = false;
    while (!parser_is_operator(parser, ")")) {
        if (needs_comma) {
            parser_expect_operator(parser, ",");
            if (parser_is_operator(parser, ")"))
                break;
        }
        parse_argument(parser, owner, arguments, offset);
        needs_comma = true;
    }
    parser_expect_operator(parser, ")");
}

static struct node *parse_call(struct parser *parser, struct node *callee)
{
    struct node *node = parser_new_node(parser, NODE_CALL, callee->offset);
    node->call.callee = parser_adopt(parser, node, callee);
    parse_arguments(parser, node, &node->call.arguments);
    parser_append(parser, NULL, &parser->calls, node);
    return node;
}

static struct node *parse_postfix(struct parser *parser, struct node *node)
{
    for (;;) {
        if (parser_is_operator(parser, "."))
            node = parse_attribute(parser, node);
        else if (parser_is_operator(parser, "["))
            node = parse_subscript(parser, node);
        else if (parser_is_operator(parser, "("))
            node = parse_call(parser, node);
        else
            return node;
    }
}

/* "name" or "dotted.name" of a filter or test; gives its place. */
static const char *parse_dotted_name(struct parser *parser, size_t *length)
{
    struct name *first = parser_expect_name(parser);
    const char *text = first->text;
    *length = first->length;
    while (parser_accept_operator(parser, ".")) {
        struct name *part = parser_expect_name(parser);
        char *joined = arena_allocate(parser->arena, *length + 1 + part->length + 1);
        memcpy(joined, text, *length);
        joined[*length] = '.';
        memcpy(joined + *length + 1, part->text, part->length);
        *length += 1 + part->length;
        text = joined;
    }
    return text;
}

/* Filters such as map and select take the name of a filter or test as a string: checked when constant. */
static void check_named_argument(struct parser *parser, const struct node *node)
{
    const struct filter *filter = node->filter.filter;
    const struct node_list *positional = &node->filter.arguments.positional;
    size_t which = filter->filter_name_argument + filter->test_name_argument;
    if (which == 0 || positional->count < which || positional->items[which - 1]->kind != NODE_STRING)
        return;
    const struct node *argument = positional->items[which - 1];
    int shown = argument->text.length > 60 ? 60 : (int)argument->text.length;
    if (filter->filter_name_argument > 0 && filter_find(argument->text.bytes, argument->text.length) == NULL)
        parser_fail(parser, argument->offset, "unknown filter '%.*s'", shown, argument->text.bytes);
    if (filter->test_name_argument > 0 && test_find(argument->text.bytes, argument->text.length) == NULL)
        parser_fail(parser, argument->offset, "unknown test '%.*s'", shown, argument->text.bytes);
}

void parser_check_names(struct parser *parser, const struct node *node)
{
    if (node->kind == NODE_TEST) {
        if (node->test.test == NULL)
            parser_fail(parser, node->offset, "unknown test '%.60s'", node->test.name);
        return;
    }
    if (node->filter.filter == NULL)
        parser_fail(parser, node->offset, "unknown filter '%.60s'", node->filter.name);
    check_named_argument(parser, node);
}

static void note_named(struct parser *parser, struct node *node)
{
    if (parser->if_depth == 0)
        parser_append(parser, NULL, &parser->always_named, node);
}

struct node *parser_parse_filters(struct parser *parser, struct node *operand, bool is_inline)
{
    while (is_inline || parser_accept_operator(parser, "|")) {
        struct node *node = parser_new_node(parser, NODE_FILTER, parser_peek(parser)->offset);
        size_t length;
        node->filter.name = parse_dotted_name(parser, &length);
        node->filter.operand = parser_adopt(parser, node, operand);
        node->filter.filter = filter_find(node->filter.name, length);
        if (parser_is_operator(parser, "("))
            parse_arguments(parser, node, &node->filter.arguments);
        note_named(parser, node);
        operand = node;
        is_inline = false;
    }
    return operand;
}

static bool begins_test_argument(const struct parser *parser)
{
    const struct token *token = parser_peek(parser);
    if (token->kind == TOKEN_NAME)
        return !token_is_word(token, "else") && !token_is_word(token, "or") && !token_is_word(token, "and");
    return token->kind == TOKEN_STRING || token->kind == TOKEN_INTEGER || token->kind == TOKEN_FLOAT ||
           parser_is_operator(parser, "[") || parser_is_operator(parser, "{");
}

static struct node *parse_test(struct parser *parser, struct node *operand)
{
    size_t offset = parser_take(parser)->offset;
    bool is_negated = parser_accept_word(parser, "not");
    struct node *node = parser_new_node(parser, NODE_TEST, parser_peek(parser)->offset);
    size_t length;
    node->test.name = parse_dotted_name(parser, &length);
    node->test.operand = parser_adopt(parser, node, operand);
    node->test.test = test_find(node->test.name, length);
    note_named(parser, node);
    if (operand->kind == NODE_NAME && strcmp(node->test.name, "defined") == 0)
        operand->name->is_tested = true;
    if (parser_is_operator(parser, "(")) {
        parse_arguments(parser, node, &node->test.arguments);
    } else if (begins_test_argument(parser)) {
        if (parser_is_word(parser, "is"))
            parser_fail(parser, parser_peek(parser)->offset, "tests cannot be chained with 'is'");
        struct node *argument = parse_postfix(parser, parse_primary(parser));
        parser_append(parser, node, &node->test.arguments.positional, argument);
    }
    if (!is_negated)
        return node;
    struct node *negation = parser_new_node(parser, NODE_NOT, offset);
    negation->operand = parser_adopt(parser, negation, node);
    return negation;
}

static struct node *parse_filters_and_tests(struct parser *parser, struct node *node)
{
    for (;;) {
        if (parser_is_operator(parser, "|"))
            node = parser_parse_filters(parser, node, false);
        else if (parser_is_word(parser, "is"))
            node = parse_test(parser, node);
        else if (parser_is_operator(parser, "("))
            node = parse_call(parser, node);
        else
            return node;
    }
}

/* ---- operators, from the tightest to the loosest ---- */

static struct node *parse_unary(struct parser *parser, bool with_filters)
{
    const struct token *token = parser_peek(parser);
    struct node *node;
    if (parser_is_operator(parser, "-") || parser_is_operator(parser, "+")) {
        parser_enter(parser);
        parser_take(parser);
        node = parser_new_node(parser, token->bytes[0] == '-' ? NODE_NEGATIVE : NODE_POSITIVE, token->offset);
        node->operand = parser_adopt(parser, node, parse_unary(parser, false));
        parser_leave(parser);
    } else {
        node = parse_primary(parser);
    }
    node = parse_postfix(parser, node);
    return with_filters ? parse_filters_and_tests(parser, node) : node;
}

static struct node *make_binary(struct parser *parser, enum node_kind kind, enum arithmetic operation, size_t offset,
                                struct node *left, struct node *right)
{
    struct node *node = parser_new_node(parser, kind, offset);
    node->binary.operation = operation;
    node->binary.left = parser_adopt(parser, node, left);
    node->binary.right = parser_adopt(parser, node, right);
    return node;
}

static struct node *parse_power(struct parser *parser)
{
    struct node *left = parse_unary(parser, true);
    while (parser_is_operator(parser, "**")) {
        size_t offset = parser_take(parser)->offset;
        left = make_binary(parser, NODE_ARITHMETIC, POWER, offset, left, parse_unary(parser, true));
    }
    return left;
}

/* Is the next token an operator of products? */
static bool find_product_operator(const struct parser *parser, enum arithmetic *operation)
{
    static const struct {
        const char *text;
        enum arithmetic operation;
    } operators[] = {{"*", MULTIPLY}, {"/", DIVIDE}, {"//", FLOOR_DIVIDE}, {"%", MODULO}};
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        *operation = operators[i].operation;
        if (parser_is_operator(parser, operators[i].text))
            return true;
    }
    return false;
}

static struct node *parse_product(struct parser *parser)
{
    struct node *left = parse_power(parser);
    enum arithmetic operation;
    while (find_product_operator(parser, &operation)) {
        size_t offset = parser_take(parser)->offset;
        left = make_binary(parser, NODE_ARITHMETIC, operation, offset, left, parse_power(parser));
    }
    return left;
}

static struct node *parse_concatenation(struct parser *parser)
{
    struct node *first = parse_product(parser);
    if (!parser_is_operator(parser, "~"))
        return first;
    struct node *node = parser_new_node(parser, NODE_CONCATENATE, parser_peek(parser)->offset);
    parser_append(parser, node, &node->list, first);
    while (parser_accept_operator(parser, "~"))
        parser_append(parser, node, &node->list, parse_product(parser));
    return node;
}

static struct node *parse_sum(struct parser *parser)
{
    struct node *left = parse_concatenation(parser);
    while (parser_is_operator(parser, "+") || parser_is_operator(parser, "-")) {
        const struct token *token = parser_take(parser);
        enum arithmetic operation = token->bytes[0] == '+' ? ADD : SUBTRACT;
        left = make_binary(parser, NODE_ARITHMETIC, operation, token->offset, left, parse_concatenation(parser));
    }
    return left;
}

static bool accept_comparison(struct parser *parser, enum comparison *operation)
{
    static const char *const operators[] = {
        [EQUAL] = "==", [NOT_EQUAL] = "!=", [LESS] = "<", [LESS_EQUAL] = "<=", [GREATER] = ">", [GREATER_EQUAL] = ">="};
    for (size_t i = EQUAL; i <= GREATER_EQUAL; i++) {
        *operation = (enum comparison)i;
        if (parser_accept_operator(parser, operators[i]))
            return true;
    }
    *operation = IN;
    if (parser_accept_word(parser, "in"))
        return true;
    *operation = NOT_IN;
    if (!parser_is_word(parser, "not") || !token_is_word(parser_peek_next(parser), "in"))
        return false;
    parser->position += 2;
    return true;
}

static struct node *parse_comparison(struct parser *parser)
{
    struct node *first = parse_sum(parser), *node = NULL;
    size_t offset = parser_peek(parser)->offset;
    enum comparison operation;
    while (accept_comparison(parser, &operation)) {
        if (node == NULL) {
            node = parser_new_node(parser, NODE_COMPARE, offset);
            node->compare.first = parser_adopt(parser, node, first);
        }
        size_t count = node->compare.others.count, capacity = node->compare.others.capacity;
        parser_append(parser, node, &node->compare.others, parse_sum(parser));
        if (node->compare.others.capacity > capacity)
            node->compare.operations =
                arena_grow_array(parser->arena, node->compare.operations, count, node->compare.others.capacity,
                                 sizeof node->compare.operations[0]);
        node->compare.operations[count] = operation;
    }
    return node == NULL ? first : node;
}

static struct node *parse_not(struct parser *parser)
{
    if (!parser_is_word(parser, "not"))
        return parse_comparison(parser);
    parser_enter(parser);
    struct node *node = parser_new_node(parser, NODE_NOT, parser_take(parser)->offset);
    node->operand = parser_adopt(parser, node, parse_not(parser));
    parser_leave(parser);
    return node;
}

static struct node *parse_and(struct parser *parser)
{
    struct node *left = parse_not(parser);
    while (parser_is_word(parser, "and")) {
        size_t offset = parser_take(parser)->offset;
        left = make_binary(parser, NODE_AND, ADD, offset, left, parse_not(parser));
    }
    return left;
}

static struct node *parse_or(struct parser *parser)
{
    parser_enter(parser);
    struct node *left = parse_and(parser);
    while (parser_is_word(parser, "or")) {
        size_t offset = parser_take(parser)->offset;
        left = make_binary(parser, NODE_OR, ADD, offset, left, parse_and(parser));
    }
    parser_leave(parser);
    return left;
}

struct node *parser_parse_expression(struct parser *parser)
{
    parser_enter(parser);
    size_t named = parser->always_named.count;
    struct node *value = parse_or(parser);
    while (parser_is_word(parser, "if")) {
        struct node *node = parser_new_node(parser, NODE_CONDITIONAL, parser_take(parser)->offset);
        node->conditional.yes = parser_adopt(parser, node, value);
        node->conditional.condition = parser_adopt(parser, node, parse_or(parser));
        if (parser_accept_word(parser, "else"))
            node->conditional.no = parser_adopt(parser, node, parser_parse_expression(parser));
        parser->always_named.count = named;
        value = node;
    }
    parser_leave(parser);
    return value;
}

/* ---- tuples and targets ---- */

static bool ends_tuple(const struct parser *parser, const char *stop_word)
{
    const struct token *token = parser_peek(parser);
    return token->kind == TOKEN_OUTPUT_END || token->kind == TOKEN_TAG_END || parser_is_operator(parser, ")") ||
           (stop_word != NULL && token_is_word(token, stop_word));
}

struct node *parser_parse_tuple(struct parser *parser, bool without_condition, const char *stop_word)
{
    size_t offset = parser_peek(parser)->offset;
    if (ends_tuple(parser, stop_word))
        parser_fail_unexpected(parser, "an expression");
    struct node *first = without_condition ? parse_or(parser) : parser_parse_expression(parser);
    if (!parser_is_operator(parser, ","))
        return first;
    struct node *node = parser_new_node(parser, NODE_TUPLE, offset);
    parser_append(parser, node, &node->list, first);
    while (parser_accept_operator(parser, ",") && !ends_tuple(parser, stop_word))
        parser_append(parser, node, &node->list,
                      without_condition ? parse_or(parser) : parser_parse_expression(parser));
    return node;
}

static struct node *parse_target_item(struct parser *parser, bool with_namespace)
{
    const struct token *token = parser_peek(parser);
    if (parser_accept_operator(parser, "(")) {
        parser_enter(parser);
        struct node *inner = parser_parse_target(parser, NULL, false);
        parser_leave(parser);
        parser_expect_operator(parser, ")");
        return inner;
    }
    if (token->kind != TOKEN_NAME)
        parser_fail_unexpected(parser, "a name to assign to");
    bool is_namespace = with_namespace && token_has_text(parser_peek_next(parser), TOKEN_OPERATOR, ".");
    struct node *name = parse_constant_or_name(parser, is_namespace);
    if (name->kind != NODE_NAME)
        parser_fail(parser, token->offset, "cannot assign to '%.*s'", (int)token->length, token->bytes);
    if (!is_namespace)
        return name;
    parser_take(parser);
    struct node *node = parser_new_node(parser, NODE_NAMESPACE_TARGET, token->offset);
    node->attribute.object = parser_adopt(parser, node, name);
    node->attribute.name = parser_expect_name(parser);
    node->attribute.name->is_attribute = true;
    return node;
}

struct node *parser_parse_target(struct parser *parser, const char *stop_word, bool with_namespace)
{
    struct node *first = parse_target_item(parser, with_namespace);
    if (!parser_is_operator(parser, ","))
        return first;
    struct node *node = parser_new_node(parser, NODE_TUPLE, first->offset);
    parser_append(parser, node, &node->list, first);
    while (parser_accept_operator(parser, ",") && !ends_tuple(parser, stop_word))
        parser_append(parser, node, &node->list, parse_target_item(parser, with_namespace));
    return node;
}
