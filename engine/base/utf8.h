/* UTF-8 as the Unicode Standard defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef NJ_ENGINE_BASE_UTF8_H
#define NJ_ENGINE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the valid character at `text` (1 to 4), or 0 if there is none: invalid, cut off or length 0. */
size_t utf8_character_bytes(const char *text, size_t length);

bool utf8_is_valid(const char *text, size_t length);

/* `length` without a character that is cut off at the end (by a buffer's size, say). */
size_t utf8_whole_bytes(const char *text, size_t length);

#endif
