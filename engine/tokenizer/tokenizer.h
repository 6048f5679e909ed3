/* Byte-level BPE: text to token ids and back. Immutable after creation; any thread may use it (working memory
 * comes from a pool behind a lock).
 *
 * Ids equal those of Hugging Face's tokenizers. That includes bytes for which a vocabulary has no token (some
 * control characters and unassigned planes in SmolLM2's): they are left out. Unicode classes are those of the
 * PCRE2 library in use. */
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

/* An answer ends with eos_token_id, eot_token_id, eom_token_id, or a control token whose text ends messages in
 * published chat formats: <|im_end|>, <|eot_id|>, <|eom_id|>, <|endoftext|>, <|end|>, <end_of_turn>, </s>. */
bool tokenizer_ends_generation(const struct nj_tokenizer *tokenizer, int32_t token);
bool tokenizer_is_control(const struct nj_tokenizer *tokenizer, int32_t token); /* or the unknown token */

/* XXH3-128 over everything that decides its output, the Unicode version of PCRE2 included, as 32 hex digits
 * and NUL. */
void tokenizer_digest(const struct nj_tokenizer *tokenizer, char out[33]);

/* A growing array of ids; zero-initialise, reuse, free with ids_free. */
struct nj_ids {
    int32_t *id;
    size_t count, capacity;
};
void ids_free(struct nj_ids *ids);
int ids_append(struct nj_ids *ids, int32_t id, struct nj_error *error);

/* Appends the ids of `text` (valid UTF-8; else NJ_BAD_DATA with the offset in `text` as the error's byte) as
 * plain text: no BOS, control-token text is text. On failure `ids` is as before. Takes n log n time, and up to
 * 28 bytes of memory during the call for each byte of the longest stretch without a break. */
int tokenizer_encode_text(const struct nj_tokenizer *tokenizer, const char *text, size_t length, struct nj_ids *ids,
                          struct nj_error *error);

/* The same for a rendered chat template: is_template[i] != 0 marks bytes that the template wrote. A control
 * (or user-defined) token's text is recognised, longest first, only where all its bytes are template bytes;
 * each stretch between recognised tokens is tokenised as one string. BOS is added in front if the file asks
 * for it and the result does not already begin with it. */
int tokenizer_encode_rendered(const struct nj_tokenizer *tokenizer, const char *text, const uint8_t *is_template,
                              size_t length, struct nj_ids *ids, struct nj_error *error);

/* At least as many ids come out of this text, plain or rendered. Counting takes one pass over the bytes: a text
 * that cannot fit the model's context is told without tokenising it. */
size_t tokenizer_least_tokens(const struct nj_tokenizer *tokenizer, const char *text, size_t length);

/* True if the text contains the text of a control token (for the one warning about raw prompts). */
bool tokenizer_text_has_control(const struct nj_tokenizer *tokenizer, const char *text, size_t length);

/* The bytes of a token (control and user-defined tokens: their text; unused ones and ids outside the
 * vocabulary: none). Lives as long as the tokenizer; may be part of a UTF-8 character. */
struct nj_text tokenizer_token_bytes(const struct nj_tokenizer *tokenizer, int32_t token);

#endif
