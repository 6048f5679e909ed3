/* The input: files of JSON lines, plain or compressed, directories and archives of them, and standard input. It is
 * read line by line once. Later plain files are read again in place, and everything else from the job's copy of it
 * (spool.h), which is made during the first reading. */
#ifndef NJ_PIPELINE_INPUT_INPUT_H
#define NJ_PIPELINE_INPUT_INPUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "pipeline/base/byte_buffer.h"
#include "pipeline/input/archive_reader.h"

enum {
    NJ_LINE_BYTES_MOST = 32 << 20,        /* a longer line is skipped */
    NJ_LONG_LINE_PREFIX_BYTES = 64 << 10, /* what is kept of it, for its digest */
    NJ_INPUT_FILES_MOST = 1 << 20
};

/* The numbers stand in the spool. */
enum nj_input_kind {
    NJ_INPUT_PLAIN = 0,
    NJ_INPUT_GZIP = 1,
    NJ_INPUT_ARCHIVE = 2, /* has no lines of its own; its members are files too */
    NJ_INPUT_STANDARD = 3,
    NJ_INPUT_MEMBER = 4
};

struct nj_input_file {
    char *path; /* absolute; "-"; ARCHIVE/MEMBER, for messages */
    /* Relative to the argument's parent, UTF-8; with more parents where two files would share one. "-" for standard
     * input, the archive's label and the member's name for a member. */
    char *label;
    uint64_t bytes; /* of lines once they are read; before that of the file */
    int64_t modified_nanoseconds;
    /* When its content or its owner, mode, name changed last: unlike the above no program can set it. 0 if that was so
     * shortly before the file was listed that a later change may bear the same time. */
    int64_t changed_nanoseconds;
    uint64_t device, inode;
    enum nj_input_kind kind;
    uint64_t spool_start; /* unless plain: where it begins in the spool's space */
};

struct nj_input;

/* Lists the files: "-" is standard input, a file argument is taken by the end of its name (.gz; .tar, .tar.gz, .tgz,
 * .tar.xz, .txz, .tar.zst, .tzst, .zip; anything else is plain), a directory recursively (links to directories are
 * not followed), names sorted bytewise, only *.jsonl and *.jsonl.gz. NJ_NO_INPUT if an argument does not exist,
 * cannot be read, is neither file nor directory, or is a directory without such files. */
struct nj_input *input_open(const char *const *arguments, size_t count, struct nj_error *error);
/* The same where a copy may be there: compressed files and archives may be gone. */
struct nj_input *input_open_copied(const char *const *arguments, size_t count, struct nj_error *error);
void input_close(struct nj_input *input);

void input_set_limits(struct nj_input *input, const struct nj_unpack_limits *limits);

enum nj_input_run {
    NJ_RUN_NEW,   /* the job's first run */
    NJ_RUN_AGAIN, /* the job's command once more */
    NJ_RUN_RESUME /* without its input: whatever the copy has is read from there */
};

/* Must be called before the first line is read if any file is not plain; the caller holds the directory's lock until
 * the input is closed. Files that are unchanged (size and time), or gone, are read from the complete copy; standard
 * input is, unless it gives at least one byte. If anything else is left, a new copy is made. NJ_NO_INPUT, saying
 * what to do, where there is neither. `stop` (may be NULL) ends waiting for standard input. */
int input_use_spool(struct nj_input *input, const char *output_directory, enum nj_input_run run, const atomic_int *stop,
                    struct nj_error *error);
/* Instead of a spool, where nothing is read again (input_read_at is for plain files only then). */
void input_use_once(struct nj_input *input, const atomic_int *stop);
/* No original but plain files is read. */
bool input_reads_copy(const struct nj_input *input);
/* Instead of reading the lines: enters what the copy has of files that are not plain into the list of files, as
 * reading does. Only if no new copy is being made (input_has_whole_copy). */
int input_list_streams(struct nj_input *input, struct nj_error *error);
/* Takes that back. */
void input_forget_streams(struct nj_input *input);
/* Nothing has to be copied: everything can be read again as it is. */
bool input_has_whole_copy(const struct nj_input *input);
/* Tells one complete copy from another; 0 if all files are plain. */
uint64_t input_copy_checksum(const struct nj_input *input);

/* After the last line: makes the copy durable and puts it in place. */
int input_commit_spool(struct nj_input *input, struct nj_error *error);

/* Members of archives are added as they are met. */
size_t input_file_count(const struct nj_input *input);
const struct nj_input_file *input_file_at(const struct nj_input *input, size_t index);

/* Reads exactly `bytes` at `offset` of a file. A file that has become shorter is NJ_BAD_DATA. */
int input_read_at(struct nj_input *input, size_t file, uint64_t offset, void *to, size_t bytes, struct nj_error *error);

/* The argument as an absolute path, without resolving links. The caller frees it. */
char *input_absolute_path(const char *argument, struct nj_error *error);
/* The same, but "-" stays. */
char *input_argument_path(const char *argument, struct nj_error *error);

/* One line that is not blank. */
struct nj_line {
    const char *text; /* without byte order mark, CR, LF; valid until the next call */
    size_t length;    /* of a line that is too long: of the prefix kept */
    uint64_t offset;  /* of text[0] in the file, unpacked */
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
