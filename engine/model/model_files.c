#include "engine/model/model_files.h"

#include <stdlib.h>

static int identify_all(const struct nj_gguf *gguf, struct nj_file_identity *out, struct nj_error *error)
{
    for (size_t i = 0; i < gguf_part_count(gguf); i++)
        if (file_identity_of(gguf_part_path(gguf, i), &out[i], error) != 0)
            return -1;
    return 0;
}

struct nj_file_identity *model_files_identify(const struct nj_gguf *gguf, struct nj_error *error)
{
    struct nj_file_identity *identities = calloc(gguf_part_count(gguf), sizeof *identities);
    if (identities == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening the model");
        return NULL;
    }
    if (identify_all(gguf, identities, error) != 0) {
        free(identities);
        return NULL;
    }
    return identities;
}

int model_files_refuse_changed(const struct nj_gguf *gguf, const struct nj_file_identity *before, const char *since,
                               struct nj_error *error)
{
    for (size_t i = 0; i < gguf_part_count(gguf); i++) {
        struct nj_file_identity now;
        if (file_identity_of(gguf_part_path(gguf, i), &now, error) != 0)
            return -1;
        if (file_identity_equal(&before[i], &now))
            continue;
        error_set(error, NJ_BAD_DATA, "the model file changed %s; run again", since);
        return error_at(error, gguf_part_path(gguf, i), 0, -1);
    }
    return 0;
}

int model_files_digest(const struct nj_gguf *gguf, const char *directory, const atomic_int *stop,
                       struct nj_file_identity *identities, char out[NJ_DIGEST_TEXT_BYTES], struct nj_error *error)
{
    const size_t count = gguf_part_count(gguf);
    if (count == 1)
        return file_digest_cached(gguf_path(gguf), directory, stop, identities, out, error);
    char(*digests)[NJ_DIGEST_TEXT_BYTES] = calloc(count, sizeof *digests);
    if (digests == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory opening the model");
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++)
        result = file_digest_cached(gguf_part_path(gguf, i), directory, stop, &identities[i], digests[i], error);
    if (result == 0)
        digest_bytes(digests, count * sizeof *digests, out);
    free(digests);
    return result;
}
