#include "pipeline/machine/process_memory.h"

#include <limits.h>
#include <malloc.h>
#include <stdio.h>

static void read_line(const char *line, struct nj_process_memory *memory)
{
    const struct {
        const char *format;
        uint64_t *bytes;
    } fields[] = {{"VmRSS: %llu kB", &memory->resident_bytes},
                  {"RssAnon: %llu kB", &memory->anonymous_bytes},
                  {"RssFile: %llu kB", &memory->file_bytes},
                  {"VmHWM: %llu kB", &memory->peak_bytes}};
    unsigned long long kib;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (sscanf(line, fields[i].format, &kib) == 1)
            *fields[i].bytes = (uint64_t)kib << 10;
    }
}

struct nj_process_memory process_memory_read(const char *root)
{
    const struct mallinfo2 heap = mallinfo2();
    struct nj_process_memory memory = {.heap_bytes = heap.uordblks + heap.hblkhd};
    char path[PATH_MAX], line[256];
    int length = snprintf(path, sizeof path, "%s/proc/self/status", root);
    FILE *file = length < 0 || (size_t)length >= sizeof path ? NULL : fopen(path, "re");
    if (file == NULL)
        return memory;
    while (fgets(line, sizeof line, file) != NULL)
        read_line(line, &memory);
    fclose(file);
    return memory;
}

void process_memory_trim(void)
{
    malloc_trim(0);
}
