/* What reading a job's input costs: job_input_probe MODEL CACHE OUTPUT INPUT runs a job up to the moment when it
 * would load the weights, and prints seconds and memory as one line of JSON. For tests/jobs/many_requests.py. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/job.h"

struct probe {
    struct timespec began;
    double open_seconds, read_seconds; /* from the start to the first line, and to the end of the reading */
    long open_kib, read_kib;           /* the largest resident size until then */
    bool opened;
    atomic_int stop;
};

static double seconds_since(const struct timespec *began, clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)(now.tv_sec - began->tv_sec) + (double)(now.tv_nsec - began->tv_nsec) * 1e-9;
}

static long most_resident_kib(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0)
            kib = atol(line + 6);
    }
    if (file != NULL)
        fclose(file);
    return kib;
}

static void take_progress(void *context, const struct nj_job_progress *progress)
{
    struct probe *probe = context;
    if (progress->phase == NJ_PHASE_INDEX && !probe->opened) {
        probe->opened = true;
        probe->open_seconds = seconds_since(&probe->began, CLOCK_MONOTONIC);
        probe->open_kib = most_resident_kib();
    }
    if (progress->phase != NJ_PHASE_LOAD)
        return;
    probe->read_seconds = seconds_since(&probe->began, CLOCK_MONOTONIC);
    probe->read_kib = most_resident_kib();
    atomic_store(&probe->stop, 1);
}

static void take_notice(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: job_input_probe MODEL CACHE OUTPUT INPUT\n");
        return 64;
    }
    static struct probe probe;
    clock_gettime(CLOCK_MONOTONIC, &probe.began);
    const char *const inputs[] = {argv[4]};
    struct nj_job_options options = {.model_path = argv[1],
                                     .cache_directory = argv[2],
                                     .output_directory = argv[3],
                                     .inputs = inputs,
                                     .input_count = 1,
                                     .job_time = 1769896800};
    struct nj_job_callbacks callbacks = {.context = &probe, .progress = take_progress, .notice = take_notice};
    struct nj_job_summary summary;
    struct nj_error error = {0};
    job_run(&options, &callbacks, &probe.stop, &summary, &error);
    if (atomic_load(&probe.stop) == 0) {
        fprintf(stderr, "the job did not come to its weights: %s\n", error.message);
        return 1;
    }
    struct timespec none = {0};
    printf("{\"requests\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"open_seconds\": %.3f, \"read_seconds\": %.3f, "
           "\"cpu_seconds\": %.3f, \"open_kib\": %ld, \"read_kib\": %ld}\n",
           summary.requests, summary.answered, probe.open_seconds, probe.read_seconds,
           seconds_since(&none, CLOCK_PROCESS_CPUTIME_ID), probe.open_kib, probe.read_kib);
    return 0;
}
