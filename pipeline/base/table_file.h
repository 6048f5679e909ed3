/* A file of rows of one size and a trailer, with checksums over all of it: index.bin, retry.bin.
 *
 * A header of 64 bytes, the rows, the trailer (whatever the kind of table keeps there). Little-endian; the
 * checksums are XXH3-64. Written beside the old one and renamed at the end. Rows are given through a fixed buffer:
 * what is in memory does not grow with their number. */
#ifndef NJ_PIPELINE_BASE_TABLE_FILE_H
#define NJ_PIPELINE_BASE_TABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "pipeline/base/digest.h"

struct nj_table_kind {
    char magic[8];
    uint32_t version, row_bytes;
    const char *name, *remedy; /* for messages: "the NAME is damaged (...): REMEDY" */
};

struct nj_table_writer;

/* Begins PATH.tmp. `kind` must outlive the writer. */
struct nj_table_writer *table_writer_create(const char *path, const struct nj_table_kind *kind,
                                            struct nj_digest job_digest, struct nj_error *error);
int table_writer_add(struct nj_table_writer *writer, const void *row, struct nj_error *error);
/* Behind the last row. */
int table_writer_add_trailer(struct nj_table_writer *writer, const void *bytes, size_t length, struct nj_error *error);
/* Makes it durable and puts it in place. */
int table_writer_commit(struct nj_table_writer *writer, struct nj_error *error);
void table_writer_destroy(struct nj_table_writer *writer); /* removes an uncommitted file */

struct nj_table_reader;

/* Checks everything first: kind, version, job (if not NULL), sizes and checksums. NULL with NJ_NO_INPUT if there is
 * no such file, NJ_BAD_DATA if it is damaged. */
struct nj_table_reader *table_reader_open(const char *path, const struct nj_table_kind *kind,
                                          const struct nj_digest *job_digest, struct nj_error *error);
void table_reader_close(struct nj_table_reader *reader);
uint64_t table_reader_count(const struct nj_table_reader *reader);
/* The next row: 1, 0 at the end, -1 on an error. */
int table_reader_next(struct nj_table_reader *reader, void *row, struct nj_error *error);
void table_reader_rewind(struct nj_table_reader *reader);
/* The reader's. */
const char *table_reader_trailer(const struct nj_table_reader *reader, size_t *length);
/* NJ_BAD_DATA, as opening a damaged file gives. */
int table_reader_fail(const struct nj_table_reader *reader, const char *what, struct nj_error *error);

#endif
