/* The second part of a job: load the weights, check that it fits, give requests to the scheduler in order and
 * write down what comes back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "pipeline/job/job_state.h"
#include "pipeline/job/plan_facts.h"
#include "pipeline/machine/machine.h"

static int open_device(struct nj_job *job, struct nj_error *error)
{
    job->device = machine_open_device(job->options->kernels, job->options->threads, error);
    return job->device != NULL ? 0 : -1;
}

/* The next entry to run: those of the checkpoint first, then in order. false: none left. */
static bool next_position(struct nj_job *job, uint32_t *position)
{
    while (job->resumptions_passed < job->resumptions_wanted) {
        const struct nj_resumption *resumption = &job->resumptions[job->resumptions_passed];
        if (!resumption->is_taken) {
            *position = resumption->position;
            return true;
        }
        job->resumptions_passed++;
    }
    while (job->next_in_order < job->order.count) {
        *position = job->order.position[job->next_in_order++];
        if (!index_at(job->index, *position)->resumed)
            return true;
    }
    return false;
}

/* What the checkpoint has of a sample of the pulled request; NULL: nothing. When all samples have been asked for, all
 * that the checkpoint has of the request is taken, so that it is not pulled again. */
static const struct nj_checkpoint_sequence *take_resumption(struct nj_job *job, uint32_t sample)
{
    const struct nj_checkpoint_sequence *found = NULL;
    for (size_t i = job->resumptions_passed; i < job->resumptions_wanted; i++) {
        struct nj_resumption *resumption = &job->resumptions[i];
        if (resumption->position != job->pulled_position)
            break;
        if (resumption->sequence->sample != sample)
            continue;
        resumption->is_taken = true;
        found = resumption->sequence;
    }
    return found;
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
        (uint32_t)pulled->prompt.max_new_tokens == entry->max_new_tokens &&
        (uint32_t)request_samples(&pulled->request) == index_entry_samples(entry))
        return 0;
    error_set(error, NJ_BAD_DATA, "the input has changed while the job runs: restore it and run the job again");
    return error_at(error, input_file_at(job->input, line.file)->path, (int64_t)line.number, (int64_t)line.offset);
}

/* Makes the next request the pulled one. 1, 0 if there is none, -1 error. */
static int pull_next(struct nj_job *job, struct nj_error *error)
{
    uint32_t position;
    if (!next_position(job, &position))
        return 0;
    const struct nj_index_entry *entry = index_at(job->index, position);
    if (pull_entry(job, entry, error) != 0)
        return -1;
    job->pulled_position = position;
    job->pulled_samples = 0;
    char *id = examine_entry_id(&job->examiner, job->index, entry, &job->pulled.request);
    return job_flight_add(job, position, id, error) != 0 ? -1 : 1;
}

static struct nj_sampling sampling_of(const struct nj_request *request, const char *id, uint32_t sample)
{
    return (struct nj_sampling){.temperature = request->temperature,
                                .top_p = request->top_p,
                                .min_p = request->min_p,
                                .top_k = request->top_k,
                                .seed = request->seed,
                                .request_hash = XXH3_64bits(id, strlen(id)),
                                .sample = sample,
                                .bias = request->bias,
                                .bias_count = request->bias_count};
}

/* What the checkpoint has of it, which may be nothing. After a smaller max_tokens than when the checkpoint was made its
 * first tokens are still right. */
static void give_begun(const struct nj_checkpoint_sequence *begun, struct nj_sequence_request *out)
{
    if (begun == NULL)
        return;
    out->generated = begun->generated;
    out->generated_count = begun->generated_count < out->max_new_tokens ? begun->generated_count : out->max_new_tokens;
    if (out->wants_logprobs && begun->top_logprobs == out->top_logprobs)
        out->logprobs = begun->logprobs;
}

/* Sequences come sample by sample, those of one request one after another. */
static int give_next(void *context, struct nj_sequence_request *out, struct nj_error *error)
{
    struct nj_job *job = context;
    const struct nj_request *request = &job->pulled.request;
    if (!job->pulled.ok || job->pulled_samples == request_samples(request)) {
        const int pulled = pull_next(job, error);
        if (pulled <= 0)
            return pulled;
    }
    const struct nj_encoded_prompt *prompt = &job->pulled.prompt;
    const uint32_t sample = (uint32_t)job->pulled_samples++;
    const uint64_t tag = job_tag(job->pulled_position, sample);
    *out = (struct nj_sequence_request){.tag = tag,
                                        .prompt = prompt->tokens,
                                        .prompt_count = prompt->count,
                                        .max_new_tokens = prompt->max_new_tokens,
                                        .sampling = sampling_of(request, job_flight_of(job, tag)->id, sample),
                                        .stop = request->stop,
                                        .stop_count = request->stop_count,
                                        .wants_logprobs = request->logprobs != NJ_LOGPROBS_OFF,
                                        .top_logprobs = request->top_logprobs};
    give_begun(take_resumption(job, sample), out);
    return 1;
}

static char *make_error(const struct nj_job *job, const struct nj_record_subject *subject,
                        const struct nj_index_entry *entry, int32_t new_tokens, struct nj_error *error)
{
    struct nj_problem problem;
    problem_set(&problem, "non_finite",
                "the model computed a value that is not finite after %" PRId32 " new tokens: no answer", new_tokens);
    struct nj_record_place place = {.file = input_file_at(job->input, entry->file)->label,
                                    .line = index_entry_line(entry),
                                    .byte = index_entry_offset(entry)};
    return record_make_error(&job->record_context, subject, &problem, &place, error);
}

