/* The CPU kernels: one table per instruction set, chosen once at start. Every table gives the same bits. */
#ifndef NJ_KERNELS_CPU_KERNELS_H
#define NJ_KERNELS_CPU_KERNELS_H

#include <stddef.h>

#include "kernels/operations.h"

/* Version of docs/arithmetic.md; part of every job's identity. */
enum { NJ_ARITHMETIC_VERSION = 1 };

/* Does thread `thread`'s share of the operation (0 <= thread < threads). All threads of a team call it
 * with the same arguments; shares are disjoint, so no synchronisation happens inside. Never allocates,
 * forks or fails. */
typedef void (*nj_cpu_kernel)(const union nj_operation_args *args, int thread, int threads);

struct nj_cpu_kernels {
    const char *name;  /* as given to --kernels */
    const char *needs; /* the instructions, for people */
    nj_cpu_kernel run[NJ_OP_COUNT];
};

/* All tables compiled in, fastest first, whether or not this machine can run them; NULL past the end. */
const struct nj_cpu_kernels *cpu_kernels_at(size_t index);

/* 1 if this machine has the instructions that the table needs. */
int cpu_kernels_runnable(const struct nj_cpu_kernels *kernels);

/* By name, or the fastest runnable for "auto" or NULL. NULL if unknown or not runnable here. */
const struct nj_cpu_kernels *cpu_kernels_find(const char *name);

#endif
