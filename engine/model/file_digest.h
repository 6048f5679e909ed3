/* The digest of a whole file: XXH3-128 over all its bytes. A model of many gigabytes takes a while to read, so
 * the digest is remembered in a directory, keyed by the file's path and what the file system says of it. */
#ifndef NJ_ENGINE_MODEL_FILE_DIGEST_H
#define NJ_ENGINE_MODEL_FILE_DIGEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

enum { NJ_DIGEST_TEXT_BYTES = 33 }; /* 32 lower-case hexadecimal digits and NUL */

/* What changes when a file's content is changed or another file takes its name. */
struct nj_file_identity {
    uint64_t bytes, device, inode;
    int64_t modified_ns, changed_ns; /* since the epoch: content, and content or inode */
};

int file_identity_of(const char *path, struct nj_file_identity *out, struct nj_error *error);
bool file_identity_equal(const struct nj_file_identity *a, const struct nj_file_identity *b);

/* XXH3-128 of some bytes, as text. */
void digest_bytes(const void *bytes, size_t count, char out[NJ_DIGEST_TEXT_BYTES]);

/* The digest of the file at `path` (absolute), and the file's identity when it was taken. A record in
 * `directory` (made if missing) is used if it is about this path and identity; one that is missing, damaged or
 * cannot be written only costs the time to read the file. NJ_BAD_DATA if the file changes while it is read,
 * NJ_INTERRUPTED if *stop (may be NULL) becomes non-zero. */
int file_digest_cached(const char *path, const char *directory, const atomic_int *stop,
                       struct nj_file_identity *identity, char out[NJ_DIGEST_TEXT_BYTES], struct nj_error *error);

/* Calls `visit` with each record of the directory whose file is still the one that it is about. What cannot be read is
 * left out. Strings live during the call. */
typedef void (*nj_digest_visitor)(void *context, const char *path, const char *digest);
void file_digest_visit(const char *directory, nj_digest_visitor visit, void *context);

#endif
