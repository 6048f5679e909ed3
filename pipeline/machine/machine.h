/* What of this machine the process may use: processors by affinity and cgroup quota, memory by what is free and
 * by cgroup limits (versions 1 and 2, every level up to the root). */
#ifndef NJ_PIPELINE_MACHINE_MACHINE_H
#define NJ_PIPELINE_MACHINE_MACHINE_H

#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/device.h"

struct nj_machine {
    int threads;                     /* >= 1 */
    uint64_t memory_bytes;           /* physical or the cgroup's limit, whichever is less; UINT64_MAX: unknown */
    uint64_t memory_available_bytes; /* what of it is free now */
    /* Where these come from. */
    int affinity_threads, quota_threads;          /* quota: of the cgroup, rounded up; 0: none */
    uint64_t physical_bytes, cgroup_memory_bytes; /* UINT64_MAX: unknown; no limit below it */
};

/* `root` is "" for the machine; tests give a directory that holds proc/ and sys/fs/cgroup/. */
struct nj_machine machine_read(const char *root);

/* The processor, as /proc/cpuinfo describes it. */
struct nj_processor {
    char name[128];         /* empty: unknown */
    char instructions[192]; /* what of it kernels could use, as "avx avx2 fma": the names of the file */
    int cores, threads;     /* of the machine; 0: unknown */
};
struct nj_processor processor_read(const char *root);

/* The CPU with these kernels (NULL: the fastest) and threads (0: as many as the process may use). NULL with
 * NJ_UNAVAILABLE if it cannot run them. */
struct nj_device *machine_open_device(const char *kernels, int threads, struct nj_error *error);

#endif
