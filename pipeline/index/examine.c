#include "pipeline/index/examine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATED_REPEATS_MOST = 100000 };

void examiner_free(struct nj_examiner *examiner)
{
    byte_buffer_free(&examiner->line);
}

static int examine_text(struct nj_examiner *examiner, const struct nj_line *line, struct nj_examined *out,
                        struct nj_error *error)
{
    if (line->too_long) {
        problem_set(&out->problem, "line_too_long", "the line is longer than %d MiB: split it",
                    NJ_LINE_BYTES_MOST >> 20);
        return 0;
    }
    if (request_parse(line->text, line->length, &out->request, &out->problem) != 0)
        return 0;
    int result = prompt_encode(examiner->encoder, &out->request, &out->prompt, &out->problem, error);
    if (result < 0)
        return error_at(error, input_file_at(examiner->input, line->file)->label, (int64_t)line->number, -1);
    out->ok = result == 0;
    return 0;
}

int examine_line(struct nj_examiner *examiner, const struct nj_line *line, struct nj_examined *out,
                 struct nj_error *error)
{
    *out = (struct nj_examined){0};
    if (examine_text(examiner, line, out, error) != 0)
        return -1;
    out->digest = out->ok ? out->prompt.digest : prompt_digest_bad_line(examiner->encoder, line->text, line->length);
    return 0;
}

void examined_free(struct nj_examined *examined)
{
    request_free(&examined->request);
}

int examine_read_again(struct nj_examiner *examiner, const struct nj_index_entry *entry, struct nj_line *line,
                       struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &examiner->line;
    buffer->length = 0;
    if (byte_buffer_reserve(buffer, (size_t)entry->length + 1, error) != 0 ||
        input_read_at(examiner->input, entry->file, index_entry_offset(entry), buffer->data, entry->length, error) != 0)
        return -1;
    *line = (struct nj_line){.text = buffer->data,
                             .length = entry->length,
                             .offset = index_entry_offset(entry),
                             .number = index_entry_line(entry),
                             .file = entry->file,
                             .too_long = entry->kind == NJ_ENTRY_LONG};
    return 0;
}

char *examine_make_id(const struct nj_examiner *examiner, uint32_t file, uint64_t line, unsigned repeat)
{
    const char *label = input_file_at(examiner->input, file)->label;
    char *id = NULL;
    int length = repeat <= 1 ? asprintf(&id, "%s:%" PRIu64, label, line)
                             : asprintf(&id, "%s:%" PRIu64 "#%u", label, line, repeat);
    return length < 0 ? NULL : id;
}

char *examine_entry_id(const struct nj_examiner *examiner, const struct nj_index *index,
                       const struct nj_index_entry *entry, const struct nj_request *request)
{
    if (entry->own_id && request->id != NULL)
        return strndup(request->id, request->id_length);
    for (unsigned repeat = 1; repeat <= GENERATED_REPEATS_MOST; repeat++) {
        char *id = examine_make_id(examiner, entry->file, index_entry_line(entry), repeat);
        if (id == NULL || index_hash(index, digest_of(id, strlen(id)).low) == entry->id_hash)
            return id;
        free(id);
    }
    return examine_make_id(examiner, entry->file, index_entry_line(entry), 1);
}
