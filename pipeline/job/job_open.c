#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/cpu_kernels.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/job/job_plan.h"
#include "pipeline/job/job_state.h"
#include "pipeline/machine/process_memory.h"
#include "pipeline/output/output.h"

/* The model file's name without directory and ".gguf". */
static char *name_of_model(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = utf8_escape_invalid(slash == NULL ? path : slash + 1, strlen(slash == NULL ? path : slash + 1));
    if (name == NULL)
        return NULL;
    size_t length = strlen(name);
    if (length > 5 && strcmp(name + length - 5, ".gguf") == 0)
        name[length - 5] = '\0';
    return name;
}

static int make_paths(struct nj_job *job, struct nj_error *error)
{
    const struct nj_job_options *options = job->options;
    job->directory = input_absolute_path(options->output_directory, error);
    job->inputs = calloc(options->input_count + 1, sizeof *job->inputs);
    if (job->directory == NULL)
        return -1;
    if (job->inputs == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t i = 0; i < options->input_count; i++) {
        job->inputs[i] = input_argument_path(options->inputs[i], error);
        if (job->inputs[i] == NULL)
            return -1;
    }
    return 0;
}

static void forward_notice(void *context, const char *line)
{
    job_say(context, "%s", line);
}

static int open_model(struct nj_job *job, struct nj_error *error)
{
    struct nj_model_options options = {.path = job->options->model_path,
                                       .cache_directory = job->options->cache_directory,
                                       .notice = forward_notice,
                                       .notice_context = job,
                                       .stop = job->stop};
    job->model = model_open(&options, error);
    if (job->model == NULL)
        return -1;
    job->heap_bytes = process_memory_read("").heap_bytes;
    job->model_path = strdup(job->model->path);
    job->model_name = name_of_model(job->model->path);
    struct nj_prompt_options encoding = {.as_chat = job->options->as_chat};
    job->examiner.input = job->input;
    job->examiner.encoder = prompt_encoder_create(job->model, &encoding, error);
    if (job->model_path != NULL && job->model_name != NULL && job->examiner.encoder != NULL)
        return 0;
    return error_set(error, NJ_INTERNAL, "out of memory");
}

/* What this run says the job is. */
static void describe_job(struct nj_job *job)
{
    const struct nj_model *model = job->model;
    struct nj_job_file *file = &job->file;
    file->options = *job->options;
    file->options.model_path = job->model_path;
    file->options.inputs = (const char *const *)job->inputs;
    file->options.output_directory = job->directory;
    file->options.kv_type = kv_type_name(job->kv_type);
    file->model_name = job->model_name;
    file->model_digest = model->digest;
    file->tokenizer_digest = model->tokenizer_digest;
    file->template_digest = model->template_digest;
    file->arithmetic_version = NJ_ARITHMETIC_VERSION;
    file->job_digest = prompt_digest_job(job->examiner.encoder, model, file->options.kv_type, NJ_ARITHMETIC_VERSION);
}

/* Compares with job.json, or makes it. What was fixed when the job began stays: its time and the model's name. A
 * job.json that is there is replaced only when the input has been compared too (job_read_input): a run that is
 * refused must leave the job as it was. */
static int join_job(struct nj_job *job, struct nj_error *error)
{
    describe_job(job);
    int found = job_file_read(job->directory, &job->stored, error);
    if (found < 0 || (found > 0 && job_file_compare(job->directory, &job->stored, &job->file, error) != 0))
        return -1;
    if (found > 0) {
        job->file.options.job_time = job->stored.options.job_time;
        job->file.model_name = job->stored.model_name;
    } else if (job->file.options.job_time < 0) {
        job->file.options.job_time = (int64_t)time(NULL);
    }
    prompt_encoder_set_job(job->examiner.encoder, job->file.job_digest, job->file.options.job_time);
    job->record_context = (struct nj_record_context){.job_digest = job->file.job_digest,
                                                     .model_name = job->file.model_name,
                                                     .job_time = job->file.options.job_time,
                                                     .tokenizer = job->model->tokenizer};
    return found > 0 ? 0 : job_file_write(job->directory, &job->file, error);
}

static int open_runs(struct nj_job *job, struct nj_error *error)
{
    char host[256] = "";
    struct nj_log_options options = {
        .directory = job->directory, .name = "runs", .notice = forward_notice, .notice_context = job};
    job->runs = record_log_open(&options, error);
    if (job->runs == NULL)
        return -1;
    gethostname(host, sizeof host - 1);
    struct nj_run_settings settings = {.options = job->options, .host = host, .pid = getpid()};
    return runs_append_start(job->runs, &settings, error);
}

/* Before anything is made, so that a wrong path leaves nothing behind. Compressed files may be gone if there may be
 * a copy of them. */
static int open_input(struct nj_job *job, struct nj_error *error)
{
    const struct nj_job_options *options = job->options;
    char *path = output_path(job->directory, "spool/spool.bin", error);
    if (path == NULL)
        return -1;
    bool copied = access(path, F_OK) == 0;
    free(path);
    job->input = copied ? input_open_copied(options->inputs, options->input_count, error)
                        : input_open(options->inputs, options->input_count, error);
    return job->input != NULL ? 0 : -1;
}

/* The spool belongs to the job, so this waits for the lock and for job.json. */
static int use_spool(struct nj_job *job, struct nj_error *error)
{
    enum nj_input_run run = job->options->resume ? NJ_RUN_RESUME : job->stored.root != NULL ? NJ_RUN_AGAIN : NJ_RUN_NEW;
    if (input_use_spool(job->input, job->directory, run, job->stop, error) != 0)
        return -1;
    if (input_reads_copy(job->input))
        job_say(job, "the job's copy of its input is used (%s/spool)", job->directory);
    return 0;
}

/* It is read when the input has been; a wrong name should be told at once. */
static int check_ids_file(const struct nj_job_options *options, struct nj_error *error)
{
    if ((options->retry & NJ_RETRY_IDS) == 0 || access(options->retry_ids_path, R_OK) == 0)
        return 0;
    error_set(error, NJ_NO_INPUT, "the file of ids to retry: %s", strerror(errno));
    return error_at(error, options->retry_ids_path, 0, -1);
}

int job_open(struct nj_job *job, struct nj_error *error)
{
    if (plan_find_kv_type(job->options->kv_type, &job->kv_type, error) != 0 || make_paths(job, error) != 0 ||
        check_ids_file(job->options, error) != 0)
        return -1;
    /* Opening a model for the first time takes minutes: who would wait for the directory in vain is told before. */
    if (lock_check_free(job->directory, error) != 0)
        return -1;
    if (open_input(job, error) != 0 || open_model(job, error) != 0 || output_prepare(job->directory, error) != 0)
        return -1;
    job->lock = lock_take(job->directory, job->options->slurm_job_id, error);
    if (job->lock == NULL || join_job(job, error) != 0 || use_spool(job, error) != 0 ||
        output_take_reserve(job->directory, error) != 0)
        return -1;
    return open_runs(job, error);
}
