/* What names of input files say. */
#ifndef NJ_PIPELINE_INPUT_INPUT_NAMES_H
#define NJ_PIPELINE_INPUT_INPUT_NAMES_H

#include <stdbool.h>
#include <string.h>

/* Whether something stands before the ending, too. */
static inline bool name_ends_in(const char *name, const char *ending)
{
    size_t length = strlen(name), ending_length = strlen(ending);
    return length > ending_length && strcmp(name + length - ending_length, ending) == 0;
}

#endif
