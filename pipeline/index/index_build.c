#include "pipeline/index/index_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/base/utf8_text.h"

enum { PROGRESS_LINES = 2000, STOP_LINES = 64 };

struct builder {
    const struct nj_index_build *build;
    struct nj_index_totals *totals;
    uint32_t ignored_said;
    bool raw_said, control_said;
};

static void say(const struct builder *builder, const char *line)
{
    if (builder->build->notice != NULL)
        builder->build->notice(builder->build->notice_context, line);
}

static void warn_once(struct builder *builder, const struct nj_examined *examined)
{
    for (int bit = 0; bit < NJ_IGNORED_FIELDS; bit++) {
        uint32_t mask = 1u << bit;
        if ((examined->request.ignored & mask) == 0 || (builder->ignored_said & mask) != 0)
            continue;
        builder->ignored_said |= mask;
        char line[80];
        snprintf(line, sizeof line, "warning: the field \"%s\" of requests is ignored", request_ignored_name(bit));
        say(builder, line);
    }
    if (examined->ok && examined->prompt.raw_on_chat_model && !builder->raw_said) {
        builder->raw_said = true;
        say(builder,
            "warning: raw prompts go to the model as they are, although it has a chat template; --as-chat makes each "
            "one a user message");
    }
    if (examined->ok && examined->prompt.raw_with_control && !builder->control_said) {
        builder->control_said = true;
        say(builder, "warning: a raw prompt holds the text of a control token; in raw prompts that is plain text");
    }
}

