/* What nightjar takes from the environment, read once at start. Nothing else reads it. */
#ifndef NJ_JOBS_ENVIRONMENT_H
#define NJ_JOBS_ENVIRONMENT_H

#include <stdbool.h>

struct nj_environment {
    char cache_directory[4096]; /* $XDG_CACHE_HOME/nightjar or $HOME/.cache/nightjar; empty: neither is set */
    bool no_color;              /* NO_COLOR is set and not empty (https://no-color.org) */
    int columns;                /* COLUMNS; 0: not set */
    const char *slurm_job_id;   /* SLURM_JOB_ID; NULL: not under Slurm. Lives as long as the process. */
};

void environment_read(struct nj_environment *out);

#endif
