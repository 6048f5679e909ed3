/* The lock of an output directory: an open-file-description lock on DIR/lock, held for life. The file names the
 * holder; it is never removed. */
#ifndef NJ_PIPELINE_OUTPUT_LOCK_H
#define NJ_PIPELINE_OUTPUT_LOCK_H

#include <stddef.h>

#include "engine/base/error.h"

struct nj_lock;

/* NJ_CANT_CREATE naming the holder if another process (or another open in this one) has it. */
struct nj_lock *lock_take(const char *directory, const char *slurm_job_id, struct nj_error *error);
void lock_release(struct nj_lock *lock);

/* 0 if no process holds it (or there is no such directory yet), else what lock_take would say. For an early word:
 * only lock_take decides. */
int lock_check_free(const char *directory, struct nj_error *error);

/* 1 and "host H, pid P" (and the Slurm job) if a process holds it, 0 if none does, -1 on an error. */
int lock_find_holder(const char *directory, char *holder, size_t holder_bytes, struct nj_error *error);

#endif
