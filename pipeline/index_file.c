#include "pipeline/index_file.h"

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

static const char MAGIC[8] = "NJINDEX";

struct header {
    char magic[8];
    uint32_t version, record_bytes;
    uint64_t records, bytes; /* of the whole file */
    struct nj_digest job;
    uint64_t content_checksum; /* of everything behind the header */
    uint64_t checksum;         /* of the header before this field */
};
static_assert(sizeof(struct header) == 64, "the header's layout is part of the format");
static_assert(sizeof(struct nj_index_record) == 64, "the record's layout is part of the format");

/* One input file in the trailer; the label's bytes follow. */
struct file_entry {
    uint64_t bytes;
    int64_t modified_nanoseconds;
    uint64_t label_bytes;
};

enum { WRITE_BYTES = 1 << 18, READ_RECORDS = 4096, TRAILER_BYTES_MOST = 1 << 30 };

struct nj_index_writer {
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

static int flush(struct nj_index_writer *writer, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &writer->buffer;
    XXH3_64bits_update(writer->state, buffer->data, buffer->length);
    int result = file_write_all(writer->fd, writer->temporary, buffer->data, buffer->length, error);
    writer->header.bytes += buffer->length;
    buffer->length = 0;
    return result;
}

static int put(struct nj_index_writer *writer, const void *from, size_t length, struct nj_error *error)
{
    if (byte_buffer_append(&writer->buffer, from, length, error) != 0)
        return -1;
    return writer->buffer.length >= WRITE_BYTES ? flush(writer, error) : 0;
}

struct nj_index_writer *index_writer_create(const char *path, struct nj_digest job_digest, struct nj_error *error)
{
    struct nj_index_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    writer->fd = -1;
    writer->path = strdup(path);
    if (asprintf(&writer->temporary, "%s.tmp", path) < 0)
        writer->temporary = NULL;
    writer->state = XXH3_createState();
    if (writer->path == NULL || writer->temporary == NULL || writer->state == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        goto failed;
    }
    XXH3_64bits_reset(writer->state);
    writer->header = (struct header){.version = NJ_INDEX_FILE_VERSION,
                                     .record_bytes = sizeof(struct nj_index_record),
                                     .bytes = sizeof(struct header),
                                     .job = job_digest};
    memcpy(writer->header.magic, MAGIC, sizeof MAGIC);
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (writer->fd < 0) {
        fail_errno(error, NJ_CANT_CREATE, "create", writer->temporary);
        goto failed;
    }
    /* The header's place; its content is known at the end. */
    const struct header blank = {0};
    if (file_write_all(writer->fd, writer->temporary, &blank, sizeof blank, error) != 0)
        goto failed;
    return writer;
failed:
    index_writer_destroy(writer);
    return NULL;
}

int index_writer_add(struct nj_index_writer *writer, const struct nj_index_record *record, struct nj_error *error)
{
    writer->header.records++;
    return put(writer, record, sizeof *record, error);
}

static int put_files(struct nj_index_writer *writer, const struct nj_input *input, struct nj_error *error)
{
    for (size_t i = 0; i < input_file_count(input); i++) {
        const struct nj_input_file *file = input_file_at(input, i);
        struct file_entry entry = {.bytes = file->bytes,
                                   .modified_nanoseconds = file->modified_nanoseconds,
                                   .label_bytes = strlen(file->label)};
        if (put(writer, &entry, sizeof entry, error) != 0 || put(writer, file->label, entry.label_bytes, error) != 0)
            return -1;
    }
    return flush(writer, error);
}

static int put_header(struct nj_index_writer *writer, struct nj_error *error)
{
    struct header *header = &writer->header;
    header->content_checksum = XXH3_64bits_digest(writer->state);
    header->checksum = header_checksum(header);
    if (lseek(writer->fd, 0, SEEK_SET) != 0)
        return fail_errno(error, NJ_IO_FAILED, "seek", writer->temporary);
    return file_write_all(writer->fd, writer->temporary, header, sizeof *header, error);
}

int index_writer_commit(struct nj_index_writer *writer, const struct nj_input *input, struct nj_error *error)
{
    if (put_files(writer, input, error) != 0 || put_header(writer, error) != 0 ||
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

void index_writer_destroy(struct nj_index_writer *writer)
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

struct nj_index_reader {
    char *path;
    int fd;
    struct header header;
    uint64_t given;    /* records */
    size_t held, used; /* of `records` */
    struct nj_index_record *records;
    char *trailer;
    char **labels; /* into the trailer, NUL-terminated copies */
    size_t label_count;
};

static int fail_damaged(const struct nj_index_reader *reader, const char *what, struct nj_error *error)
{
    error_set(error, NJ_BAD_DATA, "the index is damaged (%s): run the job again to make it anew", what);
    return error_at(error, reader->path, 0, -1);
}

static int read_header(struct nj_index_reader *reader, const struct nj_digest *job_digest, struct nj_error *error)
{
    struct header *header = &reader->header;
    struct stat info;
    uint64_t records_bytes, least;
    if (fstat(reader->fd, &info) != 0)
        return fail_errno(error, NJ_IO_FAILED, "stat", reader->path);
    if ((uint64_t)info.st_size < sizeof *header)
        return fail_damaged(reader, "too short", error);
    if (file_read_at(reader->fd, reader->path, header, sizeof *header, 0, error) != 0)
        return -1;
    if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0 || header->checksum != header_checksum(header))
        return fail_damaged(reader, "header", error);
    if (header->version != NJ_INDEX_FILE_VERSION || header->record_bytes != sizeof(struct nj_index_record))
        return fail_damaged(reader, "another version wrote it", error);
    if (!checked_mul(header->records, sizeof(struct nj_index_record), &records_bytes) ||
        !checked_add(records_bytes, sizeof *header, &least) || least > header->bytes ||
        header->bytes != (uint64_t)info.st_size || header->bytes - least > TRAILER_BYTES_MOST)
        return fail_damaged(reader, "size", error);
    if (job_digest != NULL && !digest_equal(*job_digest, header->job))
        return fail_damaged(reader, "it belongs to another job", error);
    return 0;
}

/* Fills `records` from the present position. */
static int read_records(struct nj_index_reader *reader, struct nj_error *error)
{
    uint64_t left = reader->header.records - reader->given;
    size_t count = left < READ_RECORDS ? (size_t)left : READ_RECORDS;
    uint64_t offset = sizeof(struct header) + reader->given * sizeof(struct nj_index_record);
    reader->held = count;
    reader->used = 0;
    return file_read_at(reader->fd, reader->path, reader->records, count * sizeof(struct nj_index_record), offset,
                        error);
}

/* Splits the trailer into labels. */
static int read_labels(struct nj_index_reader *reader, size_t length, struct nj_error *error)
{
    size_t capacity = length / sizeof(struct file_entry);
    reader->labels = calloc(capacity + 1, sizeof *reader->labels);
    if (reader->labels == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t at = 0; at < length;) {
        struct file_entry entry;
        if (length - at < sizeof entry)
            return fail_damaged(reader, "file list", error);
        memcpy(&entry, reader->trailer + at, sizeof entry);
        at += sizeof entry;
        if (entry.label_bytes > length - at)
            return fail_damaged(reader, "file list", error);
        char *label = strndup(reader->trailer + at, (size_t)entry.label_bytes);
        if (label == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory");
        reader->labels[reader->label_count++] = label;
        at += (size_t)entry.label_bytes;
    }
    return 0;
}

static int check_content(struct nj_index_reader *reader, XXH3_state_t *state, struct nj_error *error)
{
    XXH3_64bits_reset(state);
    while (reader->given < reader->header.records) {
        if (read_records(reader, error) != 0)
            return -1;
        XXH3_64bits_update(state, reader->records, reader->held * sizeof(struct nj_index_record));
        reader->given += reader->held;
    }
    uint64_t records_end = sizeof(struct header) + reader->header.records * sizeof(struct nj_index_record);
    size_t length = (size_t)(reader->header.bytes - records_end);
    reader->trailer = malloc(length + 1);
    if (reader->trailer == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    if (file_read_at(reader->fd, reader->path, reader->trailer, length, records_end, error) != 0)
        return -1;
    XXH3_64bits_update(state, reader->trailer, length);
    if (XXH3_64bits_digest(state) != reader->header.content_checksum)
        return fail_damaged(reader, "checksum", error);
    return read_labels(reader, length, error);
}

struct nj_index_reader *index_reader_open(const char *path, const struct nj_digest *job_digest, struct nj_error *error)
{
    struct nj_index_reader *reader = calloc(1, sizeof *reader);
    XXH3_state_t *state = XXH3_createState();
    int result = -1;
    if (reader != NULL)
        reader->fd = -1;
    if (reader == NULL || state == NULL || (reader->path = strdup(path)) == NULL ||
        (reader->records = malloc(READ_RECORDS * sizeof *reader->records)) == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    else if ((reader->fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        fail_errno(error, errno == ENOENT ? NJ_NO_INPUT : NJ_IO_FAILED, "open", path);
    else if (read_header(reader, job_digest, error) == 0)
        result = check_content(reader, state, error);
    XXH3_freeState(state);
    if (result != 0) {
        index_reader_close(reader);
        return NULL;
    }
    index_reader_rewind(reader);
    return reader;
}

void index_reader_close(struct nj_index_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->fd >= 0)
        close(reader->fd);
    for (size_t i = 0; i < reader->label_count; i++)
        free(reader->labels[i]);
    free(reader->labels);
    free(reader->trailer);
    free(reader->records);
    free(reader->path);
    free(reader);
}

uint64_t index_reader_count(const struct nj_index_reader *reader)
{
    return reader->header.records;
}

void index_reader_rewind(struct nj_index_reader *reader)
{
    reader->given = 0;
    reader->held = 0;
    reader->used = 0;
}

int index_reader_next(struct nj_index_reader *reader, struct nj_index_record *record, struct nj_error *error)
{
    if (reader->given == reader->header.records)
        return 0;
    if (reader->used == reader->held && read_records(reader, error) != 0)
        return -1;
    *record = reader->records[reader->used++];
    reader->given++;
    return 1;
}

const char *index_reader_label(const struct nj_index_reader *reader, uint32_t file)
{
    return file < reader->label_count ? reader->labels[file] : "?";
}
