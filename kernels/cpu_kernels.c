#include "kernels/cpu_kernels.h"

#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"
#include "kernels/vnni/vnni.h"

struct candidate {
    const struct nj_cpu_kernels *kernels;
    int (*is_runnable)(void);
};

/* Fastest first. */
static const struct candidate candidates[] = {
    {&avx512_vnni_kernels, avx512_vnni_is_runnable},
    {&avx_vnni_kernels, avx_vnni_is_runnable},
    {&avx2_kernels, avx2_is_runnable},
    {&reference_kernels, reference_is_runnable},
};

enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

const struct nj_cpu_kernels *cpu_kernels_at(size_t index)
{
    return index < CANDIDATES ? candidates[index].kernels : NULL;
}

int cpu_kernels_runnable(const struct nj_cpu_kernels *kernels)
{
    for (size_t i = 0; i < CANDIDATES; i++)
        if (candidates[i].kernels == kernels)
            return candidates[i].is_runnable();
    return 0;
}

const struct nj_cpu_kernels *cpu_kernels_find(const char *name)
{
    int any = name == NULL || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < CANDIDATES; i++)
        if ((any || strcmp(name, candidates[i].kernels->name) == 0) && candidates[i].is_runnable())
            return candidates[i].kernels;
    return NULL;
}