/* Whether an entry's id is `id`; reads its line again. -1: error. */
static int entry_has_id(struct nj_examiner *examiner, const struct nj_index *index, const struct nj_index_entry *entry,
                        const char *id, struct nj_error *error)
{
    struct nj_line line;
    struct nj_request request = {0};
    struct nj_problem problem;
    if (examiner->is_read_once)
        return 1;
    if (entry->own_id) {
        if (examine_read_again(examiner, entry, &line, error) != 0)
            return -1;
        request_parse(line.text, line.length, &request, &problem);
    }
    char *entry_id = examine_entry_id(examiner, index, entry, &request);
    request_free(&request);
    if (entry_id == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int same = strcmp(entry_id, id) == 0;
    free(entry_id);
    return same;
}

/* The first entry that has this id. 1 found, 0 not, -1 error. */
static int find_id(struct nj_examiner *examiner, struct nj_index *index, const char *id, uint32_t *position,
                   struct nj_error *error)
{
    uint64_t cursor = 0;
    uint64_t hash = digest_of(id, strlen(id)).low;
    for (;;) {
        int64_t candidate = index_find(index, hash, &cursor);
        if (candidate == NJ_INDEX_NONE)
            return 0;
        int same = entry_has_id(examiner, index, index_at(index, (uint32_t)candidate), id, error);
        if (same != 0) {
            *position = (uint32_t)candidate;
            return same;
        }
    }
}

int index_describe_duplicate(struct nj_examiner *examiner, const struct nj_index *index, const char *id,
                             const struct nj_index_entry *entry, struct nj_problem *problem, struct nj_error *error)
{
    uint32_t position;
    struct nj_index *searched = (struct nj_index *)(uintptr_t)index;
    int found = find_id(examiner, searched, id, &position, error);
    if (found < 0)
        return -1;
    const struct nj_index_entry *first = found ? index_at(searched, position) : entry;
    char shown[160];
    utf8_copy_printable(shown, sizeof shown, id, strlen(id));
    problem_set(problem, "duplicate_id", "the id \"%s\" stands already at %s:%" PRIu64 ": give each request its own",
                shown, input_file_at(examiner->input, first->file)->label, index_entry_line(first));
    return 0;
}

/* The id that the line's record goes under: its own, or a generated one that nothing else has. */
static char *choose_id(struct builder *builder, const struct nj_line *line, const struct nj_examined *examined,
                       bool *duplicate, struct nj_index_entry *entry, struct nj_error *error)
{
    struct nj_examiner *examiner = builder->build->examiner;
    struct nj_index *index = builder->build->index;
    uint32_t position;
    *duplicate = false;
    if (examined->request.id != NULL) {
        char *own = strndup(examined->request.id, examined->request.id_length);
        int found = own == NULL ? error_set(error, NJ_INTERNAL, "out of memory")
                                : find_id(examiner, index, own, &position, error);
        if (found == 0) {
            entry->own_id = 1;
            return own;
        }
        free(own);
        if (found < 0)
            return NULL;
        *duplicate = true;
    }
    for (unsigned repeat = 1;; repeat++) {
        char *id = examine_make_id(examiner, line->file, line->number, repeat);
        int found = id == NULL ? error_set(error, NJ_INTERNAL, "out of memory")
                               : find_id(examiner, index, id, &position, error);
        if (found == 0) {
            /* The same file a second time: its lines without ids are duplicates too. */
            *duplicate = *duplicate || repeat > 1;
            return id;
        }
        free(id);
        if (found < 0)
            return NULL;
    }
}

static enum nj_entry_kind kind_of(const struct nj_line *line, const struct nj_examined *examined, bool duplicate)
{
    if (line->too_long)
        return NJ_ENTRY_LONG;
    if (duplicate)
        return NJ_ENTRY_DUPLICATE;
    return examined->ok ? NJ_ENTRY_REQUEST : NJ_ENTRY_BAD;
}

/* Counts a bad line; under --strict it is the end. */
static int note_bad(struct builder *builder, const struct nj_line *line, const struct nj_examined *examined,
                    const struct nj_index_entry *entry, struct nj_error *error)
{
    struct nj_index_totals *totals = builder->totals;
    struct nj_problem problem = examined->problem;
    struct nj_examiner *examiner = builder->build->examiner;
    const char *label = input_file_at(examiner->input, line->file)->label;
    if (totals->bad++ >= NJ_BAD_SHOWN)
        return 0;
    struct nj_error *shown = &totals->first_bad[totals->bad - 1];
    if (entry->kind == NJ_ENTRY_DUPLICATE) {
        char *id = examined->request.id != NULL ? strndup(examined->request.id, examined->request.id_length)
                                                : examine_make_id(examiner, line->file, line->number, 1);
        int result = id == NULL ? error_set(error, NJ_INTERNAL, "out of memory")
                                : index_describe_duplicate(examiner, builder->build->index, id, entry, &problem, error);
        free(id);
        if (result != 0)
            return -1;
    }
    error_set(shown, NJ_BAD_DATA, "%s", problem.message);
    error_at(shown, label, (int64_t)line->number, (int64_t)line->offset + (problem.byte > 0 ? problem.byte : 0));
    if (!builder->build->strict)
        return 0;
    if (error != NULL)
        *error = *shown;
    return -1;
}

/* Of each new token: its own, and the best ones beside it. */
static uint8_t count_logprobs(const struct nj_request *request)
{
    return request->logprobs == NJ_LOGPROBS_OFF ? 0 : (uint8_t)(1 + request->top_logprobs);
}

static int write_record(struct builder *builder, const struct nj_line *line, const struct nj_examined *examined,
                        const struct nj_index_entry *entry, const char *id, struct nj_error *error)
{
    if (builder->build->writer == NULL)
        return 0;
    struct nj_index_record record = {.id_hash = digest_of(id, strlen(id)),
                                     .digest = examined->digest,
                                     .offset = line->offset,
                                     .line = line->number,
                                     .file = line->file,
                                     .length = (uint32_t)line->length,
                                     .prompt_tokens = entry->prompt_tokens,
                                     .max_new_tokens = entry->max_new_tokens,
                                     .kind = entry->kind,
                                     .own_id = entry->own_id,
                                     .more_samples = entry->more_samples};
    if (entry->kind == NJ_ENTRY_REQUEST) {
        record.logprobs = count_logprobs(&examined->request);
        prefix_keys_make(examined->prompt.tokens, entry->prompt_tokens, record.prefix_key);
    }
    return index_writer_add(builder->build->writer, &record, error);
}

static int add_entry(struct builder *builder, const struct nj_line *line, const struct nj_examined *examined,
                     struct nj_error *error)
{
    struct nj_index_entry entry = {.digest = examined->digest.low};
    bool duplicate;
    char *id = choose_id(builder, line, examined, &duplicate, &entry, error);
    if (id == NULL)
        return -1;
    int result = 0;
    entry.id_hash = digest_of(id, strlen(id)).low;
    entry.kind = kind_of(line, examined, duplicate) & 3;
    if (entry.kind == NJ_ENTRY_REQUEST) {
        entry.prompt_tokens = (uint32_t)examined->prompt.count & NJ_ENTRY_TOKENS_MOST;
        entry.max_new_tokens = (uint32_t)examined->prompt.max_new_tokens & NJ_ENTRY_TOKENS_MOST;
        entry.more_samples = (uint32_t)(request_samples(&examined->request) - 1) & 0xF;
        builder->totals->prompt_tokens += (uint64_t)entry.prompt_tokens * index_entry_samples(&entry);
        builder->totals->most_new_tokens += (uint64_t)entry.max_new_tokens * index_entry_samples(&entry);
        const uint8_t logprobs = count_logprobs(&examined->request);
        if (logprobs > builder->totals->most_logprobs)
            builder->totals->most_logprobs = logprobs;
    }
    if (!index_entry_set_place(&entry, line->file, line->number, line->offset, line->length)) {
        error_set(error, NJ_BAD_DATA, "the file is too large: split it");
        result = error_at(error, input_file_at(builder->build->examiner->input, line->file)->path,
                          (int64_t)line->number, (int64_t)line->offset);
    }
    builder->totals->requests++;
    if (result == 0 && entry.kind != NJ_ENTRY_REQUEST)
        result = note_bad(builder, line, examined, &entry, error);
    if (result == 0)
        result = index_add(builder->build->index, &entry, error);
    if (result == 0)
        result = write_record(builder, line, examined, &entry, id, error);
    free(id);
    return result;
}

static int take_line(struct builder *builder, const struct nj_line *line, struct nj_error *error)
{
    struct nj_examined examined;
    int result = examine_line(builder->build->examiner, line, &examined, error);
    if (result == 0) {
        warn_once(builder, &examined);
        result = add_entry(builder, line, &examined, error);
    }
    examined_free(&examined);
    return result;
}

int index_build_look_up(const struct nj_index_build *build, uint64_t lines, struct nj_error *error)
{
    if (lines % PROGRESS_LINES == 0 && build->progress != NULL)
        build->progress(build->progress_context, lines);
    if (lines % STOP_LINES == 0 && build->stop != NULL && atomic_load(build->stop) != 0)
        return error_set(error, NJ_INTERRUPTED, "interrupted while reading the input; run the same command again");
    return 0;
}

int index_build(const struct nj_index_build *build, struct nj_index_totals *totals, struct nj_error *error)
{
    struct builder builder = {.build = build, .totals = totals};
    *totals = (struct nj_index_totals){0};
    struct nj_line_reader *reader = line_reader_create(build->examiner->input, error);
    if (reader == NULL)
        return -1;
    struct nj_line line;
    uint64_t lines = 0;
    int got = index_build_look_up(build, lines, error);
    while (got == 0 && (got = line_reader_next(reader, &line, error)) > 0) {
        got = take_line(&builder, &line, error);
        if (got == 0)
            got = index_build_look_up(build, ++lines, error);
    }
    line_reader_destroy(reader);
    return got;
}

int index_check_some_good(const struct nj_index_totals *totals, struct nj_error *error)
{
    const struct nj_error *first = &totals->first_bad[0];
    if (totals->bad == 0 || totals->bad < totals->requests)
        return 0;
    error_set(error, NJ_BAD_DATA, "every line of the input is bad (%" PRIu64 "); the first: %s", totals->bad,
              first->message);
    return error_at(error, first->file, first->line, first->byte);
}
