/* Reads pieces of one file in the background, several at a time: through io_uring where the kernel allows it and the
 * file is read directly, else with threads. Which pieces, and into which memory, a source says; it is called from the
 * reader's own threads. */
#ifndef NJ_ENGINE_DISK_CHUNK_READER_H
#define NJ_ENGINE_DISK_CHUNK_READER_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/file.h"

enum nj_reader_kind { NJ_READER_AUTOMATIC, NJ_READER_URING, NJ_READER_THREADS };

enum { NJ_READER_MOST_DEPTH = 16, NJ_READER_MOST_MEMORIES = 16 };

/* Offset, bytes and address are multiples of 4,096. */
struct nj_chunk {
    void *to;
    uint64_t offset, bytes;
    uint64_t tag; /* the source's own */
};

struct nj_chunk_source {
    void *context;
    /* 1: the next piece; 0: there is none now (never if may_wait: then it waits for one); -1: there will be no more. */
    int (*next)(void *context, bool may_wait, struct nj_chunk *out);
    /* The piece is there or, with an error that is not NULL, could not be read. Pieces end in any order. */
    void (*done)(void *context, const struct nj_chunk *chunk, const struct nj_error *error);
};

/* Memory that pieces are read into. */
struct nj_reader_memory {
    void *address;
    uint64_t bytes;
};

struct nj_chunk_reader_options {
    enum nj_reader_kind kind;
    int depth; /* pieces read at the same time, 1 .. NJ_READER_MOST_DEPTH */
    struct nj_direct_file *file;
    struct nj_chunk_source source;
    const struct nj_reader_memory *memory; /* [memories], borrowed during creation; pieces lie in one each */
    int memories;                          /* at most NJ_READER_MOST_MEMORIES */
};

struct nj_chunk_reader;

/* NJ_UNAVAILABLE if io_uring was asked for and is not to be had. File and source outlive the reader. */
struct nj_chunk_reader *chunk_reader_create(const struct nj_chunk_reader_options *options, struct nj_error *error);
/* Waits for the reader's threads, so `next` must answer -1 by now. NULL is fine. */
void chunk_reader_destroy(struct nj_chunk_reader *reader);

/* NJ_READER_URING or NJ_READER_THREADS. */
enum nj_reader_kind chunk_reader_kind(const struct nj_chunk_reader *reader);

#endif
