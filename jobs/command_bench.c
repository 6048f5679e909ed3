#include <inttypes.h>
#include <stdio.h>

#include "jobs/commands.h"
#include "jobs/signals.h"
#include "pipeline/job/model_bench.h"

enum { DEFAULT_SECONDS = 5 };

/* Operations that take less of the time than this are shown together. */
static const double LEAST_SHARE_SHOWN = 0.02;

struct bench_display {
    struct nj_context *context;
    bool is_json, is_quiet;
    struct nj_model_bench_machine machine;
    json_t *rows;
};

static void bench_on_notice(void *context, const char *line)
{
    struct bench_display *display = context;
    if (!display->is_quiet)
        console_note(&display->context->console, "%s", line);
}

static void bench_on_machine(void *context, const struct nj_model_bench_machine *machine)
{
    struct bench_display *display = context;
    display->machine = *machine;
    if (display->is_json)
        return;
    command_print_row("kernels", "%s, %d thread%s, token budget %" PRId32 ", keys and values in %s", machine->kernels,
                      machine->threads, machine->threads == 1 ? "" : "s", machine->token_budget,
                      kv_type_name(machine->kv_type));
    if (machine->peak_mix != NULL)
        command_print_row("peak", "%.4f TOPS (%s)", machine->peak_operations_per_second * 1e-12, machine->peak_mix);
    printf("\n%-8s %9s %8s %10s %16s %8s  %s\n", "", "sequences", "tokens", "tokens/s", "matmul TOPS", "of peak",
           "time goes to");
    fflush(stdout);
}

static double bench_all_seconds(const struct nj_device_times *times)
{
    double sum = 0;
    for (int i = 0; i < NJ_OP_COUNT; i++)
        sum += times->seconds[i];
    return sum;
}

/* "matmul 71 %, attention 15 %, other 14 %" */
static void bench_describe_times(const struct nj_device_times *times, char *out, size_t out_bytes)
{
    double all = bench_all_seconds(times), other = 0;
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < NJ_OP_COUNT; i++) {
        double share = all > 0 ? times->seconds[i] / all : 0;
        if (share >= LEAST_SHARE_SHOWN && used < out_bytes)
            used += (size_t)snprintf(out + used, out_bytes - used, "%s %.0f %%, ", operation_name((enum nj_operation)i),
                                     100 * share);
        else
            other += share;
    }
    if (used < out_bytes)
        snprintf(out + used, out_bytes - used, "other %.0f %%", 100 * other);
}

/* Operations per second of the matrix products while they ran. */
static double bench_matmul_rate(const struct nj_bench_result *result)
{
    double seconds = result->times.seconds[NJ_OP_MATMUL];
    return seconds > 0 ? result->times.matmul_operations / seconds : 0;
}

static double bench_share_of_peak(const struct bench_display *display, const struct nj_bench_result *result)
{
    double peak = display->machine.peak_operations_per_second;
    return peak > 0 ? bench_matmul_rate(result) / peak : 0;
}

static void bench_print_row(const struct bench_display *display, const struct nj_model_bench_row *row)
{
    const struct nj_bench_result *result = &row->result;
    const char *kind = row->is_decode ? "decode" : "prefill";
    char times[512];
    if (!row->fits) {
        printf("%-8s %9" PRId32 " %8" PRId32 " %10s\n", kind, row->sequences, row->tokens, "no memory");
        return;
    }
    bench_describe_times(&result->times, times, sizeof times);
    printf("%-8s %9" PRId32 " %8" PRId32 " %10.1f %16.4f %6.1f %%  %s\n", kind, row->sequences, row->tokens,
           (double)result->tokens / result->seconds, bench_matmul_rate(result) * 1e-12,
           100 * bench_share_of_peak(display, result), times);
    fflush(stdout);
}

static json_t *bench_json_row(const struct bench_display *display, const struct nj_model_bench_row *row)
{
    const struct nj_bench_result *result = &row->result;
    json_t *json =
        json_pack("{s:s, s:i, s:i, s:b}", "kind", row->is_decode ? "decode" : "prefill", "sequences", row->sequences,
                  row->is_decode ? "context" : "prompt_tokens", row->tokens, "fits", (int)row->fits);
    if (json == NULL || !row->fits)
        return json;
    json_t *seconds = json_object();
    for (int i = 0; i < NJ_OP_COUNT; i++)
        json_object_set_new(seconds, operation_name((enum nj_operation)i), json_real(result->times.seconds[i]));
    json_t *measured =
        json_pack("{s:I, s:I, s:f, s:f, s:f, s:f, s:o}", "repeats", (json_int_t)result->repeats, "computed_tokens",
                  (json_int_t)result->tokens, "seconds", result->seconds, "tokens_per_second",
                  (double)result->tokens / result->seconds, "matmul_tops", bench_matmul_rate(result) * 1e-12,
                  "share_of_peak", bench_share_of_peak(display, result), "operation_seconds", seconds);
    json_object_update(json, measured);
    json_decref(measured);
    return json;
}

static void bench_on_row(void *context, const struct nj_model_bench_row *row)
{
    struct bench_display *display = context;
    if (display->is_json)
        json_array_append_new(display->rows, bench_json_row(display, row));
    else
        bench_print_row(display, row);
}

/* Takes the rows over. */
static json_t *bench_json(struct bench_display *display, const char *model_path)
{
    const struct nj_model_bench_machine *machine = &display->machine;
    return json_pack("{s:i, s:s, s:s, s:i, s:i, s:s, s:s?, s:f, s:o}", "schema", 1, "model", model_path, "kernels",
                     machine->kernels, "threads", machine->threads, "token_budget", (int)machine->token_budget,
                     "kv_type", kv_type_name(machine->kv_type), "peak_mix", machine->peak_mix, "peak_tops",
                     machine->peak_operations_per_second * 1e-12, "rows", display->rows);
}

int command_bench(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct bench_display display = {.context = context, .is_json = arguments->json, .is_quiet = arguments->quiet};
    struct nj_model_bench_options options = {.model_path = arguments->model,
                                             .kernels = arguments->kernels,
                                             .kv_type = arguments->kv_type,
                                             .threads = (int)arguments->threads,
                                             .token_budget = (int32_t)arguments->token_budget,
                                             .prompt_tokens = (int32_t)arguments->prompt_tokens,
                                             .context = (int32_t)arguments->context_tokens,
                                             .seconds =
                                                 arguments->seconds > 0 ? (double)arguments->seconds : DEFAULT_SECONDS,
                                             .notice = bench_on_notice,
                                             .notice_context = &display};
    struct nj_model_bench_callbacks callbacks = {&display, bench_on_machine, bench_on_row};
    if (command_need_model(arguments, &error) != 0 ||
        command_need_cache(context, arguments, &options.cache_directory, &error) != 0 ||
        command_need_no_operand(arguments, &error) != 0)
        return console_report(&context->console, &error);
    options.stop = signals_watch();
    display.rows = json_array();
    if (model_bench_run(&options, &callbacks, &error) != 0) {
        json_decref(display.rows);
        return console_report(&context->console, &error);
    }
    if (!display.is_json)
        json_decref(display.rows);
    else if (command_print_json(bench_json(&display, options.model_path), &error) != 0)
        return console_report(&context->console, &error);
    return command_finish_output(context);
}
