#include "jobs/nearest.h"

#include <string.h>

enum { NAME_BYTES_MOST = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Optimal string alignment distance; both lengths are at most NAME_BYTES_MOST. */
static size_t nearest_distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][NAME_BYTES_MOST + 1];
    size_t *before = rows[0], *previous = rows[1], *current = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        previous[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        current[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = previous[j - 1] + (a[i - 1] != b[j - 1]);
            current[j] = least(replaced, least(previous[j], current[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                current[j] = least(current[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = previous;
        previous = current;
        current = oldest;
    }
    return previous[b_length];
}

const char *nearest_name(const char *name, const char *const *candidates, size_t count)
{
    size_t length = strlen(name);
    const char *best = NULL;
    size_t best_distance = length / 3 + 2; /* a suggestion is nearer than this */
    for (size_t i = 0; i < count && length <= NAME_BYTES_MOST; i++) {
        if (candidates[i] == NULL || strlen(candidates[i]) > NAME_BYTES_MOST)
            continue;
        size_t distance = nearest_distance(name, length, candidates[i], strlen(candidates[i]));
        if (distance < best_distance && distance < length) {
            best = candidates[i];
            best_distance = distance;
        }
    }
    return best;
}
