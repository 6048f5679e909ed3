/* index.bin: the input's records in input order, so that export and status need neither the input nor the model,
 * and a later run can tell what has been added, changed or removed, or need not read an unchanged input at all.
 *
 * A table (table_file.h) whose trailer says what of the input was read: each file's size, times, inode and label,
 * which copy of the input (spool.h), and which version of nightjar did it. */
#ifndef NJ_PIPELINE_INDEX_INDEX_FILE_H
#define NJ_PIPELINE_INDEX_INDEX_FILE_H

#include "pipeline/base/digest.h"
#include "pipeline/index/prefix_keys.h"
#include "pipeline/input/input.h"

enum { NJ_INDEX_FILE_VERSION = 4 };

struct nj_index_record {
    struct nj_digest id_hash; /* XXH3-128 of the id */
    struct nj_digest digest;  /* of the request, or of the bad line */
    uint64_t offset, line;
    uint32_t file, length; /* length: of the line, or of what is kept of one that is too long */
    uint32_t prompt_tokens, max_new_tokens;
    uint8_t kind;         /* enum nj_entry_kind */
    uint8_t logprobs;     /* log-probabilities kept of each new token; 0: none are wanted */
    uint8_t own_id;       /* 1: the line gives its id */
    uint8_t more_samples; /* sequences that the request needs beside the first */
    uint32_t prefix_key[NJ_PREFIX_LEVELS];
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

/* Whether the records were read from this input as it is now, by this version of nightjar: the same files with the
 * same labels, sizes, times and inodes, and the same copy of what is not plain. The input's streams must have been
 * listed (input_list_streams). */
bool index_reader_matches(const struct nj_index_reader *reader, const struct nj_input *input);

#endif
