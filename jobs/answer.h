/* A request and its answer, shown to a person who asked for the first few (--first). */
#ifndef NJ_JOBS_ANSWER_H
#define NJ_JOBS_ANSWER_H

#include <stdio.h>

#include "pipeline/job/job.h"

/* Control characters are escaped; a prompt is cut after a few lines, an answer is whole. */
void answer_print(const struct nj_job_answer *answer, FILE *to);

#endif
