/* What of this machine the process may use: processors by affinity and cgroup quota, memory by what is free and
 * by cgroup limits (versions 1 and 2, every level up to the root). */
#ifndef NJ_PIPELINE_MACHINE_H
#define NJ_PIPELINE_MACHINE_H

#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/device.h"

struct nj_machine {
    int threads;                     /* >= 1 */
    uint64_t memory_bytes;           /* physical or the cgroup's limit, whichever is less; UINT64_MAX: unknown */
    uint64_t memory_available_bytes; /* what of it is free now */
};

/* `root` is "" for the machine; tests give a directory that holds proc/ and sys/fs/cgroup/. */
struct nj_machine machine_read(const char *root);

/* The CPU with these kernels (NULL: the fastest) and threads (0: as many as the process may use). NULL with
 * NJ_UNAVAILABLE if it cannot run them. */
struct nj_device *machine_open_device(const char *kernels, int threads, struct nj_error *error);

#endif
