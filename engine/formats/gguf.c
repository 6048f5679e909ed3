#include "engine/formats/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "engine/formats/gguf_internal.h"

enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_LEAST = 8, ALIGNMENT_MOST = 1024 * 1024 };

static int compare_texts(struct nj_text a, struct nj_text b)
{
    int order = memcmp(a.bytes, b.bytes, a.length < b.length ? a.length : b.length);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_names(const void *left, const void *right)
{
    const struct nj_gguf_name *a = left;
    const struct nj_gguf_name *b = right;
    int order = compare_texts(a->name, b->name);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

const struct nj_gguf_name *gguf_names_sort(struct nj_gguf_name *names, size_t count)
{
    qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_texts(names[i - 1].name, names[i].name) == 0)
            return &names[i];
    return NULL;
}

const struct nj_gguf_name *gguf_names_find(const struct nj_gguf_name *names, size_t count, struct nj_text name)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_texts(names[middle].name, name);
        if (order == 0)
            return &names[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct nj_gguf_entry *gguf_find_entry(const struct nj_gguf *gguf, const char *key)
{
    struct nj_text text = {key, strlen(key)};
    const struct nj_gguf_name *name = gguf_names_find(gguf->entry_names, gguf->entry_count, text);
    return name == NULL ? NULL : &gguf->entries[name->index];
}

static int read_header(struct nj_gguf_cursor *cursor, uint64_t *tensors, uint64_t *entries)
{
    char magic[4];
    uint32_t version;
    gguf_cursor_name(cursor, "the header");
    if (gguf_cursor_read(cursor, magic, sizeof magic) != 0)
        return -1;
    if (memcmp(magic, "GGUF", sizeof magic) != 0)
        return gguf_cursor_fail(cursor, 0, "not a GGUF model file: it does not begin with 'GGUF'");
    if (gguf_cursor_u32(cursor, &version) != 0)
        return -1;
    if (version != 0 && (version & 0xffff) == 0)
        return gguf_cursor_fail(cursor, 4, "a big-endian GGUF file; convert it to little endian");
    if (version != 2 && version != 3)
        return gguf_cursor_fail(cursor, 4, "GGUF version %" PRIu32 " is not read, only 2 and 3", version);
    return gguf_cursor_u64(cursor, tensors) != 0 || gguf_cursor_u64(cursor, entries) != 0 ? -1 : 0;
}

static int read_alignment(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, "general.alignment");
    gguf->alignment = ALIGNMENT_DEFAULT;
    if (entry == NULL)
        return 0;
    if (entry->type != NJ_GGUF_UINT32)
        return gguf_cursor_fail(cursor, entry->position, "general.alignment has the type %s, not uint32",
                                gguf_value_info(entry->type)->name);
    uint64_t alignment = entry->value.unsigned_number;
    if (alignment < ALIGNMENT_LEAST || alignment > ALIGNMENT_MOST || (alignment & (alignment - 1)) != 0)
        return gguf_cursor_fail(cursor, entry->position,
                                "general.alignment is %" PRIu64 ", not a power of two from %d to %d", alignment,
                                ALIGNMENT_LEAST, ALIGNMENT_MOST);
    gguf->alignment = alignment;
    return 0;
}

static int read_directory(struct nj_gguf *gguf, struct nj_error *error)
{
    struct nj_gguf_cursor cursor;
    if (gguf_cursor_open(&cursor, gguf, error) != 0)
        return -1;
    uint64_t tensors, entries;
    int failed = read_header(&cursor, &tensors, &entries) != 0 || gguf_read_entries(gguf, &cursor, entries) != 0 ||
                 read_alignment(gguf, &cursor) != 0 || gguf_read_tensors(gguf, &cursor, tensors) != 0;
    gguf_cursor_close(&cursor);
    return failed ? -1 : 0;
}

static int open_file(struct nj_gguf *gguf, const char *path, struct nj_error *error)
{
    /* Without O_NONBLOCK the open of a named pipe would wait for a writer before it can be refused. */
    gguf->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (gguf->fd < 0)
        error_set(error, NJ_NO_INPUT, "cannot open the model file: %s", strerror(errno));
    else if (fstat(gguf->fd, &info) != 0)
        error_set(error, NJ_IO_FAILED, "stat failed: %s", strerror(errno));
    else if (!S_ISREG(info.st_mode))
        error_set(error, NJ_BAD_DATA, "not a regular file; a GGUF model file is needed");
    else if ((gguf->path = strdup(path)) == NULL)
        error_set(error, NJ_INTERNAL, "out of memory opening the model file");
    else {
        gguf->file_bytes = (uint64_t)info.st_size;
        return 0;
    }
    return error_at(error, path, 0, -1);
}

struct nj_gguf *gguf_open_file(const char *path, struct nj_error *error)
{
    struct nj_gguf *gguf = calloc(1, sizeof *gguf);
    if (gguf == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening the model file");
        return NULL;
    }
    gguf->fd = -1;
    if (open_file(gguf, path, error) != 0 || read_directory(gguf, error) != 0) {
        gguf_close(gguf);
        return NULL;
    }
    return gguf;
}

struct nj_gguf *gguf_open(const char *path, struct nj_error *error)
{
    struct nj_gguf *gguf = gguf_open_file(path, error);
    if (gguf != NULL && gguf_join_parts(gguf, error) != 0) {
        gguf_close(gguf);
        return NULL;
    }
    return gguf;
}

void gguf_close(struct nj_gguf *gguf)
{
    if (gguf == NULL)
        return;
    for (size_t i = 0; i < gguf->further_count; i++)
        gguf_close(gguf->further[i]);
    if (gguf->fd >= 0)
        close(gguf->fd);
    gguf_memory_free(&gguf->memory);
    free(gguf->path);
    free(gguf);
}

const char *gguf_path(const struct nj_gguf *gguf)
{
    return gguf->path;
}

size_t gguf_tensor_count(const struct nj_gguf *gguf)
{
    return gguf->tensor_count;
}

const struct nj_gguf_tensor *gguf_tensor_at(const struct nj_gguf *gguf, size_t index)
{
    return &gguf->tensors[index];
}

const struct nj_gguf_tensor *gguf_tensor_find(const struct nj_gguf *gguf, const char *name)
{
    struct nj_text text = {name, strlen(name)};
    const struct nj_gguf_name *found = gguf_names_find(gguf->tensor_names, gguf->tensor_count, text);
    return found == NULL ? NULL : &gguf->tensors[found->index];
}

int gguf_read_file(const struct nj_gguf *gguf, const struct nj_gguf_tensor *tensor, uint64_t offset, void *to,
                   size_t bytes, struct nj_error *error)
{
    uint64_t end;
    if (!checked_add(offset, bytes, &end) || end > tensor->bytes) {
        error_set(error, NJ_INTERNAL, "bytes %" PRIu64 " to %" PRIu64 " are not in the tensor '%.*s' of %" PRIu64,
                  offset, end, (int)tensor->name.length, tensor->name.bytes, tensor->bytes);
        return error_at(error, gguf->path, 0, (int64_t)tensor->offset);
    }
    return file_read_at(gguf->fd, gguf->path, to, bytes, tensor->offset + offset, error);
}
