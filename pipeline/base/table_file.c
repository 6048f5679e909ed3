#include "pipeline/base/table_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "pipeline/base/byte_buffer.h"

struct header {
    char magic[8];
    uint32_t version, row_bytes;
    uint64_t rows, bytes; /* of the whole file */
    struct nj_digest job;
    uint64_t content_checksum; /* of everything behind the header */
    uint64_t checksum;         /* of the header before this field */
};
static_assert(sizeof(struct header) == 64, "the header's layout is part of the format");

enum { WRITE_BYTES = 1 << 18, READ_ROWS = 4096, TRAILER_BYTES_MOST = 1 << 30 };

struct nj_table_writer {
    const struct nj_table_kind *kind;
    char *path, *temporary;
    int fd;
    struct header header;
    struct nj_byte_buffer buffer;
    XXH3_state_t *state;
    bool committed;
};

static uint64_t header_checksum(const struct header *header)
{
    return XXH3_64bits(header, offsetof(struct header, checksum));
}

static int fail_errno(struct nj_error *error, enum nj_code code, const char *what, const char *path)
{
    error_set(error, code, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

static int flush(struct nj_table_writer *writer, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &writer->buffer;
    if (buffer->length == 0)
        return 0;
    XXH3_64bits_update(writer->state, buffer->data, buffer->length);
    int result = file_write_all(writer->fd, writer->temporary, buffer->data, buffer->length, error);
    writer->header.bytes += buffer->length;
    buffer->length = 0;
    return result;
}

int table_writer_add_trailer(struct nj_table_writer *writer, const void *bytes, size_t length, struct nj_error *error)
{
    if (byte_buffer_append(&writer->buffer, bytes, length, error) != 0)
        return -1;
    return writer->buffer.length >= WRITE_BYTES ? flush(writer, error) : 0;
}

int table_writer_add(struct nj_table_writer *writer, const void *row, struct nj_error *error)
{
    writer->header.rows++;
    return table_writer_add_trailer(writer, row, writer->kind->row_bytes, error);
}

/* Opens the temporary file and leaves room for the header, whose content is known at the end. */
static int begin_file(struct nj_table_writer *writer, struct nj_error *error)
{
    const struct header blank = {0};
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer->fd < 0)
        return fail_errno(error, NJ_CANT_CREATE, "create", writer->temporary);
    return file_write_all(writer->fd, writer->temporary, &blank, sizeof blank, error);
}

struct nj_table_writer *table_writer_create(const char *path, const struct nj_table_kind *kind,
                                            struct nj_digest job_digest, struct nj_error *error)
{
    struct nj_table_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    writer->fd = -1;
    writer->kind = kind;
    writer->path = strdup(path);
    if (asprintf(&writer->temporary, "%s.tmp", path) < 0)
        writer->temporary = NULL;
    writer->state = XXH3_createState();
    writer->header = (struct header){
        .version = kind->version, .row_bytes = kind->row_bytes, .bytes = sizeof(struct header), .job = job_digest};
    memcpy(writer->header.magic, kind->magic, sizeof kind->magic);
    int result = -1;
    if (writer->path == NULL || writer->temporary == NULL || writer->state == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    else
        result = begin_file(writer, error);
    if (result != 0) {
        table_writer_destroy(writer);
        return NULL;
    }
    XXH3_64bits_reset(writer->state);
    return writer;
}

static int put_header(struct nj_table_writer *writer, struct nj_error *error)
{
    struct header *header = &writer->header;
    header->content_checksum = XXH3_64bits_digest(writer->state);
    header->checksum = header_checksum(header);
    if (lseek(writer->fd, 0, SEEK_SET) != 0)
        return fail_errno(error, NJ_IO_FAILED, "seek", writer->temporary);
    return file_write_all(writer->fd, writer->temporary, header, sizeof *header, error);
}

int table_writer_commit(struct nj_table_writer *writer, struct nj_error *error)
{
    if (flush(writer, error) != 0 || put_header(writer, error) != 0 ||
        file_sync(writer->fd, writer->temporary, error) != 0)
        return -1;
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) != 0)
        return fail_errno(error, NJ_IO_FAILED, "close", writer->temporary);
    if (rename(writer->temporary, writer->path) != 0)
        return fail_errno(error, NJ_IO_FAILED, "rename", writer->path);
    writer->committed = true;
    return file_sync_directory_of(writer->path, error);
}

void table_writer_destroy(struct nj_table_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (!writer->committed && writer->temporary != NULL)
        unlink(writer->temporary);
    if (writer->state != NULL)
        XXH3_freeState(writer->state);
    byte_buffer_free(&writer->buffer);
    free(writer->path);
    free(writer->temporary);
    free(writer);
}

struct nj_table_reader {
    const struct nj_table_kind *kind;
    char *path;
    int fd;
    struct header header;
    uint64_t given;    /* rows */
    size_t held, used; /* of `rows` */
    char *rows;
    char *trailer;
    size_t trailer_bytes;
};

