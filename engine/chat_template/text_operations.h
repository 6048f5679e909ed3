/* Operations on strings that filters, methods and operators share. Marks follow their bytes. */
#ifndef NJ_ENGINE_CHAT_TEMPLATE_TEXT_OPERATIONS_H
#define NJ_ENGINE_CHAT_TEMPLATE_TEXT_OPERATIONS_H

#include "engine/chat_template/render.h"

enum case_change { CASE_LOWER, CASE_UPPER, CASE_TITLE, CASE_CAPITALIZE, CASE_SWAP };
struct value text_change_case(struct render *render, const struct text *text, enum case_change change);

/* str.isupper or str.islower: at least one letter with case, and none of the other case. */
bool text_is_case(struct render *render, const struct text *text, bool upper);

enum { STRIP_LEFT = 1, STRIP_RIGHT = 2 };
/* Strips any of `characters`, whitespace if NULL. */
struct value text_strip(struct render *render, const struct text *text, const struct text *characters, int sides);

/* Replaces up to `limit` occurrences (all if negative). */
struct value text_replace(struct render *render, const struct text *text, const struct text *old,
                          const struct text *new, int64_t limit);

/* The start of the character before `at` (> 0). */
size_t text_step_back(const struct text *text, size_t at);

/* Appends the text, with & < > ' " as HTML writes them if `escapes`. */
void text_append_escaped(struct render *render, struct builder *builder, const struct text *text, bool escapes);
struct value text_mark_safe(struct render *render, struct value text, bool is_safe);

struct value text_split_lines(struct render *render, const struct text *text, bool keeps_ends);

/* Pads to `width` characters; `left_share` of 0 pads on the right, 2 on the left, 1 both. */
struct value text_pad(struct render *render, const struct text *text, int64_t width, const struct text *fill,
                      int left_share);

/* Fails if the text is safe: operations that Python would answer by escaping, not supported here. */
void text_refuse_safe(struct render *render, const struct text *text, const char *operation);

#endif
