/* The index from index.bin, when the input has not changed since it was read. */
#include <string.h>

#include "engine/sweep/logprobs.h"
#include "pipeline/index/index_build.h"

/* The checksum says that we wrote the record; this, that nothing beyond the files and fields comes of it. */
static bool is_sound(const struct nj_input *input, const struct nj_index_record *record)
{
    if (record->file >= input_file_count(input) || record->kind > NJ_ENTRY_LONG || record->own_id > 1 ||
        record->length > NJ_LINE_BYTES_MOST || record->prompt_tokens > NJ_ENTRY_TOKENS_MOST ||
        record->max_new_tokens > NJ_ENTRY_TOKENS_MOST || record->more_samples >= NJ_CHOICES_MOST ||
        record->logprobs > 1 + NJ_TOP_LOGPROBS_MOST)
        return false;
    const struct nj_input_file *file = input_file_at(input, record->file);
    return file->kind != NJ_INPUT_ARCHIVE && record->offset <= file->bytes &&
           record->length <= file->bytes - record->offset;
}

static int load_record(const struct nj_index_build *build, const struct nj_index_record *record,
                       struct nj_index_totals *totals, struct nj_error *error)
{
    struct nj_index_entry entry = {.id_hash = record->id_hash.low,
                                   .digest = record->digest.low,
                                   .kind = record->kind & 3,
                                   .own_id = record->own_id & 1,
                                   .prompt_tokens = record->prompt_tokens & NJ_ENTRY_TOKENS_MOST,
                                   .max_new_tokens = record->max_new_tokens & NJ_ENTRY_TOKENS_MOST,
                                   .more_samples = record->more_samples & 0xF};
    if (!is_sound(build->examiner->input, record) ||
        !index_entry_set_place(&entry, record->file, record->line, record->offset, record->length))
        return error_set(error, NJ_BAD_DATA, "the index holds a record that cannot be");
    totals->requests++;
    totals->bad += record->kind != NJ_ENTRY_REQUEST;
    totals->prompt_tokens += (uint64_t)record->prompt_tokens * index_entry_samples(&entry);
    totals->most_new_tokens += (uint64_t)record->max_new_tokens * index_entry_samples(&entry);
    if (record->logprobs > totals->most_logprobs)
        totals->most_logprobs = record->logprobs;
    return index_add(build->index, &entry, error);
}

int index_load(const struct nj_index_build *build, struct nj_index_reader *reader, struct nj_index_totals *totals,
               struct nj_error *error)
{
    struct nj_index_record record;
    *totals = (struct nj_index_totals){0};
    if (index_reserve(build->index, index_reader_count(reader), error) != 0)
        return -1;
    int got = index_build_look_up(build, 0, error);
    while (got == 0 && (got = index_reader_next(reader, &record, error)) > 0) {
        got = load_record(build, &record, totals, error);
        if (got == 0)
            got = index_build_look_up(build, totals->requests, error);
    }
    return got;
}
