/* inflight.ckpt: the tokens so far of the sequences in flight, and of those that are finished while their request
 * still waits for others; and how much of the logs was durable.
 * A header, the sequences, a CRC-32 of all before it; little-endian; replaced atomically. */
#ifndef NJ_PIPELINE_OUTPUT_CHECKPOINT_H
#define NJ_PIPELINE_OUTPUT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/sweep/logprobs.h"
#include "pipeline/base/byte_buffer.h"
#include "pipeline/base/digest.h"
#include "pipeline/output/record_log.h"

enum { NJ_CHECKPOINT_VERSION = 2 };

struct nj_checkpoint_sequence {
    struct nj_digest id_hash, digest; /* of the id and of the request */
    uint32_t sample;                  /* which of the request's n */
    const int32_t *generated;         /* the checkpoint's */
    int32_t generated_count;
    const struct nj_logprob *logprobs; /* [generated_count][1 + top_logprobs], the checkpoint's; NULL: none there */
    int32_t top_logprobs;
};

struct nj_checkpoint {
    struct nj_log_mark results, errors;
    struct nj_checkpoint_sequence *sequences; /* oldest first */
    size_t count;
    int32_t *tokens; /* of all sequences, and their log-probabilities */
};

/* 1 read, 0 there is none, -1 with NJ_BAD_DATA if it cannot be used (damaged, another version or job) or
 * NJ_IO_FAILED. */
int checkpoint_read(const char *path, struct nj_digest job_digest, struct nj_checkpoint *out, struct nj_error *error);
void checkpoint_free(struct nj_checkpoint *checkpoint);

/* Writing: begin, add each sequence, write. */
struct nj_checkpoint_writer {
    struct nj_byte_buffer buffer;
    uint64_t count;
};
int checkpoint_begin(struct nj_checkpoint_writer *writer, struct nj_digest job_digest, struct nj_log_mark results,
                     struct nj_log_mark errors, struct nj_error *error);
int checkpoint_add(struct nj_checkpoint_writer *writer, const struct nj_checkpoint_sequence *sequence,
                   struct nj_error *error);
int checkpoint_write(struct nj_checkpoint_writer *writer, const char *path, struct nj_error *error);
void checkpoint_writer_free(struct nj_checkpoint_writer *writer);

#endif
