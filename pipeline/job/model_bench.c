#include "pipeline/job/model_bench.h"

#include "kernels/peak.h"
#include "pipeline/job/job_plan.h"
#include "pipeline/job/memory_need.h"
#include "pipeline/machine/machine.h"

enum { PROMPTS = 8, DEFAULT_PROMPT_TOKENS = 512, DEFAULT_CONTEXT = 200 };

static const int32_t DECODE_SEQUENCES[] = {1, 8, 32, 64};

struct model_bench {
    const struct nj_model_bench_options *options;
    const struct nj_model_bench_callbacks *callbacks;
    struct nj_model *model;
    struct nj_device *device;
    struct nj_bench_options bench;
    int32_t prompt_tokens, context;
};

/* `room`: how long the option may make it. */
static int choose_length(int32_t given, int32_t usual, int32_t room, const char *option, int32_t *out,
                         struct nj_error *error)
{
    *out = given > 0 ? given : usual < room ? usual : room;
    if (*out >= 1 && *out <= room)
        return 0;
    return error_set(error, NJ_BAD_USAGE, "the model's context leaves room for %s %d at most", option, (int)room);
}

static int choose_lengths(struct model_bench *bench, struct nj_error *error)
{
    const struct nj_model_bench_options *options = bench->options;
    const int32_t context = bench->model->shape.context;
    if (choose_length(options->prompt_tokens, DEFAULT_PROMPT_TOKENS, context, "--prompt-tokens", &bench->prompt_tokens,
                      error) != 0)
        return -1;
    return choose_length(options->context, DEFAULT_CONTEXT, context - NJ_BENCH_STEPS - 1, "--context", &bench->context,
                         error);
}

static int open_bench(struct model_bench *bench, struct nj_error *error)
{
    const struct nj_model_bench_options *options = bench->options;
    enum nj_kv_type kv_type;
    if (plan_find_kv_type(options->kv_type, &kv_type, error) != 0)
        return -1;
    struct nj_model_options model_options = {.path = options->model_path,
                                             .cache_directory = options->cache_directory,
                                             .notice = options->notice,
                                             .notice_context = options->notice_context,
                                             .stop = options->stop};
    bench->model = model_open(&model_options, error);
    if (bench->model == NULL || choose_lengths(bench, error) != 0)
        return -1;
    bench->device = machine_open_device(options->kernels, options->threads, error);
    if (bench->device == NULL || model_load_weights(bench->model, bench->device, NULL, error) != 0)
        return -1;
    bench->bench = (struct nj_bench_options){.kv_type = kv_type,
                                             .token_budget = options->token_budget > 0 ? options->token_budget
                                                                                       : NJ_DEFAULT_TOKEN_BUDGET,
                                             .seconds = options->seconds,
                                             .stop = options->stop};
    return 0;
}

static void measure_machine(const struct model_bench *bench)
{
    const struct nj_cpu_kernels *kernels = cpu_kernels_find(bench->options->kernels);
    const struct nj_peak_mix *mix = peak_mix_of(kernels);
    struct nj_model_bench_machine machine = {.kernels = kernels->name,
                                             .threads = device_threads(bench->device),
                                             .token_budget = bench->bench.token_budget,
                                             .kv_type = bench->bench.kv_type};
    if (mix != NULL) {
        machine.peak_mix = mix->name;
        machine.peak_operations_per_second = peak_measure_operations(mix, machine.threads);
    }
    bench->callbacks->machine(bench->callbacks->context, &machine);
}

static int run_row(const struct model_bench *bench, bool is_decode, int32_t sequences, int32_t tokens,
                   struct nj_error *error)
{
    struct nj_model_bench_row row = {.is_decode = is_decode, .sequences = sequences, .tokens = tokens};
    const int32_t longest = is_decode ? tokens + NJ_BENCH_STEPS + 1 : tokens + 1;
    struct nj_sequences_memory memory =
        memory_of_sequences(&bench->model->shape, bench->bench.kv_type, bench->bench.token_budget, sequences, longest);
    row.fits = memory.kv_bytes + memory.other_bytes <= machine_read("").memory_available_bytes;
    int status = 0;
    if (row.fits && is_decode)
        status = bench_decode(bench->model, bench->device, &bench->bench, sequences, tokens, &row.result, error);
    else if (row.fits)
        status = bench_prefill(bench->model, bench->device, &bench->bench, sequences, tokens, &row.result, error);
    if (status == 0)
        bench->callbacks->row(bench->callbacks->context, &row);
    return status;
}

static int run_rows(const struct model_bench *bench, struct nj_error *error)
{
    const int32_t prompt_tokens = bench->prompt_tokens;
    if (run_row(bench, false, 1, prompt_tokens, error) != 0 ||
        run_row(bench, false, PROMPTS, prompt_tokens < PROMPTS ? 1 : prompt_tokens / PROMPTS, error) != 0)
        return -1;
    for (size_t i = 0; i < sizeof DECODE_SEQUENCES / sizeof DECODE_SEQUENCES[0]; i++) {
        if (DECODE_SEQUENCES[i] > bench->bench.token_budget)
            break; /* a sweep has no room for so many */
        if (run_row(bench, true, DECODE_SEQUENCES[i], bench->context, error) != 0)
            return -1;
    }
    return 0;
}

int model_bench_run(const struct nj_model_bench_options *options, const struct nj_model_bench_callbacks *callbacks,
                    struct nj_error *error)
{
    struct model_bench bench = {.options = options, .callbacks = callbacks};
    int status = open_bench(&bench, error);
    if (status == 0) {
        measure_machine(&bench);
        status = run_rows(&bench, error);
    }
    model_close(bench.model);
    device_close(bench.device);
    return status;
}
