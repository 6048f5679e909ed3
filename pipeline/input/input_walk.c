#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/input/input_internal.h"

struct nj_input_walk {
    struct nj_input *input;
    size_t next_listed; /* to be begun */
    size_t file;        /* being read */
    uint64_t position;  /* in it */
    bool is_open;

    size_t listed; /* the archive, .jsonl.gz or standard input being read */
    struct nj_archive_reader *archive;
    struct nj_byte_source *packed, *source; /* source: decompresses `packed` and owns it, or standard input */
    bool in_old;                            /* reading the complete spool instead */
    size_t old_stream;                      /* the next one to look at */
};

struct nj_input_walk *input_walk_create(struct nj_input *input, struct nj_error *error)
{
    struct nj_input_walk *walk = calloc(1, sizeof *walk);
    if (walk == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    walk->input = input;
    return walk;
}

static void close_source(struct nj_input_walk *walk)
{
    archive_reader_close(walk->archive);
    if (walk->source != walk->input->standard_input)
        byte_source_close(walk->source);
    walk->archive = NULL;
    walk->source = walk->packed = NULL;
    walk->in_old = false;
}

void input_walk_destroy(struct nj_input_walk *walk)
{
    if (walk == NULL)
        return;
    close_source(walk);
    free(walk);
}

/* Enters a member of the present archive into the list of files. */
static int add_member(struct nj_input_walk *walk, const char *name, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    const struct nj_input_file *archive = &input->files[walk->listed].file;
    struct listed_file member = {
        .file = {.kind = NJ_INPUT_MEMBER, .modified_nanoseconds = archive->modified_nanoseconds}};
    if (asprintf(&member.file.path, "%s/%s", archive->path, name) < 0)
        member.file.path = NULL;
    if (asprintf(&member.file.label, "%s/%s", archive->label, name) < 0)
        member.file.label = NULL;
    if (member.file.path == NULL || member.file.label == NULL) {
        free(member.file.path);
        free(member.file.label);
        return error_set(error, NJ_INTERNAL, "out of memory");
    }
    walk->file = input->count;
    return input_add_file(input, &member, error);
}

/* Begins a stream of the present source; `name` is the member's, or empty. */
static int begin_stream(struct nj_input_walk *walk, const char *name, uint64_t old_start, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    walk->file = walk->listed;
    walk->position = 0;
    walk->is_open = true;
    if (name[0] != '\0' && add_member(walk, name, error) != 0)
        return -1;
    if (input->writer == NULL) {
        input->files[walk->file].file.spool_start = old_start;
        return 1;
    }
    if (spool_begin_stream(input->writer, name, error) != 0)
        return -1;
    input->files[walk->file].file.spool_start =
        spool_stream_at(input->writer, spool_stream_count(input->writer) - 1)->start;
    return 1;
}

/* The next stream of the present source in the complete spool: 1, 0, -1. */
static int next_old_stream(struct nj_input_walk *walk, struct nj_error *error)
{
    const struct nj_input *input = walk->input;
    size_t source = input->files[walk->listed].old_source;
    for (; walk->old_stream < spool_stream_count(input->old); walk->old_stream++) {
        const struct nj_spool_stream *stream = spool_stream_at(input->old, walk->old_stream);
        if (stream->source == source) {
            walk->old_stream++;
            return begin_stream(walk, stream->name, stream->start, error);
        }
    }
    return 0;
}

/* Opens the present listed file for reading from its original. */
static int open_original(struct nj_input_walk *walk, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    const struct nj_input_file *file = &input->files[walk->listed].file;
    if (file->kind == NJ_INPUT_ARCHIVE) {
        walk->archive = archive_reader_open(file->path, &input->limits, input->stop, error);
        return walk->archive != NULL ? 0 : -1;
    }
    if (file->kind == NJ_INPUT_STANDARD) {
        if (input->standard_input == NULL)
            input->standard_input = byte_source_open_standard_input(input->stop, error);
        walk->source = input->standard_input;
    } else {
        walk->packed = byte_source_open_file(file->path, input->stop, error);
        walk->source = byte_source_open_gzip(walk->packed, error);
    }
    return walk->source != NULL ? 0 : -1;
}

/* Begins a listed file that is not plain. 1 if it has a stream, 0 if not. */
static int begin_source(struct nj_input_walk *walk, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    const struct listed_file *listed = &input->files[walk->listed];
    if (input->writer == NULL && input->old == NULL && !input->is_read_once)
        return error_set(error, NJ_INTERNAL, "input that must be copied, and no place for the copy");
    struct nj_spool_source source = {.path = listed->file.path,
                                     .bytes = listed->file.bytes,
                                     .modified_nanoseconds = listed->file.modified_nanoseconds,
                                     .kind = listed->file.kind};
    if (input->writer != NULL && spool_begin_source(input->writer, &source, error) != 0)
        return -1;
    walk->in_old = listed->from_old;
    walk->old_stream = 0;
    if (walk->in_old)
        return next_old_stream(walk, error);
    if (open_original(walk, error) != 0)
        return -1;
    return walk->archive == NULL ? begin_stream(walk, "", 0, error) : 0;
}

/* The next stream of the source that is open: 1, 0 if there is none. */
static int next_stream(struct nj_input_walk *walk, struct nj_error *error)
{
    const char *name;
    if (walk->in_old)
        return next_old_stream(walk, error);
    if (walk->archive == NULL)
        return 0;
    int got = archive_reader_next(walk->archive, &name, error);
    return got > 0 ? begin_stream(walk, name, 0, error) : got;
}

static void end_file(struct nj_input_walk *walk)
{
    if (walk->is_open && walk->input->files[walk->file].file.kind != NJ_INPUT_PLAIN)
        walk->input->files[walk->file].file.bytes = walk->position;
    walk->is_open = false;
}

int input_walk_next(struct nj_input_walk *walk, size_t *file, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    end_file(walk);
    int got = next_stream(walk, error);
    while (got == 0 && walk->next_listed < input->listed) {
        close_source(walk);
        walk->listed = walk->next_listed++;
        if (input->files[walk->listed].file.kind == NJ_INPUT_PLAIN) {
            walk->file = walk->listed;
            walk->position = 0;
            walk->is_open = true;
            got = 1;
        } else {
            got = begin_source(walk, error);
            if (got == 0) /* an archive */
                got = next_stream(walk, error);
        }
    }
    *file = walk->file;
    return got;
}

void input_walk_skip(struct nj_input_walk *walk)
{
    if (walk->in_old)
        walk->position = spool_stream_at(walk->input->old, walk->old_stream - 1)->bytes;
}

static int read_plain(struct nj_input_walk *walk, void *to, size_t most, size_t *got, struct nj_error *error)
{
    int fd = input_descriptor(walk->input, walk->file, error);
    ssize_t count;
    if (fd < 0)
        return -1;
    do {
        count = pread(fd, to, most, (off_t)walk->position);
    } while (count < 0 && errno == EINTR);
    if (count < 0)
        return error_set(error, NJ_IO_FAILED, "read failed: %s", strerror(errno));
    *got = (size_t)count;
    return 0;
}

static int read_old(struct nj_input_walk *walk, void *to, size_t most, size_t *got, struct nj_error *error)
{
    const struct nj_spool_stream *stream = spool_stream_at(walk->input->old, walk->old_stream - 1);
    uint64_t left = stream->bytes - walk->position;
    *got = left < most ? (size_t)left : most;
    return spool_read(walk->input->old, stream->start + walk->position, to, *got, error);
}

static int read_original(struct nj_input_walk *walk, void *to, size_t most, size_t *got, struct nj_error *error)
{
    if (walk->archive != NULL)
        return archive_reader_read(walk->archive, to, most, got, error);
    if (byte_source_read(walk->source, to, most, got, error) != 0)
        return -1;
    if (walk->packed == NULL)
        return 0;
    return unpack_limits_check(&walk->input->limits, byte_source_taken(walk->packed), walk->position + *got, error);
}

int input_walk_read(struct nj_input_walk *walk, void *to, size_t most, size_t *got, struct nj_error *error)
{
    struct nj_input *input = walk->input;
    bool plain = input->files[walk->file].file.kind == NJ_INPUT_PLAIN;
    int result = plain          ? read_plain(walk, to, most, got, error)
                 : walk->in_old ? read_old(walk, to, most, got, error)
                                : read_original(walk, to, most, got, error);
    if (result == 0 && !plain && input->writer != NULL && *got > 0)
        result = spool_append(input->writer, to, *got, error);
    if (result == 0)
        walk->position += *got;
    return result;
}
