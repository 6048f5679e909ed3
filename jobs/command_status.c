#include <inttypes.h>
#include <stdio.h>

#include "jobs/commands.h"
#include "jobs/progress.h"

static void status_print(const struct nj_job_status *status)
{
    const struct nj_job_progress *progress = &status->progress;
    char text[512];
    if (status->running)
        snprintf(text, sizeof text, "%s (%s; %s)", status->state, progress_phase_name(progress->phase), status->holder);
    else
        snprintf(text, sizeof text, "%s (exit code %d)", status->state, status->last_exit_code);
    command_print_row("state", "%s", text);
    snprintf(text, sizeof text, "%" PRIu64 " of %" PRIu64 " have a record, %" PRIu64 " of them failed",
             progress->requests_done, progress->requests, progress->requests_failed);
    command_print_row("requests", "%s", text);
    snprintf(text, sizeof text, "%.1f %%", progress_percent(progress));
    command_print_row("work", "%s", text);
    if (!status->running)
        return;
    snprintf(text, sizeof text, "%.1f tokens/s, %" PRId32 " answers in flight", progress->tokens_per_second,
             progress->in_flight);
    command_print_row("speed", "%s", text);
    progress_format_duration(progress->elapsed_seconds, text, sizeof text);
    command_print_row("elapsed", "%s", text);
    progress_format_left(progress, text, sizeof text);
    command_print_row("left", "%s", text);
}

/* Unknown numbers become null. */
static json_t *status_known_number(double value)
{
    return value >= 0 ? json_real(value) : json_null();
}

static int status_print_json(const struct nj_job_status *status, struct nj_error *error)
{
    const struct nj_job_progress *progress = &status->progress;
    json_t *root =
        json_pack("{s:i, s:s, s:b, s:s?, s:i, s:s, s:I, s:I, s:I, s:f, s:o, s:o, s:f, s:o, s:o, s:i, s:I}", "schema", 1,
                  "state", status->state, "running", (int)status->running, "holder",
                  status->running ? status->holder : NULL, "exit_code", status->last_exit_code, "phase",
                  progress_phase_name(progress->phase), "requests", (json_int_t)progress->requests, "requests_done",
                  (json_int_t)progress->requests_done, "requests_failed", (json_int_t)progress->requests_failed,
                  "percent", progress_percent(progress), "work_done", status_known_number(progress->work_done),
                  "work_total", status_known_number(progress->work_total), "tokens_per_second",
                  progress->tokens_per_second, "least_left_seconds", status_known_number(progress->least_left_seconds),
                  "most_left_seconds", status_known_number(progress->most_left_seconds), "in_flight",
                  (int)progress->in_flight, "sweeps", (json_int_t)progress->sweeps);
    return command_print_json(root, error);
}

int command_status(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct nj_job_status status;
    const char *directory;
    if (command_need_directory(arguments, &directory, &error) != 0 || job_status(directory, &status, &error) != 0)
        return console_report(&context->console, &error);
    if (!arguments->json)
        status_print(&status);
    else if (status_print_json(&status, &error) != 0)
        return console_report(&context->console, &error);
    return command_finish_output(context);
}
