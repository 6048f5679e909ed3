/* Suggestions for misspelt names. */
#ifndef NJ_JOBS_NEAREST_H
#define NJ_JOBS_NEAREST_H

#include <stddef.h>

/* The candidate closest to `name` by insertions, deletions, replacements and swaps of neighbours, if it is
 * close enough to be a likely typo; else NULL. The first of equals wins. NULL candidates are passed over. */
const char *nearest_name(const char *name, const char *const *candidates, size_t count);

#endif
