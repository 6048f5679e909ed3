#include "jobs/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double TERMINAL_INTERVAL_SECONDS = 0.2;
static const double PLAIN_INTERVAL_SECONDS = 10;

enum { TEXT_BYTES = 64, LINE_BYTES = 256 };

const char *progress_phase_name(enum nj_job_phase phase)
{
    static const char *const names[] = {"index", "load", "compute", "done"};
    return (size_t)phase < sizeof names / sizeof names[0] ? names[phase] : "unknown";
}

double progress_percent(const struct nj_job_progress *progress)
{
    if (progress->phase == NJ_PHASE_DONE)
        return 100;
    if (!(progress->work_total > 0) || !(progress->work_done > 0))
        return 0;
    double percent = 100 * progress->work_done / progress->work_total;
    return percent > 99.9 ? 99.9 : percent;
}

void progress_format_duration(double seconds, char *out, size_t out_bytes)
{
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(out, out_bytes, "unknown");
        return;
    }
    int64_t minutes = (int64_t)(seconds / 60 + 0.5), hours = (int64_t)(seconds / 3600 + 0.5);
    if (seconds < 99.5)
        snprintf(out, out_bytes, "%.0f s", seconds);
    else if (minutes < 100)
        snprintf(out, out_bytes, "%" PRId64 " min", minutes);
    else if (hours < 48)
        snprintf(out, out_bytes, "%" PRId64 " h %02" PRId64 " min", minutes / 60, minutes % 60);
    else
        snprintf(out, out_bytes, "%" PRId64 " d %" PRId64 " h", hours / 24, hours % 24);
}

void progress_format_left(const struct nj_job_progress *progress, char *out, size_t out_bytes)
{
    char least[TEXT_BYTES], most[TEXT_BYTES];
    progress_format_duration(progress->least_left_seconds, least, sizeof least);
    progress_format_duration(progress->most_left_seconds, most, sizeof most);
    if (progress->least_left_seconds < 0 || progress->most_left_seconds < 0)
        snprintf(out, out_bytes, "unknown");
    else if (strcmp(least, most) == 0)
        snprintf(out, out_bytes, "about %s", least);
    else
        snprintf(out, out_bytes, "%s to %s", least, most);
}

/* Appends a part of the line after two blanks. */
static void progress_append(char *line, size_t line_bytes, const char *part)
{
    size_t used = strlen(line);
    if (part[0] != '\0')
        snprintf(line + used, line_bytes - used, "%s%s", used > 0 ? "  " : "", part);
}

/* The parts of a line of the compute phase in the order they are shown. */
enum { PART_PERCENT, PART_REQUESTS, PART_RATE, PART_ELAPSED, PART_LEFT, PART_COUNT };

static void progress_make_parts(const struct nj_job_progress *progress, char parts[PART_COUNT][TEXT_BYTES * 2])
{
    char text[TEXT_BYTES * 2 - 16];
    memset(parts, 0, PART_COUNT * sizeof parts[0]);
    snprintf(parts[PART_PERCENT], sizeof parts[0], "%.1f %%", progress_percent(progress));
    int used = snprintf(parts[PART_REQUESTS], sizeof parts[0], "%" PRIu64 "/%" PRIu64 " requests",
                        progress->requests_done, progress->requests);
    if (progress->requests_failed > 0)
        snprintf(parts[PART_REQUESTS] + used, sizeof parts[0] - (size_t)used, " (%" PRIu64 " failed)",
                 progress->requests_failed);
    if (progress->tokens_per_second > 0)
        snprintf(parts[PART_RATE], sizeof parts[0],
                 progress->tokens_per_second < 10 ? "%.1f tokens/s" : "%.0f tokens/s", progress->tokens_per_second);
    progress_format_duration(progress->elapsed_seconds, text, sizeof text);
    snprintf(parts[PART_ELAPSED], sizeof parts[0], "%s elapsed", text);
    progress_format_left(progress, text, sizeof text);
    if (strcmp(text, "unknown") != 0 && progress->phase != NJ_PHASE_DONE)
        snprintf(parts[PART_LEFT], sizeof parts[0], "%s left", text);
}

static void progress_format_compute(const struct nj_job_progress *progress, size_t width, char *out, size_t out_bytes)
{
    static const int leave_out[] = {PART_ELAPSED, PART_RATE, PART_LEFT, PART_REQUESTS};
    char parts[PART_COUNT][TEXT_BYTES * 2];
    progress_make_parts(progress, parts);
    for (size_t left_out = 0;; left_out++) {
        out[0] = '\0';
        for (int i = 0; i < PART_COUNT; i++)
            progress_append(out, out_bytes, parts[i]);
        if (strlen(out) <= width || left_out == sizeof leave_out / sizeof leave_out[0])
            return;
        parts[leave_out[left_out]][0] = '\0';
    }
}

void progress_format(const struct nj_job_progress *progress, size_t width, char *out, size_t out_bytes)
{
    char line[LINE_BYTES * 3];
    if (progress->phase == NJ_PHASE_INDEX)
        snprintf(line, sizeof line, "reading the input: %" PRIu64 " requests so far", progress->requests);
    else if (progress->phase == NJ_PHASE_LOAD)
        snprintf(line, sizeof line, "loading the model");
    else
        progress_format_compute(progress, width, line, sizeof line);
    if (strlen(line) > width)
        line[width] = '\0';
    snprintf(out, out_bytes, "%s", line);
}

static double progress_now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void progress_open(struct nj_progress_display *display, struct nj_console *console)
{
    *display = (struct nj_progress_display){
        .console = console, .shown_seconds = progress_now_seconds(), .shown_phase = NJ_PHASE_INDEX};
}

void progress_show(struct nj_progress_display *display, const struct nj_job_progress *progress)
{
    struct nj_console *console = display->console;
    double now = progress_now_seconds();
    double interval = console->is_terminal ? TERMINAL_INTERVAL_SECONDS : PLAIN_INTERVAL_SECONDS;
    bool is_new_phase = progress->phase != display->shown_phase;
    if (!is_new_phase && now - display->shown_seconds < interval)
        return;
    char line[LINE_BYTES];
    progress_format(progress, console->is_terminal ? console_status_width(console) : LINE_BYTES - 1, line, sizeof line);
    if (console->is_terminal)
        console_status(console, line);
    else
        console_note(console, "%s", line);
    display->shown_seconds = now;
    display->shown_phase = progress->phase;
}

void progress_close(struct nj_progress_display *display)
{
    console_status(display->console, "");
}
