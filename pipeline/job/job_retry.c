/* Requests that have a record and are to have another one (--retry). */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/job/job_state.h"
#include "pipeline/output/output.h"

enum { IDS_BYTES_MOST = 1 << 30, EXAMPLES_MOST = 3 };

static char *retry_path(const struct nj_job *job, struct nj_error *error)
{
    return output_path(job->directory, "retry.bin", error);
}

static int note_pending(struct nj_job *job, const struct nj_retry_request *request, struct nj_error *error)
{
    uint32_t position;
    int found = job_find_entry(job, request->id_hash, &request->digest, &position, error);
    if (found <= 0)
        return found; /* changed or gone since: what is there now is computed anyway */
    struct nj_index_entry *entry = index_at(job->index, position);
    entry->attempts = request->attempts & NJ_ENTRY_ATTEMPTS_MOST;
    entry->retried = 1;
    return 0;
}

int job_read_retry(struct nj_job *job, struct nj_error *error)
{
    struct nj_error reading = {0};
    struct nj_retry_request request;
    char *path = retry_path(job, error);
    if (path == NULL)
        return -1;
    int got = 0;
    struct nj_retry_reader *reader = retry_reader_open(path, job->file.job_digest, &reading);
    if (reader != NULL) {
        job->retry = retry_reader_wish(reader);
        while (got == 0 && (got = retry_reader_next(reader, &request, error)) > 0)
            got = note_pending(job, &request, error);
        retry_reader_close(reader);
    } else if (reading.code == NJ_BAD_DATA) {
        job_say(job, "warning: %s: %s", path, reading.message);
    } else if (reading.code != NJ_NO_INPUT) {
        *error = reading;
        got = -1;
    }
    free(path);
    return got;
}

uint64_t job_retries_left(const struct nj_job *job)
{
    uint64_t pending = 0;
    for (uint32_t i = 0; i < index_count(job->index); i++) {
        const struct nj_index_entry *entry = index_at(job->index, i);
        pending += entry->retried && !entry->done;
    }
    return pending;
}

struct choice {
    struct nj_job *job;
    uint64_t chosen, worn_out, bad;
};

static void choose_entry(struct choice *choice, struct nj_index_entry *entry)
{
    if (entry->kind != NJ_ENTRY_REQUEST) {
        choice->bad++;
    } else if (entry->done && entry->attempts == NJ_ENTRY_ATTEMPTS_MOST) {
        choice->worn_out++;
    } else if (entry->done) {
        job_count_undone(choice->job, entry);
        entry->retried = 1;
        choice->chosen++;
    }
}

/* Bad lines are no requests that failed: nothing but another line can make them good. */
static void choose_kinds(struct choice *choice, unsigned kinds)
{
    struct nj_index *index = choice->job->index;
    for (uint32_t i = 0; i < index_count(index); i++) {
        struct nj_index_entry *entry = index_at(index, i);
        bool failed = (kinds & NJ_RETRY_ERRORS) != 0 && entry->failed;
        bool cut = (kinds & NJ_RETRY_LENGTH) != 0 && entry->cut && !entry->failed;
        if (entry->kind == NJ_ENTRY_REQUEST && entry->done && (failed || cut))
            choose_entry(choice, entry);
    }
}

/* The file of ids, line by line. */
struct id_list {
    const char *content;
    size_t length, at;
    uint64_t line;
};

static struct id_list list_ids(const struct nj_job *job)
{
    return (struct id_list){.content = job->retry_ids, .length = job->retry_ids_length};
}

/* The next id; NULL at the end. */
static const char *next_id(struct id_list *list, size_t *length)
{
    while (list->at < list->length) {
        const char *line = list->content + list->at;
        const char *newline = memchr(line, '\n', list->length - list->at);
        size_t bytes = newline != NULL ? (size_t)(newline - line) : list->length - list->at;
        list->at += bytes + (newline != NULL);
        list->line++;
        if (list->line == 1 && bytes >= 3 && memcmp(line, "\xEF\xBB\xBF", 3) == 0) {
            line += 3; /* a byte order mark */
            bytes -= 3;
        }
        if (bytes > 0 && line[bytes - 1] == '\r')
            bytes--;
        *length = bytes;
        if (bytes > 0)
            return line;
    }
    return NULL;
}

static int check_ids(struct nj_job *job, struct nj_error *error)
{
    struct id_list list = list_ids(job);
    char examples[400] = "";
    uint64_t unknown = 0, first_line = 0;
    size_t length;
    const char *id;
    while ((id = next_id(&list, &length)) != NULL) {
        uint32_t position;
        int found = job_find_entry(job, digest_of(id, length), NULL, &position, error);
        if (found < 0)
            return -1;
        if (found > 0 || unknown++ >= EXAMPLES_MOST)
            continue;
        char shown[100];
        size_t used = strlen(examples);
        utf8_copy_printable(shown, sizeof shown, id, length);
        snprintf(examples + used, sizeof examples - used, "%s\"%s\"", used > 0 ? ", " : "", shown);
        if (first_line == 0)
            first_line = list.line;
    }
    if (unknown == 0)
        return 0;
    error_set(error, NJ_BAD_DATA, "%" PRIu64 " ids to retry are in no line of the input (%s%s): correct or remove them",
              unknown, examples, unknown > EXAMPLES_MOST ? ", ..." : "");
    return error_at(error, job->options->retry_ids_path, (int64_t)first_line, -1);
}

/* By the retry that is under way: such ids may have left the input since. What is wrong with retry.bin is told when it
 * is read. */
