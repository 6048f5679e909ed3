/* The state of one rendering, and what evaluation offers to filters, tests, methods and functions. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_RENDER_H
#define NJ_ENGINE_CHAT_TEMPLATE_RENDER_H

#include "engine/chat_template/arena.h"
#include "engine/chat_template/ast.h"
#include "engine/chat_template/chat_template.h"
#include "engine/chat_template/value.h"

/* Limits of a rendering. */
#define RENDER_TEXT_LIMIT_BYTES ((size_t)64 << 20)
#define RENDER_MEMORY_LIMIT_BYTES ((size_t)512 << 20)
enum { RENDER_STEP_LIMIT = 10000000, RENDER_DEPTH_LIMIT = 1000, RENDER_RANGE_LIMIT = 100000 };

struct variable {
    const struct name *name;
    struct value value;
};

/* Variables of a block; a name that is not here is looked up in the parent. */
struct scope {
    struct scope *parent;
    struct variable *variables;
    size_t count, capacity;
    bool is_captured; /* a macro made here may outlive the block */
};

struct render {
    struct arena arena;
    const struct syntax_tree *tree;
    const struct nj_chat_input *input;
    struct nj_rendered *rendered; /* filled at the end */
    struct value *globals;        /* by name id; VALUE_MISSING where there is none */
    /* Names with a meaning; NULL where the template does not use them. */
    const struct name *loop_name, *caller_name, *kwargs_name, *varargs_name;
    struct scope *scope;
    struct builder *out;
    size_t steps, depth;
    size_t offset; /* in the source, of what is being evaluated */
};

/* A macro with the scope it was made in. */
struct macro {
    const struct macro_definition *definition;
    struct scope *scope;
};

/* The state of a for loop, `loop` in its body. Items are taken when needed: the condition of the loop may
 * depend on what the body did before. */
struct loop {
    const struct node *node;
    struct scope *outer;
    struct items source;
    size_t source_used;
    struct sequence *taken;  /* items that passed the condition */
    size_t position;         /* of the current item, from 1 */
    struct value changed_to; /* of loop.changed(); VALUE_MISSING before */
};

struct arguments {
    const struct value *positional;
    size_t count;
    const char *const *keywords;
    const struct value *keyword_values;
    size_t keyword_count;
};

enum { PARAMETER_LIMIT = 5 };

/* The parameters of a filter, method or function. */
struct signature {
    const char *name;
    const char *parameters[PARAMETER_LIMIT]; /* "": by position only; NULL behind the last */
    size_t required;
    bool is_variadic; /* takes arguments as they are */
};

/* Fails with the place in the template and leaves the rendering. */
_Noreturn void render_fail(struct render *render, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Counts work; fails past the limit. */
void render_count_steps(struct render *render, size_t steps);
/* Recursion of evaluation and of walks over nested values. */
void render_enter(struct render *render);
void render_leave(struct render *render);

/* Puts arguments into the order of the parameters, VALUE_MISSING where not given. */
void arguments_bind(struct render *render, const struct signature *signature, const struct arguments *arguments,
                    struct value bound[PARAMETER_LIMIT]);
/* Checked access to a bound argument. */
const struct text *argument_text(struct render *render, const struct signature *signature, struct value value);
int64_t argument_integer(struct render *render, const struct signature *signature, struct value value);

/* Expressions (evaluate.c). */
struct value evaluate(struct render *render, const struct node *node);
struct value evaluate_attribute(struct render *render, struct value object, const struct text *name);
struct value evaluate_subscript(struct render *render, struct value object, struct value index);
struct value evaluate_call(struct render *render, struct value callee, const struct arguments *arguments);
struct value evaluate_filter(struct render *render, const struct node *node, struct value operand);
struct arguments evaluate_arguments(struct render *render, const struct call_arguments *arguments,
                                    const char *extra_keyword, struct value extra_value);
struct value evaluate_arithmetic(struct render *render, enum arithmetic operation, struct value left,
                                 struct value right);
bool evaluate_comparison(struct render *render, enum comparison operation, struct value left, struct value right);
struct value evaluate_slice(struct render *render, struct value object, const struct value bounds[3]);

/* Statements (execute.c). */
enum flow { FLOW_NEXT, FLOW_BREAK, FLOW_CONTINUE };
enum flow execute_list(struct render *render, const struct node_list *list);
struct value execute_macro(struct render *render, const struct macro *macro, const struct arguments *arguments);

/* Variables (scope.c). */
void scope_push(struct render *render, struct scope *scope);
void scope_set(struct render *render, const struct name *name, struct value value);
struct value scope_find(struct render *render, const struct name *name);
void scope_capture(struct scope *scope);

/* Loops (loop.c). */
bool loop_take(struct render *render, struct loop *loop, size_t count); /* are there `count` items? */
struct value loop_attribute(struct render *render, struct loop *loop, const struct text *name);
struct value loop_call(struct render *render, struct loop *loop, const char *method, const struct arguments *arguments);
void assign_target(struct render *render, const struct node *target, struct value value);

/* Strings with a format: '%s' % x and '{}'.format(x) (format.c). */
struct value format_percent(struct render *render, const struct text *format, struct value arguments);
struct value format_braces(struct render *render, const struct text *format, const struct arguments *arguments);

#endif
