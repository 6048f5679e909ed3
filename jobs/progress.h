/* How a running job is shown: one line in place on a terminal, else a plain line now and then. */
#ifndef NJ_JOBS_PROGRESS_H
#define NJ_JOBS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobs/console.h"
#include "pipeline/job/job.h"

struct nj_progress_display {
    struct nj_console *console;
    double shown_seconds; /* when a line was last shown (monotonic clock), or the display was opened */
    enum nj_job_phase shown_phase;
};

void progress_open(struct nj_progress_display *display, struct nj_console *console);

/* Shows it unless the last one is too recent; a new phase is always shown. */
void progress_show(struct nj_progress_display *display, const struct nj_job_progress *progress);

/* Removes the line in place. */
void progress_close(struct nj_progress_display *display);

/* The line itself, at most `width` columns: what matters least is left out first. ASCII. */
void progress_format(const struct nj_job_progress *progress, size_t width, char *out, size_t out_bytes);

/* "8 s", "12 min", "3 h 05 min", "2 d 4 h"; negative: "unknown". */
void progress_format_duration(double seconds, char *out, size_t out_bytes);

/* "about 12 min", "12 min to 3 h 05 min", or "unknown". */
void progress_format_left(const struct nj_job_progress *progress, char *out, size_t out_bytes);

/* Share of the predicted work that is done, 0 to 100; 100 only when all of it is. */
double progress_percent(const struct nj_job_progress *progress);

/* "index", "load", "compute" or "done". */
const char *progress_phase_name(enum nj_job_phase phase);

#endif
