/* Content of a chat message that is an array of parts, {"type": "text", "text": "..."}, instead of a string. */
#ifndef NJ_PIPELINE_REQUEST_CONTENT_PARTS_H
#define NJ_PIPELINE_REQUEST_CONTENT_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "engine/chat_template/chat_template.h"
#include "pipeline/base/problem.h"

/* Refuses an array without parts, and every part that is no text, by its type. 0, or -1 with the problem filled.
 * `message` is the message's index, for the problem's text. */
int content_parts_check(const json_t *parts, size_t message, struct nj_problem *problem);

/* Does the template read the texts of parts itself? It is tried on one message of one part: if just the part's text
 * comes out, then it does; if the template fails, leaves the text out or prints the array as such, then it does not.
 * `bos` and `eos` as in struct nj_chat_input. */
bool content_parts_are_read(const struct nj_chat_template *chat, const char *bos, const char *eos);

/* The messages with each array of parts replaced by its texts, joined by newlines. A new reference, possibly to the
 * same messages; NULL: out of memory. The parts must have been checked. */
json_t *content_parts_join(json_t *messages);

#endif