static bool are_taken(const struct nj_job *job)
{
    struct nj_error unused;
    char *path = retry_path(job, &unused);
    struct nj_retry_reader *reader = path == NULL ? NULL : retry_reader_open(path, job->file.job_digest, &unused);
    const struct nj_digest ids = digest_of(job->retry_ids, job->retry_ids_length);
    const bool taken = reader != NULL && digest_equal(retry_reader_wish(reader).ids, ids);
    retry_reader_close(reader);
    free(path);
    return taken;
}

int job_check_retry(struct nj_job *job, struct nj_error *error)
{
    if ((job->options->retry & NJ_RETRY_IDS) == 0)
        return 0;
    job->retry_ids = file_read_whole(job->options->retry_ids_path, IDS_BYTES_MOST, &job->retry_ids_length, error);
    if (job->retry_ids == NULL)
        return -1;
    return are_taken(job) ? 0 : check_ids(job, error);
}

static int choose_ids(struct choice *choice, struct nj_error *error)
{
    struct id_list list = list_ids(choice->job);
    size_t length;
    const char *id;
    while ((id = next_id(&list, &length)) != NULL) {
        uint32_t position;
        int found = job_find_entry(choice->job, digest_of(id, length), NULL, &position, error);
        if (found < 0)
            return -1;
        if (found > 0)
            choose_entry(choice, index_at(choice->job->index, position));
    }
    return 0;
}

/* The index in memory has halves of the hashes only; index.bin has them whole, in the same order. */
static int write_pending(struct nj_job *job, struct nj_retry_writer *writer, struct nj_index_reader *records,
                         struct nj_error *error)
{
    struct nj_index_record record;
    int got = 0;
    for (uint32_t i = 0; i < index_count(job->index); i++) {
        const struct nj_index_entry *entry = index_at(job->index, i);
        got = index_reader_next(records, &record, error);
        if (got <= 0)
            return got < 0 ? -1 : error_set(error, NJ_INTERNAL, "index.bin is shorter than the index");
        struct nj_retry_request request = {
            .id_hash = record.id_hash, .digest = record.digest, .attempts = entry->attempts};
        if (entry->retried && !entry->done && retry_writer_add(writer, &request, error) != 0)
            return -1;
    }
    return retry_writer_commit(writer, &job->retry, error);
}

static int write_retry(struct nj_job *job, struct nj_error *error)
{
    char *path = retry_path(job, error), *index_path = output_path(job->directory, "index.bin", error);
    struct nj_index_reader *records = NULL;
    struct nj_retry_writer *writer = NULL;
    int result = -1;
    if (path != NULL && index_path != NULL &&
        (records = index_reader_open(index_path, &job->file.job_digest, error)) != NULL &&
        (writer = retry_writer_create(path, job->file.job_digest, error)) != NULL)
        result = write_pending(job, writer, records, error);
    retry_writer_destroy(writer);
    index_reader_close(records);
    free(index_path);
    free(path);
    return result;
}

static void tell_choice(const struct choice *choice)
{
    const struct nj_job *job = choice->job;
    job_say(job, "%" PRIu64 " requests are answered again (--retry); their present records count until then",
            choice->chosen);
    if (choice->bad > 0)
        job_say(job, "warning: %" PRIu64 " of the ids to retry name bad lines: correct the lines in the input instead",
                choice->bad);
    if (choice->worn_out > 0)
        job_say(job, "warning: %" PRIu64 " requests have had %d attempts and get no other", choice->worn_out,
                NJ_ENTRY_ATTEMPTS_MOST);
}

/* What this run asks for and the retry that is under way has not taken already: the same command again goes on with
 * it and does not begin anew. */
static unsigned new_kinds(const struct nj_job *job, struct nj_digest ids)
{
    unsigned kinds = job->options->retry & ~job->retry.kinds;
    if ((job->options->retry & NJ_RETRY_IDS) != 0 && !digest_equal(ids, job->retry.ids))
        kinds |= NJ_RETRY_IDS;
    return kinds;
}

int job_choose_retry(struct nj_job *job, struct nj_error *error)
{
    struct choice choice = {.job = job};
    uint64_t pending = job->retry.kinds != 0 ? job_retries_left(job) : 0;
    if (pending > 0)
        job_say(job, "%" PRIu64 " requests are left to be answered again (--retry of an earlier run)", pending);
    bool has_ids = (job->options->retry & NJ_RETRY_IDS) != 0;
    struct nj_digest ids = has_ids ? digest_of(job->retry_ids, job->retry_ids_length) : job->retry.ids;
    unsigned kinds = new_kinds(job, ids);
    int result = (kinds & NJ_RETRY_IDS) != 0 ? choose_ids(&choice, error) : 0;
    if (result == 0 && kinds == 0 && pending == 0 && job->options->retry != 0)
        job_say(job,
                "what --retry asks for was done by the last run, which was ended before it could note that; give it "
                "again to answer the requests once more");
    if (result != 0 || kinds == 0)
        return result;
    choose_kinds(&choice, kinds);
    tell_choice(&choice);
    if (choice.chosen == 0 && pending == 0)
        return 0;
    job->retry.kinds |= kinds;
    job->retry.ids = ids;
    return write_retry(job, error);
}

int job_end_retry(const struct nj_job *job, struct nj_error *error)
{
    char *path = retry_path(job, error);
    if (path == NULL)
        return -1;
    int result = 0;
    if (unlink(path) == 0)
        result = file_sync_directory_of(path, error);
    else if (errno != ENOENT)
        result = error_set(error, NJ_IO_FAILED, "remove of %s failed: %s", path, strerror(errno));
    free(path);
    return result;
}
