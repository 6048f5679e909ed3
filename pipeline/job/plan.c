#include "pipeline/job/plan.h"

#include <stdlib.h>
#include <time.h>

#include "pipeline/job/plan_facts.h"
#include "pipeline/machine/machine.h"

enum { ID_HASH_BITS = 64 };

struct planning {
    const struct nj_job_options *options;
    const struct nj_job_callbacks *callbacks;
    const atomic_int *stop;
    enum nj_kv_type kv_type;
    struct nj_input *input;
    struct nj_model *model;
    uint64_t heap_bytes; /* when the model had been opened */
    struct nj_device *device;
    struct nj_examiner examiner;
    struct nj_index *index;
    struct nj_order order;
};

static void forward_notice(void *context, const char *line)
{
    const struct planning *planning = context;
    if (planning->callbacks->notice != NULL)
        planning->callbacks->notice(planning->callbacks->context, line);
}

static void forward_lines(void *context, uint64_t lines)
{
    const struct planning *planning = context;
    struct nj_job_progress progress = {.phase = NJ_PHASE_INDEX, .requests = lines};
    if (planning->callbacks->progress != NULL)
        planning->callbacks->progress(planning->callbacks->context, &progress);
}

static int open_parts(struct planning *planning, struct nj_error *error)
{
    const struct nj_job_options *options = planning->options;
    struct nj_model_options model_options = {.path = options->model_path,
                                             .cache_directory = options->cache_directory,
                                             .notice = forward_notice,
                                             .notice_context = planning,
                                             .stop = planning->stop};
    if (plan_find_kv_type(options->kv_type, &planning->kv_type, error) != 0)
        return -1;
    planning->input = input_open(options->inputs, options->input_count, error);
    if (planning->input == NULL)
        return -1;
    input_use_once(planning->input, planning->stop);
    planning->model = model_open(&model_options, error);
    if (planning->model == NULL)
        return -1;
    planning->heap_bytes = process_memory_read("").heap_bytes;
    planning->device = machine_open_device(options->kernels, options->threads, error);
    if (planning->device == NULL)
        return -1;
    struct nj_prompt_options encoding = {.as_chat = options->as_chat,
                                         .job_time = options->job_time >= 0 ? options->job_time : (int64_t)time(NULL)};
    planning->examiner = (struct nj_examiner){.input = planning->input, .is_read_once = true};
    planning->examiner.encoder = prompt_encoder_create(planning->model, &encoding, error);
    return planning->examiner.encoder != NULL ? 0 : -1;
}

static int read_input(struct planning *planning, struct nj_plan_report *out, struct nj_error *error)
{
    planning->index = index_create(ID_HASH_BITS);
    if (planning->index == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    struct nj_index_build build = {.examiner = &planning->examiner,
                                   .index = planning->index,
                                   .strict = planning->options->strict,
                                   .notice = forward_notice,
                                   .notice_context = planning,
                                   .progress = forward_lines,
                                   .progress_context = planning,
                                   .stop = planning->stop};
    if (index_build(&build, &out->totals, error) != 0 || index_check_some_good(&out->totals, error) != 0)
        return -1;
    index_drop_table(planning->index);
    /* No index.bin is written, and so nobody knows what prompts share: the plan takes them as if they shared nothing.
     */
    return order_make(planning->index, order_limit(planning->index, planning->options->first), NULL, &planning->order,
                      error);
}

static int make_plan(struct planning *planning, struct nj_plan_report *out, struct nj_error *error)
{
    const struct nj_plan_source source = {.options = planning->options,
                                          .model = planning->model,
                                          .kv_type = planning->kv_type,
                                          .heap_bytes = planning->heap_bytes,
                                          .index = planning->index,
                                          .order = &planning->order,
                                          .logprobs = out->totals.most_logprobs};
    struct nj_plan_facts facts;
    if (plan_facts_gather(&source, &facts, error) != 0)
        return -1;
    out->limit_bytes = facts.limit_bytes;
    out->is_cap = facts.is_cap;
    out->layers = facts.shape->layers;
    out->disk_bytes_per_second = facts.rates.disk_bytes;
    out->kv_block_bytes = kv_block_bytes(facts.shape, facts.kv_type);
    out->lengths = lengths_of(planning->index, &planning->order);
    out->fits = plan_make(&facts, &out->plan, &out->misfit) == 0;
    plan_facts_free(&facts);
    if (!out->fits && out->misfit.code != NJ_DOES_NOT_FIT) {
        *error = out->misfit;
        return -1;
    }
    const struct nj_scheduler_options *scheduler = &out->plan.scheduler;
    out->sequences =
        scheduler->kv_blocks < scheduler->most_sequences ? (int32_t)scheduler->kv_blocks : scheduler->most_sequences;
    return 0;
}

/* The index is given back first: both need memory, and neither at the same time. */
static int measure_time(struct planning *planning, struct nj_plan_report *out, struct nj_error *error)
{
    index_destroy(planning->index);
    order_free(&planning->order);
    planning->index = NULL;
    out->plan.scheduler.cancel = planning->stop;
    const double read_seconds = (double)out->plan.sweep_read_bytes / out->disk_bytes_per_second;
    out->has_time = plan_time_measure(planning->model, planning->device, &out->plan.scheduler, &out->lengths,
                                      read_seconds, &out->time, error) == 0;
    out->plan.scheduler.cancel = NULL;
    return out->has_time ? 0 : -1;
}

static int plan_all(struct planning *planning, struct nj_plan_report *out, struct nj_error *error)
{
    if (open_parts(planning, error) != 0 || read_input(planning, out, error) != 0)
        return -1;
    out->kernels = cpu_kernels_find(planning->options->kernels)->name;
    out->threads = device_threads(planning->device);
    out->index_bytes = index_bytes(planning->index) + planning->order.count * sizeof planning->order.position[0];
    out->requests = planning->order.count;
    if (out->requests == 0)
        return 0;
    if (make_plan(planning, out, error) != 0)
        return -1;
    return out->fits ? measure_time(planning, out, error) : 0;
}

int plan_job(const struct nj_job_options *options, const struct nj_job_callbacks *callbacks, const atomic_int *stop,
             struct nj_plan_report *out, struct nj_error *error)
{
    struct planning planning = {.options = options, .callbacks = callbacks, .stop = stop};
    *out = (struct nj_plan_report){0};
    int status = plan_all(&planning, out, error);
    order_free(&planning.order);
    index_destroy(planning.index);
    examiner_free(&planning.examiner);
    prompt_encoder_destroy(planning.examiner.encoder);
    model_close(planning.model);
    device_close(planning.device);
    input_close(planning.input);
    return status;
}
