#include "pipeline/base/problem.h"

#include <stdarg.h>
#include <stdio.h>

int problem_set(struct nj_problem *problem, const char *code, const char *format, ...)
{
    problem->code = code;
    problem->byte = -1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem->message, sizeof problem->message, format, arguments);
    va_end(arguments);
    return -1;
}
