/* What spool.c (blocks) and spool_manifest.c (spool.bin) share. */
#ifndef NJ_PIPELINE_INPUT_SPOOL_INTERNAL_H
#define NJ_PIPELINE_INPUT_SPOOL_INTERNAL_H

#include <zstd.h>

#include "pipeline/base/byte_buffer.h"
#include "pipeline/input/spool.h"

struct spool_block {
    uint64_t offset; /* in the file of blocks; it ends where the next one begins */
    uint64_t checksum;
};

enum { SPOOL_CACHED_BLOCKS = 8 };

struct spool_cached_block {
    uint64_t number;
    uint64_t used_at; /* 0: empty */
    char *bytes;
};

struct nj_spool {
    char *directory, *manifest_path, *blocks_path;
    uint64_t generation;
    int fd;
    struct nj_spool_source *sources;
    size_t source_count, source_capacity;
    struct nj_spool_stream *streams;
    size_t stream_count, stream_capacity;
    struct spool_block *blocks;
    size_t block_count, block_capacity;
    uint64_t raw_bytes, stored_bytes;
    uint64_t manifest_checksum; /* of spool.bin as it is in place */

    bool writing;        /* begun here and not committed */
    char *pending;       /* the block being filled */
    size_t pending_used; /* raw_bytes counts them too */
    char *packed;        /* a compressed block */
    size_t packed_capacity;
    ZSTD_CCtx *compressor;
    ZSTD_DCtx *decompressor;
    struct spool_cached_block cache[SPOOL_CACHED_BLOCKS];
    uint64_t clock;
};

/* The last block may be shorter. */
size_t spool_block_bytes(const struct nj_spool *spool, uint64_t number);
int spool_set_paths(struct nj_spool *spool, const char *output_directory, struct nj_error *error);
int spool_set_blocks_path(struct nj_spool *spool, struct nj_error *error);
int spool_fail_damaged(const char *path, const char *what, struct nj_error *error);

/* Grows an array by at least one element. */
int spool_grow(void **array, size_t *capacity, size_t count, size_t element_bytes, struct nj_error *error);

/* spool_manifest.c */
int spool_manifest_write(struct nj_spool *spool, struct nj_error *error);
/* 1 read, 0 there is none, -1. */
int spool_manifest_read(struct nj_spool *spool, struct nj_error *error);

#endif
