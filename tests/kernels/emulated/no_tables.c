/* In the place of tables.c where nothing is compiled anew (NJ_EMULATE_VNNI is off). */
#include "tests/kernels/emulated/tables.h"

void emulated_add_tables(void)
{
}
