/* The records of bad lines. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_state.h"

enum { STOP_ENTRIES = 64 };

/* NULL: an error. */
static char *describe_bad_line(struct nj_job *job, const struct nj_index_entry *entry, const struct nj_line *line,
                               struct nj_examined *examined, const char *id, unsigned attempt, struct nj_error *error)
{
    if (examined->digest.low != entry->digest) {
        error_set(error, NJ_BAD_DATA, "the input has changed while the job runs");
        error_at(error, input_file_at(job->input, line->file)->path, (int64_t)line->number, -1);
        return NULL;
    }
    if (entry->kind == NJ_ENTRY_DUPLICATE) {
        char *own = examined->request.id != NULL ? strndup(examined->request.id, examined->request.id_length)
                                                 : examine_make_id(&job->examiner, line->file, line->number, 1);
        int result = own == NULL
                         ? error_set(error, NJ_INTERNAL, "out of memory")
                         : index_describe_duplicate(&job->examiner, job->index, own, entry, &examined->problem, error);
        free(own);
        if (result != 0)
            return NULL;
    }
    struct nj_record_subject subject = {
        .id = id, .shape = examined->request.shape, .digest = examined->digest, .attempt = attempt};
    struct nj_record_place place = {.file = input_file_at(job->input, line->file)->label,
                                    .line = line->number,
                                    .byte = line->offset +
                                            (examined->problem.byte > 0 ? (uint64_t)examined->problem.byte : 0)};
    return record_make_error(&job->record_context, &subject, &examined->problem, &place, error);
}

/* The record of a bad line, made from the line; the caller frees it. NULL: an error. */
static char *make_record(struct nj_job *job, const struct nj_index_entry *entry, unsigned attempt,
                         struct nj_error *error)
{
    struct nj_line line;
    struct nj_examined examined = {0};
    if (examine_read_again(&job->examiner, entry, &line, error) != 0)
        return NULL;
    /* Describing a duplicate reads another line into the same buffer: the text is not used after this. */
    int result = examine_line(&job->examiner, &line, &examined, error);
    char *id = result == 0 ? examine_entry_id(&job->examiner, job->index, entry, &examined.request) : NULL;
    if (result == 0 && id == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    char *record = id == NULL ? NULL : describe_bad_line(job, entry, &line, &examined, id, attempt, error);
    free(id);
    examined_free(&examined);
    return record;
}

int job_bad_line_has_record(struct nj_job *job, const struct nj_index_entry *entry, const char *line, size_t length,
                            unsigned attempt, struct nj_error *error)
{
    char *record = make_record(job, entry, attempt, error);
    if (record == NULL)
        return -1;
    const size_t open_length = strlen(record) - 1; /* without the brace, before which a log puts its checksum */
    const bool same = open_length < length && memcmp(record, line, open_length) == 0 && line[open_length] == ',';
    free(record);
    return same;
}

static int write_bad_line(struct nj_job *job, struct nj_index_entry *entry, struct nj_error *error)
{
    char *record = make_record(job, entry, entry->attempts + 1u, error);
    int result = record == NULL ? -1 : record_log_append(job->errors, record, error);
    free(record);
    if (result == 0)
        job_count_done(job, entry, 0, true, true);
    return result;
}

int job_write_bad_lines(struct nj_job *job, struct nj_error *error)
{
    for (uint32_t i = 0; i < index_count(job->index); i++) {
        struct nj_index_entry *entry = index_at(job->index, i);
        if (entry->kind == NJ_ENTRY_REQUEST || entry->done)
            continue;
        if (write_bad_line(job, entry, error) != 0)
            return -1;
        if (job->counts.finished % STOP_ENTRIES == 0) {
            if (job_must_stop(job))
                return error_set(error, NJ_INTERRUPTED, "interrupted");
            job_report(job);
            if (job_save_some(job, error) != 0)
                return -1;
        }
    }
    return record_log_sync(job->errors, error);
}
