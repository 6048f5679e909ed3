/* UTF-8 as the Unicode Standard defines it: shortest forms only, no surrogates, nothing above U+10FFFF. */
#ifndef NJ_ENGINE_BASE_UTF8_H
#define NJ_ENGINE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum nj_utf8_kind {
    NJ_UTF8_VALID,      /* one whole character */
    NJ_UTF8_INVALID,    /* a maximal invalid part (Unicode 15, section 3.9: "maximal subpart"), 1..3 bytes */
    NJ_UTF8_INCOMPLETE, /* all bytes given, 1..3, begin a character whose other bytes are missing */
};

struct nj_utf8_part {
    enum nj_utf8_kind kind;
    size_t length; /* bytes */
};

/* What stands at the start of `text` (length >= 1). */
struct nj_utf8_part utf8_next(const char *text, size_t length);

/* The code point of a valid character of `length` bytes. */
uint32_t utf8_code_point(const char *text, size_t length);

/* Bytes of the valid character at `text` (1 to 4), or 0 if there is none: invalid, cut off or length 0. */
size_t utf8_character_bytes(const char *text, size_t length);

/* The length of the longest valid beginning; `length` itself if all of it is valid. */
size_t utf8_valid_length(const char *text, size_t length);
bool utf8_is_valid(const char *text, size_t length);

/* `length` without a character that is cut off at the end (by a buffer's size, say). */
size_t utf8_whole_bytes(const char *text, size_t length);

#endif
