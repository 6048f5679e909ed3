#include "engine/base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int error_set(struct nj_error *error, enum nj_code code, const char *format, ...)
{
    if (error == NULL)
        return -1;
    memset(error, 0, sizeof *error);
    error->code = code;
    error->byte = -1;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return -1;
}

int error_at(struct nj_error *error, const char *file, int64_t line, int64_t byte)
{
    if (error == NULL)
        return -1;
    if (error->file[0] == '\0' && file != NULL)
        snprintf(error->file, sizeof error->file, "%s", file);
    if (error->line == 0)
        error->line = line;
    if (error->byte < 0)
        error->byte = byte;
    return -1;
}

void error_format(const struct nj_error *error, char *out, unsigned long out_bytes)
{
    if (error->file[0] != '\0' && error->line > 0)
        snprintf(out, out_bytes, "%s:%" PRId64 ": %s", error->file, error->line, error->message);
    else if (error->file[0] != '\0' && error->byte >= 0)
        snprintf(out, out_bytes, "%s: %s (byte %" PRId64 ")", error->file, error->message, error->byte);
    else if (error->file[0] != '\0')
        snprintf(out, out_bytes, "%s: %s", error->file, error->message);
    else
        snprintf(out, out_bytes, "%s", error->message);
}
