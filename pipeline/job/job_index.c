/* The job's index: from index.bin where the input has not changed since it was read, else by reading the input and
 * comparing it with what the last run read. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_state.h"
#include "pipeline/output/output.h"

enum { EXAMPLES_MOST = 3, ID_HASH_BITS = 64 };

static void forward_notice(void *context, const char *line)
{
    job_say(context, "%s", line);
}

static void report_lines(void *context, uint64_t lines)
{
    struct nj_job *job = context;
    job->progress.requests = lines;
    job_report(job);
}

/* What the last index has that this input lacks. */
struct comparison {
    uint64_t same, changed, removed;
    uint64_t changed_valid; /* of the changed: those that are valid requests now */
    char examples[400];
    int example_count;
};

static void add_example(struct comparison *comparison, const char *label, const struct nj_index_record *record,
                        bool changed)
{
    if (comparison->example_count++ >= EXAMPLES_MOST)
        return;
    size_t length = strlen(comparison->examples);
    snprintf(comparison->examples + length, sizeof comparison->examples - length, "%s%.100s:%" PRIu64 " %s",
             length > 0 ? ", " : "", label, record->line, changed ? "changed" : "removed");
}

/* An old request is the same if its id is there with the same digest. */
static void compare_record(const struct nj_job *job, const struct nj_index_reader *old,
                           const struct nj_index_record *record, struct comparison *comparison)
{
    const unsigned accept = job->options->accept;
    uint64_t cursor = 0;
    bool id_found = false, valid = false;
    int64_t position;
    while ((position = index_find(job->index, record->id_hash.low, &cursor)) != NJ_INDEX_NONE) {
        const struct nj_index_entry *entry = index_at(job->index, (uint32_t)position);
        id_found = true;
        valid = entry->kind == NJ_ENTRY_REQUEST;
        if (entry->digest == record->digest.low) {
            comparison->same++;
            return;
        }
    }
    comparison->changed += id_found;
    comparison->changed_valid += valid;
    comparison->removed += !id_found;
    if ((accept & (id_found ? NJ_ACCEPT_CHANGED : NJ_ACCEPT_REMOVED)) == 0)
        add_example(comparison, index_reader_label(old, record->file), record, id_found);
}

static int refuse_changes(const struct comparison *comparison, bool changed, bool removed, struct nj_error *error)
{
    return error_set(error, NJ_BAD_DATA,
                     "the input is not the one this job began with: %" PRIu64 " requests changed, %" PRIu64
                     " removed (%s); restore them, add --accept %s%s%s to go on with the input as it is, or begin "
                     "another job in another output directory",
                     comparison->changed, comparison->removed, comparison->examples, changed ? "changed" : "",
                     changed && removed ? "," : "", removed ? "removed" : "");
}

static void tell_changes(const struct nj_job *job, const struct comparison *comparison)
{
    uint64_t added = job->totals.requests - job->totals.bad - comparison->same - comparison->changed_valid;
    if (comparison->changed > 0)
        job_say(job, "%" PRIu64 " requests have changed in the input: they are computed again", comparison->changed);
    if (comparison->removed > 0)
        job_say(job, "%" PRIu64 " requests are gone from the input: their records stay, and leave the export",
                comparison->removed);
    if (added > 0)
        job_say(job, "%" PRIu64 " requests are new in the input", added);
}

/* Bad lines may be repaired or removed freely: nothing was computed for them. */
static int compare_records(const struct nj_job *job, struct nj_index_reader *old, struct nj_error *error)
{
    const unsigned accept = job->options->accept;
    struct comparison comparison = {0};
    struct nj_index_record record;
    int got;
    index_reader_rewind(old);
    while ((got = index_reader_next(old, &record, error)) > 0) {
        if (record.kind == NJ_ENTRY_REQUEST)
            compare_record(job, old, &record, &comparison);
    }
    if (got < 0)
        return -1;
    bool changed = comparison.changed > 0 && (accept & NJ_ACCEPT_CHANGED) == 0;
    bool removed = comparison.removed > 0 && (accept & NJ_ACCEPT_REMOVED) == 0;
    if (changed || removed)
        return refuse_changes(&comparison, changed, removed, error);
    tell_changes(job, &comparison);
    return 0;
}

