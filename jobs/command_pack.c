/* pack: the models that were converted once, and the disk that they take. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "engine/model/model.h"
#include "engine/model/pack_store.h"
#include "jobs/commands.h"
#include "jobs/signals.h"
#include "jobs/values.h"

enum { SIZE_BYTES = 32, SHOWN_DIGITS = 8, DAY_BYTES = 16 };

static void pack_print_list(const struct nj_pack_list *list, const char *cache)
{
    uint64_t all = 0;
    char size[SIZE_BYTES];
    for (size_t i = 0; i < list->count; i++) {
        const struct nj_pack_entry *entry = &list->entries[i];
        char day[DAY_BYTES] = "", name[SIZE_BYTES];
        const time_t used = (time_t)entry->used_seconds;
        struct tm fields;
        if (localtime_r(&used, &fields) != NULL)
            strftime(day, sizeof day, "%Y-%m-%d", &fields);
        value_format_size(entry->bytes, size, sizeof size);
        snprintf(name, sizeof name, "%.*s", SHOWN_DIGITS, entry->digest);
        command_print_row(name, "%10s  used %s  %s", size, day,
                          entry->is_leftover     ? "not complete: being built, or left by a build that was stopped"
                          : entry->model != NULL ? entry->model
                                                 : "its model file is gone, or has changed");
        all += entry->bytes;
    }
    value_format_size(all, size, sizeof size);
    command_print_row("together", "%10s  in %s/packs", size, cache);
}

static int pack_print_json(const struct nj_pack_list *list, struct nj_error *error)
{
    json_t *packs = json_array();
    for (size_t i = 0; i < list->count; i++) {
        const struct nj_pack_entry *entry = &list->entries[i];
        json_array_append_new(packs, json_pack("{s:s, s:i, s:b, s:I, s:I, s:s?}", "digest", entry->digest, "version",
                                               entry->version, "complete", (int)!entry->is_leftover, "bytes",
                                               (json_int_t)entry->bytes, "used", (json_int_t)entry->used_seconds,
                                               "model", entry->model));
    }
    return command_print_json(json_pack("{s:i, s:o}", "schema", 1, "packs", packs), error);
}

static int pack_list(const struct nj_arguments *arguments, const char *cache, struct nj_error *error)
{
    struct nj_pack_list list;
    if (pack_store_list(cache, &list, error) != 0)
        return -1;
    int status = 0;
    if (arguments->json)
        status = pack_print_json(&list, error);
    else
        pack_print_list(&list, cache);
    pack_store_free(&list);
    return status;
}

/* All names are looked at even if one cannot be removed; the first error is told. */
static int pack_remove(struct nj_context *context, const struct nj_arguments *arguments, const char *cache,
                       struct nj_error *error)
{
    struct nj_pack_list list;
    if (arguments->operand_count == 0)
        return error_set(error, NJ_BAD_USAGE, "name the packs to remove; pack --list shows them");
    if (pack_store_list(cache, &list, error) != 0)
        return -1;
    uint64_t freed = 0;
    int status = 0;
    for (size_t i = 0; i < arguments->operand_count; i++) {
        struct nj_error failure;
        if (pack_store_remove(cache, &list, arguments->operands[i], &freed, &failure) == 0)
            continue;
        if (status == 0)
            *error = failure;
        status = -1;
    }
    char size[SIZE_BYTES];
    value_format_size(freed, size, sizeof size);
    console_note(&context->console, "removed %s", size);
    pack_store_free(&list);
    return status;
}

static void pack_on_notice(void *context, const char *line)
{
    console_note(context, "%s", line);
}

static int pack_build(struct nj_context *context, const struct nj_arguments *arguments, const char *cache,
                      struct nj_error *error)
{
    const struct nj_model_options options = {.path = arguments->model,
                                             .cache_directory = cache,
                                             .notice = pack_on_notice,
                                             .notice_context = &context->console,
                                             .stop = signals_watch()};
    if (command_need_model(arguments, error) != 0 || command_need_no_operand(arguments, error) != 0)
        return -1;
    struct nj_model *model = model_open(&options, error);
    const int status = model == NULL ? -1 : model_open_pack(model, error);
    if (status == 0)
        printf("%s\n", pack_path(model->pack));
    model_close(model);
    return status;
}

static int pack_do(struct nj_context *context, const struct nj_arguments *arguments, struct nj_error *error)
{
    const char *cache;
    if (arguments->list + arguments->remove + (arguments->model != NULL) > 1)
        return error_set(error, NJ_BAD_USAGE, "give one of -m, --list and --remove");
    if (command_need_cache(context, arguments, &cache, error) != 0)
        return -1;
    if (arguments->remove)
        return pack_remove(context, arguments, cache, error);
    if (!arguments->list)
        return pack_build(context, arguments, cache, error);
    return command_need_no_operand(arguments, error) != 0 ? -1 : pack_list(arguments, cache, error);
}

int command_pack(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    if (pack_do(context, arguments, &error) != 0)
        return console_report(&context->console, &error);
    return command_finish_output(context);
}
