/* The output directory as a whole: who may write it, whether it is ours, and its disk space. All files in it have
 * mode 0600, the directory 0700 where it is made here. */
#ifndef NJ_PIPELINE_OUTPUT_OUTPUT_H
#define NJ_PIPELINE_OUTPUT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

enum { NJ_RESERVE_BYTES = 64 << 20 };

/* DIRECTORY/NAME; the caller frees it. NULL: out of memory (error filled). */
char *output_path(const char *directory, const char *name, struct nj_error *error);

/* Makes the directory if it is missing. One that is not empty and holds no job is refused (NJ_CANT_CREATE). */
int output_prepare(const char *directory, struct nj_error *error);

/* Sets 64 MiB aside in DIRECTORY/reserve, given up for the last checkpoint when the disk is full.
 * NJ_CANT_CREATE, naming needed and free bytes, if there is not enough room. */
int output_take_reserve(const char *directory, struct nj_error *error);
void output_give_up_reserve(const char *directory);

/* Checks that `least_bytes` are free beside the reserve (NJ_CANT_CREATE), and tells how many are. */
int output_check_space(const char *directory, uint64_t least_bytes, uint64_t *free_bytes, struct nj_error *error);

#endif
