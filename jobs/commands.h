/* The commands. Each returns the process's exit code. */
#ifndef NJ_JOBS_COMMANDS_H
#define NJ_JOBS_COMMANDS_H

#include <jansson.h>

#include "jobs/console.h"
#include "jobs/environment.h"
#include "jobs/options.h"
#include "pipeline/job/job.h"

struct nj_context {
    const char *program; /* as it was called, for commands that messages suggest */
    struct nj_environment environment;
    struct nj_console console;
};

int command_run(struct nj_context *context, const struct nj_arguments *arguments);
int command_resume(struct nj_context *context, const struct nj_arguments *arguments);
int command_status(struct nj_context *context, const struct nj_arguments *arguments);
int command_export(struct nj_context *context, const struct nj_arguments *arguments);
int command_plan(struct nj_context *context, const struct nj_arguments *arguments);
int command_doctor(struct nj_context *context, const struct nj_arguments *arguments);
int command_pack(struct nj_context *context, const struct nj_arguments *arguments);
int command_bench(struct nj_context *context, const struct nj_arguments *arguments);

/* What run and resume share: runs the job until it ends or a signal stops it, and tells how it goes. */
int job_command_run(struct nj_context *context, const struct nj_job_options *options, bool is_quiet);

/* Lays what the command line says about a run over `options`: what may change from one run to the next. */
void job_command_apply(const struct nj_arguments *arguments, struct nj_job_options *options);

/* The job that the command line of run and plan describes: NJ_BAD_USAGE without a model, input or cache directory.
 * output_directory is NULL if none was given. */
int command_take_job(const struct nj_context *context, const struct nj_arguments *arguments,
                     struct nj_job_options *options, struct nj_error *error);

/* NJ_BAD_USAGE unless there is exactly one operand, the job's directory. */
int command_need_directory(const struct nj_arguments *arguments, const char **out, struct nj_error *error);

/* NJ_BAD_USAGE without -m; with an operand that the command does not take. */
int command_need_model(const struct nj_arguments *arguments, struct nj_error *error);
int command_need_no_operand(const struct nj_arguments *arguments, struct nj_error *error);

/* The cache directory: as the command line says, else the environment's. NJ_BAD_USAGE if there is neither. */
int command_need_cache(const struct nj_context *context, const struct nj_arguments *arguments, const char **out,
                       struct nj_error *error);

/* "NAME      TEXT", control characters escaped, on standard output; an empty name continues the row above. */
void command_print_row(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the object on one line of standard output and frees it; NULL is NJ_INTERNAL, as when it could not be made. */
int command_print_json(json_t *object, struct nj_error *error);

/* Flushes standard output: 0, or the exit code after a message if that fails (a full disk, a closed pipe). */
int command_finish_output(struct nj_context *context);

#endif
