/* Why one request fails while the job goes on: what becomes an error record. */
#ifndef NJ_PIPELINE_BASE_PROBLEM_H
#define NJ_PIPELINE_BASE_PROBLEM_H

#include <stdint.h>

struct nj_problem {
    const char *code;  /* a constant: "invalid_json", "invalid_request", ... (docs/output.md lists them) */
    char message[600]; /* says what is wrong and what to do; may be cut, see utf8_json_message */
    int64_t byte;      /* within the line, -1: not known */
};

/* Fills it in and returns -1. */
int problem_set(struct nj_problem *problem, const char *code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
