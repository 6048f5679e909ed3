/* What reading a job's input costs: job_input_probe MODEL CACHE OUTPUT INPUT runs a job up to the moment when it
 * would load the weights, and prints seconds and memory as one line of JSON. For tests/jobs/many_requests.py. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pipeline/job/job.h"

/* What it has cost until a moment. */
struct cost {
    double seconds, cpu_seconds; /* since the start */
    long most_kib;               /* the largest resident size */
};

struct probe {
    double began;
    struct cost open, read; /* until the first line, and until the end of the reading */
    bool opened;
    atomic_int stop;
};

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
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

static struct cost cost_until_now(const struct probe *probe)
{
    return (struct cost){.seconds = seconds_of(CLOCK_MONOTONIC) - probe->began,
                         .cpu_seconds = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
                         .most_kib = most_resident_kib()};
}

static void take_progress(void *context, const struct nj_job_progress *progress)
{
    struct probe *probe = context;
    if (progress->phase == NJ_PHASE_INDEX && !probe->opened) {
        probe->opened = true;
        probe->open = cost_until_now(probe);
    }
    if (progress->phase != NJ_PHASE_LOAD)
        return;
    probe->read = cost_until_now(probe);
    atomic_store(&probe->stop, 1);
}

static void take_notice(void *context, const char *line)
{
    (void)context;
    fprintf(stderr, "%s\n", line);
}

static void print_cost(const char *name, const struct cost *cost)
{
    printf(", \"%s\": {\"seconds\": %.3f, \"cpu_seconds\": %.3f, \"most_kib\": %ld}", name, cost->seconds,
           cost->cpu_seconds, cost->most_kib);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: job_input_probe MODEL CACHE OUTPUT INPUT\n");
        return 64;
    }
    static struct probe probe;
    probe.began = seconds_of(CLOCK_MONOTONIC);
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
    printf("{\"requests\": %" PRIu64 ", \"answered\": %" PRIu64, summary.requests, summary.answered);
    print_cost("open", &probe.open);
    print_cost("read", &probe.read);
    printf("}\n");
    return 0;
}
