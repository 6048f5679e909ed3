#include <stdio.h>

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

int command_finish_output(struct nj_context *context)
{
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return NJ_OK;
    console_error(&context->console, "cannot write to standard output: it is closed or its disk is full");
    return NJ_IO_FAILED;
}
