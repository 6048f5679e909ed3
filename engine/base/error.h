/* The one error type. A function that can fail takes `struct nj_error *` last, returns 0 on success and
 * -1 on failure (or NULL for a pointer), and has then filled the error in. Messages say what to do. */
#ifndef NJ_ENGINE_BASE_ERROR_H
#define NJ_ENGINE_BASE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

/* Values are the process's exit codes (docs/design.md). */
enum nj_code {
    NJ_OK = 0,
    NJ_SOME_FAILED = 1,
    NJ_BAD_USAGE = 64,
    NJ_BAD_DATA = 65,     /* bad model, job or changed input */
    NJ_NO_INPUT = 66,     /* a named file does not exist or cannot be opened */
    NJ_UNAVAILABLE = 69,  /* a device or tool that was asked for is not there */
    NJ_INTERNAL = 70,     /* a bug, or no memory outside any cap */
    NJ_CANT_CREATE = 73,  /* cannot create the output, or another process holds it */
    NJ_IO_FAILED = 74,    /* read or write failed */
    NJ_INTERRUPTED = 75,  /* stopped; run again to continue */
    NJ_DOES_NOT_FIT = 78, /* cannot run under the given caps or options */
};

struct nj_error {
    enum nj_code code;
    char message[1024]; /* UTF-8, one line, no trailing full stop needed */
    char file[512];     /* empty: none */
    int64_t line;       /* 1-based; 0: none */
    int64_t byte;       /* offset from 0; -1: none */
};

/* Fills the error (if not NULL) without a place and returns -1, so that callers can `return error_set(...)`.
 * Control characters become spaces, and a message that is too long is cut at a whole character. An argument
 * may be the error's own earlier message. */
int error_set(struct nj_error *error, enum nj_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Adds where it happened; keeps an earlier, more precise place (all of it, if that is in another file).
 * Returns -1. */
int error_at(struct nj_error *error, const char *file, int64_t line, int64_t byte);

/* Writes "FILE:LINE: message" or "FILE: message (byte N)" or "message" into `out`. */
void error_format(const struct nj_error *error, char *out, unsigned long out_bytes);

#endif
