#include "pipeline/machine/machine.h"

#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 4096, PROCESSORS_MOST = 65536 };

/* The first line of a file; false if it cannot be read or the path is too long. */
static bool read_line(const char *root, const char *directory, const char *name, char *line, int line_bytes)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, directory, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    bool found = fgets(line, line_bytes, file) != NULL;
    fclose(file);
    return found;
}

static bool read_number(const char *root, const char *directory, const char *name, uint64_t *out)
{
    char line[64];
    if (!read_line(root, directory, name, line, sizeof line) || line[0] < '0' || line[0] > '9')
        return false; /* "max" and -1 mean that there is no limit */
    *out = strtoull(line, NULL, 10);
    return true;
}

static int affinity_threads(void)
{
    int threads = 1;
    cpu_set_t *set = CPU_ALLOC(PROCESSORS_MOST);
    size_t bytes = CPU_ALLOC_SIZE(PROCESSORS_MOST);
    if (set != NULL && sched_getaffinity(0, bytes, set) == 0 && CPU_COUNT_S(bytes, set) > 0)
        threads = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
    return threads;
}

static void limit_threads(struct nj_machine *machine, uint64_t quota, uint64_t period)
{
    if (quota == 0 || period == 0)
        return;
    uint64_t threads = (quota + period - 1) / period;
    if (threads <= PROCESSORS_MOST && (machine->quota_threads == 0 || threads < (uint64_t)machine->quota_threads))
        machine->quota_threads = (int)threads;
    if (threads < (uint64_t)machine->threads)
        machine->threads = (int)threads;
}

static void limit_memory(struct nj_machine *machine, uint64_t limit, uint64_t used)
{
    /* Version 1 writes "no limit" as a number that no machine has. */
    if (limit < machine->cgroup_memory_bytes && limit < machine->physical_bytes)
        machine->cgroup_memory_bytes = limit;
    if (limit < machine->memory_bytes)
        machine->memory_bytes = limit;
    uint64_t available = used < limit ? limit - used : 0;
    if (available < machine->memory_available_bytes)
        machine->memory_available_bytes = available;
}

/* What the level uses, without the pages of files that were read once and that the kernel takes back first: a model or
 * a pack that was just read must not look like memory in use. */
static uint64_t read_used(const char *root, const char *directory, const char *name, const char *reclaimable)
{
    char path[PATH_BYTES], line[256], field[64];
    uint64_t used = 0, cached = 0;
    unsigned long long bytes;
    if (!read_number(root, directory, name, &used))
        return 0;
    int length = snprintf(path, sizeof path, "%s%s/memory.stat", root, directory);
    FILE *file = length < 0 || (size_t)length >= sizeof path ? NULL : fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%63s %llu", field, &bytes) == 2 && strcmp(field, reclaimable) == 0)
            cached = bytes;
    }
    if (file != NULL)
        fclose(file);
    return used > cached ? used - cached : 0;
}

typedef void (*level_reader)(struct nj_machine *machine, const char *root, const char *directory);

static void read_v2_level(struct nj_machine *machine, const char *root, const char *directory)
{
    char line[128];
    unsigned long long quota, period;
    uint64_t limit;
    if (read_line(root, directory, "cpu.max", line, sizeof line) && sscanf(line, "%llu %llu", &quota, &period) == 2)
        limit_threads(machine, quota, period);
    if (read_number(root, directory, "memory.max", &limit))
        limit_memory(machine, limit, read_used(root, directory, "memory.current", "inactive_file"));
}

static void read_v1_cpu_level(struct nj_machine *machine, const char *root, const char *directory)
{
    uint64_t quota, period;
    if (read_number(root, directory, "cpu.cfs_quota_us", &quota) &&
        read_number(root, directory, "cpu.cfs_period_us", &period))
        limit_threads(machine, quota, period);
}

static void read_v1_memory_level(struct nj_machine *machine, const char *root, const char *directory)
{
    uint64_t limit;
    if (read_number(root, directory, "memory.limit_in_bytes", &limit))
        limit_memory(machine, limit, read_used(root, directory, "memory.usage_in_bytes", "total_inactive_file"));
}

/* Reads MOUNT/GROUP and every directory above it up to MOUNT. */
static void read_levels(struct nj_machine *machine, const char *root, const char *mount, const char *group,
                        level_reader read)
{
    char directory[PATH_BYTES];
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return;
    size_t least = strlen(mount);
    for (;;) {
        read(machine, root, directory);
        char *slash = strrchr(directory, '/');
        if (slash == NULL || (size_t)(slash - directory) < least)
            return;
        *slash = '\0';
    }
}

static bool has_controller(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* A line of /proc/self/cgroup: ID:CONTROLLERS:PATH, without controllers for version 2. */
static void read_group(struct nj_machine *machine, const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
    if (group == NULL)
        return;
    *group++ = '\0';
    controllers++;
    group[strcspn(group, "\n")] = '\0';
    if (controllers[0] == '\0')
        read_levels(machine, root, "/sys/fs/cgroup", group, read_v2_level);
    if (has_controller(controllers, "cpu"))
        read_levels(machine, root, "/sys/fs/cgroup/cpu", group, read_v1_cpu_level);
    if (has_controller(controllers, "memory"))
        read_levels(machine, root, "/sys/fs/cgroup/memory", group, read_v1_memory_level);
}

static FILE *open_proc(const char *root, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/proc/%s", root, name);
    return length < 0 || (size_t)length >= sizeof path ? NULL : fopen(path, "re");
}

static void read_memory(struct nj_machine *machine, const char *root)
{
    FILE *file = open_proc(root, "meminfo");
    if (file == NULL)
        return;
    char line[256];
    unsigned long long kib;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "MemTotal: %llu kB", &kib) == 1)
            machine->memory_bytes = machine->physical_bytes = kib << 10;
        else if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            machine->memory_available_bytes = kib << 10;
    }
    fclose(file);
}

struct nj_machine machine_read(const char *root)
{
    struct nj_machine machine = {.memory_bytes = UINT64_MAX,
                                 .memory_available_bytes = UINT64_MAX,
                                 .physical_bytes = UINT64_MAX,
                                 .cgroup_memory_bytes = UINT64_MAX};
    machine.threads = machine.affinity_threads = affinity_threads();
    read_memory(&machine, root);
    FILE *file = open_proc(root, "self/cgroup");
    if (file == NULL)
        return machine;
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, file) != NULL)
        read_group(&machine, root, line);
    fclose(file);
    return machine;
}
