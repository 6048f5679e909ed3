#include <stdlib.h>
#include <string.h>

#include "pipeline/input/input_internal.h"

struct nj_line_reader {
    struct nj_input *input;
    struct nj_input_walk *walk;
    size_t file; /* being read, if is_open */
    bool is_open;
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
    reader->walk = input_walk_create(input, error);
    if (reader->walk == NULL) {
        free(reader);
        return NULL;
    }
    return reader;
}

void line_reader_destroy(struct nj_line_reader *reader)
{
    if (reader == NULL)
        return;
    input_walk_destroy(reader->walk);
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
    size_t got;
    if (byte_buffer_reserve(buffer, READ_BYTES, error) != 0)
        return -1;
    if (input_walk_read(reader->walk, buffer->data + buffer->length, READ_BYTES, &got, error) != 0)
        return error_at(error, input_file_at(reader->input, reader->file)->path, (int64_t)reader->number + 1, -1);
    buffer->length += got;
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

/* Goes to the next file: 1, 0 if there is none. */
static int next_file(struct nj_line_reader *reader, struct nj_error *error)
{
    int got = input_walk_next(reader->walk, &reader->file, error);
    reader->is_open = got > 0;
    reader->number = 0;
    reader->offset = 0;
    reader->start = 0;
    reader->buffer.length = 0;
    reader->at_end = false;
    return got;
}

int line_reader_next(struct nj_line_reader *reader, struct nj_line *line, struct nj_error *error)
{
    for (;;) {
        int got = reader->is_open ? 1 : next_file(reader, error);
        if (got <= 0)
            return got;
        got = next_raw_line(reader, line, error);
        if (got < 0)
            return -1;
        if (got == 0) {
            reader->is_open = false;
            continue;
        }
        if (!line->too_long)
            trim_line(line);
        if (line->too_long || !is_blank(line))
            return 1;
    }
}