/* The last run's index, if there is one that can be used: 0, *old may be NULL. */
static int open_last(const struct nj_job *job, const char *path, struct nj_index_reader **old, struct nj_error *error)
{
    struct nj_error reading = {0};
    *old = index_reader_open(path, &job->file.job_digest, &reading);
    if (*old != NULL || reading.code == NJ_NO_INPUT)
        return 0;
    if (reading.code != NJ_BAD_DATA) {
        *error = reading;
        return -1;
    }
    job_say(job, "warning: %s: %s; the input is read again and not compared with what it was", path, reading.message);
    return 0;
}

static struct nj_index_build describe_build(struct nj_job *job, struct nj_index_writer *writer)
{
    return (struct nj_index_build){.examiner = &job->examiner,
                                   .index = job->index,
                                   .writer = writer,
                                   .strict = job->options->strict,
                                   .notice = forward_notice,
                                   .notice_context = job,
                                   .progress = report_lines,
                                   .progress_context = job,
                                   .stop = job->stop};
}

static int begin_index(struct nj_job *job, struct nj_error *error)
{
    index_destroy(job->index);
    job->index = index_create(ID_HASH_BITS);
    return job->index != NULL ? 0 : error_set(error, NJ_INTERNAL, "out of memory");
}

static int build_index(struct nj_job *job, const char *path, struct nj_index_reader *old, struct nj_error *error)
{
    struct nj_index_writer *writer = index_writer_create(path, job->file.job_digest, error);
    if (writer == NULL || begin_index(job, error) != 0) {
        index_writer_destroy(writer);
        return -1;
    }
    struct nj_index_build build = describe_build(job, writer);
    int result = -1;
    if (index_build(&build, &job->totals, error) == 0 && job_check_retry(job, error) == 0 &&
        (old == NULL || compare_records(job, old, error) == 0) &&
        job_file_write(job->directory, &job->file, error) == 0 && input_commit_spool(job->input, error) == 0)
        result = index_writer_commit(writer, job->input, error);
    index_writer_destroy(writer);
    return result;
}

/* Bad lines stop a job that is strict, or has no others: reading them again tells which and why. */
static bool needs_bad_lines(const struct nj_job *job)
{
    const struct nj_index_totals *totals = &job->totals;
    return totals->bad > 0 && (job->options->strict || totals->bad == totals->requests);
}

/* 1 loaded, 0 the input must be read, -1. */
static int load_index(struct nj_job *job, struct nj_index_reader *old, struct nj_error *error)
{
    struct nj_error loading = {0};
    if (!input_has_whole_copy(job->input))
        return 0;
    if (input_list_streams(job->input, error) != 0 || begin_index(job, error) != 0)
        return -1;
    if (index_reader_matches(old, job->input)) {
        struct nj_index_build build = describe_build(job, NULL);
        int result = index_load(&build, old, &job->totals, &loading);
        if (result == 0 && !needs_bad_lines(job))
            return job_check_retry(job, error) == 0 && job_file_write(job->directory, &job->file, error) == 0 ? 1 : -1;
        if (result != 0 && loading.code != NJ_BAD_DATA) {
            *error = loading;
            return -1;
        }
    }
    input_forget_streams(job->input);
    return 0;
}

int job_make_index(struct nj_job *job, struct nj_error *error)
{
    char *path = output_path(job->directory, "index.bin", error);
    struct nj_index_reader *old = NULL;
    if (path == NULL)
        return -1;
    int result = open_last(job, path, &old, error);
    int loaded = result == 0 && old != NULL ? load_index(job, old, error) : result;
    if (loaded > 0)
        job_say(job, "the input has not changed: the index of the last run is used");
    else if (loaded == 0)
        result = build_index(job, path, old, error);
    else
        result = -1;
    index_reader_close(old);
    free(path);
    return result;
}
