#include "jobs/console.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "engine/base/utf8.h"

enum { LINE_BYTES = 8192, DEFAULT_COLUMNS = 80 };

void console_open(struct nj_console *console, bool no_color, int environment_columns)
{
    memset(console, 0, sizeof *console);
    console->is_terminal = isatty(STDERR_FILENO) == 1;
    console->has_color = console->is_terminal && !no_color;
    console->environment_columns = environment_columns;
}

/* C0, DEL, C1 (two bytes in UTF-8), and the characters that reorder or hide text on a terminal. */
static bool console_is_control(const unsigned char *text, size_t length)
{
    if (length == 1)
        return text[0] < 0x20 || text[0] == 0x7f;
    if (length == 2)
        return text[0] == 0xc2 && text[1] < 0xa0;
    if (length != 3 || text[0] != 0xe2)
        return false;
    bool is_direction =
        text[1] == 0x80 && ((text[2] >= 0x8e && text[2] <= 0x8f) || (text[2] >= 0xa8 && text[2] <= 0xae));
    bool is_isolate = text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9;
    return is_direction || is_isolate;
}

size_t console_escape_character(const char *text, size_t length, char out[NJ_SHOWN_CHARACTER_BYTES])
{
    size_t bytes = utf8_character_bytes(text, length);
    if (bytes > 0 && !console_is_control((const unsigned char *)text, bytes)) {
        memcpy(out, text, bytes);
        out[bytes] = '\0';
        return bytes;
    }
    bytes = bytes > 0 ? bytes : 1;
    for (size_t i = 0; i < bytes; i++)
        snprintf(out + 4 * i, 5, "\\x%02x", (unsigned char)text[i]);
    return bytes;
}

void console_escape(const char *text, char *out, size_t out_bytes)
{
    size_t rest = strlen(text), used = 0;
    while (rest > 0) {
        char shown[NJ_SHOWN_CHARACTER_BYTES];
        size_t consumed = console_escape_character(text, rest, shown), needed = strlen(shown);
        if (used + needed >= out_bytes)
            break;
        memcpy(out + used, shown, needed);
        used += needed;
        text += consumed;
        rest -= consumed;
    }
    out[used] = '\0';
}

static void console_print(struct nj_console *console, const char *prefix, const char *format, va_list arguments)
{
    char text[LINE_BYTES], line[LINE_BYTES];
    vsnprintf(text, sizeof text, format, arguments);
    console_escape(text, line, sizeof line);
    console_status(console, "");
    fprintf(stderr, "%s%s\n", prefix, line);
    fflush(stderr);
}

void console_note(struct nj_console *console, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    console_print(console, "", format, arguments);
    va_end(arguments);
}

void console_error(struct nj_console *console, const char *format, ...)
{
    const char *prefix = console->has_color ? "nightjar: \033[1;31merror:\033[0m " : "nightjar: error: ";
    va_list arguments;
    va_start(arguments, format);
    console_print(console, prefix, format, arguments);
    va_end(arguments);
}

int console_report(struct nj_console *console, const struct nj_error *error)
{
    char text[sizeof error->message + sizeof error->file + 64];
    error_format(error, text, sizeof text);
    console_error(console, "%s", text);
    return (int)error->code;
}

size_t console_status_width(const struct nj_console *console)
{
    struct winsize size;
    int columns = DEFAULT_COLUMNS;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        columns = size.ws_col;
    else if (console->environment_columns > 0)
        columns = console->environment_columns;
    return columns > 1 ? (size_t)columns - 1 : 1; /* a full last column would wrap */
}

void console_status(struct nj_console *console, const char *line)
{
    size_t columns = strlen(line), old = console->status_columns;
    if (!console->is_terminal || (columns == 0 && old == 0))
        return;
    /* Blanks erase the rest of the old line: no escape sequence is needed. */
    fprintf(stderr, "\r%s%*s", line, old > columns ? (int)(old - columns) : 0, "");
    if (columns < old)
        fprintf(stderr, "\r%s", line);
    fflush(stderr);
    console->status_columns = columns;
}
