#include "jobs/commands.h"

int command_run(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct nj_job_options options;
    if (command_take_job(context, arguments, &options, &error) != 0)
        return console_report(&context->console, &error);
    if (options.output_directory == NULL) {
        error_set(&error, NJ_BAD_USAGE, "no output directory given; add -o DIR");
        return console_report(&context->console, &error);
    }
    return job_command_run(context, &options, arguments->quiet);
}
