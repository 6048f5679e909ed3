/* Files of token vectors: one JSON object a line, {"text", "ids"}. */
#ifndef NJ_TESTS_TOKENIZER_TOKEN_VECTORS_H
#define NJ_TESTS_TOKENIZER_TOKEN_VECTORS_H

#include <jansson.h>

#include "engine/tokenizer/tokenizer.h"

/* Calls `visit` with every line of tests/data/NAME; at least one line must be there. Returns their number. */
typedef void (*line_visitor)(void *context, const json_t *line);
int jsonl_visit(const char *name, line_visitor visit, void *context);

/* The string's bytes; NUL may be among them. */
struct nj_text json_text(const json_t *line, const char *key);

/* Fails the test, naming the text, unless `ids` are those of the JSON array. */
void assert_ids_equal(const struct nj_ids *ids, const json_t *expected, struct nj_text text);

/* Encodes line["text"] as plain text and compares with line[key]; then the tokens' bytes with the text. A
 * `lossy` vocabulary lacks some bytes: for texts with one of them the second comparison is left out. */
void check_vector(const struct nj_tokenizer *tokenizer, const json_t *line, const char *key, bool lossy);

/* A line {"rendered", "prompt_ids", "new_ids", "text"}: the ids of the rendered chat, every byte of it the
 * template's, and the text of the answer's ids. */
void check_chat(const struct nj_tokenizer *tokenizer, const json_t *line);

#endif
