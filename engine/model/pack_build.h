/* Writes a pack: converts the model file strip by strip, in a few MiB of memory. */
#ifndef NJ_ENGINE_MODEL_PACK_BUILD_H
#define NJ_ENGINE_MODEL_PACK_BUILD_H

#include "engine/model/pack_layout.h"

/* Builds the pack at `path`, replacing what is there: written beside it as `path`.tmp (a leftover of a killed
 * build is removed first), synced, renamed. The caller holds the lock. Sets the checksums of layout->tensors.
 * NJ_CANT_CREATE if the disk has too little room, NJ_BAD_DATA if a value cannot be converted or the model file
 * changes meanwhile, NJ_INTERRUPTED if *stop (may be NULL) becomes non-zero. */
int pack_build(const char *path, struct nj_pack_layout *layout, const struct nj_gguf *gguf, const char *digest,
               const atomic_int *stop, struct nj_error *error);

#endif
