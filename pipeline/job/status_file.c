#include "pipeline/job/status_file.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/output/output.h"

enum { STATUS_BYTES_MOST = 1 << 20 };

static const char *const phase_names[] = {
    [NJ_PHASE_INDEX] = "index", [NJ_PHASE_LOAD] = "load", [NJ_PHASE_COMPUTE] = "compute", [NJ_PHASE_DONE] = "done"};
enum { PHASES = sizeof phase_names / sizeof phase_names[0] };

static json_t *known_or_null(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

int status_file_write(const char *directory, const struct nj_job_status *status, struct nj_error *error)
{
    const struct nj_job_progress *progress = &status->progress;
    char *path = output_path(directory, "status.json", error);
    json_t *root = json_pack(
        "{s:i, s:s, s:i, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:o, s:o, s:i, s:I, s:I, s:I, s:I}", "schema",
        NJ_STATUS_SCHEMA, "state", status->state, "last_exit_code", status->last_exit_code, "phase",
        phase_names[progress->phase], "requests", (json_int_t)progress->requests, "requests_done",
        (json_int_t)progress->requests_done, "requests_failed", (json_int_t)progress->requests_failed, "work_total",
        progress->work_total, "work_done", progress->work_done, "tokens_per_second", progress->tokens_per_second,
        "elapsed_seconds", progress->elapsed_seconds, "least_left_seconds", known_or_null(progress->least_left_seconds),
        "most_left_seconds", known_or_null(progress->most_left_seconds), "in_flight", (int)progress->in_flight,
        "sweeps", (json_int_t)progress->sweeps, "peak_memory_bytes", (json_int_t)progress->peak_memory_bytes, "updated",
        (json_int_t)time(NULL), "pid", (json_int_t)getpid());
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    int result = -1;
    if (path != NULL && text == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    else if (path != NULL)
        result = file_replace(path, text, strlen(text), error);
    free(text);
    free(path);
    return result;
}

static uint64_t count_at(const json_t *root, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(root, key));
}

static double real_at(const json_t *root, const char *key, double otherwise)
{
    const json_t *value = json_object_get(root, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static enum nj_job_phase phase_at(const json_t *root)
{
    const char *name = json_string_value(json_object_get(root, "phase"));
    for (int i = 0; name != NULL && i < PHASES; i++) {
        if (strcmp(name, phase_names[i]) == 0)
            return (enum nj_job_phase)i;
    }
    return NJ_PHASE_INDEX;
}

static void read_fields(const json_t *root, struct nj_job_status *out)
{
    const char *state = json_string_value(json_object_get(root, "state"));
    snprintf(out->state, sizeof out->state, "%s", state == NULL ? "interrupted" : state);
    out->last_exit_code = (int)json_integer_value(json_object_get(root, "last_exit_code"));
    out->progress = (struct nj_job_progress){.phase = phase_at(root),
                                             .requests = count_at(root, "requests"),
                                             .requests_done = count_at(root, "requests_done"),
                                             .requests_failed = count_at(root, "requests_failed"),
                                             .work_total = real_at(root, "work_total", 0),
                                             .work_done = real_at(root, "work_done", 0),
                                             .tokens_per_second = real_at(root, "tokens_per_second", 0),
                                             .elapsed_seconds = real_at(root, "elapsed_seconds", 0),
                                             .least_left_seconds = real_at(root, "least_left_seconds", -1),
                                             .most_left_seconds = real_at(root, "most_left_seconds", -1),
                                             .in_flight = (int32_t)count_at(root, "in_flight"),
                                             .sweeps = count_at(root, "sweeps"),
                                             .peak_memory_bytes = count_at(root, "peak_memory_bytes")};
}

int status_file_read(const char *directory, struct nj_job_status *out)
{
    char *path = output_path(directory, "status.json", NULL);
    size_t length;
    char *text =
        path == NULL || access(path, F_OK) != 0 ? NULL : file_read_whole(path, STATUS_BYTES_MOST, &length, NULL);
    json_t *root = text == NULL ? NULL : json_loadb(text, length, 0, NULL);
    int found = json_is_object(root) && count_at(root, "schema") == NJ_STATUS_SCHEMA;
    if (found)
        read_fields(root, out);
    json_decref(root);
    free(text);
    free(path);
    return found;
}

/* Appends an object (taken over) and makes it durable. */
static int append(struct nj_record_log *runs, json_t *object, struct nj_error *error)
{
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int result = record_log_append(runs, text, error);
    free(text);
    return result == 0 ? record_log_sync(runs, error) : -1;
}

int runs_append_start(struct nj_record_log *runs, const struct nj_run_settings *settings, struct nj_error *error)
{
    const struct nj_job_options *options = settings->options;
    return append(runs,
                  json_pack("{s:i, s:s, s:I, s:o, s:I, s:o, s:{s:i, s:i, s:I, s:I, s:s, s:b, s:b, s:I}}", "schema",
                            NJ_RUNS_SCHEMA, "event", "start", "time", (json_int_t)time(NULL), "host",
                            utf8_json_message(settings->host), "pid", (json_int_t)settings->pid, "slurm_job_id",
                            options->slurm_job_id == NULL ? json_null() : utf8_json_message(options->slurm_job_id),
                            "options", "threads", options->threads, "token_budget", (int)options->token_budget,
                            "kv_memory_bytes", (json_int_t)options->kv_memory_bytes, "max_memory_bytes",
                            (json_int_t)options->max_memory_bytes, "kernels",
                            options->kernels == NULL ? "auto" : options->kernels, "as_chat", (int)options->as_chat,
                            "strict", (int)options->strict, "first", (json_int_t)options->first),
                  error);
}

int runs_append_stop(struct nj_record_log *runs, const struct nj_run_counts *counts, double seconds, int exit_code,
                     struct nj_error *error)
{
    return append(
        runs,
        json_pack("{s:i, s:s, s:I, s:f, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
                  "schema", NJ_RUNS_SCHEMA, "event", "stop", "time", (json_int_t)time(NULL), "seconds", seconds,
                  "exit_code", exit_code, "finished_requests", (json_int_t)counts->finished, "prefill_tokens",
                  (json_int_t)counts->prefill_tokens, "shared_tokens", (json_int_t)counts->shared_tokens,
                  "decode_tokens", (json_int_t)counts->decode_tokens, "recomputed_tokens",
                  (json_int_t)counts->recomputed_tokens, "preemptions", (json_int_t)counts->preemptions, "sweeps",
                  (json_int_t)counts->sweeps, "mixed_sweeps", (json_int_t)counts->mixed_sweeps, "abandoned_sweeps",
                  (json_int_t)counts->abandoned_sweeps, "kv_blocks", (json_int_t)counts->kv_blocks, "kv_bytes",
                  (json_int_t)counts->kv_bytes, "disk_layers", (json_int_t)counts->disk_layers, "max_memory_bytes",
                  (json_int_t)counts->max_memory_bytes, "peak_memory_bytes", (json_int_t)counts->peak_memory_bytes),
        error);
}
