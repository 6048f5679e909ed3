/* What a GGUF file says about its tokenizer (tokenizer.ggml.*), read and checked but not yet built. */
#ifndef NJ_ENGINE_TOKENIZER_METADATA_H
#define NJ_ENGINE_TOKENIZER_METADATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/formats/gguf.h"

/* More than ten times what any published model has; ids and ranks stay far from 32 bits. */
enum { NJ_VOCABULARY_MOST = 1 << 22, NJ_MERGES_MOST = 1 << 24, NJ_TOKEN_BYTES_MOST = 1 << 16 };

/* tokenizer.ggml.token_type. 6 (a SentencePiece byte) has no place in byte-level BPE and is refused. */
enum nj_token_type {
    NJ_TOKEN_NORMAL = 1,
    NJ_TOKEN_UNKNOWN = 2,
    NJ_TOKEN_CONTROL = 3,
    NJ_TOKEN_USER_DEFINED = 4,
    NJ_TOKEN_UNUSED = 5, /* a row of the embedding without a meaning; gives no text and is never produced */
};

/* Pointers belong to the reader. */
struct nj_tokenizer_metadata {
    struct nj_text pretokenizer;
    int32_t count;
    const struct nj_text *token; /* valid UTF-8, at most NJ_TOKEN_BYTES_MOST each */
    const int64_t *type;         /* each one of enum nj_token_type */
    const struct nj_text *merge;
    size_t merge_count;
    int32_t bos, eos, eot, eom; /* -1: none */
    bool adds_bos;
};

/* NJ_BAD_DATA for what is missing, of another type, out of range or unknown. tokenizer.ggml.add_eos_token is
 * not read: an end token after a prompt would end the answer before it begins. */
int tokenizer_metadata_read(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error);

#endif
