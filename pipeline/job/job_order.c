/* The order of a job's requests, by the prefix keys that the index file holds. */
#include <stdlib.h>

#include "pipeline/index/index_file.h"
#include "pipeline/job/job_state.h"
#include "pipeline/output/output.h"

/* Opened when keys are first wanted: most jobs with short prompts do without. */
struct key_file {
    const struct nj_job *job;
    struct nj_index_reader *reader;
};

static int open_key_file(struct key_file *file, struct nj_error *error)
{
    char *path = output_path(file->job->directory, "index.bin", error);
    if (path == NULL)
        return -1;
    file->reader = index_reader_open(path, &file->job->file.job_digest, error);
    free(path);
    return file->reader == NULL ? -1 : 0;
}

/* The records of the file are the index's entries. */
static int load_keys(void *context, int level, uint32_t *key, struct nj_error *error)
{
    struct key_file *file = context;
    if (file->reader == NULL && open_key_file(file, error) != 0)
        return -1;
    index_reader_rewind(file->reader);
    for (uint32_t i = 0; i < index_count(file->job->index); i++) {
        struct nj_index_record record;
        const int got = index_reader_next(file->reader, &record, error);
        if (got < 0)
            return -1;
        key[i] = got > 0 ? record.prefix_key[level] : 0;
    }
    return 0;
}

int job_make_order(struct nj_job *job, struct nj_error *error)
{
    struct key_file file = {.job = job};
    const struct nj_prefix_source prefixes = {.load = load_keys, .context = &file};
    index_drop_table(job->index);
    const int result = order_make(job->index, job->position_limit, &prefixes, &job->order, error);
    index_reader_close(file.reader);
    return result;
}
