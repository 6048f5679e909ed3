/* The one pass over the input: every line is validated, counted in tokens and entered into the index; duplicate
 * ids are found. The same records go to a new index.bin as they come. */
#ifndef NJ_PIPELINE_INDEX_INDEX_BUILD_H
#define NJ_PIPELINE_INDEX_INDEX_BUILD_H

#include <stdatomic.h>

#include "engine/model/pack.h"
#include "pipeline/index/examine.h"
#include "pipeline/index/index_file.h"

struct nj_index_build {
    struct nj_examiner *examiner;
    struct nj_index *index;
    struct nj_index_writer *writer; /* may be NULL */
    bool strict;                    /* the first bad line is an error (NJ_BAD_DATA with file and line) */
    bool as_chat;
    nj_notice notice; /* may be NULL */
    void *notice_context;
    void (*progress)(void *context, uint64_t lines); /* every few thousand lines; may be NULL */
    void *progress_context;
    const atomic_int *stop; /* non-zero: NJ_INTERRUPTED; may be NULL */
};

enum { NJ_BAD_SHOWN = 5 };

struct nj_index_totals {
    uint64_t requests, bad;
    uint64_t prompt_tokens, most_new_tokens; /* sums over requests */
    uint8_t most_logprobs;                   /* the largest number of log-probabilities of a new token */
    struct nj_error first_bad[NJ_BAD_SHOWN]; /* the first of the bad lines, with file and line */
};

int index_build(const struct nj_index_build *build, struct nj_index_totals *totals, struct nj_error *error);

/* NJ_BAD_DATA if there are lines and all are bad. */
int index_check_some_good(const struct nj_index_totals *totals, struct nj_error *error);
/* index_load.c: fills the (empty) index from index.bin instead, whose reader must match the input
 * (index_reader_matches); `first_bad` stays empty. NJ_BAD_DATA if a record cannot be right. */
int index_load(const struct nj_index_build *build, struct nj_index_reader *reader, struct nj_index_totals *totals,
               struct nj_error *error);

/* Between lines: news, and whether to stop (NJ_INTERRUPTED). */
int index_build_look_up(const struct nj_index_build *build, uint64_t lines, struct nj_error *error);

/* The problem of a duplicate: names where the id stands first. `entry` is the duplicate's. */
int index_describe_duplicate(struct nj_examiner *examiner, const struct nj_index *index, const char *id,
                             const struct nj_index_entry *entry, struct nj_problem *problem, struct nj_error *error);

#endif
