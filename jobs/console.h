/* Messages for people, on standard error: news, errors, and one progress line that stays in place at the
 * bottom of a terminal. Whatever is printed has its control characters (and invalid UTF-8) written as \xNN,
 * so that no file name or message can steer the terminal. One thread uses a console at a time. */
#ifndef NJ_JOBS_CONSOLE_H
#define NJ_JOBS_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"

struct nj_console {
    bool is_terminal;
    bool has_color;
    int environment_columns; /* the width if the terminal does not say; 0: unknown */
    size_t status_columns;   /* of the line in place now; 0: none */
};

void console_open(struct nj_console *console, bool no_color, int environment_columns);

/* One line; the progress line, if any, goes out of its way. */
void console_note(struct nj_console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "nightjar: error: ..." */
void console_error(struct nj_console *console, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with the error's place; returns its code as the exit code. */
int console_report(struct nj_console *console, const struct nj_error *error);

/* Columns that a status line may fill. */
size_t console_status_width(const struct nj_console *console);

/* Puts an ASCII line of at most that width in place of the one before; "" removes it. Terminals only. */
void console_status(struct nj_console *console, const char *line);

/* `text` with control characters and invalid UTF-8 escaped, cut where `out` is full. */
void console_escape(const char *text, char *out, size_t out_bytes);

/* What stands at the start of `text` (length >= 1) as it may be shown: a character, or \xNN for each byte of a
 * control character or of invalid UTF-8. Returns the bytes consumed, 1 to 4. */
enum { NJ_SHOWN_CHARACTER_BYTES = 17 }; /* NUL included */
size_t console_escape_character(const char *text, size_t length, char out[NJ_SHOWN_CHARACTER_BYTES]);

#endif
