#include "pipeline/input.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/utf8_text.h"

enum { OPEN_FILES_MOST = 64 };

/* A file while it is listed: its label is path + label_start until it is known to be unique. */
struct listed_file {
    struct nj_input_file file;
    size_t label_start;
};

struct open_file {
    size_t file;
    int fd;
};

struct nj_input {
    struct listed_file *files;
    size_t count, capacity;
    struct open_file open[OPEN_FILES_MOST]; /* a ring: the next to be closed is at `oldest` */
    size_t opened, oldest;
};

static int fail_path(struct nj_error *error, const char *path, const char *what)
{
    error_set(error, NJ_NO_INPUT, "%s", what);
    return error_at(error, path, 0, -1);
}

static int fail_errno(struct nj_error *error, const char *path)
{
    return fail_path(error, path, strerror(errno));
}

char *input_absolute_path(const char *argument, struct nj_error *error)
{
    char *path = NULL;
    const char *last = strrchr(argument, '/');
    last = last == NULL ? argument : last + 1;
    if (argument[0] == '\0') {
        fail_path(error, argument, "an input has no name");
        return NULL;
    }
    /* "." and ".." have no name of their own to label lines with. */
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        path = realpath(argument, NULL);
    } else if (argument[0] == '/') {
        path = strdup(argument);
    } else {
        char *here = getcwd(NULL, 0);
        if (here != NULL && asprintf(&path, "%s/%s", here, argument) < 0)
            path = NULL;
        free(here);
    }
    if (path == NULL) {
        fail_errno(error, argument);
        return NULL;
    }
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    return path;
}

/* Takes `path` over, also when it fails. */
static int add_file(struct nj_input *input, char *path, size_t label_start, const struct stat *info,
                    struct nj_error *error)
{
    if (input->count == NJ_INPUT_FILES_MOST) {
        error_set(error, NJ_BAD_USAGE, "more than %d input files: join some", NJ_INPUT_FILES_MOST);
        goto failed;
    }
    if (input->count == input->capacity) {
        size_t capacity = input->capacity == 0 ? 16 : 2 * input->capacity;
        struct listed_file *grown = realloc(input->files, capacity * sizeof *grown);
        if (grown == NULL) {
            error_set(error, NJ_INTERNAL, "out of memory listing the input");
            goto failed;
        }
        input->files = grown;
        input->capacity = capacity;
    }
    input->files[input->count++] = (struct listed_file){
        .file = {.path = path,
                 .bytes = (uint64_t)info->st_size,
                 .modified_nanoseconds = (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec,
                 .device = (uint64_t)info->st_dev,
                 .inode = (uint64_t)info->st_ino},
        .label_start = label_start};
    return 0;
failed:
    free(path);
    return -1;
}

static bool ends_in_jsonl(const char *name)
{
    size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".jsonl") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int list_directory(struct nj_input *input, const char *path, size_t label_start, struct nj_error *error);

static int list_entry(struct nj_input *input, const char *directory, const char *name, size_t label_start,
                      struct nj_error *error)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    struct stat info;
    int result = 0;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        result = list_directory(input, path, label_start, error);
    } else if (ends_in_jsonl(name)) {
        if (stat(path, &info) != 0) {
            result = fail_errno(error, path);
        } else if (S_ISREG(info.st_mode)) {
            return add_file(input, path, label_start, &info, error);
        }
    }
    free(path);
    return result;
}

static int list_directory(struct nj_input *input, const char *path, size_t label_start, struct nj_error *error)
{
    struct dirent **entries;
    int count = scandir(path, &entries, not_dots, by_bytes);
    if (count < 0)
        return fail_errno(error, path);
    int result = 0;
    for (int i = 0; i < count; i++) {
        if (result == 0)
            result = list_entry(input, path, entries[i]->d_name, label_start, error);
        free(entries[i]);
    }
    free(entries);
    return result;
}

static int list_argument(struct nj_input *input, const char *argument, struct nj_error *error)
{
    char *path = input_absolute_path(argument, error);
    if (path == NULL)
        return -1;
    const char *slash = strrchr(path, '/');
    size_t label_start = (size_t)(slash - path) + 1;
    struct stat info;
    int result;
    if (stat(path, &info) != 0)
        result = fail_errno(error, argument);
    else if (S_ISREG(info.st_mode) && access(path, R_OK) != 0)
        result = fail_errno(error, argument);
    else if (S_ISREG(info.st_mode))
        return add_file(input, path, label_start, &info, error);
    else if (!S_ISDIR(info.st_mode))
        result = fail_path(error, argument, "neither a regular file nor a directory");
    else {
        size_t before = input->count;
        result = list_directory(input, path, label_start, error);
        if (result == 0 && input->count == before)
            result = fail_path(error, argument, "the directory holds no .jsonl file");
    }
    free(path);
    return result;
}

