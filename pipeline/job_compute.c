/* The second part of a job: load the weights, check that it fits, give requests to the scheduler in order and
 * write down what comes back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "pipeline/job_state.h"
#include "pipeline/machine.h"

static int open_device(struct nj_job *job, struct nj_error *error)
{
    job->device = machine_open_device(job->options->kernels, job->options->threads, error);
    return job->device != NULL ? 0 : -1;
}

static struct nj_flight *find_flight(struct nj_job *job, uint64_t tag)
{
    for (size_t i = 0; i < job->flight_count; i++) {
        if (job->flights[i].position == tag)
            return &job->flights[i];
    }
    return NULL;
}

/* Takes `id` over, also when it fails. */
static int add_flight(struct nj_job *job, uint32_t position, char *id, struct nj_error *error)
{
    if (id == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    if (job->flight_count == job->flight_capacity) {
        size_t capacity = job->flight_capacity == 0 ? 64 : 2 * job->flight_capacity;
        struct nj_flight *grown = realloc(job->flights, capacity * sizeof *grown);
        if (grown == NULL) {
            free(id);
            return error_set(error, NJ_INTERNAL, "out of memory");
        }
        job->flights = grown;
        job->flight_capacity = capacity;
    }
    job->flights[job->flight_count++] = (struct nj_flight){.position = position,
                                                           .id = id,
                                                           .shape = job->pulled.request.shape,
                                                           .id_hash = digest_of(id, strlen(id)),
                                                           .digest = job->pulled.digest};
    return 0;
}

static void drop_flight(struct nj_job *job, struct nj_flight *flight)
{
    free(flight->id);
    *flight = job->flights[--job->flight_count];
}

/* The next entry to run: those of the checkpoint first, then in order. false: none left. */
static bool next_position(struct nj_job *job, uint32_t *position, const struct nj_checkpoint_sequence **begun)
{
    *begun = NULL;
    if (job->resumptions_taken < job->resumptions_wanted) {
        const struct nj_resumption *resumption = &job->resumptions[job->resumptions_taken++];
        *position = resumption->position;
        *begun = resumption->sequence;
        return true;
    }
    while (job->next_in_order < job->order.count) {
        *position = job->order.position[job->next_in_order++];
        if (!index_at(job->index, *position)->resumed)
            return true;
    }
    return false;
}

/* Reads the entry's line again into job->pulled and makes sure that it is what was indexed. */
static int pull_entry(struct nj_job *job, const struct nj_index_entry *entry, struct nj_error *error)
{
    struct nj_line line;
    examined_free(&job->pulled);
    if (examine_read_again(&job->examiner, entry, &line, error) != 0 ||
        examine_line(&job->examiner, &line, &job->pulled, error) != 0)
        return -1;
    const struct nj_examined *pulled = &job->pulled;
    if (pulled->ok && pulled->digest.low == entry->digest && (uint32_t)pulled->prompt.count == entry->prompt_tokens &&
        (uint32_t)pulled->prompt.max_new_tokens == entry->max_new_tokens)
        return 0;
    error_set(error, NJ_BAD_DATA, "the input has changed while the job runs: restore it and run the job again");
    return error_at(error, input_file_at(job->input, line.file)->path, (int64_t)line.number, (int64_t)line.offset);
}

static int give_next(void *context, struct nj_sequence_request *out, struct nj_error *error)
{
    struct nj_job *job = context;
    uint32_t position;
    const struct nj_checkpoint_sequence *begun;
    if (!next_position(job, &position, &begun))
        return 0;
    const struct nj_index_entry *entry = index_at(job->index, position);
    if (pull_entry(job, entry, error) != 0)
        return -1;
    const struct nj_request *request = &job->pulled.request;
    const struct nj_encoded_prompt *prompt = &job->pulled.prompt;
    char *id = examine_entry_id(&job->examiner, job->index, entry, request);
    if (add_flight(job, position, id, error) != 0)
        return -1;
    *out = (struct nj_sequence_request){.tag = position,
                                        .prompt = prompt->tokens,
                                        .prompt_count = prompt->count,
                                        .max_new_tokens = prompt->max_new_tokens,
                                        .sampling = {.temperature = request->temperature,
                                                     .top_p = request->top_p,
                                                     .min_p = request->min_p,
                                                     .top_k = request->top_k,
                                                     .seed = request->seed,
                                                     .request_hash = XXH3_64bits(id, strlen(id))},
                                        .stop = request->stop,
                                        .stop_count = request->stop_count};
    if (begun != NULL) {
        /* A smaller max_tokens than when the checkpoint was made: its first tokens are still right. */
        int32_t most = prompt->max_new_tokens - 1;
        out->generated = begun->generated;
        out->generated_count = begun->generated_count < most ? begun->generated_count : most;
    }
    return 1;
}

static char *make_record(const struct nj_job *job, const struct nj_flight *flight, const struct nj_index_entry *entry,
                         const struct nj_sequence_result *result, struct nj_error *error)
{
    struct nj_record_subject subject = {
        .id = flight->id, .shape = flight->shape, .digest = flight->digest, .attempt = entry->attempts + 1u};
    if (result->finish != NJ_FINISH_NOT_FINITE)
        return record_make_result(&job->record_context, &subject, result, error);
    struct nj_problem problem;
    problem_set(&problem, "non_finite",
                "the model computed a value that is not finite after %" PRId32 " new tokens: no answer",
                result->generated_count);
    struct nj_record_place place = {.file = input_file_at(job->input, entry->file)->label,
                                    .line = index_entry_line(entry),
                                    .byte = index_entry_offset(entry)};
    return record_make_error(&job->record_context, &subject, &problem, &place, error);
}

static int take_finished(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    struct nj_job *job = context;
    struct nj_flight *flight = find_flight(job, result->tag);
    if (flight == NULL)
        return error_set(error, NJ_INTERNAL, "an answer to a request that was never given");
    struct nj_index_entry *entry = index_at(job->index, flight->position);
    bool failed = result->finish == NJ_FINISH_NOT_FINITE;
    char *record = make_record(job, flight, entry, result, error);
    int status = record == NULL ? -1 : record_log_append(failed ? job->errors : job->results, record, error);
    free(record);
    if (status == 0)
        status = job_show_answer(job, entry, flight->id, result, error);
    if (status != 0)
        return -1;
    job_count_done(job, entry, failed ? 0 : (uint32_t)result->generated_count, failed, true);
    job->prompt_tokens += (uint64_t)result->prompt_count;
    job->new_tokens += (uint64_t)result->generated_count;
    job->computed_now++;
    drop_flight(job, flight);
    return 0;
}

static int after_sweep(void *context, struct nj_error *error)
{
    struct nj_job *job = context;
    job_report(job);
    return job_save_some(job, error);
}

static int run_scheduler(struct nj_job *job, struct nj_error *error)
{
    struct nj_scheduler_options plan;
    struct nj_scheduler_callbacks callbacks = {
        .context = job, .next = give_next, .finished = take_finished, .swept = after_sweep};
    if (job_plan(job, &plan, error) != 0)
        return -1;
    job->scheduler = scheduler_create(job->model, job->device, &plan, &callbacks, error);
    if (job->scheduler == NULL)
        return -1;
    job->counts.kv_blocks = (uint64_t)plan.kv_blocks;
    job->counts.kv_bytes = kv_cache_bytes(&job->model->shape, plan.kv_type, plan.kv_blocks);
    job->progress.phase = NJ_PHASE_COMPUTE;
    job_report(job);
    return scheduler_run(job->scheduler, error);
}

static int compute_order(struct nj_job *job, struct nj_error *error)
{
    job->progress.phase = NJ_PHASE_LOAD;
    job_report(job);
    struct nj_scheduler_options plan;
    /* Before the weights are read, so that a cap that is too small is told at once. */
    if (job_plan(job, &plan, error) != 0 || open_device(job, error) != 0 ||
        model_load_weights(job->model, job->device, error) != 0)
        return -1;
    return run_scheduler(job, error);
}

int job_compute(struct nj_job *job, struct nj_error *error)
{
    if (job_must_stop(job))
        return error_set(error, NJ_INTERRUPTED, "interrupted");
    if (job->order.count > 0 && compute_order(job, error) != 0)
        return -1;
    const struct nj_job_progress *progress = &job->progress;
    if (progress->requests_done == progress->requests)
        return 0;
    job->progress.phase = NJ_PHASE_COMPUTE; /* the input has been read, also if there was nothing to do */
    return error_set(error, NJ_INTERRUPTED, "the first %" PRIu64 " requests are answered; the others are still to run",
                     job->options->first);
}
