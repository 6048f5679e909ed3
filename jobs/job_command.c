#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "jobs/answer.h"
#include "jobs/commands.h"
#include "jobs/progress.h"
#include "jobs/signals.h"
#include "kernels/cpu_kernels.h"
#include "pipeline/machine/machine.h"

enum { COMMAND_BYTES = 16384 };

/* One run, while it lasts. */
struct nj_job_run {
    struct nj_console *console;
    struct nj_progress_display display;
    struct nj_job_progress last;
    const char *output_directory;
    bool is_quiet;
    bool has_told_requests;
};

void job_command_apply(const struct nj_arguments *arguments, struct nj_job_options *options)
{
    if (arguments->model != NULL)
        options->model_path = arguments->model;
    if (arguments->threads > 0)
        options->threads = (int)arguments->threads;
    if (arguments->token_budget > 0)
        options->token_budget = (int32_t)arguments->token_budget;
    if (arguments->kv_memory_bytes > 0)
        options->kv_memory_bytes = arguments->kv_memory_bytes;
    if (arguments->max_memory_bytes > 0)
        options->max_memory_bytes = arguments->max_memory_bytes;
    if (arguments->kernels != NULL)
        options->kernels = arguments->kernels;
    if (arguments->cache_directory != NULL)
        options->cache_directory = arguments->cache_directory;
    if (arguments->first > 0)
        options->first = (uint64_t)arguments->first;
    options->accept = arguments->accept;
    options->retry = arguments->retry;
    options->retry_ids_path = arguments->retry_ids;
}

static void job_tell_start(struct nj_context *context, const struct nj_job_options *options)
{
    struct nj_console *console = &context->console;
    const struct nj_cpu_kernels *kernels = cpu_kernels_find(options->kernels);
    int threads = options->threads > 0 ? options->threads : machine_read("").threads;
    console_note(console, "nightjar %s", NJ_VERSION);
    console_note(console, "model     %s", options->model_path);
    console_note(console, "kernels   %s, %d thread%s", kernels != NULL ? kernels->name : "none", threads,
                 threads == 1 ? "" : "s");
    console_note(console, "defaults  max_tokens 512, temperature 0, seed 0");
    console_note(console, "output    %s", options->output_directory);
    if (options->slurm_job_id != NULL)
        console_note(console, "slurm job %s", options->slurm_job_id);
}

/* Once the input has been read: how many requests there are and what is already done. */
static void job_tell_requests(struct nj_job_run *run, const struct nj_job_progress *progress)
{
    console_note(run->console,
                 "requests  %" PRIu64 ": %" PRIu64 " to answer, %" PRIu64 " answered before, %" PRIu64 " failed%s",
                 progress->requests, progress->requests - progress->requests_done,
                 progress->requests_done - progress->requests_failed, progress->requests_failed,
                 progress->requests_failed > 0 ? " (errors.jsonl says why)" : "");
}

static void job_on_progress(void *context, const struct nj_job_progress *progress)
{
    struct nj_job_run *run = context;
    run->last = *progress;
    if (run->is_quiet)
        return;
    if (!run->has_told_requests && progress->phase >= NJ_PHASE_COMPUTE) {
        job_tell_requests(run, progress);
        run->has_told_requests = true;
    }
    progress_show(&run->display, progress);
}

static void job_on_notice(void *context, const char *line)
{
    struct nj_job_run *run = context;
    bool is_warning = strncmp(line, "warning", strlen("warning")) == 0;
    if (!run->is_quiet || is_warning)
        console_note(run->console, "%s", line);
}

static void job_on_answered(void *context, const struct nj_job_answer *answer)
{
    struct nj_job_run *run = context;
    progress_close(&run->display); /* both may be the same terminal */
    answer_print(answer, stdout);
    fflush(stdout); /* seen at once; job_command_run tells of a failure */
}

/* A word as a shell reads it: quoted unless it is plain. */
static void job_quote(const char *word, char *out, size_t out_bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:,@%+=-";
    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        snprintf(out, out_bytes, "%s", word);
        return;
    }
    size_t used = (size_t)snprintf(out, out_bytes, "'");
    for (; *word != '\0' && used + 8 < out_bytes; word++)
        used += (size_t)snprintf(out + used, out_bytes - used, *word == '\'' ? "'\\''" : "%c", *word);
    snprintf(out + used, out_bytes - used, "'");
}

