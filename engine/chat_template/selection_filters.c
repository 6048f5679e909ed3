/* map, select and their kin: filters that apply another filter or a test to each item. */
#include <string.h>

#include "engine/chat_template/filters.h"
#include "engine/chat_template/is_tests.h"

/* The arguments behind the first `skipped`. */
static struct arguments skip_arguments(const struct arguments *arguments, size_t skipped)
{
    struct arguments rest = *arguments;
    rest.positional += skipped;
    rest.count -= skipped;
    return rest;
}

static const struct text *name_argument(struct render *render, const struct filter *filter,
                                        const struct arguments *arguments, size_t which)
{
    return argument_text(render, &filter->signature, arguments->positional[which]);
}

/* map(attribute='a.b', default=x) */
static struct value map_attribute(struct render *render, struct items items, const struct arguments *arguments)
{
    struct value path = value_missing(), fallback = value_missing();
    for (size_t i = 0; i < arguments->keyword_count; i++) {
        if (strcmp(arguments->keywords[i], "attribute") == 0)
            path = arguments->keyword_values[i];
        else if (strcmp(arguments->keywords[i], "default") == 0)
            fallback = arguments->keyword_values[i];
        else
            render_fail(render, "'map' has no argument '%.60s'", arguments->keywords[i]);
    }
    if (path.kind == VALUE_MISSING)
        render_fail(render, "'map' needs the name of a filter or attribute=");
    struct value mapped = value_sequence(render, SEQUENCE_GENERATOR, items.count);
    for (size_t i = 0; i < items.count; i++)
        sequence_append(render, mapped.sequence, filter_read_attribute(render, items.items[i], path, fallback));
    return mapped;
}

static struct value apply_map(FILTER_ARGUMENTS)
{
    (void)bound;
    if (!value_is_true(subject))
        return value_sequence(render, SEQUENCE_GENERATOR, 0);
    struct items items = value_iterate(render, subject);
    if (arguments->count == 0)
        return map_attribute(render, items, arguments);
    const struct text *name = name_argument(render, filter, arguments, 0);
    const struct filter *each = filter_find(name->bytes, name->length);
    if (each == NULL)
        render_fail(render, "unknown filter '%.60s'", text_copy(render, name));
    struct arguments rest = skip_arguments(arguments, 1);
    struct value mapped = value_sequence(render, SEQUENCE_GENERATOR, items.count);
    render_enter(render);
    for (size_t i = 0; i < items.count; i++) {
        render_count_steps(render, 1);
        sequence_append(render, mapped.sequence, filter_apply(render, each, items.items[i], &rest));
    }
    render_leave(render);
    return mapped;
}

enum selection { KEEPS_FAILING = 1, BY_ATTRIBUTE = 2 };

static struct value apply_select(FILTER_ARGUMENTS)
{
    (void)bound;
    bool keeps_failing = filter->variant & KEEPS_FAILING;
    size_t skipped = filter->variant & BY_ATTRIBUTE ? 1 : 0;
    struct value selected = value_sequence(render, SEQUENCE_GENERATOR, 0);
    if (!value_is_true(subject))
        return selected;
    struct items items = value_iterate(render, subject);
    if (arguments->count < skipped)
        render_fail(render, "'%s' needs the name of an attribute", filter->signature.name);
    struct value path = skipped > 0 ? arguments->positional[0] : value_missing();
    struct arguments rest = *arguments;
    const struct test *test = NULL;
    if (arguments->count > skipped) {
        const struct text *name = name_argument(render, filter, arguments, skipped);
        test = test_find(name->bytes, name->length);
        if (test == NULL)
            render_fail(render, "unknown test '%.60s'", text_copy(render, name));
        rest = skip_arguments(arguments, skipped + 1);
    }
    for (size_t i = 0; i < items.count; i++) {
        struct value looked_at = filter_read_attribute(render, items.items[i], path, value_none());
        render_count_steps(render, 1);
        bool passes = test == NULL ? value_is_true(looked_at) : test_apply(render, test, looked_at, &rest);
        if (passes != keeps_failing)
            sequence_append(render, selected.sequence, items.items[i]);
    }
    return selected;
}

const struct filter selection_filters[] = {
    {.signature = {.name = "map", .is_variadic = true}, .apply = apply_map, .filter_name_argument = 1},
    {.signature = {.name = "select", .is_variadic = true}, .apply = apply_select, .test_name_argument = 1},
    {.signature = {.name = "reject", .is_variadic = true},
     .apply = apply_select,
     .variant = KEEPS_FAILING,
     .test_name_argument = 1},
    {.signature = {.name = "selectattr", .is_variadic = true},
     .apply = apply_select,
     .variant = BY_ATTRIBUTE,
     .test_name_argument = 2},
    {.signature = {.name = "rejectattr", .is_variadic = true},
     .apply = apply_select,
     .variant = BY_ATTRIBUTE | KEEPS_FAILING,
     .test_name_argument = 2},
};
const size_t selection_filter_count = sizeof selection_filters / sizeof selection_filters[0];
