/* plan: what run would find, need and take, without running. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jobs/commands.h"
#include "jobs/progress.h"
#include "jobs/signals.h"
#include "jobs/values.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/job/plan.h"

enum { SIZE_BYTES = 32 };

struct plan_display {
    struct nj_console *console;
    struct nj_progress_display progress;
    bool is_quiet;
};

static void plan_on_progress(void *context, const struct nj_job_progress *progress)
{
    struct plan_display *display = context;
    if (!display->is_quiet)
        progress_show(&display->progress, progress);
}

static void plan_on_notice(void *context, const char *line)
{
    struct plan_display *display = context;
    if (!display->is_quiet || strncmp(line, "warning", strlen("warning")) == 0)
        console_note(display->console, "%s", line);
}

static size_t plan_bad_shown(const struct nj_plan_report *report)
{
    return report->totals.bad < NJ_BAD_SHOWN ? (size_t)report->totals.bad : NJ_BAD_SHOWN;
}

static void plan_print_input(const struct nj_plan_report *report, uint64_t first)
{
    const struct nj_index_totals *totals = &report->totals;
    const struct nj_lengths *lengths = &report->lengths;
    command_print_row("input", "%" PRIu64 " lines: %" PRIu64 " requests, %" PRIu64 " bad", totals->requests,
                      totals->requests - totals->bad, totals->bad);
    for (size_t i = 0; i < plan_bad_shown(report); i++) {
        char text[sizeof totals->first_bad[i].message + sizeof totals->first_bad[i].file + 64];
        error_format(&totals->first_bad[i], text, sizeof text);
        command_print_row("", "%s", text);
    }
    if (totals->bad > NJ_BAD_SHOWN)
        command_print_row("", "... and %" PRIu64 " more", totals->bad - NJ_BAD_SHOWN);
    if (first > 0)
        command_print_row("first", "the following is for the first %" PRIu32 " requests", report->requests);
    if (report->requests == 0)
        return;
    command_print_row("prompts",
                      "%" PRIu64 " tokens: %" PRIu32 " the shortest, %" PRIu32 " the median, %" PRIu32
                      " for 90 %% of them, %" PRIu32 " the longest",
                      lengths->prompt_tokens, lengths->least_prompt, lengths->median_prompt, lengths->ninety_prompt,
                      lengths->most_prompt);
    command_print_row("answers", "%" PRIu64 " tokens at most, %" PRIu32 " the longest", lengths->most_new_tokens,
                      lengths->most_new);
}

static void plan_print_limit(const struct nj_plan_report *report)
{
    const struct nj_memory_need *need = &report->plan.need;
    char sum[SIZE_BYTES], limit[SIZE_BYTES];
    value_format_size(memory_need_sum(need), sum, SIZE_BYTES);
    value_format_size(report->limit_bytes, limit, SIZE_BYTES);
    command_print_row("memory", "%s of the %s that %s; --max-memory cpu=%" PRIu64 "MiB would be the smallest", sum,
                      limit, report->is_cap ? "--max-memory allows" : "may be used",
                      report->plan.least_limit_bytes >> 20);
}

static void plan_print_memory(const struct nj_plan_report *report)
{
    const struct nj_memory_need *need = &report->plan.need;
    char weights[SIZE_BYTES], kv[SIZE_BYTES], other[SIZE_BYTES], program[SIZE_BYTES], index[SIZE_BYTES],
        buffers[SIZE_BYTES];
    value_format_size(need->weights_bytes, weights, SIZE_BYTES);
    value_format_size(need->kv_bytes, kv, SIZE_BYTES);
    value_format_size(need->other_bytes, other, SIZE_BYTES);
    value_format_size(need->program_bytes, program, SIZE_BYTES);
    value_format_size(report->index_bytes, index, SIZE_BYTES);
    value_format_size(need->buffers_bytes, buffers, SIZE_BYTES);
    command_print_row("sweeps", "token budget %" PRId32 ", up to %" PRId32 " answers in flight",
                      report->plan.scheduler.token_budget, report->sequences);
    plan_print_limit(report);
    command_print_row("", "weights %s, keys and values %s, activations %s, program %s (index %s), buffers %s", weights,
                      kv, other, program, index, buffers);
    command_print_row("", "%" PRId64 " KV blocks (%s) of 64 tokens; the longest request takes %" PRId64,
                      report->plan.scheduler.kv_blocks, kv_type_name(report->plan.scheduler.kv_type),
                      scheduler_least_blocks(report->plan.scheduler.longest_sequence));
}

static void plan_print_layers(const struct nj_plan_report *report)
{
    char read[SIZE_BYTES];
    value_format_size(report->plan.sweep_read_bytes, read, SIZE_BYTES);
    if (report->plan.disk_layers == 0)
        command_print_row("layers", "all %" PRId32 " in memory", report->layers);
    else
        command_print_row("layers", "%" PRId32 " of %" PRId32 " on disk: every sweep reads %s, taken as %.1f GB/s",
                          report->plan.disk_layers, report->layers, read, report->disk_bytes_per_second * 1e-9);
}

static void plan_print_time(const struct nj_plan_time *time)
{
    char least[SIZE_BYTES], most[SIZE_BYTES];
    progress_format_duration(time->least_seconds, least, sizeof least);
    progress_format_duration(time->most_seconds, most, sizeof most);
    command_print_row("time", "very roughly %s to %s, loading the model not counted", least, most);
    command_print_row("",
                      "answers taken as 25 %% to 100 %% of their limit; from a measurement of one second just now:");
    command_print_row(
        "", "%.0f prompt tokens/s, %.0f new tokens/s (%" PRId32 " answers at once), beside whatever else runs now",
        time->prefill_tokens_per_second, time->decode_tokens_per_second, time->decode_sequences);
}

static void plan_print(const struct nj_plan_report *report, const struct nj_job_options *options)
{
    command_print_row("model", "%s", options->model_path);
    command_print_row("kernels", "%s, %d thread%s", report->kernels, report->threads, report->threads == 1 ? "" : "s");
    plan_print_input(report, options->first);
    if (report->requests == 0 || !report->fits)
        return;
    plan_print_memory(report);
    plan_print_layers(report);
    if (report->has_time)
        plan_print_time(&report->time);
}

static json_t *plan_json_bad(const struct nj_plan_report *report)
{
    json_t *lines = json_array();
    for (size_t i = 0; i < plan_bad_shown(report); i++) {
        const struct nj_error *bad = &report->totals.first_bad[i];
        json_array_append_new(lines, json_pack("{s:o, s:I, s:I, s:o}", "file", utf8_json_message(bad->file), "line",
                                               (json_int_t)bad->line, "byte", (json_int_t)bad->byte, "message",
                                               utf8_json_message(bad->message)));
    }
    return lines;
}

static json_t *plan_json_lengths(const struct nj_lengths *lengths)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "prompt_tokens", (json_int_t)lengths->prompt_tokens, "least_prompt",
        (json_int_t)lengths->least_prompt, "median_prompt", (json_int_t)lengths->median_prompt, "ninety_percent_prompt",
        (json_int_t)lengths->ninety_prompt, "most_prompt", (json_int_t)lengths->most_prompt, "most_new_tokens",
        (json_int_t)lengths->most_new_tokens, "most_new_tokens_of_a_request", (json_int_t)lengths->most_new);
}

static json_t *plan_json_memory(const struct nj_plan_report *report)
{
    const struct nj_memory_need *need = &report->plan.need;
    const struct nj_scheduler_options *scheduler = &report->plan.scheduler;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:s, s:I, s:I, s:i, s:i}", "weights_bytes",
                     (json_int_t)need->weights_bytes, "kv_bytes", (json_int_t)need->kv_bytes, "activations_bytes",
                     (json_int_t)need->other_bytes, "program_bytes", (json_int_t)need->program_bytes, "index_bytes",
                     (json_int_t)report->index_bytes, "buffers_bytes", (json_int_t)need->buffers_bytes, "sum_bytes",
                     (json_int_t)memory_need_sum(need), "limit_bytes", (json_int_t)report->limit_bytes,
                     "max_memory_bytes", report->is_cap ? json_integer((json_int_t)report->limit_bytes) : json_null(),
                     "least_limit_bytes", (json_int_t)report->plan.least_limit_bytes, "kv_type",
                     kv_type_name(scheduler->kv_type), "kv_blocks", (json_int_t)scheduler->kv_blocks, "kv_block_bytes",
                     (json_int_t)report->kv_block_bytes, "token_budget", (int)scheduler->token_budget,
                     "answers_in_flight", (int)report->sequences);
}

static json_t *plan_json_layers(const struct nj_plan_report *report)
{
    return json_pack("{s:i, s:i, s:I, s:f}", "all", (int)report->layers, "on_disk", (int)report->plan.disk_layers,
                     "sweep_read_bytes", (json_int_t)report->plan.sweep_read_bytes, "assumed_disk_bytes_per_second",
                     report->disk_bytes_per_second);
}

static json_t *plan_json_time(const struct nj_plan_time *time)
{
    return json_pack("{s:b, s:f, s:f, s:f, s:f, s:i}", "rough", 1, "least_seconds", time->least_seconds, "most_seconds",
                     time->most_seconds, "prefill_tokens_per_second", time->prefill_tokens_per_second,
                     "decode_tokens_per_second", time->decode_tokens_per_second, "decode_requests_at_once",
                     (int)time->decode_sequences);
}

static json_t *plan_json(const struct nj_plan_report *report, const struct nj_job_options *options)
{
    const struct nj_index_totals *totals = &report->totals;
    const bool is_planned = report->requests > 0, fits = is_planned && report->fits;
    return json_pack(
        "{s:i, s:o, s:s, s:i, s:I, s:I, s:I, s:o, s:I, s:o, s:b, s:o, s:o, s:o, s:o}", "schema", 1, "model",
        utf8_json_message(options->model_path), "kernels", report->kernels, "threads", report->threads, "lines",
        (json_int_t)totals->requests, "requests", (json_int_t)(totals->requests - totals->bad), "bad",
        (json_int_t)totals->bad, "first_bad", plan_json_bad(report), "planned_requests", (json_int_t)report->requests,
        "lengths", is_planned ? plan_json_lengths(&report->lengths) : json_null(), "fits",
        (int)(!is_planned || report->fits), "misfit",
        is_planned && !report->fits ? utf8_json_message(report->misfit.message) : json_null(), "memory",
        fits ? plan_json_memory(report) : json_null(), "layers", fits ? plan_json_layers(report) : json_null(), "time",
        report->has_time ? plan_json_time(&report->time) : json_null());
}

static int plan_show(struct nj_context *context, const struct nj_arguments *arguments,
                     const struct nj_job_options *options, const struct nj_plan_report *report)
{
    struct nj_error error = {0};
    if (!arguments->json)
        plan_print(report, options);
    else if (command_print_json(plan_json(report, options), &error) != 0)
        return console_report(&context->console, &error);
    int output = command_finish_output(context);
    if (output != NJ_OK)
        return output;
    return report->requests == 0 || report->fits ? NJ_OK : console_report(&context->console, &report->misfit);
}

int command_plan(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct nj_job_options options;
    if (command_take_job(context, arguments, &options, &error) != 0)
        return console_report(&context->console, &error);
    struct plan_display display = {.console = &context->console, .is_quiet = arguments->quiet};
    struct nj_job_callbacks callbacks = {.context = &display, .progress = plan_on_progress, .notice = plan_on_notice};
    struct nj_plan_report report;
    const atomic_int *stop = signals_watch();
    progress_open(&display.progress, &context->console);
    int status = plan_job(&options, &callbacks, stop, &report, &error);
    progress_close(&display.progress);
    if (status != 0)
        return console_report(&context->console, &error);
    return plan_show(context, arguments, &options, &report);
}
