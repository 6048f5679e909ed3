#include "engine/chat_template/functions.h"

#include <string.h>
#include <time.h>

#define FUNCTION_ARGUMENTS struct render *render, const struct value *bound, const struct arguments *arguments

static int64_t range_bound(struct render *render, struct value value)
{
    if (!value_is_integral(value))
        render_fail(render, "'range' needs integers, not a %s", value_type_name(value));
    return value_to_integer(value);
}

static struct value call_range(FUNCTION_ARGUMENTS)
{
    (void)arguments;
    int64_t first = range_bound(render, bound[0]);
    if (bound[1].kind == VALUE_MISSING)
        return value_range(render, 0, first, 1);
    int64_t step = bound[2].kind == VALUE_MISSING ? 1 : range_bound(render, bound[2]);
    return value_range(render, first, range_bound(render, bound[1]), step);
}

static void add_pairs(struct render *render, struct dict *dict, struct value from)
{
    if (from.kind == VALUE_DICT) {
        for (size_t i = 0; i < from.dict->count; i++)
            dict_set(render, dict, from.dict->entries[i].key, from.dict->entries[i].value);
        return;
    }
    struct items pairs = value_iterate(render, from);
    for (size_t i = 0; i < pairs.count; i++) {
        struct items pair = value_iterate(render, pairs.items[i]);
        if (pair.count != 2)
            render_fail(render, "a dict needs pairs");
        dict_set(render, dict, pair.items[0], pair.items[1]);
    }
}

/* dict(pairs, key=value) and namespace(...). */
static struct dict *make_dict(struct render *render, const struct arguments *arguments)
{
    struct dict *dict = dict_new(render);
    if (arguments->count > 1)
        render_fail(render, "a dict takes one positional argument at most");
    if (arguments->count == 1)
        add_pairs(render, dict, arguments->positional[0]);
    for (size_t i = 0; i < arguments->keyword_count; i++)
        dict_set(render, dict, value_literal(render, arguments->keywords[i]), arguments->keyword_values[i]);
    return dict;
}

static struct value call_dict(FUNCTION_ARGUMENTS)
{
    (void)bound;
    return value_of_dict(make_dict(render, arguments));
}

static struct value call_namespace(FUNCTION_ARGUMENTS)
{
    (void)bound;
    return (struct value){.kind = VALUE_NAMESPACE, .from_template = true, .dict = make_dict(render, arguments)};
}

static struct value call_raise_exception(FUNCTION_ARGUMENTS)
{
    (void)arguments;
    render_fail(render, "%s", text_copy(render, value_to_text(render, bound[0]).text));
}

/* What Python does before it asks the C library: microseconds are zero here, the zone is not known. The 'x' in
 * front tells an empty result from one that is too long. */
static const char *adapt_time_format(struct render *render, const struct text *format)
{
    struct builder adapted = {0};
    builder_append_marked(render, &adapted, "x", 1, true);
    for (size_t i = 0; i < format->length; i++) {
        char next = i + 1 < format->length ? format->bytes[i + 1] : '\0';
        if (format->bytes[i] != '%' || next == '\0') {
            builder_append_marked(render, &adapted, format->bytes + i, 1, true);
            continue;
        }
        if (next == 'f')
            builder_append_marked(render, &adapted, "000000", 6, true);
        else if (next != 'z' && next != 'Z')
            builder_append_marked(render, &adapted, format->bytes + i, 2, true);
        i++;
    }
    return text_copy(render, builder_finish(render, &adapted).text);
}

static struct value call_strftime_now(FUNCTION_ARGUMENTS)
{
    (void)arguments;
    if (bound[0].kind != VALUE_TEXT)
        render_fail(render, "'strftime_now' needs a string, not a %s", value_type_name(bound[0]));
    const struct text *format = bound[0].text;
    time_t now = (time_t)render->input->now;
    struct tm utc;
    if (gmtime_r(&now, &utc) == NULL)
        render_fail(render, "the time of the job is out of range");
    bool from_template = format->length == 0 || memchr(format->marks, 0, format->length) == NULL;
    char written[1024];
    size_t length = strftime(written, sizeof written, adapt_time_format(render, format), &utc);
    if (length == 0)
        render_fail(render, "the result of 'strftime_now' is too long");
    struct builder builder = {0};
    builder_append_marked(render, &builder, written + 1, length - 1, from_template);
    return builder_finish(render, &builder);
}

static const struct function functions[] = {
    {{"range", {"", "", ""}, 1, false}, call_range},
    {{.name = "dict", .is_variadic = true}, call_dict},
    {{.name = "namespace", .is_variadic = true}, call_namespace},
    {{"raise_exception", {"message"}, 1, false}, call_raise_exception},
    {{"strftime_now", {"format"}, 1, false}, call_strftime_now},
};

struct value function_find(const char *name, size_t length)
{
    struct text text = {.bytes = name, .length = length};
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (text_is(&text, functions[i].signature.name))
            return (struct value){.kind = VALUE_FUNCTION, .from_template = true, .function = &functions[i]};
    return value_missing();
}

bool function_exists(const char *name, size_t length)
{
    return function_find(name, length).kind == VALUE_FUNCTION;
}
