/* UTF-8 as Unicode defines it: shortest forms only, no surrogates, at most U+10FFFF. */
#ifndef NJ_ENGINE_TOKENIZER_UTF8_H
#define NJ_ENGINE_TOKENIZER_UTF8_H

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

/* What stands at the start of `bytes` (length >= 1). */
struct nj_utf8_part utf8_next(const char *bytes, size_t length);

/* The code point of a valid part. */
uint32_t utf8_code_point(const char *bytes, size_t length);

/* The length of the longest valid beginning; `length` itself if all of it is valid. */
size_t utf8_valid_length(const char *bytes, size_t length);

#endif
