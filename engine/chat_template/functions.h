/* Functions that every template can call. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_FUNCTIONS_H
#define NJ_ENGINE_CHAT_TEMPLATE_FUNCTIONS_H

#include "engine/chat_template/render.h"

struct function {
    struct signature signature;
    struct value (*call)(struct render *render, const struct value *bound, const struct arguments *arguments);
};

bool function_exists(const char *name, size_t length);
/* The function as a value; VALUE_MISSING if there is none. */
struct value function_find(const char *name, size_t length);

#endif