static const char *label_of(const struct listed_file *file)
{
    return file->file.path + file->label_start;
}

static int by_label(const void *a, const void *b)
{
    const struct listed_file *const *first = a, *const *second = b;
    return strcmp(label_of(*first), label_of(*second));
}

static bool same_file(const struct nj_input_file *a, const struct nj_input_file *b)
{
    return a->device == b->device && a->inode == b->inode;
}

static bool extend_label(struct listed_file *file)
{
    if (file->label_start <= 1)
        return false;
    size_t start = file->label_start - 1;
    while (start > 0 && file->file.path[start - 1] != '/')
        start--;
    file->label_start = start == 0 ? 1 : start;
    return true;
}

/* Gives one more parent to the labels of different files that are equal. Returns whether any changed. */
static bool extend_equal_labels(struct listed_file **sorted, size_t count)
{
    qsort(sorted, count, sizeof *sorted, by_label);
    bool changed = false;
    for (size_t first = 0, end; first < count; first = end) {
        bool differ = false;
        for (end = first + 1; end < count && strcmp(label_of(sorted[first]), label_of(sorted[end])) == 0; end++)
            differ = differ || !same_file(&sorted[first]->file, &sorted[end]->file);
        for (size_t i = first; differ && i < end; i++)
            changed = extend_label(sorted[i]) || changed;
    }
    return changed;
}

