/* GPT-2's way to write bytes as characters: the printable bytes of Latin-1 stand for themselves, the other
 * 68 for U+0100 onwards, in order. Vocabularies and merges are stored in this form. */
#ifndef NJ_ENGINE_TOKENIZER_BYTE_LEVEL_H
#define NJ_ENGINE_TOKENIZER_BYTE_LEVEL_H

#include <stdint.h>

/* The byte that a character stands for, -1 if it stands for none. */
int byte_level_to_byte(uint32_t code_point);

#endif
