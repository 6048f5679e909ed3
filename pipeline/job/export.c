/* job_export: the records of a job in input order. Needs index.bin and the two logs only. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/base/byte_buffer.h"
#include "pipeline/index/index_file.h"
#include "pipeline/job/job.h"
#include "pipeline/output/output.h"
#include "pipeline/output/record.h"
#include "pipeline/output/record_log.h"

enum { WRITE_BYTES = 1 << 18 };

/* Where the record of each (id, request digest) lies: open addressing by a hash of both, which is 128 bits wide,
 * so that equal keys mean equal requests. */
struct place {
    struct nj_digest key;    /* all zero: free */
    uint64_t offset_and_log; /* offset << 1 | log */
    uint32_t length, attempt;
};

enum { LOG_RESULTS, LOG_ERRORS, LOGS };

struct exporter {
    const char *directory;
    int output;
    char *log_path[LOGS];
    int log_fd[LOGS];
    struct place *places;
    uint64_t slots, used;
    int scanning; /* which log */
    struct nj_byte_buffer buffer;
};

static struct nj_digest key_of(struct nj_digest id_hash, struct nj_digest digest)
{
    struct nj_digest pair[2] = {id_hash, digest};
    struct nj_digest key = digest_of(pair, sizeof pair);
    if (key.low == 0 && key.high == 0)
        key.low = 1;
    return key;
}

/* The slot that holds the key, or the free one where it belongs. */
static struct place *find_place(struct place *places, uint64_t slots, struct nj_digest key)
{
    uint64_t slot = key.low & (slots - 1);
    while ((places[slot].key.low != 0 || places[slot].key.high != 0) && !digest_equal(places[slot].key, key))
        slot = (slot + 1) & (slots - 1);
    return &places[slot];
}

