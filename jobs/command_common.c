#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "jobs/commands.h"

int command_need_directory(const struct nj_arguments *arguments, const char **out, struct nj_error *error)
{
    if (arguments->operand_count == 0)
        return error_set(error, NJ_BAD_USAGE, "no job directory given; name the one that run made with -o");
    if (arguments->operand_count > 1)
        return error_set(error, NJ_BAD_USAGE, "one job directory is taken, but \"%.100s\" follows",
                         arguments->operands[1]);
    *out = arguments->operands[0];
    return 0;
}

int command_need_model(const struct nj_arguments *arguments, struct nj_error *error)
{
    return arguments->model != NULL ? 0 : error_set(error, NJ_BAD_USAGE, "no model given; add -m FILE (a GGUF file)");
}

int command_need_no_operand(const struct nj_arguments *arguments, struct nj_error *error)
{
    if (arguments->operand_count == 0)
        return 0;
    return error_set(error, NJ_BAD_USAGE, "this command takes options only, but \"%.100s\" follows",
                     arguments->operands[0]);
}

int command_need_cache(const struct nj_context *context, const struct nj_arguments *arguments, const char **out,
                       struct nj_error *error)
{
    *out = arguments->cache_directory != NULL ? arguments->cache_directory : context->environment.cache_directory;
    if ((*out)[0] != '\0')
        return 0;
    return error_set(error, NJ_BAD_USAGE,
                     "no cache directory: neither XDG_CACHE_HOME nor HOME is set; add --cache-dir DIR");
}

int command_take_job(const struct nj_context *context, const struct nj_arguments *arguments,
                     struct nj_job_options *options, struct nj_error *error)
{
    const char *cache;
    if (command_need_model(arguments, error) != 0)
        return -1;
    if (arguments->operand_count == 0)
        return error_set(error, NJ_BAD_USAGE,
                         "no input given; name .jsonl files or directories of them, or - for standard input");
    if (command_need_cache(context, arguments, &cache, error) != 0)
        return -1;
    *options = (struct nj_job_options){
        .inputs = arguments->operands,
        .input_count = arguments->operand_count,
        .output_directory = arguments->output,
        .kv_type = arguments->kv_type,
        .as_chat = arguments->as_chat,
        .strict = arguments->strict,
        .job_time = arguments->job_time,
        .cache_directory = cache,
        .slurm_job_id = context->environment.slurm_job_id,
    };
    job_command_apply(arguments, options);
    return 0;
}

void command_print_row(const char *name, const char *format, ...)
{
    char text[2048], escaped[4096];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    console_escape(text, escaped, sizeof escaped);
    printf("%-10s%s\n", name, escaped);
}

int command_print_json(json_t *object, struct nj_error *error)
{
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory, or text that cannot be written as JSON");
    puts(text);
    free(text);
    return 0;
}

int command_finish_output(struct nj_context *context)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return NJ_OK;
    console_error(&context->console, "cannot write to standard output: it is closed or its disk is full");
    return NJ_IO_FAILED;
}
