/* job.json: what the job is. Written before anything else; later runs compare themselves with it. */
#ifndef NJ_PIPELINE_JOB_JOB_FILE_H
#define NJ_PIPELINE_JOB_JOB_FILE_H

#include <jansson.h>

#include "pipeline/base/digest.h"
#include "pipeline/job/job.h"

enum { NJ_JOB_FILE_SCHEMA = 1 };

/* Strings belong to `root` (or, before the first write, to the caller). */
struct nj_job_file {
    struct nj_job_options options; /* paths are absolute */
    const char *model_name;        /* in results; stays the same when the model file is renamed later */
    const char *model_digest, *tokenizer_digest, *template_digest; /* 32 hex digits */
    int arithmetic_version;
    struct nj_digest job_digest;
    json_t *root;
    const char **inputs; /* options.inputs, owned */
};

/* 1 read, 0 there is none, -1 error (NJ_BAD_DATA if it is damaged or of a later version). */
int job_file_read(const char *directory, struct nj_job_file *out, struct nj_error *error);
void job_file_free(struct nj_job_file *file);

/* Writes it if it differs from what is there. */
int job_file_write(const char *directory, const struct nj_job_file *file, struct nj_error *error);

/* NJ_BAD_DATA naming the first difference in what identifies the job; what is free to change is not compared. */
int job_file_compare(const char *directory, const struct nj_job_file *stored, const struct nj_job_file *wanted,
                     struct nj_error *error);

#endif
