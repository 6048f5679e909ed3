/* The packs in a cache directory, as a person who wants to know where the disk went sees them. */
#ifndef NJ_ENGINE_MODEL_PACK_STORE_H
#define NJ_ENGINE_MODEL_PACK_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/model/file_digest.h"

struct nj_pack_entry {
    char digest[NJ_DIGEST_TEXT_BYTES]; /* of its model */
    int version;                       /* of the pack's format */
    bool is_leftover;                  /* of a build that is running or was stopped */
    uint64_t bytes;
    int64_t used_seconds; /* since the epoch: when it was last read or, where the file system does not tell, built */
    char *model;          /* a model file that it was made of and that is still the same; NULL: none is known */
};

struct nj_pack_list {
    struct nj_pack_entry *entries; /* [count], last used first */
    size_t count;
};

/* A cache directory without packs, or none at all, has an empty list. Freed by pack_store_free. */
int pack_store_list(const char *cache_directory, struct nj_pack_list *out, struct nj_error *error);
void pack_store_free(struct nj_pack_list *list);

/* Removes what the list has under this digest, or under the one digest that begins so, and adds the bytes to *freed.
 * A running job that has the pack open is not disturbed. NJ_NO_INPUT if there is none, NJ_BAD_USAGE if several begin
 * so, NJ_CANT_CREATE while another process builds it. */
int pack_store_remove(const char *cache_directory, const struct nj_pack_list *list, const char *digest, uint64_t *freed,
                      struct nj_error *error);

#endif
