/* The VNNI tables in forms that tests run beside the program's own. */
#ifndef NJ_TESTS_KERNELS_EMULATED_TABLES_H
#define NJ_TESTS_KERNELS_EMULATED_TABLES_H

/* Makes test_each_variant take, too: both tables with their intrinsics emulated, on every machine, and the 256-bit one
 * in the EVEX encoding, on machines with AVX-512. Builds without NJ_EMULATE_VNNI have none of them. */
void emulated_add_tables(void);

#endif