static int make_labels(struct nj_input *input, struct nj_error *error)
{
    struct listed_file **sorted = malloc((input->count + 1) * sizeof *sorted);
    if (sorted == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    for (size_t i = 0; i < input->count; i++)
        sorted[i] = &input->files[i];
    while (extend_equal_labels(sorted, input->count))
        ;
    free(sorted);
    for (size_t i = 0; i < input->count; i++) {
        struct listed_file *file = &input->files[i];
        file->file.label = utf8_escape_invalid(label_of(file), strlen(label_of(file)));
        if (file->file.label == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    }
    return 0;
}

struct nj_input *input_open(const char *const *arguments, size_t count, struct nj_error *error)
{
    struct nj_input *input = calloc(1, sizeof *input);
    if (input == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    int result = count > 0 ? 0 : error_set(error, NJ_BAD_USAGE, "no input: name at least one .jsonl file or directory");
    for (size_t i = 0; i < count && result == 0; i++)
        result = list_argument(input, arguments[i], error);
    if (result == 0)
        result = make_labels(input, error);
    if (result != 0) {
        input_close(input);
        return NULL;
    }
    return input;
}

void input_close(struct nj_input *input)
{
    if (input == NULL)
        return;
    for (size_t i = 0; i < input->opened; i++)
        close(input->open[i].fd);
    for (size_t i = 0; i < input->count; i++) {
        free(input->files[i].file.path);
        free(input->files[i].file.label);
    }
    free(input->files);
    free(input);
}

size_t input_file_count(const struct nj_input *input)
{
    return input->count;
}

const struct nj_input_file *input_file_at(const struct nj_input *input, size_t index)
{
    return &input->files[index].file;
}

/* A descriptor of the file, from the ring of open ones. -1: error filled. */
static int open_file(struct nj_input *input, size_t file, struct nj_error *error)
{
    for (size_t i = 0; i < input->opened; i++) {
        if (input->open[i].file == file)
            return input->open[i].fd;
    }
    const char *path = input->files[file].file.path;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(error, path);
    if (input->opened < OPEN_FILES_MOST) {
        input->open[input->opened++] = (struct open_file){.file = file, .fd = fd};
        return fd;
    }
    close(input->open[input->oldest].fd);
    input->open[input->oldest] = (struct open_file){.file = file, .fd = fd};
    input->oldest = (input->oldest + 1) % OPEN_FILES_MOST;
    return fd;
}

int input_read_at(struct nj_input *input, size_t file, uint64_t offset, void *to, size_t bytes, struct nj_error *error)
{
    int fd = open_file(input, file, error);
    return fd < 0 ? -1 : file_read_at(fd, input->files[file].file.path, to, bytes, offset, error);
}

struct nj_line_reader {
    struct nj_input *input;
    size_t file;     /* being read */
    uint64_t number; /* of the last line given */
    uint64_t offset; /* of buffer[0] in the file */
    size_t start;    /* of what is not consumed yet */
    struct nj_byte_buffer buffer;
    bool at_end; /* of the file */
};

enum { READ_BYTES = 256 << 10 };

struct nj_line_reader *line_reader_create(struct nj_input *input, struct nj_error *error)
{
    struct nj_line_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    reader->input = input;
    return reader;
}

void line_reader_destroy(struct nj_line_reader *reader)
{
    if (reader == NULL)
        return;
    byte_buffer_free(&reader->buffer);
    free(reader);
}

/* Moves what is not consumed to the front, so that buffer[0] is the next byte. */
static void drop_consumed(struct nj_line_reader *reader)
{
    struct nj_byte_buffer *buffer = &reader->buffer;
    if (reader->start == 0)
        return;
    memmove(buffer->data, buffer->data + reader->start, buffer->length - reader->start);
    buffer->length -= reader->start;
    reader->offset += reader->start;
    reader->start = 0;
}

/* Reads more behind what the buffer holds; sets at_end. */
static int read_more(struct nj_line_reader *reader, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &reader->buffer;
    int fd = open_file(reader->input, reader->file, error);
    if (fd < 0 || byte_buffer_reserve(buffer, READ_BYTES, error) != 0)
        return -1;
    ssize_t got;
    do {
        got = pread(fd, buffer->data + buffer->length, READ_BYTES, (off_t)(reader->offset + buffer->length));
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        error_set(error, NJ_IO_FAILED, "read failed: %s", strerror(errno));
        return error_at(error, reader->input->files[reader->file].file.path, (int64_t)reader->number + 1, -1);
    }
    buffer->length += (size_t)got;
    reader->at_end = got == 0;
    return 0;
}

/* Skips the rest of a line that is too long, keeping its first bytes in front of the buffer. */
static int skip_long_line(struct nj_line_reader *reader, struct nj_line *line, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &reader->buffer;
    const size_t kept = NJ_LONG_LINE_PREFIX_BYTES;
    uint64_t line_offset = reader->offset;
    reader->offset += buffer->length - kept;
    buffer->length = kept;
    size_t end = kept; /* of the line, in the buffer; none of what lies behind `kept` is stored twice */
    for (;;) {
        if (read_more(reader, error) != 0)
            return -1;
        const char *newline = memchr(buffer->data + kept, '\n', buffer->length - kept);
        if (newline != NULL) {
            end = (size_t)(newline - buffer->data) + 1;
            break;
        }
        if (reader->at_end)
            break;
        reader->offset += buffer->length - kept;
        buffer->length = kept;
    }
    *line = (struct nj_line){.text = buffer->data,
                             .length = kept,
                             .offset = line_offset,
                             .number = reader->number,
                             .file = (uint32_t)reader->file,
                             .too_long = true};
    reader->start = end;
    return 1;
}

/* The next line of the present file, LF excluded, blank or not: 1, 0 at its end. */
static int next_raw_line(struct nj_line_reader *reader, struct nj_line *line, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &reader->buffer;
    size_t searched = reader->start;
    for (;;) {
        const char *newline =
            buffer->length > searched ? memchr(buffer->data + searched, '\n', buffer->length - searched) : NULL;
        size_t end = newline == NULL ? buffer->length : (size_t)(newline - buffer->data);
        if (newline != NULL || (reader->at_end && end > reader->start)) {
            *line = (struct nj_line){.text = buffer->data + reader->start,
                                     .length = end - reader->start,
                                     .offset = reader->offset + reader->start,
                                     .number = ++reader->number,
                                     .file = (uint32_t)reader->file};
            reader->start = newline == NULL ? end : end + 1;
            return 1;
        }
        if (reader->at_end)
            return 0;
        drop_consumed(reader);
        searched = buffer->length;
        if (buffer->length > NJ_LINE_BYTES_MOST + 2) {
            reader->number++;
            return skip_long_line(reader, line, error);
        }
        if (read_more(reader, error) != 0)
            return -1;
    }
}

static void trim_line(struct nj_line *line)
{
    if (line->offset == 0 && line->length >= 3 && memcmp(line->text, "\xEF\xBB\xBF", 3) == 0) {
        line->text += 3;
        line->length -= 3;
        line->offset += 3;
    }
    if (line->length > 0 && line->text[line->length - 1] == '\r')
        line->length--;
    if (line->length > NJ_LINE_BYTES_MOST) {
        line->too_long = true;
        line->length = NJ_LONG_LINE_PREFIX_BYTES;
    }
}

static bool is_blank(const struct nj_line *line)
{
    for (size_t i = 0; i < line->length; i++) {
        if (line->text[i] != ' ' && line->text[i] != '\t' && line->text[i] != '\r')
            return false;
    }
    return true;
}

int line_reader_next(struct nj_line_reader *reader, struct nj_line *line, struct nj_error *error)
{
    while (reader->file < reader->input->count) {
        int got = next_raw_line(reader, line, error);
        if (got < 0)
            return -1;
        if (got == 0) {
            reader->file++;
            reader->number = 0;
            reader->offset = 0;
            reader->start = 0;
            reader->buffer.length = 0;
            reader->at_end = false;
            continue;
        }
        if (!line->too_long)
            trim_line(line);
        if (line->too_long || !is_blank(line))
            return 1;
    }
    return 0;
}
