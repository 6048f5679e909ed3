/* Byte-level BPE: text to token ids and back. Immutable after creation; any thread may use it. */
#ifndef NJ_ENGINE_TOKENIZER_TOKENIZER_H
#define NJ_ENGINE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/formats/gguf.h"

struct nj_tokenizer;

/* Reads tokenizer.ggml.* . Refuses (NJ_BAD_DATA, naming the key and value) a model or pre-tokenizer that
 * is not in the table. Copies what it needs: the reader may be closed afterwards. */
struct nj_tokenizer *tokenizer_create(const struct nj_gguf *gguf, struct nj_error *error);
void tokenizer_destroy(struct nj_tokenizer *tokenizer);

int32_t tokenizer_vocabulary(const struct nj_tokenizer *tokenizer);
int32_t tokenizer_bos(const struct nj_tokenizer *tokenizer); /* -1: none */
int32_t tokenizer_eos(const struct nj_tokenizer *tokenizer); /* -1: none */
bool tokenizer_adds_bos(const struct nj_tokenizer *tokenizer);
bool tokenizer_ends_generation(const struct nj_tokenizer *tokenizer, int32_t token); /* eos, eot, eom, ... */
bool tokenizer_is_control(const struct nj_tokenizer *tokenizer, int32_t token);

/* XXH3-128 over everything that decides its output, as 32 hex digits and NUL. */
void tokenizer_digest(const struct nj_tokenizer *tokenizer, char out[33]);

/* A growing array of ids; zero-initialise, reuse, free with ids_free. */
struct nj_ids {
    int32_t *id;
    size_t count, capacity;
};
void ids_free(struct nj_ids *ids);
int ids_append(struct nj_ids *ids, int32_t id, struct nj_error *error);

/* Appends the ids of `text` (valid UTF-8; checked, NJ_BAD_DATA) as plain text: no BOS, control-token text
 * is text. */
int tokenizer_encode_text(const struct nj_tokenizer *tokenizer, const char *text, size_t length, struct nj_ids *ids,
                          struct nj_error *error);

/* The same for a rendered chat template: is_template[i] != 0 marks bytes that the template wrote. A control
 * (or user-defined) token's text is recognised, longest first, only where all its bytes are template bytes;
 * each stretch between recognised tokens is tokenised as one string. BOS is added in front if the file asks
 * for it and the result does not already begin with it. */
int tokenizer_encode_rendered(const struct nj_tokenizer *tokenizer, const char *text, const uint8_t *is_template,
                              size_t length, struct nj_ids *ids, struct nj_error *error);

/* 1 if the text contains the text of a control token (for the one warning about raw prompts). */
bool tokenizer_text_has_control(const struct nj_tokenizer *tokenizer, const char *text, size_t length);

/* The bytes of a token (control tokens: their text). Lives as long as the tokenizer; may be part of a
 * UTF-8 character. */
struct nj_text tokenizer_token_bytes(const struct nj_tokenizer *tokenizer, int32_t token);

#endif
