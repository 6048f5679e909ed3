#include "pipeline/index/index_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/base/table_file.h"

static const struct nj_table_kind INDEX = {.magic = "NJINDEX",
                                           .version = NJ_INDEX_FILE_VERSION,
                                           .row_bytes = sizeof(struct nj_index_record),
                                           .name = "index",
                                           .remedy = "run the job again to make it anew"};
static_assert(sizeof(struct nj_index_record) == 96, "the record's layout is part of the format");

/* The trailer begins with this. */
struct origin {
    struct nj_digest program; /* of the version of nightjar: another one may read a line otherwise */
    uint64_t copy_checksum;   /* input_copy_checksum */
};

/* One input file; the label's bytes follow. */
struct file_entry {
    uint64_t bytes;
    int64_t modified_nanoseconds;
    int64_t changed_nanoseconds; /* 0: never the same again */
    uint64_t inode;
    uint64_t label_bytes;
};

static struct nj_digest digest_program(void)
{
    return digest_of(NJ_VERSION, strlen(NJ_VERSION));
}

/* What is not plain is read from the copy: its original says nothing. */
static struct file_entry describe_file(const struct nj_input_file *file)
{
    struct file_entry entry = {.bytes = file->bytes, .label_bytes = strlen(file->label)};
    if (file->kind != NJ_INPUT_PLAIN)
        return entry;
    entry.modified_nanoseconds = file->modified_nanoseconds;
    entry.changed_nanoseconds = file->changed_nanoseconds;
    entry.inode = file->inode;
    return entry;
}

static struct nj_table_writer *table_of(struct nj_index_writer *writer)
{
    return (struct nj_table_writer *)(void *)writer;
}

struct nj_index_writer *index_writer_create(const char *path, struct nj_digest job_digest, struct nj_error *error)
{
    return (struct nj_index_writer *)(void *)table_writer_create(path, &INDEX, job_digest, error);
}

int index_writer_add(struct nj_index_writer *writer, const struct nj_index_record *record, struct nj_error *error)
{
    return table_writer_add(table_of(writer), record, error);
}

int index_writer_commit(struct nj_index_writer *writer, const struct nj_input *input, struct nj_error *error)
{
    struct nj_table_writer *table = table_of(writer);
    struct origin origin = {.program = digest_program(), .copy_checksum = input_copy_checksum(input)};
    if (table_writer_add_trailer(table, &origin, sizeof origin, error) != 0)
        return -1;
    for (size_t i = 0; i < input_file_count(input); i++) {
        const struct nj_input_file *file = input_file_at(input, i);
        struct file_entry entry = describe_file(file);
        if (table_writer_add_trailer(table, &entry, sizeof entry, error) != 0 ||
            table_writer_add_trailer(table, file->label, entry.label_bytes, error) != 0)
            return -1;
    }
    return table_writer_commit(table, error);
}

void index_writer_destroy(struct nj_index_writer *writer)
{
    table_writer_destroy(table_of(writer));
}

struct nj_index_reader {
    struct nj_table_reader *table;
    struct origin origin;
    struct file_entry *files;
    char **labels; /* NUL-terminated copies */
    size_t file_count;
};

/* Splits the trailer. */
static int read_files(struct nj_index_reader *reader, struct nj_error *error)
{
    size_t length;
    const char *trailer = table_reader_trailer(reader->table, &length);
    if (length < sizeof reader->origin)
        return table_reader_fail(reader->table, "file list", error);
    memcpy(&reader->origin, trailer, sizeof reader->origin);
    size_t capacity = length / sizeof(struct file_entry) + 1;
    reader->labels = calloc(capacity, sizeof *reader->labels);
    reader->files = calloc(capacity, sizeof *reader->files);
    if (reader->labels == NULL || reader->files == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t at = sizeof reader->origin; at < length;) {
        struct file_entry *entry = &reader->files[reader->file_count];
        if (length - at < sizeof *entry)
            return table_reader_fail(reader->table, "file list", error);
        memcpy(entry, trailer + at, sizeof *entry);
        at += sizeof *entry;
        if (entry->label_bytes > length - at)
            return table_reader_fail(reader->table, "file list", error);
        char *label = strndup(trailer + at, (size_t)entry->label_bytes);
        if (label == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory");
        reader->labels[reader->file_count++] = label;
        at += (size_t)entry->label_bytes;
    }
    return 0;
}

struct nj_index_reader *index_reader_open(const char *path, const struct nj_digest *job_digest, struct nj_error *error)
{
    struct nj_index_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    reader->table = table_reader_open(path, &INDEX, job_digest, error);
    if (reader->table == NULL || read_files(reader, error) != 0) {
        index_reader_close(reader);
        return NULL;
    }
    return reader;
}

void index_reader_close(struct nj_index_reader *reader)
{
    if (reader == NULL)
        return;
    table_reader_close(reader->table);
    for (size_t i = 0; i < reader->file_count; i++)
        free(reader->labels[i]);
    free(reader->labels);
    free(reader->files);
    free(reader);
}

uint64_t index_reader_count(const struct nj_index_reader *reader)
{
    return table_reader_count(reader->table);
}

void index_reader_rewind(struct nj_index_reader *reader)
{
    table_reader_rewind(reader->table);
}

int index_reader_next(struct nj_index_reader *reader, struct nj_index_record *record, struct nj_error *error)
{
    return table_reader_next(reader->table, record, error);
}

const char *index_reader_label(const struct nj_index_reader *reader, uint32_t file)
{
    return file < reader->file_count ? reader->labels[file] : "?";
}

bool index_reader_matches(const struct nj_index_reader *reader, const struct nj_input *input)
{
    if (!digest_equal(reader->origin.program, digest_program()) ||
        reader->origin.copy_checksum != input_copy_checksum(input) || reader->file_count != input_file_count(input))
        return false;
    for (size_t i = 0; i < reader->file_count; i++) {
        const struct nj_input_file *file = input_file_at(input, i);
        struct file_entry now = describe_file(file);
        if ((file->kind == NJ_INPUT_PLAIN && now.changed_nanoseconds == 0) ||
            memcmp(&now, &reader->files[i], sizeof now) != 0 || strcmp(file->label, reader->labels[i]) != 0)
            return false;
    }
    return true;
}
