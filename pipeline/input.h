/* The input: plain .jsonl files and directories of them, read line by line once and re-read in place later. */
#ifndef NJ_PIPELINE_INPUT_H
#define NJ_PIPELINE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "pipeline/byte_buffer.h"

enum {
    NJ_LINE_BYTES_MOST = 32 << 20,        /* a longer line is skipped */
    NJ_LONG_LINE_PREFIX_BYTES = 64 << 10, /* what is kept of it, for its digest */
    NJ_INPUT_FILES_MOST = 1 << 20
};

struct nj_input_file {
    char *path;  /* absolute */
    char *label; /* relative to the argument's parent, UTF-8; with more parents where two files would share one */
    uint64_t bytes;
    int64_t modified_nanoseconds;
    uint64_t device, inode;
};

struct nj_input;

/* Lists the files: a file argument as it is, a directory recursively (links to directories are not
 * followed), names sorted bytewise, only *.jsonl. NJ_NO_INPUT if an argument does not exist, cannot be
 * read, is neither file nor directory, or is a directory without .jsonl files. */
struct nj_input *input_open(const char *const *arguments, size_t count, struct nj_error *error);
void input_close(struct nj_input *input);

size_t input_file_count(const struct nj_input *input);
const struct nj_input_file *input_file_at(const struct nj_input *input, size_t index);

/* Reads exactly `bytes` at `offset` of a file. A file that has become shorter is NJ_BAD_DATA. */
int input_read_at(struct nj_input *input, size_t file, uint64_t offset, void *to, size_t bytes, struct nj_error *error);

/* The argument as an absolute path, without resolving links. The caller frees it. */
char *input_absolute_path(const char *argument, struct nj_error *error);

/* One line that is not blank. */
struct nj_line {
    const char *text; /* without byte order mark, CR, LF; valid until the next call */
    size_t length;    /* of a line that is too long: of the prefix kept */
    uint64_t offset;  /* of text[0] in the file */
    uint64_t number;  /* from 1 */
    uint32_t file;
    bool too_long;
};

struct nj_line_reader;
struct nj_line_reader *line_reader_create(struct nj_input *input, struct nj_error *error);
void line_reader_destroy(struct nj_line_reader *reader);

/* The next line of all files in order: 1, 0 at the end, -1 on an error. */
int line_reader_next(struct nj_line_reader *reader, struct nj_line *line, struct nj_error *error);

#endif