int table_reader_fail(const struct nj_table_reader *reader, const char *what, struct nj_error *error)
{
    error_set(error, NJ_BAD_DATA, "the %s is damaged (%s): %s", reader->kind->name, what, reader->kind->remedy);
    return error_at(error, reader->path, 0, -1);
}

static int read_header(struct nj_table_reader *reader, const struct nj_digest *job_digest, struct nj_error *error)
{
    struct header *header = &reader->header;
    const struct nj_table_kind *kind = reader->kind;
    struct stat info;
    uint64_t rows_bytes, least;
    if (fstat(reader->fd, &info) != 0)
        return fail_errno(error, NJ_IO_FAILED, "stat", reader->path);
    if ((uint64_t)info.st_size < sizeof *header)
        return table_reader_fail(reader, "too short", error);
    if (file_read_at(reader->fd, reader->path, header, sizeof *header, 0, error) != 0)
        return -1;
    if (memcmp(header->magic, kind->magic, sizeof kind->magic) != 0 || header->checksum != header_checksum(header))
        return table_reader_fail(reader, "header", error);
    if (header->version != kind->version || header->row_bytes != kind->row_bytes)
        return table_reader_fail(reader, "another version wrote it", error);
    if (!checked_mul(header->rows, kind->row_bytes, &rows_bytes) || !checked_add(rows_bytes, sizeof *header, &least) ||
        least > header->bytes || header->bytes != (uint64_t)info.st_size || header->bytes - least > TRAILER_BYTES_MOST)
        return table_reader_fail(reader, "size", error);
    if (job_digest != NULL && !digest_equal(*job_digest, header->job))
        return table_reader_fail(reader, "it belongs to another job", error);
    reader->trailer_bytes = (size_t)(header->bytes - least);
    return 0;
}

/* Fills `rows` from the present position. */
static int read_rows(struct nj_table_reader *reader, struct nj_error *error)
{
    uint64_t left = reader->header.rows - reader->given, row_bytes = reader->kind->row_bytes;
    size_t count = left < READ_ROWS ? (size_t)left : READ_ROWS;
    reader->held = count;
    reader->used = 0;
    return file_read_at(reader->fd, reader->path, reader->rows, count * row_bytes,
                        sizeof(struct header) + reader->given * row_bytes, error);
}

static int check_content(struct nj_table_reader *reader, struct nj_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    reader->trailer = malloc(reader->trailer_bytes + 1);
    if (state == NULL || reader->trailer == NULL) {
        XXH3_freeState(state);
        return error_set(error, NJ_INTERNAL, "out of memory");
    }
    XXH3_64bits_reset(state);
    int result = 0;
    while (result == 0 && reader->given < reader->header.rows) {
        result = read_rows(reader, error);
        if (result == 0)
            XXH3_64bits_update(state, reader->rows, reader->held * reader->kind->row_bytes);
        reader->given += reader->held;
    }
    if (result == 0)
        result = file_read_at(reader->fd, reader->path, reader->trailer, reader->trailer_bytes,
                              reader->header.bytes - reader->trailer_bytes, error);
    if (result == 0) {
        XXH3_64bits_update(state, reader->trailer, reader->trailer_bytes);
        if (XXH3_64bits_digest(state) != reader->header.content_checksum)
            result = table_reader_fail(reader, "checksum", error);
    }
    XXH3_freeState(state);
    return result;
}

struct nj_table_reader *table_reader_open(const char *path, const struct nj_table_kind *kind,
                                          const struct nj_digest *job_digest, struct nj_error *error)
{
    struct nj_table_reader *reader = calloc(1, sizeof *reader);
    int result = -1;
    if (reader != NULL) {
        reader->fd = -1;
        reader->kind = kind;
    }
    if (reader == NULL || (reader->path = strdup(path)) == NULL ||
        (reader->rows = malloc((size_t)READ_ROWS * kind->row_bytes)) == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    else if ((reader->fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        fail_errno(error, errno == ENOENT ? NJ_NO_INPUT : NJ_IO_FAILED, "open", path);
    else if (read_header(reader, job_digest, error) == 0)
        result = check_content(reader, error);
    if (result != 0) {
        table_reader_close(reader);
        return NULL;
    }
    table_reader_rewind(reader);
    return reader;
}

void table_reader_close(struct nj_table_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->trailer);
    free(reader->rows);
    free(reader->path);
    free(reader);
}

uint64_t table_reader_count(const struct nj_table_reader *reader)
{
    return reader->header.rows;
}

void table_reader_rewind(struct nj_table_reader *reader)
{
    reader->given = 0;
    reader->held = 0;
    reader->used = 0;
}

int table_reader_next(struct nj_table_reader *reader, void *row, struct nj_error *error)
{
    if (reader->given == reader->header.rows)
        return 0;
    if (reader->used == reader->held && read_rows(reader, error) != 0)
        return -1;
    memcpy(row, reader->rows + reader->used++ * reader->kind->row_bytes, reader->kind->row_bytes);
    reader->given++;
    return 1;
}

const char *table_reader_trailer(const struct nj_table_reader *reader, size_t *length)
{
    *length = reader->trailer_bytes;
    return reader->trailer;
}