static int grow(struct exporter *exporter, struct nj_error *error)
{
    uint64_t slots = exporter->slots == 0 ? 1024 : 2 * exporter->slots;
    struct place *grown = calloc((size_t)slots, sizeof *grown);
    if (grown == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for %" PRIu64 " records", exporter->used);
    for (uint64_t i = 0; i < exporter->slots; i++) {
        const struct place *place = &exporter->places[i];
        if (place->key.low != 0 || place->key.high != 0)
            *find_place(grown, slots, place->key) = *place;
    }
    free(exporter->places);
    exporter->places = grown;
    exporter->slots = slots;
    return 0;
}

/* The latest attempt counts. Results are scanned first: of an answer and an error that are the same attempt the answer
 * counts, of two lines of one log the later. */
static int note_line(void *context, const char *line, size_t length, uint64_t offset, struct nj_error *error)
{
    struct exporter *exporter = context;
    struct nj_record_key record;
    if (length > UINT32_MAX || record_read_key(line, length, &record) != 0)
        return 0;
    if (4 * (exporter->used + 1) > 3 * exporter->slots && grow(exporter, error) != 0)
        return -1;
    struct nj_digest key = key_of(record.id_hash, record.digest);
    struct place *place = find_place(exporter->places, exporter->slots, key);
    bool found = digest_equal(place->key, key);
    bool other_log = found && (int)(place->offset_and_log & 1) != exporter->scanning;
    if (found && (record.attempt < place->attempt || (record.attempt == place->attempt && other_log)))
        return 0;
    exporter->used += !found;
    *place = (struct place){.key = key,
                            .offset_and_log = offset << 1 | (uint64_t)exporter->scanning,
                            .length = (uint32_t)length,
                            .attempt = record.attempt};
    return 0;
}

static int scan_logs(struct exporter *exporter, struct nj_error *error)
{
    static const char *const names[LOGS] = {"results.jsonl", "errors.jsonl"};
    for (int log = 0; log < LOGS; log++) {
        exporter->log_path[log] = output_path(exporter->directory, names[log], error);
        exporter->scanning = log;
        if (exporter->log_path[log] == NULL ||
            record_log_scan(exporter->log_path[log], note_line, exporter, error) != 0)
            return -1;
        exporter->log_fd[log] = open(exporter->log_path[log], O_RDONLY | O_CLOEXEC);
    }
    return 0;
}

static int flush(struct exporter *exporter, struct nj_error *error)
{
    int result = file_write_all(exporter->output, "the export", exporter->buffer.data, exporter->buffer.length, error);
    exporter->buffer.length = 0;
    return result;
}

/* Copies the part of a record that is for users. */
static int put_record(struct exporter *exporter, const struct place *place, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &exporter->buffer;
    int log = (int)(place->offset_and_log & 1);
    if (byte_buffer_reserve(buffer, (size_t)place->length + 2, error) != 0 ||
        file_read_at(exporter->log_fd[log], exporter->log_path[log], buffer->data + buffer->length,
                     (size_t)place->length, place->offset_and_log >> 1, error) != 0)
        return -1;
    size_t length = record_public_length(buffer->data + buffer->length, (size_t)place->length);
    if (length == 0) {
        error_set(error, NJ_BAD_DATA, "the file has changed while it was exported: export again");
        return error_at(error, exporter->log_path[log], 0, (int64_t)(place->offset_and_log >> 1));
    }
    buffer->length += length;
    memcpy(buffer->data + buffer->length, "}\n", 2);
    buffer->length += 2;
    return buffer->length >= WRITE_BYTES ? flush(exporter, error) : 0;
}

static int put_records(struct exporter *exporter, struct nj_index_reader *index, uint64_t *missing,
                       struct nj_error *error)
{
    struct nj_index_record record;
    int got;
    while ((got = index_reader_next(index, &record, error)) > 0) {
        struct nj_digest key = key_of(record.id_hash, record.digest);
        const struct place *place = exporter->slots == 0 ? NULL : find_place(exporter->places, exporter->slots, key);
        if (place == NULL || !digest_equal(place->key, key))
            ++*missing;
        else if (put_record(exporter, place, error) != 0)
            return -1;
    }
    return got < 0 ? -1 : flush(exporter, error);
}

static void close_all(struct exporter *exporter)
{
    for (int log = 0; log < LOGS; log++) {
        if (exporter->log_fd[log] >= 0)
            close(exporter->log_fd[log]);
        free(exporter->log_path[log]);
    }
    free(exporter->places);
    byte_buffer_free(&exporter->buffer);
}

static struct nj_index_reader *open_index(const char *directory, struct nj_error *error)
{
    struct nj_index_reader *reader = NULL;
    char *path = output_path(directory, "index.bin", error);
    char *job = output_path(directory, "job.json", error);
    if (path != NULL && job != NULL && access(job, F_OK) != 0) {
        error_set(error, NJ_NO_INPUT, "there is no nightjar job in this directory");
        error_at(error, directory, 0, -1);
    } else if (path != NULL && job != NULL && access(path, F_OK) != 0) {
        error_set(error, NJ_INTERRUPTED, "the job has not read its input to the end yet: nothing to export");
        error_at(error, directory, 0, -1);
    } else if (path != NULL && job != NULL) {
        reader = index_reader_open(path, NULL, error);
    }
    free(path);
    free(job);
    return reader;
}

int job_export(const char *output_directory, int fd, uint64_t *missing, struct nj_error *error)
{
    struct exporter exporter = {.directory = output_directory, .output = fd, .log_fd = {-1, -1}};
    uint64_t count = 0;
    struct nj_index_reader *index = open_index(output_directory, error);
    if (missing != NULL)
        *missing = 0;
    if (index == NULL)
        return -1;
    int result = scan_logs(&exporter, error);
    if (result == 0)
        result = put_records(&exporter, index, &count, error);
    if (missing != NULL)
        *missing = count;
    if (result == 0 && count > 0)
        result = error_set(error, NJ_INTERRUPTED, "%" PRIu64 " requests have no record yet", count);
    close_all(&exporter);
    index_reader_close(index);
    return result;
}
