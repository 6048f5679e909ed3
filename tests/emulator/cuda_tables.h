/* The CUDA kernels on the emulator as tables of kernels, so that they go through the tests of all the others. */
#ifndef NJ_TESTS_EMULATOR_CUDA_TABLES_H
#define NJ_TESTS_EMULATOR_CUDA_TABLES_H

#include "kernels/cpu_kernels.h"

/* Of matrix products of u4 kinds by the kernels for many tokens and by those for few, and of attention over Q8 and F16;
 * all else is the fastest table's. The first thread of a team does everything. Every launch has another order of
 * threads than the one before; a fault that the emulator reports ends the process. */
const struct nj_cpu_kernels *cuda_table_many(void);
const struct nj_cpu_kernels *cuda_table_few(void);
const struct nj_cpu_kernels *cuda_table_attention(void);

#endif