/* The first of the samples that failed, by which the request fails as a whole; NULL: none. */
static const struct nj_sequence_result *find_failed(const struct nj_sequence_result *samples, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        if (samples[i].finish == NJ_FINISH_NOT_FINITE)
            return &samples[i];
    }
    return NULL;
}

static int write_record(struct nj_job *job, const struct nj_flight *flight, const struct nj_sequence_result *samples,
                        struct nj_error *error)
{
    struct nj_index_entry *entry = index_at(job->index, flight->position);
    const struct nj_record_subject subject = {
        .id = flight->id, .shape = flight->shape, .digest = flight->digest, .attempt = entry->attempts + 1u};
    const struct nj_record_answer answer = {
        .samples = samples, .sample_count = flight->samples, .n = flight->n, .logprobs = flight->logprobs};
    const struct nj_sequence_result *failed = find_failed(samples, flight->samples);
    char *record = failed != NULL ? make_error(job, &subject, entry, failed->generated_count, error)
                                  : record_make_result(&job->record_context, &subject, &answer, error);
    int status = record == NULL ? -1 : record_log_append(failed != NULL ? job->errors : job->results, record, error);
    free(record);
    if (status == 0)
        status = failed != NULL ? job_show_answer(job, entry, flight->id, failed, 1, error)
                                : job_show_answer(job, entry, flight->id, samples, flight->samples, error);
    if (status != 0)
        return -1;
    uint32_t new_tokens = 0;
    for (int32_t i = 0; i < flight->samples; i++)
        new_tokens += (uint32_t)samples[i].generated_count;
    job_count_done(job, entry, failed != NULL ? 0 : new_tokens, failed != NULL, true);
    job->prompt_tokens += (uint64_t)samples[0].prompt_count;
    job->new_tokens += new_tokens;
    job->computed_now++;
    return 0;
}

static int take_finished(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    struct nj_job *job = context;
    struct nj_flight *flight = job_flight_of(job, result->tag);
    if (flight == NULL)
        return error_set(error, NJ_INTERNAL, "an answer to a request that was never given");
    if (flight->samples > 1) {
        if (job_flight_keep(flight, result, error) != 0)
            return -1;
        if (flight->finished < flight->samples)
            return 0;
    }
    if (write_record(job, flight, flight->samples > 1 ? flight->kept : result, error) != 0)
        return -1;
    job_flight_drop(job, flight);
    return 0;
}

static int after_sweep(void *context, struct nj_error *error)
{
    struct nj_job *job = context;
    job_report(job);
    return job_save_some(job, error);
}

/* Before the pack is built and the weights are read, so that a cap that is too small is told at once. */
static int make_plan(struct nj_job *job, struct nj_plan *out, struct nj_error *error)
{
    const struct nj_plan_source source = {.options = job->options,
                                          .model = job->model,
                                          .kv_type = job->kv_type,
                                          .heap_bytes = job->heap_bytes,
                                          .index = job->index,
                                          .order = &job->order,
                                          .logprobs = job->totals.most_logprobs};
    struct nj_plan_facts facts;
    if (plan_facts_gather(&source, &facts, error) != 0)
        return -1;
    const int status = plan_make(&facts, out, error);
    plan_facts_free(&facts);
    return status;
}

static void tell_plan(struct nj_job *job, const struct nj_plan *plan)
{
    const uint64_t kv_bytes = plan->need.kv_bytes;
    job->counts.kv_blocks = (uint64_t)plan->scheduler.kv_blocks;
    job->counts.kv_bytes = kv_bytes;
    job->counts.disk_layers = (uint64_t)plan->disk_layers;
    if (plan->disk_layers > 0)
        job_say(job, "layers    %" PRId32 " of %" PRId32 " stay on disk: every sweep reads %" PRIu64 " MiB of the pack",
                plan->disk_layers, job->model->shape.layers, plan->sweep_read_bytes >> 20);
}

static int run_scheduler(struct nj_job *job, const struct nj_plan *plan, struct nj_error *error)
{
    struct nj_scheduler_options options = plan->scheduler;
    struct nj_scheduler_callbacks callbacks = {
        .context = job, .next = give_next, .finished = take_finished, .swept = after_sweep};
    options.cancel = job->stop;
    job->scheduler = scheduler_create(job->model, job->device, &options, &callbacks, error);
    if (job->scheduler == NULL)
        return -1;
    job->progress.phase = NJ_PHASE_COMPUTE;
    job_report(job);
    return scheduler_run(job->scheduler, error);
}

static int compute_order(struct nj_job *job, struct nj_error *error)
{
    job->progress.phase = NJ_PHASE_LOAD;
    job_report(job);
    struct nj_plan plan;
    if (make_plan(job, &plan, error) != 0)
        return -1;
    tell_plan(job, &plan);
    const struct nj_weights_options weights = {.disk_layers = plan.disk_layers};
    if (open_device(job, error) != 0 || model_load_weights(job->model, job->device, &weights, error) != 0)
        return -1;
    return run_scheduler(job, &plan, error);
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
