/* The options of all commands: one table, from which they are parsed and explained. */
#ifndef NJ_JOBS_OPTIONS_H
#define NJ_JOBS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "engine/base/error.h"

/* Commands, as bits: which options each takes. */
enum nj_command_bit {
    NJ_FOR_RUN = 1,
    NJ_FOR_RESUME = 2,
    NJ_FOR_STATUS = 4,
    NJ_FOR_EXPORT = 8,
    NJ_FOR_PLAN = 16,
    NJ_FOR_DOCTOR = 32,
    NJ_FOR_BENCH = 64,
    NJ_FOR_PACK = 128
};

/* What the command line said. Texts point into argv. */
struct nj_arguments {
    const char *model, *output, *cache_directory, *kernels, *kv_type; /* NULL: not given */
    int64_t threads, token_budget;                                    /* 0: not given */
    uint64_t kv_memory_bytes, max_memory_bytes;                       /* 0: not given */
    int64_t first;                                                    /* 0: not given */
    int64_t prompt_tokens, context_tokens, seconds;                   /* 0: not given */
    unsigned accept, retry;                                           /* enum nj_accept, enum nj_retry, or'ed */
    const char *retry_ids;                                            /* with NJ_RETRY_IDS */
    int64_t job_time;                                                 /* -1: not given */
    bool strict, as_chat, list, remove, quiet, json, help;
    const char **operands; /* what is not an option, in order; points to argv's own array */
    size_t operand_count;
};

/* Parses `count` words after the command's name. Options and operands may mix; "--" ends the options. The
 * operands are moved to the front of `words`. Fails with NJ_BAD_USAGE, or NJ_UNAVAILABLE for kernels that
 * this machine cannot run. */
int options_parse(enum nj_command_bit command, const char **words, size_t count, struct nj_arguments *out,
                  struct nj_error *error);

/* One line per option of the command. */
void options_print(enum nj_command_bit command, FILE *to);

#endif
