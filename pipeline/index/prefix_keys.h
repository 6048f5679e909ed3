/* Short hashes of how a prompt begins, for the order of work: prompts with the same key of a level most likely begin
 * with the same blocks. Nothing but the order depends on them. */
#ifndef NJ_PIPELINE_INDEX_PREFIX_KEYS_H
#define NJ_PIPELINE_INDEX_PREFIX_KEYS_H

#include <stdbool.h>
#include <stdint.h>

/* Level n is about the first 2^n blocks of 64 tokens. */
enum { NJ_PREFIX_LEVELS = 7 };

/* Whether a prompt of so many tokens can share that many blocks; its last token is always computed. */
bool prefix_has_level(uint32_t prompt_tokens, int level);

/* The key of each level; 0 where the prompt is too short, never 0 where it is not. */
void prefix_keys_make(const int32_t *tokens, uint32_t count, uint32_t key[NJ_PREFIX_LEVELS]);

#endif
