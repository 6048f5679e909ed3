#include "tests/kernels/emulated/tables.h"

#include "kernels/vnni/vnni.h"
#include "tests/kernels/kernel_test.h"

/* kernels/avx512_vnni and kernels/avx_vnni, compiled anew: see CMakeLists.txt. */
void emulated_avx512_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads);
void emulated_avx_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads);
void evex_avx_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads);

/* The table with what was compiled anew in the place of what needs VNNI. */
static void add_table(struct nj_cpu_kernels *table, const struct nj_cpu_kernels *real, const char *name,
                      nj_cpu_kernel matmul, enum nj_test_table_use use)
{
    *table = *real;
    table->name = name;
    table->run[NJ_OP_MATMUL] = matmul;
    test_add_table(table, use);
}

void emulated_add_tables(void)
{
    static struct nj_cpu_kernels tables[3];
    add_table(&tables[0], &avx512_vnni_kernels, "avx512-vnni, emulated", emulated_avx512_vnni_run_matmul,
              NJ_TEST_TABLE_SLOW);
    add_table(&tables[1], &avx_vnni_kernels, "avx-vnni, emulated", emulated_avx_vnni_run_matmul, NJ_TEST_TABLE_SLOW);
    add_table(&tables[2], &avx_vnni_kernels, "avx-vnni-evex", evex_avx_vnni_run_matmul,
              avx512_vnni_is_runnable() ? NJ_TEST_TABLE_RUNS : NJ_TEST_TABLE_LACKS);
}
