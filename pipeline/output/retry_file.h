/* retry.bin: which requests are to be answered once more although they have a record, so that a retry that was
 * interrupted goes on as it was asked for. It is there from when a retry is asked for until all of it is done. */
#ifndef NJ_PIPELINE_OUTPUT_RETRY_FILE_H
#define NJ_PIPELINE_OUTPUT_RETRY_FILE_H

#include <stdint.h>

#include "engine/base/error.h"
#include "pipeline/base/digest.h"

enum { NJ_RETRY_FILE_VERSION = 1 };

struct nj_retry_request {
    struct nj_digest id_hash, digest; /* of the id and of the request */
    uint64_t attempts;                /* how many it has had: only a later one counts */
};

/* What was asked for. */
struct nj_retry_wish {
    uint32_t kinds; /* enum nj_retry, or'ed */
    uint32_t unused;
    struct nj_digest ids; /* of the file of ids as it was; zero without one */
};

struct nj_retry_writer;

/* Begins PATH.tmp. */
struct nj_retry_writer *retry_writer_create(const char *path, struct nj_digest job_digest, struct nj_error *error);
int retry_writer_add(struct nj_retry_writer *writer, const struct nj_retry_request *request, struct nj_error *error);
/* Completes it, makes it durable and puts it in place. */
int retry_writer_commit(struct nj_retry_writer *writer, const struct nj_retry_wish *wish, struct nj_error *error);
void retry_writer_destroy(struct nj_retry_writer *writer); /* removes an uncommitted file */

struct nj_retry_reader;

/* Checks everything first. NULL with NJ_NO_INPUT if there is none, NJ_BAD_DATA if it is damaged. */
struct nj_retry_reader *retry_reader_open(const char *path, struct nj_digest job_digest, struct nj_error *error);
void retry_reader_close(struct nj_retry_reader *reader);
/* The next request: 1, 0 at the end, -1 on an error. */
int retry_reader_next(struct nj_retry_reader *reader, struct nj_retry_request *request, struct nj_error *error);
struct nj_retry_wish retry_reader_wish(const struct nj_retry_reader *reader);

#endif
