/* The right to build one pack: an open-file-description lock on a file beside it, which holds the builder's
 * process id. The lock ends with the process, however that ends; the file stays. */
#ifndef NJ_ENGINE_MODEL_PACK_LOCK_H
#define NJ_ENGINE_MODEL_PACK_LOCK_H

#include <stdatomic.h>

#include "engine/base/error.h"
#include "engine/model/pack.h"

/* Takes the lock; if another process has it, gives one notice and waits for it. Returns a descriptor for
 * pack_lock_release, or -1: NJ_INTERRUPTED if *stop (may be NULL) becomes non-zero meanwhile. */
int pack_lock_take(const char *path, nj_notice notice, void *notice_context, const atomic_int *stop,
                   struct nj_error *error);
/* The same without waiting: NJ_CANT_CREATE, naming the process, if another one has the lock. */
int pack_lock_try(const char *path, struct nj_error *error);
void pack_lock_release(int descriptor);

#endif
