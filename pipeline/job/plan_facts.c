#include "pipeline/job/plan_facts.h"

#include <stdlib.h>

static int measure_weights(const struct nj_model *model, struct nj_weights_sizes *out, struct nj_error *error)
{
    const int32_t layers = model->shape.layers;
    uint64_t *sizes = calloc(2 * ((size_t)layers + 1), sizeof *sizes);
    uint64_t *memory = sizes, *read = sizes + layers + 1;
    if (sizes == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (int32_t i = 0; i <= layers; i++) {
        struct nj_weights_memory with;
        if (weights_plan_memory(model->gguf, &model->shape, i, &with, error) != 0) {
            free(sizes);
            return -1;
        }
        memory[i] = with.fixed_bytes + with.layer_bytes + with.ring_bytes;
        read[i] = with.disk_bytes;
    }
    *out = (struct nj_weights_sizes){.most_disk_layers = layers, .memory_bytes = memory, .read_bytes = read};
    return 0;
}

int plan_facts_gather(const struct nj_plan_source *source, struct nj_plan_facts *out, struct nj_error *error)
{
    const struct nj_job_options *options = source->options;
    const struct nj_machine machine = machine_read("");
    process_memory_trim();
    const struct nj_process_memory process = process_memory_read("");
    const uint64_t index_memory = index_bytes(source->index) + source->order->count * sizeof(uint32_t);
    const int threads = options->threads > 0 ? options->threads : machine.threads;
    *out = (struct nj_plan_facts){.shape = &source->model->shape,
                                  .kv_type = source->kv_type,
                                  .index = source->index,
                                  .order = source->order,
                                  .logprobs = source->logprobs,
                                  .token_budget = options->token_budget,
                                  .kv_memory_bytes = options->kv_memory_bytes,
                                  .limit_bytes = plan_limit(options->max_memory_bytes, &machine, &process),
                                  .is_cap = options->max_memory_bytes > 0,
                                  .program_bytes = memory_of_program(&process, source->heap_bytes, index_memory),
                                  .peak_bytes = process.peak_bytes,
                                  .threads = threads,
                                  .rates = plan_default_rates(threads)};
    return measure_weights(source->model, &out->weights, error);
}

/* Both arrays of sizes are one piece of memory. */
void plan_facts_free(struct nj_plan_facts *facts)
{
    free((void *)facts->weights.memory_bytes);
    facts->weights = (struct nj_weights_sizes){0};
}
