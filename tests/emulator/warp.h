/* Operations of a whole warp. */
#ifndef NJ_TESTS_EMULATOR_WARP_H
#define NJ_TESTS_EMULATOR_WARP_H

#include "tests/emulator/emulator.h"

/* Does the operation for all 32 lanes. */
void warp_operate(enum emulator_operation operation, struct emulator_operands *const lanes[32]);

#endif
