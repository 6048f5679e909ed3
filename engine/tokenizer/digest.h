/* The digest of a tokenizer: XXH3-128 over everything that decides its output. */
#ifndef NJ_ENGINE_TOKENIZER_DIGEST_H
#define NJ_ENGINE_TOKENIZER_DIGEST_H

#include "engine/tokenizer/metadata.h"
#include "engine/tokenizer/pretokenizer.h"

/* As 32 hex digits and NUL. Covers tokens, types, merges, special ids, the BOS switch, the pre-tokenizer's row
 * and the Unicode version that gives its patterns their meaning (of the PCRE2 library in use). */
int tokenizer_digest_compute(const struct nj_tokenizer_metadata *metadata, const struct nj_pretokenizer_row *row,
                             char out[33], struct nj_error *error);

#endif
