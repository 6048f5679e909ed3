/* The first part of a job: the index, and what is done already. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_state.h"
#include "pipeline/job/status_file.h"
#include "pipeline/output/output.h"

enum { RECORD_BYTES_GUESS = 256, TOKEN_BYTES_GUESS = 6 };

static void forward_notice(void *context, const char *line)
{
    job_say(context, "%s", line);
}

/* Whether the entry's line, read again, gives the id that has this hash. -1: error. */
static int entry_has_hash(struct nj_job *job, const struct nj_index_entry *entry, struct nj_digest id_hash,
                          struct nj_error *error)
{
    struct nj_line line;
    struct nj_request request;
    struct nj_problem problem;
    if (examine_read_again(&job->examiner, entry, &line, error) != 0)
        return -1;
    request_parse(line.text, line.length, &request, &problem);
    char *id = examine_entry_id(&job->examiner, job->index, entry, &request);
    request_free(&request);
    if (id == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int same = digest_equal(digest_of(id, strlen(id)), id_hash);
    free(id);
    return same;
}

/* Where the halves kept in memory fit several entries, their lines decide. */
int job_find_entry(struct nj_job *job, struct nj_digest id_hash, const struct nj_digest *digest, uint32_t *position,
                   struct nj_error *error)
{
    uint64_t cursor = 0;
    uint32_t matches = 0;
    int64_t found;
    while ((found = index_find(job->index, id_hash.low, &cursor)) != NJ_INDEX_NONE) {
        if (digest != NULL && index_at(job->index, (uint32_t)found)->digest != digest->low)
            continue;
        if (matches++ == 0)
            *position = (uint32_t)found;
    }
    if (matches <= 1)
        return (int)matches;
    cursor = 0;
    while ((found = index_find(job->index, id_hash.low, &cursor)) != NJ_INDEX_NONE) {
        const struct nj_index_entry *entry = index_at(job->index, (uint32_t)found);
        bool candidate = digest == NULL || entry->digest == digest->low;
        int same = candidate ? entry_has_hash(job, entry, id_hash, error) : 0;
        *position = (uint32_t)found;
        if (same != 0)
            return same;
    }
    return 0;
}

struct log_visit {
    struct nj_job *job;
    bool failed; /* the log holds errors */
};

/* Whatever the request was when it had this record: its next one is a later attempt. */
static void raise_attempts(struct nj_job *job, const struct nj_record_key *key)
{
    unsigned attempts = key->attempt < NJ_ENTRY_ATTEMPTS_MOST ? key->attempt : NJ_ENTRY_ATTEMPTS_MOST;
    uint64_t cursor = 0;
    int64_t found;
    while ((found = index_find(job->index, key->id_hash.low, &cursor)) != NJ_INDEX_NONE) {
        struct nj_index_entry *entry = index_at(job->index, (uint32_t)found);
        if (attempts > entry->attempts)
            entry->attempts = attempts & NJ_ENTRY_ATTEMPTS_MOST;
    }
}

/* The latest attempt says how it ended; of a request that is retried the earlier ones do not count. */
static void take_record(struct nj_job *job, struct nj_index_entry *entry, const struct nj_record_key *key, bool failed,
                        bool cut)
{
    bool later = key->attempt > entry->attempts;
    if (!entry->done && (later || !entry->retried))
        job_count_done(job, entry, key->new_tokens, failed, false);
    else if (!entry->done || !later)
        return;
    job->progress.requests_failed += (uint64_t)failed - entry->failed;
    entry->failed = failed;
    entry->cut = cut;
}

/* The latest record of a bad line must say what is wrong with it, and where, as the input is now: the line may have
 * moved, or the one whose id it has. */
static int take_bad_record(struct nj_job *job, struct nj_index_entry *entry, const char *line, size_t length,
                           unsigned attempt, struct nj_error *error)
{
    int current = job_bad_line_has_record(job, entry, line, length, attempt, error);
    if (current > 0 && !entry->done)
        job_count_done(job, entry, 0, true, false);
    else if (current == 0 && entry->done)
        job_count_undone(job, entry);
    return current < 0 ? -1 : 0;
}

static int note_record(void *context, const char *line, size_t length, uint64_t offset, struct nj_error *error)
{
    struct log_visit *visit = context;
    struct nj_job *job = visit->job;
    struct nj_record_key key;
    uint32_t position;
    (void)offset;
    if (record_read_key(line, length, &key) != 0)
        return 0;
    int found = job_find_entry(job, key.id_hash, &key.digest, &position, error);
    if (found < 0)
        return -1;
    struct nj_index_entry *entry = found > 0 ? index_at(job->index, position) : NULL;
    if (entry != NULL && entry->kind == NJ_ENTRY_REQUEST)
        take_record(job, entry, &key, visit->failed, record_is_cut(line, length));
    else if (entry != NULL && take_bad_record(job, entry, line, length, key.attempt, error) != 0)
        return -1;
    else if (entry == NULL)
        job->strays += !visit->failed;
    raise_attempts(job, &key);
    return 0;
}

static struct nj_record_log *open_log(struct nj_job *job, const char *name, const struct nj_log_mark *committed,
                                      bool failed, struct nj_error *error)
{
    struct log_visit visit = {.job = job, .failed = failed};
    struct nj_log_options options = {.directory = job->directory,
                                     .name = name,
                                     .committed = committed,
                                     .visit = note_record,
                                     .visit_context = &visit,
                                     .notice = forward_notice,
                                     .notice_context = job};
    return record_log_open(&options, error);
}

/* Of two records that are the same attempt, the answer counts: it comes first. */
static int read_logs(struct nj_job *job, bool has_checkpoint, struct nj_error *error)
{
    const struct nj_checkpoint *checkpoint = &job->checkpoint;
    struct nj_record_log *results =
        open_log(job, "results", has_checkpoint ? &checkpoint->results : NULL, false, error);
    if (results == NULL)
        return -1;
    struct nj_record_log *errors = open_log(job, "errors", has_checkpoint ? &checkpoint->errors : NULL, true, error);
    if (errors == NULL) {
        record_log_close(results);
        return -1;
    }
    job->results = results;
    job->errors = errors;
    if (job->strays > 0)
        job_say(job, "%" PRIu64 " records in results.jsonl belong to no line of the present input", job->strays);
    return 0;
}

/* 1 read, 0 none or unusable (which is said), -1 error. */
static int read_checkpoint(struct nj_job *job, struct nj_error *error)
{
    char *path = output_path(job->directory, "inflight.ckpt", error);
    if (path == NULL)
        return -1;
    struct nj_error reading = {0};
    int found = checkpoint_read(path, job->file.job_digest, &job->checkpoint, &reading);
    if (found < 0 && reading.code == NJ_BAD_DATA) {
        job_say(job, "warning: %s: %s; requests that were in flight begin anew", path, reading.message);
        found = 0;
    } else if (found < 0) {
        *error = reading;
    }
    free(path);
    return found;
}

/* Sequences of requests that this run leaves out come last; otherwise the order stays, since those of one request must
 * follow each other. */
static int put_wanted_first(struct nj_job *job, struct nj_error *error)
{
    struct nj_resumption *sorted = calloc(job->resumption_count + 1, sizeof *sorted);
    if (sorted == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t i = 0; i < job->resumption_count; i++)
        if (job->resumptions[i].position < job->position_limit)
            sorted[job->resumptions_wanted++] = job->resumptions[i];
    for (size_t i = 0, at = job->resumptions_wanted; i < job->resumption_count; i++)
        if (job->resumptions[i].position >= job->position_limit)
            sorted[at++] = job->resumptions[i];
    free(job->resumptions);
    job->resumptions = sorted;
    return 0;
}

static bool is_last_matched(const struct nj_job *job, uint32_t position)
{
    return job->resumption_count > 0 && job->resumptions[job->resumption_count - 1].position == position;
}

/* Finds the entries of the checkpoint's sequences; those that have a record since are left out. */
static int match_checkpoint(struct nj_job *job, struct nj_error *error)
{
    const struct nj_checkpoint *checkpoint = &job->checkpoint;
    job->resumptions = calloc(checkpoint->count + 1, sizeof *job->resumptions);
    if (job->resumptions == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t i = 0; i < checkpoint->count; i++) {
        const struct nj_checkpoint_sequence *sequence = &checkpoint->sequences[i];
        uint32_t position;
        int found = job_find_entry(job, sequence->id_hash, &sequence->digest, &position, error);
        if (found < 0)
            return -1;
        struct nj_index_entry *entry = found ? index_at(job->index, position) : NULL;
        if (entry == NULL || entry->kind != NJ_ENTRY_REQUEST || entry->done ||
            sequence->sample >= index_entry_samples(entry) || (entry->resumed && !is_last_matched(job, position)))
            continue;
        entry->resumed = 1;
        job->resumptions[job->resumption_count++] = (struct nj_resumption){.position = position, .sequence = sequence};
        estimate_add_restored(&job->estimate, (uint32_t)sequence->generated_count);
    }
    if (put_wanted_first(job, error) != 0)
        return -1;
    job->is_checkpoint_matched = true;
    return 0;
}

/* Refuses only what cannot go well; a disk that long answers could fill is worth a word. */
static int check_space(const struct nj_job *job, struct nj_error *error)
{
    uint64_t left = job->totals.requests - job->progress.requests_done, free_bytes;
    uint64_t least = left * RECORD_BYTES_GUESS;
    if (output_check_space(job->directory, least, &free_bytes, error) != 0)
        return -1;
    uint64_t most = least + TOKEN_BYTES_GUESS * (job->estimate.most_new_tokens - job->estimate.done_most_new_tokens);
    if (most > free_bytes)
        job_say(job, "warning: long answers could take %" PRIu64 " MiB, and %" PRIu64 " MiB of disk space are free",
                most >> 20, free_bytes >> 20);
    return 0;
}

/* What the last run's status says is true until the logs are read, and stays so if this run is refused before. */
static struct nj_job_progress last_progress(const struct nj_job *job)
{
    struct nj_job_status last;
    return status_file_read(job->directory, &last) > 0 ? last.progress : (struct nj_job_progress){0};
}

int job_read_input(struct nj_job *job, struct nj_error *error)
{
    const struct nj_job_progress last = last_progress(job);
    job->progress = last;
    job->progress.phase = NJ_PHASE_INDEX;
    job->status_seconds = job->synced_seconds = job->checkpoint_seconds = job_clock();
    if (job_write_status(job, "running", NJ_OK, error) != 0)
        return -1;
    if (job_make_index(job, error) != 0) {
        job->progress = last;
        return -1;
    }
    job->progress = (struct nj_job_progress){.phase = NJ_PHASE_INDEX, .requests = job->totals.requests};
    job->estimate.prompt_tokens = job->totals.prompt_tokens;
    job->estimate.most_new_tokens = job->totals.most_new_tokens;
    job->position_limit = order_limit(job->index, job->options->first);
    int has_checkpoint = read_checkpoint(job, error);
    if (has_checkpoint < 0 || job_read_retry(job, error) != 0 || read_logs(job, has_checkpoint > 0, error) != 0 ||
        match_checkpoint(job, error) != 0 || job_choose_retry(job, error) != 0 ||
        job_write_bad_lines(job, error) != 0 || index_check_some_good(&job->totals, error) != 0 ||
        check_space(job, error) != 0)
        return -1;
    if (job->totals.requests == 0)
        job_say(job, "warning: the input holds no requests");
    if (job_make_order(job, error) != 0)
        return -1;
    if (job->options->first > 0 && job->order.count == 0)
        job_say(job, "the first requests have their records already; \"export\" shows them");
    return 0;
}
