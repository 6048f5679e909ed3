/* The lines of results.jsonl and errors.jsonl. docs/output.md describes them for readers. A line ends in fields
 * of nightjar's own, always these in this order: "schema", "attempt", "digest", "crc32". export leaves them out. */
#ifndef NJ_PIPELINE_OUTPUT_RECORD_H
#define NJ_PIPELINE_OUTPUT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/sweep/scheduler.h"
#include "pipeline/base/digest.h"
#include "pipeline/base/problem.h"
#include "pipeline/request/request.h"

enum { NJ_RECORD_SCHEMA = 1 };

/* What all records of a job share. */
struct nj_record_context {
    struct nj_digest job_digest; /* batch records derive their ids from it and the custom_id */
    const char *model_name;
    int64_t job_time;
    const struct nj_tokenizer *tokenizer; /* names tokens beside their log-probabilities */
};

/* What a request is answered with. */
struct nj_record_answer {
    const struct nj_sequence_result *samples; /* [sample_count], none of them NJ_FINISH_NOT_FINITE */
    int32_t sample_count;                     /* n, or 1: all n choices are this one */
    int32_t n;                                /* 1 .. NJ_CHOICES_MOST */
    enum nj_logprobs_form logprobs;           /* not off: the samples have theirs */
};

/* Which request a record is about. */
struct nj_record_subject {
    const char *id; /* NUL-terminated */
    enum nj_shape shape;
    struct nj_digest digest;
    unsigned attempt; /* from 1 */
};

/* Where a bad line stands. file NULL: leave the place out. */
struct nj_record_place {
    const char *file;
    uint64_t line, byte;
};

/* A record as JSON without crc32 and newline; the caller frees it. NULL: out of memory (error filled). */
char *record_make_result(const struct nj_record_context *context, const struct nj_record_subject *subject,
                         const struct nj_record_answer *answer, struct nj_error *error);
char *record_make_error(const struct nj_record_context *context, const struct nj_record_subject *subject,
                        const struct nj_problem *problem, const struct nj_record_place *place, struct nj_error *error);

/* Reads what a line of ours is about; the line's checksum has been verified. -1: not such a line. */
struct nj_record_key {
    struct nj_digest id_hash; /* XXH3-128 of the id (custom_id in batch records) */
    struct nj_digest digest;
    unsigned attempt;
    uint32_t prompt_tokens, new_tokens; /* results only */
};
int record_read_key(const char *line, size_t length, struct nj_record_key *key);

/* Whether an answer ended for its length: any of its choices. The line is one of ours and its checksum is right. */
bool record_is_cut(const char *line, size_t length);

/* Bytes of the line's part that is for users; followed by '}' it is the exported record. 0: not such a line. */
size_t record_public_length(const char *line, size_t length);

#endif
