/* The tests behind `is`, by name. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_IS_TESTS_H
#define NJ_ENGINE_CHAT_TEMPLATE_IS_TESTS_H

#include "engine/chat_template/render.h"

struct test {
    const char *name;
    size_t argument_count; /* 0 or 1 */
    bool (*check)(struct render *render, struct value subject, struct value argument);
};

const struct test *test_find(const char *name, size_t length);
bool test_apply(struct render *render, const struct test *test, struct value subject,
                const struct arguments *arguments);

#endif
