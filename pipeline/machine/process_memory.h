/* What this process takes of memory now, as the system and the heap count it. */
#ifndef NJ_PIPELINE_MACHINE_PROCESS_MEMORY_H
#define NJ_PIPELINE_MACHINE_PROCESS_MEMORY_H

#include <stdint.h>

/* 0: not known. */
struct nj_process_memory {
    uint64_t resident_bytes;  /* in RAM: the following two, and what is shared */
    uint64_t anonymous_bytes; /* heap, stacks, buffers */
    uint64_t file_bytes;      /* pages of the program and its libraries */
    uint64_t peak_bytes;      /* most that was ever resident */
    uint64_t heap_bytes;      /* given out by malloc and not given back; the same in every run that did the same */
};

/* `root` as for machine_read; the heap is always this process's. */
struct nj_process_memory process_memory_read(const char *root);
/* Gives free pages of the heap back to the system. */
void process_memory_trim(void);

#endif
