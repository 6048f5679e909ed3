/* Methods of strings, dicts and lists, as Python's. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_METHODS_H
#define NJ_ENGINE_CHAT_TEMPLATE_METHODS_H

#include "engine/chat_template/render.h"

struct method {
    struct signature signature;
    struct value (*call)(struct render *render, const struct method *method, struct value object,
                         const struct value *bound, const struct arguments *arguments);
    int variant; /* tells apart the methods that share a function */
};

struct bound_method {
    struct value object;
    const struct method *method; /* NULL: a method of a loop */
    const char *loop_method;
};

/* Does any type have this method (or have it forbidden by the sandbox)? */
bool method_exists(const char *name, size_t length);

/* The attribute that Python gives the object's type: a bound method; an undefined value for one that the
 * sandbox forbids; VALUE_MISSING if there is none. One that exists in Python but not here fails. */
struct value method_find(struct render *render, struct value object, const struct text *name);

/* The table of string methods (text_methods.c). */
extern const struct method text_methods[];
extern const size_t text_method_count;

#endif
