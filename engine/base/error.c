#include "engine/base/error.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/utf8.h"

/* Messages may quote text from files: they stay one line and valid UTF-8 where they are cut. */
static void tidy_message(char *message)
{
    message[utf8_whole_bytes(message, strlen(message))] = '\0';
    for (char *c = message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
}

int error_set(struct nj_error *error, enum nj_code code, const char *format, ...)
{
    if (error == NULL)
        return -1;
    /* Built aside, since an argument may be the error's own earlier message. */
    char message[sizeof error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    tidy_message(message);
    memset(error, 0, sizeof *error);
    error->code = code;
    error->byte = -1;
    memcpy(error->message, message, strlen(message) + 1);
    return -1;
}

int error_at(struct nj_error *error, const char *file, int64_t line, int64_t byte)
{
    if (error == NULL)
        return -1;
    bool is_other_file = error->file[0] != '\0' && file != NULL && strcmp(error->file, file) != 0;
    if (is_other_file)
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
