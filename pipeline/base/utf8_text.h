/* Text from outside (paths, field names, messages) made fit for JSON and for a terminal. */
#ifndef NJ_PIPELINE_BASE_UTF8_TEXT_H
#define NJ_PIPELINE_BASE_UTF8_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* A copy in which every byte that is not part of valid UTF-8 is written %XX. NULL: out of memory. */
char *utf8_escape_invalid(const char *text, size_t length);

/* Copies at most out_bytes - 1 bytes, cut at a character; control characters and invalid bytes become '?'. */
void utf8_copy_printable(char *out, size_t out_bytes, const char *text, size_t length);

/* A JSON string of a message that may have been cut in the middle of a character. NULL: out of memory. */
json_t *utf8_json_message(const char *message);

#endif
