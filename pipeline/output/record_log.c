#include "pipeline/output/record_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "engine/base/file.h"
#include "pipeline/base/byte_buffer.h"

enum { SEAL_BYTES = 20, READ_BYTES = 256 << 10, COPY_BYTES = 64 << 10, TORN_FILES_MOST = 100000 };

struct nj_record_log {
    char *path;
    int fd;
    uint64_t length; /* of the file */
    uint32_t crc;    /* of the file and what is pending */
    struct nj_byte_buffer pending;
    struct nj_log_mark mark;
    bool broken; /* an fsync has failed */
};

static int fail_errno(struct nj_error *error, enum nj_code code, const char *what, const char *path)
{
    error_set(error, code, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

static uint32_t crc_add(uint32_t crc, const char *bytes, size_t length)
{
    return (uint32_t)crc32_z(crc, (const unsigned char *)bytes, length);
}

bool record_log_line_is_good(const char *line, size_t length)
{
    char seal[SEAL_BYTES + 1];
    if (length <= SEAL_BYTES || line[0] != '{')
        return false;
    snprintf(seal, sizeof seal, ",\"crc32\":\"%08" PRIx32 "\"}", crc_add(0, line, length - SEAL_BYTES));
    return memcmp(line + length - SEAL_BYTES, seal, SEAL_BYTES) == 0;
}

/* Reads a file line by line: [start, buffer.length) is not consumed yet. */
struct line_source {
    int fd;
    const char *path;
    struct nj_byte_buffer buffer;
    size_t start;
    uint64_t offset; /* of buffer.data[0] in the file */
};

/* The next line with its newline, or the last bytes without one: 1, 0 at the end. */
static int next_line(struct line_source *source, const char **line, size_t *length, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &source->buffer;
    size_t searched = source->start;
    for (;;) {
        const char *newline =
            buffer->length > searched ? memchr(buffer->data + searched, '\n', buffer->length - searched) : NULL;
        if (newline != NULL) {
            *line = buffer->data + source->start;
            *length = (size_t)(newline - *line) + 1;
            source->start += *length;
            return 1;
        }
        if (source->start > 0) {
            memmove(buffer->data, buffer->data + source->start, buffer->length - source->start);
            buffer->length -= source->start;
            source->offset += source->start;
            source->start = 0;
        }
        searched = buffer->length;
        if (byte_buffer_reserve(buffer, READ_BYTES, error) != 0)
            return -1;
        ssize_t got =
            pread(source->fd, buffer->data + buffer->length, READ_BYTES, (off_t)(source->offset + buffer->length));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_errno(error, NJ_IO_FAILED, "read", source->path);
        if (got == 0) {
            *line = buffer->data;
            *length = buffer->length;
            source->start = buffer->length;
            return *length > 0;
        }
        buffer->length += (size_t)got;
    }
}

static bool is_whole_and_good(const char *line, size_t length)
{
    return line[length - 1] == '\n' && record_log_line_is_good(line, length - 1);
}

/* What the check of a log found. */
struct findings {
    struct nj_log_mark kept; /* the file up to the torn tail */
    uint64_t damaged_lines, first_damaged_byte;
    bool mark_differs; /* the part before the mark is not what it was */
    bool torn;
};

static void note_damage(struct findings *findings, uint64_t offset)
{
    if (findings->damaged_lines++ == 0)
        findings->first_damaged_byte = offset;
}

/* Checks all lines and visits the good ones. */
static int check_lines(int fd, const char *path, const struct nj_log_options *options, struct findings *findings,
                       struct nj_error *error)
{
    struct line_source source = {.fd = fd, .path = path};
    const struct nj_log_mark *mark = options->committed;
    const uint64_t committed = mark == NULL ? 0 : mark->length;
    bool mark_seen = committed == 0;
    const char *line;
    size_t length;
    int got;
    *findings = (struct findings){0};
    while ((got = next_line(&source, &line, &length, error)) > 0) {
        uint64_t offset = findings->kept.length;
        bool good = is_whole_and_good(line, length);
        bool unfinished = line[length - 1] != '\n';
        if (!good && (offset >= committed || unfinished)) {
            findings->torn = true;
            break;
        }
        if (!good)
            note_damage(findings, offset);
        else if (options->visit != NULL &&
                 options->visit(options->visit_context, line, length - 1, offset, error) != 0) {
            got = -1;
            break;
        }
        findings->kept.length += length;
        findings->kept.crc = crc_add(findings->kept.crc, line, length);
        if (mark != NULL && findings->kept.length == committed) {
            mark_seen = true;
            findings->mark_differs = findings->kept.crc != mark->crc;
        }
    }
    findings->mark_differs = findings->mark_differs || !mark_seen;
    byte_buffer_free(&source.buffer);
    return got < 0 ? -1 : 0;
}

static void say(const struct nj_log_options *options, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct nj_log_options *options, const char *format, ...)
{
    if (options->notice == NULL)
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    options->notice(options->notice_context, line);
}

static void report_damage(const struct nj_log_options *options, const struct findings *findings)
{
    if (findings->damaged_lines > 0)
        say(options,
            "warning: %s.jsonl is damaged: %" PRIu64 " lines, the first at byte %" PRIu64
            "; good lines are kept, lost ones are made again",
            options->name, findings->damaged_lines, findings->first_damaged_byte);
    else if (findings->mark_differs)
        say(options,
            "warning: %s.jsonl is not what it was at the last checkpoint (lines are missing or changed); what it "
            "lacks is made again",
            options->name);
}

static int copy_range(int from, const char *from_path, uint64_t offset, int to, const char *to_path,
                      struct nj_error *error)
{
    char *block = malloc(COPY_BYTES);
    if (block == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int result = 0;
    for (;;) {
        ssize_t got = pread(from, block, COPY_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = fail_errno(error, NJ_IO_FAILED, "read", from_path);
        if (got <= 0 || (result = file_write_all(to, to_path, block, (size_t)got, error)) != 0)
            break;
        offset += (uint64_t)got;
    }
    free(block);
    return result;
}

/* Creates the first NAME.torn.N that is not there yet. */
static int create_torn_file(const struct nj_log_options *options, char *path, size_t path_bytes, struct nj_error *error)
{
    for (int n = 1; n <= TORN_FILES_MOST; n++) {
        int length = snprintf(path, path_bytes, "%s/%s.torn.%d", options->directory, options->name, n);
        if (length < 0 || (size_t)length >= path_bytes) {
            errno = ENAMETOOLONG;
            break;
        }
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd >= 0 ? fd : fail_errno(error, NJ_CANT_CREATE, "create", path);
    }
    return fail_errno(error, NJ_CANT_CREATE, "create", options->directory);
}

/* Moves everything from the kept length on into a file of its own: first a durable copy, then the cut. */
static int move_torn_tail(struct nj_record_log *log, const struct nj_log_options *options,
                          const struct findings *findings, struct nj_error *error)
{
    char path[PATH_MAX];
    int fd = create_torn_file(options, path, sizeof path, error);
    if (fd < 0)
        return -1;
    int result = copy_range(log->fd, log->path, findings->kept.length, fd, path, error);
    if (result == 0)
        result = file_sync(fd, path, error);
    if (close(fd) != 0 && result == 0)
        result = fail_errno(error, NJ_IO_FAILED, "close", path);
    if (result == 0)
        result = file_sync_directory_of(path, error);
    if (result == 0 && ftruncate(log->fd, (off_t)findings->kept.length) != 0)
        result = fail_errno(error, NJ_IO_FAILED, "truncate", log->path);
    if (result == 0)
        say(options, "warning: %s.jsonl ended in a torn record: moved to %s", options->name, path);
    return result;
}

/* Checks the file and leaves it ending in a good line, durable. */
static int check_log(struct nj_record_log *log, const struct nj_log_options *options, struct nj_error *error)
{
    struct findings findings;
    if (check_lines(log->fd, log->path, options, &findings, error) != 0)
        return -1;
    report_damage(options, &findings);
    if (findings.torn && move_torn_tail(log, options, &findings, error) != 0)
        return -1;
    log->length = findings.kept.length;
    log->crc = findings.kept.crc;
    log->mark = findings.kept;
    /* A kill may have left lines that never reached the disk: they count from now on, so they must. */
    if (lseek(log->fd, (off_t)log->length, SEEK_SET) < 0)
        return fail_errno(error, NJ_IO_FAILED, "seek", log->path);
    return log->length == 0 && !findings.torn ? 0 : file_sync(log->fd, log->path, error);
}

struct nj_record_log *record_log_open(const struct nj_log_options *options, struct nj_error *error)
{
    struct nj_record_log *log = calloc(1, sizeof *log);
    if (log == NULL || asprintf(&log->path, "%s/%s.jsonl", options->directory, options->name) < 0) {
        free(log);
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    bool created = access(log->path, F_OK) != 0;
    log->fd = open(log->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int result = log->fd < 0 ? fail_errno(error, NJ_CANT_CREATE, "open", log->path) : 0;
    if (result == 0 && created)
        result = file_sync_directory_of(log->path, error);
    if (result == 0)
        result = check_log(log, options, error);
    if (result != 0) {
        record_log_close(log);
        return NULL;
    }
    return log;
}

void record_log_close(struct nj_record_log *log)
{
    if (log == NULL)
        return;
    if (log->fd >= 0)
        close(log->fd);
    byte_buffer_free(&log->pending);
    free(log->path);
    free(log);
}

int record_log_append(struct nj_record_log *log, const char *record, struct nj_error *error)
{
    size_t length = strlen(record) - 1; /* without the closing brace */
    size_t begin = log->pending.length;
    char seal[SEAL_BYTES + 2];
    snprintf(seal, sizeof seal, ",\"crc32\":\"%08" PRIx32 "\"}\n", crc_add(0, record, length));
    if (byte_buffer_reserve(&log->pending, length + sizeof seal, error) != 0 ||
        byte_buffer_append(&log->pending, record, length, error) != 0 ||
        byte_buffer_append(&log->pending, seal, SEAL_BYTES + 1, error) != 0)
        return -1;
    log->crc = crc_add(log->crc, log->pending.data + begin, log->pending.length - begin);
    return 0;
}

int record_log_flush(struct nj_record_log *log, struct nj_error *error)
{
    struct nj_byte_buffer *pending = &log->pending;
    size_t done = 0;
    int result = 0;
    while (done < pending->length && result == 0) {
        ssize_t put = write(log->fd, pending->data + done, pending->length - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            result = fail_errno(error, NJ_IO_FAILED, "write", log->path);
    }
    /* What was written stays written: a later flush goes on behind it. */
    log->length += done;
    if (done > 0)
        memmove(pending->data, pending->data + done, pending->length - done);
    pending->length -= done;
    return result;
}

int record_log_sync(struct nj_record_log *log, struct nj_error *error)
{
    if (log->broken) {
        error_set(error, NJ_IO_FAILED, "an earlier fsync failed: what is on the disk is not known");
        return error_at(error, log->path, 0, -1);
    }
    if (record_log_is_synced(log))
        return 0;
    if (record_log_flush(log, error) != 0)
        return -1;
    if (file_sync(log->fd, log->path, error) != 0) {
        log->broken = true;
        return -1;
    }
    log->mark = (struct nj_log_mark){.length = log->length, .crc = log->crc};
    return 0;
}

bool record_log_is_synced(const struct nj_record_log *log)
{
    return log->pending.length == 0 && log->mark.length == log->length;
}

struct nj_log_mark record_log_mark(const struct nj_record_log *log)
{
    return log->mark;
}

int record_log_scan(const char *path, nj_line_visitor visit, void *context, struct nj_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail_errno(error, NJ_IO_FAILED, "open", path);
    struct line_source source = {.fd = fd, .path = path};
    const char *line;
    size_t length;
    int got;
    while ((got = next_line(&source, &line, &length, error)) > 0) {
        uint64_t offset = source.offset + (uint64_t)(line - source.buffer.data);
        if (is_whole_and_good(line, length) && visit(context, line, length - 1, offset, error) != 0) {
            got = -1;
            break;
        }
    }
    byte_buffer_free(&source.buffer);
    close(fd);
    return got < 0 ? -1 : 0;
}
