/* The second part of a job: load the weights, check that it fits, give requests to the scheduler in order and
 * write down what comes back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "kernels/cpu_kernels.h"
#include "pipeline/job_state.h"
#include "pipeline/machine.h"
#include "pipeline/memory_need.h"

enum { DEFAULT_TOKEN_BUDGET = 256 };

static int32_t length_of(const struct nj_index_entry *entry)
{
    return (int32_t)(entry->prompt_tokens + entry->max_new_tokens);
}

/* Blocks that the longest `sequences` requests take if all run to their limit: never more are needed. */
static int64_t most_useful_blocks(struct nj_job *job, int32_t sequences)
{
    int64_t blocks = 0;
    for (uint32_t i = 0; i < job->order.count && i < (uint32_t)sequences; i++)
        blocks += scheduler_least_blocks(length_of(index_at(job->index, job->order.position[i])));
    return blocks;
}

static int fail_kv_memory(int64_t least_blocks, uint64_t block_bytes, int32_t longest, uint64_t given,
                          struct nj_error *error)
{
    uint64_t least = (uint64_t)least_blocks * block_bytes;
    return error_set(error, NJ_DOES_NOT_FIT,
                     "the KV memory of %" PRIu64 " bytes is too small: the longest request (%" PRId32
                     " tokens, prompt and answer) needs --kv-memory %" PRIu64 "KiB (%" PRIu64 " bytes) at least",
                     given, longest, (least + 1023) >> 10, least);
}

/* Fills in kv_blocks: as the user says, or what the longest sequences need, within half the memory that the weights
 * leave free. `free_bytes` is that memory. */
static int plan_kv(struct nj_job *job, uint64_t free_bytes, struct nj_scheduler_options *plan, struct nj_error *error)
{
    uint64_t given = job->options->kv_memory_bytes;
    uint64_t block_bytes = kv_block_bytes(&job->model->shape, plan->kv_type);
    int64_t least = scheduler_least_blocks(plan->longest_sequence);
    int64_t useful = most_useful_blocks(job, plan->most_sequences);
    uint64_t available = given > 0 ? given : free_bytes / 2;
    uint64_t blocks = available / block_bytes;
    if (given > 0 && blocks < (uint64_t)least)
        return fail_kv_memory(least, block_bytes, plan->longest_sequence, given, error);
    if (blocks < (uint64_t)least)
        blocks = (uint64_t)least;
    if (blocks > (uint64_t)useful)
        blocks = (uint64_t)useful;
    plan->kv_blocks = (int64_t)blocks;
    return 0;
}

/* Bytes of the model's tensors in its file; the pack's differ by a few percent at most. */
static uint64_t weights_bytes_of(const struct nj_model *model)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(model->gguf); i++)
        bytes += gguf_tensor_at(model->gguf, i)->bytes;
    return bytes;
}

/* `weights_bytes`: what is still to be loaded. */
static int check_memory(const struct nj_job *job, const struct nj_scheduler_options *plan, uint64_t weights_bytes,
                        uint64_t available_bytes, struct nj_error *error)
{
    const struct nj_hyperparameters *shape = &job->model->shape;
    struct nj_memory_need need = {
        .weights_bytes = weights_bytes,
        .kv_bytes = kv_cache_bytes(shape, plan->kv_type, plan->kv_blocks),
        .least_kv_bytes = kv_cache_bytes(shape, plan->kv_type, scheduler_least_blocks(plan->longest_sequence)),
        .token_budget = plan->token_budget,
        .longest_sequence = plan->longest_sequence};
    need.other_bytes = scheduler_bytes(shape, plan) - need.kv_bytes;
    return memory_need_check(&need, available_bytes, error);
}

static int plan_scheduler(struct nj_job *job, struct nj_scheduler_options *plan, struct nj_error *error)
{
    int32_t budget = job->options->token_budget > 0 ? job->options->token_budget : DEFAULT_TOKEN_BUDGET;
    *plan = (struct nj_scheduler_options){.token_budget = budget,
                                          .longest_sequence = length_of(index_at(job->index, job->order.position[0])),
                                          .most_sequences =
                                              job->order.count < (uint32_t)budget ? (int32_t)job->order.count : budget,
                                          .kv_type = NJ_KV_F16,
                                          .cancel = job->stop};
    uint64_t weights_bytes = job->model->weights == NULL ? weights_bytes_of(job->model) : 0;
    uint64_t available_bytes = machine_read("").memory_available_bytes;
    uint64_t free_bytes = available_bytes > weights_bytes ? available_bytes - weights_bytes : 0;
    if (plan_kv(job, free_bytes, plan, error) != 0)
        return -1;
    return check_memory(job, plan, weights_bytes, available_bytes, error);
}

static int open_device(struct nj_job *job, struct nj_error *error)
{
    const struct nj_cpu_kernels *kernels = cpu_kernels_find(job->options->kernels);
    if (kernels == NULL)
        return error_set(error, NJ_UNAVAILABLE, "this machine has no kernels \"%s\": use --kernels auto",
                         job->options->kernels == NULL ? "auto" : job->options->kernels);
    int threads = job->options->threads > 0 ? job->options->threads : machine_read("").threads;
    job->device = device_open_cpu(kernels, threads);
    return job->device != NULL ? 0 : error_set(error, NJ_INTERNAL, "out of memory opening the device");
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
    if (job->resumptions_taken < job->resumption_count) {
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
    if (plan_scheduler(job, &plan, error) != 0)
        return -1;
    job->scheduler = scheduler_create(job->model, job->device, &plan, &callbacks, error);
    if (job->scheduler == NULL)
        return -1;
    job->progress.phase = NJ_PHASE_COMPUTE;
    job_report(job);
    return scheduler_run(job->scheduler, error);
}

int job_compute(struct nj_job *job, struct nj_error *error)
{
    if (job_must_stop(job))
        return error_set(error, NJ_INTERRUPTED, "interrupted");
    if (job->order.count == 0)
        return 0;
    job->progress.phase = NJ_PHASE_LOAD;
    job_report(job);
    struct nj_scheduler_options plan;
    /* Before the weights are read, so that a cap that is too small is told at once. */
    if (plan_scheduler(job, &plan, error) != 0 || open_device(job, error) != 0 ||
        model_load_weights(job->model, job->device, error) != 0)
        return -1;
    return run_scheduler(job, error);
}
