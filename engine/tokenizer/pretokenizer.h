/* Pre-tokenizers: how a text is cut into the pieces that byte-pair merges work on. A row of the table is a
 * name (tokenizer.ggml.pre) and a sequence of patterns: the first cuts the text into its matches and what
 * lies between them, each next one cuts every piece again, seeing nothing outside the piece. A row is in the table
 * under a name that files use, as the tokenizer.json of the models of that name has it; but text is never
 * normalised: GGUF files do not say whether a model's text is (Qwen2's own tokenizer composes to NFC), and the
 * readers of GGUF files that we compare with agree on the ids of text as it is. */
#ifndef NJ_ENGINE_TOKENIZER_PRETOKENIZER_H
#define NJ_ENGINE_TOKENIZER_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/error.h"
#include "engine/formats/gguf.h"

enum { NJ_PRETOKENIZER_PATTERNS_MOST = 4 };

struct nj_pretokenizer_row {
    const char *name;
    const char *patterns[NJ_PRETOKENIZER_PATTERNS_MOST + 1]; /* PCRE2 with UTF and UCP; ends with NULL */
    bool takes_whole_pieces; /* a piece that is a token is that token, whatever merging it gives (ignore_merges) */
};

struct nj_pretokenizer;

/* A name that is not in the table is NJ_BAD_DATA; the message lists the known ones. */
struct nj_pretokenizer *pretokenizer_create(struct nj_text name, struct nj_error *error);
void pretokenizer_destroy(struct nj_pretokenizer *pretokenizer);
const struct nj_pretokenizer_row *pretokenizer_get_row(const struct nj_pretokenizer *pretokenizer);

/* Memory of one running split; a split needs one for itself. NULL when out of memory. */
struct nj_pretokenizer_scratch;
struct nj_pretokenizer_scratch *pretokenizer_create_scratch(const struct nj_pretokenizer *pretokenizer);
void pretokenizer_destroy_scratch(struct nj_pretokenizer_scratch *scratch);

/* Hands the pieces of `text` (valid UTF-8) to `visit`, in order; together they are the whole text. No piece
 * is empty. Stops with -1 when `visit` does. Takes linear time for the patterns of the table. */
typedef int (*nj_piece_visitor)(void *context, const char *piece, size_t length, struct nj_error *error);
int pretokenizer_split(const struct nj_pretokenizer *pretokenizer, struct nj_pretokenizer_scratch *scratch,
                       const char *text, size_t length, nj_piece_visitor visit, void *context, struct nj_error *error);

#endif
