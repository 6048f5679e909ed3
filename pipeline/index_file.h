/* index.bin: the input's records in input order, so that export and status need neither the input nor the model,
 * and resume can tell what has been added, changed or removed.
 *
 * A header of 64 bytes, the records (64 bytes each), and for each input file its size, time and label.
 * Little-endian; the header's checksums are XXH3-64. Written beside the old one and renamed at the end. */
#ifndef NJ_PIPELINE_INDEX_FILE_H
#define NJ_PIPELINE_INDEX_FILE_H

#include "pipeline/digest.h"
#include "pipeline/input.h"

enum { NJ_INDEX_FILE_VERSION = 1 };

struct nj_index_record {
    struct nj_digest id_hash; /* XXH3-128 of the id */
    struct nj_digest digest;  /* of the request, or of the bad line */
    uint64_t offset, line;
    uint32_t file, prompt_tokens, max_new_tokens;
    uint32_t kind; /* enum nj_entry_kind */
};

struct nj_index_writer;

/* Begins PATH.tmp. */
struct nj_index_writer *index_writer_create(const char *path, struct nj_digest job_digest, struct nj_error *error);
int index_writer_add(struct nj_index_writer *writer, const struct nj_index_record *record, struct nj_error *error);
/* Completes it with the input's files, makes it durable and puts it in place. */
int index_writer_commit(struct nj_index_writer *writer, const struct nj_input *input, struct nj_error *error);
void index_writer_destroy(struct nj_index_writer *writer); /* removes an uncommitted file */

struct nj_index_reader;

/* Checks everything first: version, job (if not NULL), sizes and checksums. NULL with NJ_NO_INPUT if there is no
 * such file, NJ_BAD_DATA if it is damaged. */
struct nj_index_reader *index_reader_open(const char *path, const struct nj_digest *job_digest, struct nj_error *error);
void index_reader_close(struct nj_index_reader *reader);
uint64_t index_reader_count(const struct nj_index_reader *reader);
/* The next record: 1, 0 at the end, -1 on an error. */
int index_reader_next(struct nj_index_reader *reader, struct nj_index_record *record, struct nj_error *error);
void index_reader_rewind(struct nj_index_reader *reader);
/* The label of a file, "?" if there is none of that number. */
const char *index_reader_label(const struct nj_index_reader *reader, uint32_t file);

#endif
