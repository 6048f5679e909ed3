/* DIR/spool: a copy of the input that cannot be read again at random (standard input, .jsonl.gz, archives), made
 * while it is indexed, so that a job can be continued without it.
 *
 * Its streams (one per file, or per member of an archive) lie end to end in one space of bytes, which is cut into
 * blocks; each block is one zstd frame in DIR/spool/blocks.GENERATION. DIR/spool/spool.bin says where each stream
 * and block lies, with checksums, and is put in place when all blocks are durable: a spool is complete or not
 * there. docs/output.md describes both files. One thread at a time. */
#ifndef NJ_PIPELINE_INPUT_SPOOL_H
#define NJ_PIPELINE_INPUT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

enum { NJ_SPOOL_VERSION = 1, NJ_SPOOL_BLOCK_BYTES = 256 << 10 };

/* Where streams came from: an input that was named or found. */
struct nj_spool_source {
    char *path; /* absolute; "-" for standard input */
    uint64_t bytes;
    int64_t modified_nanoseconds;
    uint32_t kind; /* enum nj_input_kind */
};

struct nj_spool_stream {
    char *name; /* of the member; empty: the source is the stream */
    uint32_t source;
    uint64_t start, bytes; /* in the spool's space */
};

struct nj_spool;

/* Opens the complete spool of an output directory: 1, 0 if there is none, -1. A damaged one is NJ_BAD_DATA. */
int spool_open(const char *output_directory, struct nj_spool **out, struct nj_error *error);

/* Begins a new one beside the complete one, if any, and removes what an earlier attempt left. The caller holds the
 * directory's lock. */
struct nj_spool *spool_create(const char *output_directory, struct nj_error *error);
void spool_close(struct nj_spool *spool); /* removes one that was begun and not committed */

/* Writing: each source, its streams, their bytes, in this order. */
int spool_begin_source(struct nj_spool *spool, const struct nj_spool_source *source, struct nj_error *error);
int spool_begin_stream(struct nj_spool *spool, const char *name, struct nj_error *error);
int spool_append(struct nj_spool *spool, const void *bytes, size_t length, struct nj_error *error);
/* Makes it durable and puts it in the place of the earlier one. */
int spool_commit(struct nj_spool *spool, struct nj_error *error);

size_t spool_source_count(const struct nj_spool *spool);
const struct nj_spool_source *spool_source_at(const struct nj_spool *spool, size_t index);
size_t spool_stream_count(const struct nj_spool *spool);
const struct nj_spool_stream *spool_stream_at(const struct nj_spool *spool, size_t index);

/* Of all that spool.bin says, the blocks' checksums included; of a complete spool. */
uint64_t spool_checksum(const struct nj_spool *spool);

/* Reads exactly `length` bytes of the space, also of a spool that is being written. A block that is not what was
 * written is NJ_BAD_DATA with the remedy. */
int spool_read(struct nj_spool *spool, uint64_t position, void *to, size_t length, struct nj_error *error);

#endif
