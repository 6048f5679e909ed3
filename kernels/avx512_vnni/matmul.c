#include "kernels/avx512_vnni/lanes.h"

#include "kernels/vnni/matmul.h"
#include "kernels/vnni/vnni.h"

void avx512_vnni_run_matmul(const union nj_operation_args *args, int thread, int threads)
{
    run_matmul(&args->matmul, thread, threads);
}
