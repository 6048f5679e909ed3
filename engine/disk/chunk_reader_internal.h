/* What the files of the chunk reader share. Internal to engine/disk. */
#ifndef NJ_ENGINE_DISK_CHUNK_READER_INTERNAL_H
#define NJ_ENGINE_DISK_CHUNK_READER_INTERNAL_H

#include <liburing.h>
#include <pthread.h>

#include "engine/disk/chunk_reader.h"

struct nj_chunk_reader {
    struct nj_chunk_reader_options options; /* but for its memory */
    struct nj_reader_memory memory[NJ_READER_MOST_MEMORIES];
    enum nj_reader_kind kind;
    pthread_t thread[NJ_READER_MOST_DEPTH];
    int threads;
    struct io_uring uring;
    bool is_registered; /* the kernel holds the memories' pages, so that it need not look them up for each piece */
};

/* Reads a piece here and now, and tells the source. */
void chunk_reader_read(struct nj_chunk_reader *reader, const struct nj_chunk *chunk);

/* 0, or a negative errno: the kernel gives no ring. */
int chunk_reader_open_uring(struct nj_chunk_reader *reader);
void chunk_reader_close_uring(struct nj_chunk_reader *reader);
/* The one thread of a reader with a ring; takes the reader. */
void *chunk_reader_run_uring(void *reader);

#endif
