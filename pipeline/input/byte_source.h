/* Bytes that come one after another: from a file, standard input, a decompressor, a member of an archive. Each
 * source looks at the stop flag while it waits, so that a stop is obeyed within a fraction of a second. */
#ifndef NJ_PIPELINE_INPUT_BYTE_SOURCE_H
#define NJ_PIPELINE_INPUT_BYTE_SOURCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

struct nj_byte_source;

struct nj_byte_source_kind {
    /* At least one byte and at most `most`; *got 0 only at the end. */
    int (*read)(struct nj_byte_source *source, void *to, size_t most, size_t *got, struct nj_error *error);
    /* The new position, or -1 (errno set). NULL: cannot. */
    int64_t (*seek)(struct nj_byte_source *source, int64_t offset, int whence);
    void (*close)(struct nj_byte_source *source);
};

/* The first member of every source. */
struct nj_byte_source {
    const struct nj_byte_source_kind *kind;
};

int byte_source_read(struct nj_byte_source *source, void *to, size_t most, size_t *got, struct nj_error *error);
void byte_source_close(struct nj_byte_source *source); /* NULL is fine */

/* A regular file. `stop` may be NULL; otherwise NJ_INTERRUPTED when it is non-zero. */
struct nj_byte_source *byte_source_open_file(const char *path, const atomic_int *stop, struct nj_error *error);

/* Standard input; close leaves the descriptor open. */
struct nj_byte_source *byte_source_open_standard_input(const atomic_int *stop, struct nj_error *error);
/* Waits for the first byte, which the next read gives. */
int byte_source_is_empty(struct nj_byte_source *standard_input, bool *empty, struct nj_error *error);

/* Bytes taken so far, of a file or standard input. */
uint64_t byte_source_taken(const struct nj_byte_source *source);

/* What a gzip stream (one member or several) holds; checksums and lengths are verified. The inner source is taken
 * over, also when this fails. Damage is NJ_BAD_DATA with a message that says where in the compressed bytes. */
struct nj_byte_source *byte_source_open_gzip(struct nj_byte_source *inner, struct nj_error *error);

#endif