/* "nightjar COMMAND DIR", ready to be pasted into a shell. */
static void job_spell_command(const struct nj_context *context, const char *command, const char *directory, char *out,
                              size_t out_bytes)
{
    char program[COMMAND_BYTES / 2 - 16], quoted[COMMAND_BYTES / 2 - 16];
    char shielded[COMMAND_BYTES / 4];
    snprintf(shielded, sizeof shielded, "%s%s", directory[0] == '-' ? "./" : "", directory);
    job_quote(context->program, program, sizeof program);
    job_quote(shielded, quoted, sizeof quoted);
    snprintf(out, out_bytes, "%s %s %s", program, command, quoted);
}

static void job_tell_end(struct nj_context *context, const struct nj_job_run *run, const struct nj_job_summary *summary)
{
    struct nj_console *console = run->console;
    char duration[64], command[COMMAND_BYTES];
    progress_format_duration(summary->seconds, duration, sizeof duration);
    job_spell_command(context, "export", run->output_directory, command, sizeof command);
    console_note(console, "finished  %" PRIu64 " of %" PRIu64 " requests answered, %" PRIu64 " failed",
                 summary->answered, summary->requests, summary->failed);
    console_note(console, "this run  %" PRIu64 " answered in %s: %" PRIu64 " prompt and %" PRIu64 " new tokens",
                 summary->computed_now, duration, summary->prompt_tokens, summary->new_tokens);
    if (summary->shared_tokens > 0)
        console_note(console, "shared    %" PRIu64 " of %" PRIu64 " prompt tokens came from prefixes computed once",
                     summary->shared_tokens, summary->prefill_tokens + summary->shared_tokens);
    console_note(console, "answers   %s/results.jsonl", run->output_directory);
    if (summary->failed > 0)
        console_note(console, "failures  %s/errors.jsonl", run->output_directory);
    console_note(console, "in order  %s", command);
}

/* What only this command line says is not noted before the input has been read. */
static bool job_needs_options_again(const struct nj_job_run *run, const struct nj_job_options *options)
{
    return run->last.phase == NJ_PHASE_INDEX && (options->accept != 0 || options->retry != 0);
}

/* Standard input that was not read to its end is not in the job's copy. */
static bool job_needs_input_again(const struct nj_job_run *run, const struct nj_job_options *options)
{
    for (size_t i = 0; i < options->input_count; i++) {
        if (strcmp(options->inputs[i], "-") == 0)
            return run->last.phase == NJ_PHASE_INDEX && !options->resume;
    }
    return false;
}

static void job_tell_interruption(struct nj_context *context, const struct nj_job_run *run,
                                  const struct nj_job_options *options, int signal_number)
{
    char command[COMMAND_BYTES];
    const char *name = signal_number > 0 ? sigabbrev_np(signal_number) : NULL;
    job_spell_command(context, "resume", run->output_directory, command, sizeof command);
    if (signal_number == 0 && options->first > 0)
        console_note(run->console, "the first %" PRIu64 " done: %" PRIu64 " of %" PRIu64 " requests have a record",
                     options->first, run->last.requests_done, run->last.requests);
    else
        console_note(run->console, "interrupted%s%s: %" PRIu64 " of %" PRIu64 " requests have a record, all is saved",
                     name != NULL ? " by SIG" : "", name != NULL ? name : "", run->last.requests_done,
                     run->last.requests);
    if (job_needs_input_again(run, options))
        console_note(run->console,
                     "to go on: the same command with the same standard input, which was not read to its end");
    else if (job_needs_options_again(run, options))
        console_note(run->console, "to go on: the same command; the input was not read to its end");
    else
        console_note(run->console, "to go on: %s", command);
}

int job_command_run(struct nj_context *context, const struct nj_job_options *options, bool is_quiet)
{
    struct nj_job_run run = {
        .console = &context->console, .output_directory = options->output_directory, .is_quiet = is_quiet};
    struct nj_job_callbacks callbacks = {&run, job_on_progress, job_on_notice, job_on_answered};
    struct nj_job_summary summary = {0};
    struct nj_error error = {0};
    const atomic_int *stop = signals_watch();
    progress_open(&run.display, run.console);
    if (!is_quiet)
        job_tell_start(context, options);
    int status = job_run(options, &callbacks, stop, &summary, &error);
    progress_close(&run.display);
    if (status != 0 && error.code != NJ_INTERRUPTED)
        return console_report(run.console, &error);
    if (status != 0)
        job_tell_interruption(context, &run, options, atomic_load(stop));
    else if (!is_quiet)
        job_tell_end(context, &run, &summary);
    if (options->first > 0 && command_finish_output(context) != NJ_OK)
        return NJ_IO_FAILED;
    return status != 0 ? NJ_INTERRUPTED : summary.failed > 0 ? NJ_SOME_FAILED : NJ_OK;
}
