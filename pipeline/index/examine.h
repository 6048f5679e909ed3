/* One line of input examined: what the index, the run and the error records need to know of it. */
#ifndef NJ_PIPELINE_INDEX_EXAMINE_H
#define NJ_PIPELINE_INDEX_EXAMINE_H

#include "pipeline/index/index.h"
#include "pipeline/input/input.h"
#include "pipeline/request/prompt.h"

struct nj_examiner {
    struct nj_input *input;
    struct nj_prompt_encoder *encoder;
    struct nj_byte_buffer line; /* of examine_again */
    bool is_read_once;          /* no line can be read again: ids with equal hashes (64 bits) are taken for equal */
};
void examiner_free(struct nj_examiner *examiner);

struct nj_examined {
    struct nj_request request;
    struct nj_encoded_prompt prompt; /* valid if ok */
    bool ok;
    struct nj_problem problem; /* valid if not ok */
    struct nj_digest digest;   /* of the request or of the bad line */
};

/* 0, or -1 when the job cannot go on. Free with examined_free in both cases. */
int examine_line(struct nj_examiner *examiner, const struct nj_line *line, struct nj_examined *out,
                 struct nj_error *error);
void examined_free(struct nj_examined *examined);

/* Reads the line of an entry again, in place. The text stays valid until the next call. */
int examine_read_again(struct nj_examiner *examiner, const struct nj_index_entry *entry, struct nj_line *line,
                       struct nj_error *error);

/* An id for a line that gives none, or gives one that another line has: FILE:LINE, and where that is taken too
 * (the same file named twice) FILE:LINE#2, #3, ... The caller frees it; NULL: out of memory. */
char *examine_make_id(const struct nj_examiner *examiner, uint32_t file, uint64_t line, unsigned repeat);

/* The id of an entry whose line has been read again (the caller frees it; NULL: out of memory): the line's own,
 * or the generated one that has the entry's hash. */
char *examine_entry_id(const struct nj_examiner *examiner, const struct nj_index *index,
                       const struct nj_index_entry *entry, const struct nj_request *request);

#endif
