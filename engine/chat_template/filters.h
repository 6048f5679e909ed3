/* The filters, by name. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_FILTERS_H
#define NJ_ENGINE_CHAT_TEMPLATE_FILTERS_H

#include "engine/chat_template/render.h"

struct filter;
typedef struct value filter_function(struct render *render, const struct filter *filter, struct value subject,
                                     const struct value *bound, const struct arguments *arguments);

struct filter {
    struct signature signature;
    filter_function *apply;
    int variant; /* tells apart the filters that share a function */
    /* Which positional argument, from 1, names a filter or a test; 0: none. */
    size_t filter_name_argument, test_name_argument;
};

const struct filter *filter_find(const char *name, size_t length);
struct value filter_apply(struct render *render, const struct filter *filter, struct value subject,
                          const struct arguments *arguments);

/* "a.b.0" or an integer: what sort, map, selectattr and others read from each item. `fallback` replaces
 * what is undefined on the way, if it is not missing or none. */
struct value filter_read_attribute(struct render *render, struct value item, struct value path, struct value fallback);

/* The tables of the files that hold them. */
extern const struct filter text_filters[], number_filters[], sequence_filters[], selection_filters[];
extern const size_t text_filter_count, number_filter_count, sequence_filter_count, selection_filter_count;

#define FILTER_ARGUMENTS                                                                                               \
    struct render *render, const struct filter *filter, struct value subject, const struct value *bound,               \
        const struct arguments *arguments

#endif
