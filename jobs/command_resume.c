#include "jobs/commands.h"

int command_resume(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    const char *directory;
    if (command_need_directory(arguments, &directory, &error) != 0)
        return console_report(&context->console, &error);
    struct nj_job_options *stored = job_options_read(directory, &error);
    if (stored == NULL)
        return console_report(&context->console, &error);
    struct nj_job_options options = *stored;
    options.output_directory = directory;
    options.resume = true;
    options.slurm_job_id = context->environment.slurm_job_id;
    if (options.cache_directory == NULL)
        options.cache_directory = context->environment.cache_directory;
    job_command_apply(arguments, &options);
    int code = job_command_run(context, &options, arguments->quiet);
    job_options_free(stored);
    return code;
}
