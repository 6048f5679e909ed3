#include "jobs/commands.h"

static int run_check(const struct nj_context *context, const struct nj_arguments *arguments, struct nj_error *error)
{
    if (command_need_model(arguments, error) != 0)
        return -1;
    if (arguments->output == NULL)
        return error_set(error, NJ_BAD_USAGE, "no output directory given; add -o DIR");
    if (arguments->operand_count == 0)
        return error_set(error, NJ_BAD_USAGE,
                         "no input given; name .jsonl files or directories of them, or - for standard input");
    const char *cache;
    return command_need_cache(context, arguments, &cache, error);
}

int command_run(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    if (run_check(context, arguments, &error) != 0)
        return console_report(&context->console, &error);
    struct nj_job_options options = {
        .model_path = arguments->model,
        .inputs = arguments->operands,
        .input_count = arguments->operand_count,
        .output_directory = arguments->output,
        .as_chat = arguments->as_chat,
        .strict = arguments->strict,
        .job_time = arguments->job_time,
        .cache_directory = context->environment.cache_directory,
        .slurm_job_id = context->environment.slurm_job_id,
    };
    job_command_apply(arguments, &options);
    return job_command_run(context, &options, arguments->quiet);
}
