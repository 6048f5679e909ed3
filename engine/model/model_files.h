/* The files of a model, one or the parts of a split one, as the file system has them. */
#ifndef NJ_ENGINE_MODEL_MODEL_FILES_H
#define NJ_ENGINE_MODEL_MODEL_FILES_H

#include "engine/formats/gguf.h"
#include "engine/model/file_digest.h"

/* One identity per file, gguf_part_count of them; the caller frees them. NULL: *error is set. */
struct nj_file_identity *model_files_identify(const struct nj_gguf *gguf, struct nj_error *error);

/* NJ_BAD_DATA if a file is not what it was: "the model file changed SINCE; run again". */
int model_files_refuse_changed(const struct nj_gguf *gguf, const struct nj_file_identity *before, const char *since,
                               struct nj_error *error);

/* The model's digest, and the files' identities (room for all of them) when it was taken: the file's own, or that of
 * the parts' digests one after another. Otherwise as file_digest_cached. */
int model_files_digest(const struct nj_gguf *gguf, const char *directory, const atomic_int *stop,
                       struct nj_file_identity *identities, char out[NJ_DIGEST_TEXT_BYTES], struct nj_error *error);

#endif
