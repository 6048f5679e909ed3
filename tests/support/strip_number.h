/* One number of a weight strip, decoded from the text of kernels/matrix.h alone, for tests of whatever writes or
 * reads strips. */
#ifndef NJ_TESTS_SUPPORT_STRIP_NUMBER_H
#define NJ_TESTS_SUPPORT_STRIP_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/matrix.h"

/* The element is scale * q + minimum. Float kinds: q is 1 and scale the element. */
struct strip_number {
    float scale, minimum; /* exact: those of a super-block are multiplied out */
    int q;                /* with the zero point subtracted */
    bool has_minimum;
};

struct strip_number strip_number_at(enum nj_matrix_kind kind, const void *strip, int row, int64_t col);

/* The element in float32, rounded once. */
float strip_element(enum nj_matrix_kind kind, const void *strip, int row, int64_t col);

#endif
