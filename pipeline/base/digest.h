/* XXH3-128 digests: of ids, of requests, of the job. */
#ifndef NJ_PIPELINE_BASE_DIGEST_H
#define NJ_PIPELINE_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nj_digest {
    uint64_t low, high;
};

struct nj_digest digest_of(const void *bytes, size_t length);
bool digest_equal(struct nj_digest a, struct nj_digest b);

/* 32 lower-case hex digits (high half first) and NUL; reading back gives false on anything else. */
void digest_to_hex(struct nj_digest digest, char out[33]);
bool digest_from_hex(const char *hex, size_t length, struct nj_digest *out);

/* Builds a digest of several parts. NULL when out of memory. */
struct nj_digester;
struct nj_digester *digester_create(void);
void digester_destroy(struct nj_digester *digester);
void digester_begin(struct nj_digester *digester);
void digester_add(struct nj_digester *digester, const void *bytes, size_t length);
void digester_add_u64(struct nj_digester *digester, uint64_t value);
/* Length first, so that ("ab", "c") and ("a", "bc") differ. */
void digester_add_text(struct nj_digester *digester, const char *text, size_t length);
struct nj_digest digester_end(struct nj_digester *digester);

#endif
