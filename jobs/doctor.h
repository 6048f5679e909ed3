/* The two halves of `nightjar doctor`. Each prints to standard output and returns the exit code. */
#ifndef NJ_JOBS_DOCTOR_H
#define NJ_JOBS_DOCTOR_H

#include "jobs/commands.h"

/* What is in the model's file and whether nightjar runs it (NJ_OK or NJ_BAD_DATA). */
int doctor_model(struct nj_context *context, const struct nj_arguments *arguments);

/* This machine: its processor, threads and memory, the kernels that run, and its rates, measured in a few seconds. */
int doctor_machine(struct nj_context *context, const struct nj_arguments *arguments);

#endif
