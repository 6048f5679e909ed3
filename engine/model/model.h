/* A model opened from its file. Two steps, because validating input needs only the first: model_open reads
 * metadata, tokenizer and chat template; model_load_weights finds or builds the pack and reads it. */
#ifndef NJ_ENGINE_MODEL_MODEL_H
#define NJ_ENGINE_MODEL_MODEL_H

#include <stdatomic.h>

#include "engine/chat_template/chat_template.h"
#include "engine/model/file_digest.h"
#include "engine/model/weights.h"
#include "engine/tokenizer/tokenizer.h"

struct nj_model_options {
    const char *path;            /* the GGUF file, of a split model the first */
    const char *cache_directory; /* packs and digests live here; made if missing */
    nj_notice notice;            /* may be NULL */
    void *notice_context;
    const atomic_int *stop; /* non-zero: opening or loading ends with NJ_INTERRUPTED; may be NULL */
};

/* Fields are read-only to others. Strings and handles live as long as the model. */
struct nj_model {
    char *path; /* absolute; the file's own name may be a link's */
    struct nj_hyperparameters shape;
    struct nj_tokenizer *tokenizer;
    struct nj_chat_template *chat; /* NULL: the model has none, or one that cannot be used (chat_error) */
    struct nj_error chat_error;    /* NJ_OK, or why the template was refused: raw prompts work all the same,
                                      a chat request reports this */
    char digest[33];               /* XXH3-128 of all bytes of the file; of a split model: model_files.h */
    char tokenizer_digest[33];
    char template_digest[33];   /* of the template's bytes; of nothing if there is none */
    struct nj_pack *pack;       /* NULL until the weights are loaded */
    struct nj_weights *weights; /* the same */
    struct nj_gguf *gguf;
    char *cache_directory;
    struct nj_file_identity *identities; /* the files as they were when the digest was taken */
    nj_notice notice;
    void *notice_context;
    const atomic_int *stop;
};

/* NJ_NO_INPUT if there is no such file, NJ_BAD_DATA if it is not a model that nightjar can run: everything
 * but the tensors' values is checked here. */
struct nj_model *model_open(const struct nj_model_options *options, struct nj_error *error);
/* Finds or builds the pack. */
int model_open_pack(struct nj_model *model, struct nj_error *error);
/* Opens the pack unless it is open, and reads what belongs in memory of the device, which must outlive the model.
 * Options: NULL for all of it. */
int model_load_weights(struct nj_model *model, struct nj_device *device, const struct nj_weights_options *options,
                       struct nj_error *error);
void model_close(struct nj_model *model);

/* The absolute path of a model file; the caller frees it. NJ_NO_INPUT unless it is a regular file. */
int model_resolve_path(const char *path, char **out, struct nj_error *error);

#endif
