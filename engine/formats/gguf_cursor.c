#include "engine/formats/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/base/utf8.h"

enum { CHUNK_BYTES = 256 * 1024 };

/* Far above any real file (a few MB of vocabulary), far below what could exhaust the machine's memory. */
static const uint64_t METADATA_BYTES_MOST = 256 * 1024 * 1024;

int gguf_cursor_open(struct nj_gguf_cursor *cursor, const struct nj_gguf *gguf, struct nj_error *error)
{
    *cursor = (struct nj_gguf_cursor){.fd = gguf->fd, .path = gguf->path, .error = error};
    cursor->end = gguf->file_bytes < METADATA_BYTES_MOST ? gguf->file_bytes : METADATA_BYTES_MOST;
    cursor->chunk = malloc(CHUNK_BYTES);
    return cursor->chunk != NULL ? 0 : gguf_cursor_no_memory(cursor);
}

void gguf_cursor_close(struct nj_gguf_cursor *cursor)
{
    free(cursor->chunk);
    cursor->chunk = NULL;
}

void gguf_cursor_name(struct nj_gguf_cursor *cursor, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cursor->what, sizeof cursor->what, format, arguments);
    va_end(arguments);
    cursor->what[utf8_whole_bytes(cursor->what, strlen(cursor->what))] = '\0';
}

int gguf_cursor_fail(struct nj_gguf_cursor *cursor, uint64_t position, const char *format, ...)
{
    char message[sizeof cursor->error->message];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    error_set(cursor->error, NJ_BAD_DATA, "%s", message);
    return error_at(cursor->error, cursor->path, 0, (int64_t)position);
}

int gguf_cursor_no_memory(struct nj_gguf_cursor *cursor)
{
    error_set(cursor->error, NJ_INTERNAL, "out of memory reading the model's metadata");
    return error_at(cursor->error, cursor->path, 0, -1);
}

static int fill_chunk(struct nj_gguf_cursor *cursor)
{
    uint64_t left = cursor->end - cursor->position;
    size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
    cursor->chunk_bytes = 0;
    if (file_read_at(cursor->fd, cursor->path, cursor->chunk, bytes, cursor->position, cursor->error) != 0)
        return -1;
    cursor->chunk_position = cursor->position;
    cursor->chunk_bytes = bytes;
    return 0;
}

static int check_left(struct nj_gguf_cursor *cursor, uint64_t bytes)
{
    if (bytes <= cursor->end - cursor->position)
        return 0;
    return gguf_cursor_fail(cursor, cursor->position,
                            "the file ends inside %s: %" PRIu64 " bytes are needed here, %" PRIu64
                            " are left; it is damaged or was not downloaded completely",
                            cursor->what, bytes, cursor->end - cursor->position);
}

int gguf_cursor_read(struct nj_gguf_cursor *cursor, void *to, size_t bytes)
{
    if (check_left(cursor, bytes) != 0)
        return -1;
    while (bytes > 0) {
        uint64_t from = cursor->position - cursor->chunk_position;
        if (from >= cursor->chunk_bytes) {
            if (fill_chunk(cursor) != 0)
                return -1;
            from = 0;
        }
        size_t here = cursor->chunk_bytes - (size_t)from;
        size_t taken = bytes < here ? bytes : here;
        memcpy(to, cursor->chunk + from, taken);
        to = (char *)to + taken;
        bytes -= taken;
        cursor->position += taken;
    }
    return 0;
}

int gguf_cursor_skip(struct nj_gguf_cursor *cursor, uint64_t bytes)
{
    if (check_left(cursor, bytes) != 0)
        return -1;
    cursor->position += bytes;
    return 0;
}

int gguf_cursor_u32(struct nj_gguf_cursor *cursor, uint32_t *out)
{
    return gguf_cursor_read(cursor, out, sizeof *out); /* the baseline machine is little endian */
}

int gguf_cursor_u64(struct nj_gguf_cursor *cursor, uint64_t *out)
{
    return gguf_cursor_read(cursor, out, sizeof *out);
}

int gguf_cursor_text(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, uint64_t most, struct nj_text *out)
{
    uint64_t position = cursor->position;
    uint64_t length;
    if (gguf_cursor_u64(cursor, &length) != 0)
        return -1;
    if (length > cursor->end - cursor->position || length > most)
        return gguf_cursor_fail(
            cursor, position, "%s: a string claims %" PRIu64 " bytes; at most %" PRIu64 " are possible here",
            cursor->what, length, most < cursor->end - cursor->position ? most : cursor->end - cursor->position);
    char *bytes = gguf_memory_take(memory, (size_t)length);
    if (bytes == NULL)
        return gguf_cursor_no_memory(cursor);
    *out = (struct nj_text){bytes, (size_t)length};
    return gguf_cursor_read(cursor, bytes, (size_t)length);
}

int gguf_cursor_name_text(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, uint64_t most,
                          struct nj_text *out)
{
    uint64_t position = cursor->position;
    if (gguf_cursor_text(cursor, memory, most, out) != 0)
        return -1;
    if (out->length == 0)
        return gguf_cursor_fail(cursor, position, "%s: the name is empty", cursor->what);
    if (!utf8_is_valid(out->bytes, out->length))
        return gguf_cursor_fail(cursor, position, "%s: the name is not valid UTF-8", cursor->what);
    for (size_t i = 0; i < out->length; i++)
        if ((unsigned char)out->bytes[i] < 0x20 || out->bytes[i] == 0x7f)
            return gguf_cursor_fail(cursor, position, "%s: the name has a control character", cursor->what);
    return 0;
}

int gguf_cursor_check_count(struct nj_gguf_cursor *cursor, uint64_t count, uint64_t least_bytes)
{
    uint64_t possible = (cursor->end - cursor->position) / least_bytes;
    if (count <= possible)
        return 0;
    return gguf_cursor_fail(cursor, cursor->position,
                            "%s: the count %" PRIu64 " is more than the rest of the file can hold (%" PRIu64 ")",
                            cursor->what, count, possible);
}
