/* The text of an answer as its tokens arrive: valid UTF-8 only, cut at the first stop string.
 *
 * Tokens are appended one at a time. Bytes that do not yet complete a character are held back; bytes that
 * never can become U+FFFD, one per maximal invalid part (as Unicode recommends and Python's "replace"
 * does). Control tokens and end tokens give no text, and a character may go on behind them. The result depends
 * on the tokens only.
 *
 * Of stop strings, the one that is complete first counts; of those that end together, the longest. It is
 * looked for in the text, across tokens, after replacement. */
#ifndef NJ_ENGINE_TOKENIZER_OUTPUT_TEXT_H
#define NJ_ENGINE_TOKENIZER_OUTPUT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/tokenizer/tokenizer.h"

enum { NJ_STOP_STRINGS_MOST = 16, NJ_STOP_BYTES_MOST = 1024 };

struct nj_output_text;

/* `stop` strings are copied; at most NJ_STOP_STRINGS_MOST, each of 1..NJ_STOP_BYTES_MOST bytes. The tokenizer
 * must outlive the text. NULL when out of memory, or outside these limits. */
struct nj_output_text *output_text_create(const struct nj_tokenizer *tokenizer, const struct nj_text *stop,
                                          int stop_count);
void output_text_destroy(struct nj_output_text *text);

/* Starts over for another answer with other stop strings, keeping its memory. -1 when out of memory, or
 * outside the limits. */
int output_text_reset(struct nj_output_text *text, const struct nj_text *stop, int stop_count);

/* Makes room for a text of so many bytes: until it is longer, append and finish do not allocate. Room stays
 * over a reset and doubles when it is used up. -1 when out of memory. */
int output_text_reserve(struct nj_output_text *text, size_t bytes);

/* Appends one token. Returns 1 if a stop string is now complete (the text ends before it and later tokens
 * must not be appended), 0 if not, -1 when out of memory. */
int output_text_append(struct nj_output_text *text, int32_t token);

/* No token follows: a held-back incomplete character becomes U+FFFD. Returns as output_text_append. */
int output_text_finish(struct nj_output_text *text);

/* The text so far, without what is held back; UTF-8, not NUL-terminated. A stop string that is not complete yet
 * is part of it, so only a finished text is final. Valid until the next call. */
struct nj_text output_text_get(const struct nj_output_text *text);

#endif
