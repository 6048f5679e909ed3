/* Small tokenizers for tests, made from their parts by way of a GGUF file. */
#ifndef NJ_TESTS_TOKENIZER_TOKENIZER_FILE_H
#define NJ_TESTS_TOKENIZER_TOKENIZER_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/tokenizer/tokenizer.h"

/* What the file says; pointers are borrowed. NULL and -1 leave the key out. */
struct tokenizer_file {
    const char *model, *pre;
    const char *const *tokens;
    size_t token_count;
    const int32_t *types; /* type_count of them */
    size_t type_count;
    const char *const *merges;
    size_t merge_count;
    int64_t bos, eos, eot, eom;
    int adds_bos, adds_space; /* 0 or 1 */
};

/* A file without tokens, merges and ids, and with the names that nightjar knows. */
struct tokenizer_file tokenizer_file_empty(void);

/* NULL: the tokenizer is refused, and `error` is filled in. Everything else that fails ends the test. */
struct nj_tokenizer *tokenizer_file_open(const struct tokenizer_file *file, struct nj_error *error);

/* The tokenizer of a GGUF file; a failure ends the test. */
struct nj_tokenizer *tokenizer_from_gguf(const char *path);

/* The 256 single bytes as tokens 0..255 in byte order, written to `token` (each at most two bytes and NUL). */
void byte_tokens_fill(char token[256][3]);

#endif
