#include "pipeline/machine/machine.h"

struct nj_device *machine_open_device(const char *kernels, int threads, struct nj_error *error)
{
    const struct nj_cpu_kernels *found = cpu_kernels_find(kernels);
    if (found == NULL) {
        error_set(error, NJ_UNAVAILABLE, "this machine has no kernels \"%s\": use --kernels auto",
                  kernels == NULL ? "auto" : kernels);
        return NULL;
    }
    struct nj_device *device = device_open_cpu(found, threads > 0 ? threads : machine_read("").threads);
    if (device == NULL)
        error_set(error, NJ_INTERNAL, "out of memory opening the device");
    return device;
}
