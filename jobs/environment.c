#include "jobs/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL if unset or empty, which mean the same for every variable read here. */
static const char *environment_get(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void environment_find_cache(char *out, size_t out_bytes)
{
    /* The XDG base directory specification says that relative paths are to be ignored. */
    const char *cache = environment_get("XDG_CACHE_HOME");
    const char *home = environment_get("HOME");
    int length = 0;
    if (cache != NULL && cache[0] == '/')
        length = snprintf(out, out_bytes, "%s/nightjar", cache);
    else if (home != NULL && home[0] == '/')
        length = snprintf(out, out_bytes, "%s/.cache/nightjar", home);
    if (length <= 0 || (size_t)length >= out_bytes)
        out[0] = '\0';
}

void environment_read(struct nj_environment *out)
{
    memset(out, 0, sizeof *out);
    environment_find_cache(out->cache_directory, sizeof out->cache_directory);
    out->no_color = environment_get("NO_COLOR") != NULL;
    out->slurm_job_id = environment_get("SLURM_JOB_ID");
    const char *columns = environment_get("COLUMNS");
    long value = columns != NULL ? strtol(columns, NULL, 10) : 0;
    out->columns = value > 0 && value < 10000 ? (int)value : 0;
}
