#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobs/commands.h"
#include "jobs/nearest.h"
#include "jobs/signals.h"
#include "kernels/cpu_kernels.h"

struct nj_command {
    const char *name;
    enum nj_command_bit bit;
    int (*run)(struct nj_context *context, const struct nj_arguments *arguments);
    const char *usage;   /* what follows the name */
    const char *summary; /* one line */
    const char *about;   /* the help text's middle; lines end in newlines */
    const char *example; /* what follows "nightjar" */
};

static const struct nj_command commands[] = {
    {"run", NJ_FOR_RUN, command_run, "-m MODEL -o DIR [OPTIONS] INPUT...",
     "answer every request of the input files, or go on where an earlier run stopped",
     "Answers every request of the INPUT files and keeps the answers in DIR. An INPUT is a .jsonl or .jsonl.gz file,\n"
     "a directory of them, a tar (.gz, .xz, .zst) or zip archive of them, or - for standard input.\n"
     "The same command continues an interrupted job.\n",
     "run -m model.gguf -o night prompts.jsonl"},
    {"resume", NJ_FOR_RESUME, command_resume, "DIR [OPTIONS]", "go on with the job in a directory",
     "Continues the job in DIR with the options it was started with. These may change from run to run:\n",
     "resume night --threads 4"},
    {"plan", NJ_FOR_PLAN, command_plan, "-m MODEL [OPTIONS] INPUT...",
     "read the input and tell what a job would need, without running it",
     "Takes the arguments of run, except --accept and --retry; reads the input once and tells what is good and bad\n"
     "in it, how long prompts are, the memory that the job needs, and very roughly its time. Writes nothing.\n"
     "Exit code 78: it would not fit.\n",
     "plan -m model.gguf prompts.jsonl"},
    {"status", NJ_FOR_STATUS, command_status, "DIR [--json]", "show how far a job is",
     "Shows how far the job in DIR is, while it runs or afterwards.\n", "status night"},
    {"export", NJ_FOR_EXPORT, command_export, "DIR [-o FILE]", "write one record per request, in input order",
     "Writes one record per request of the job in DIR, in the order of the input. Exit code 75: some have none yet.\n",
     "export night -o answers.jsonl"},
    {"doctor", NJ_FOR_DOCTOR, command_doctor, "[-m MODEL] [--json]",
     "look at this machine, or at a model before it is used",
     "What this machine is, which kernels run on it, and what it does at best, measured in a few seconds.\n"
     "With -m: what is in the model's file, whether nightjar runs it (if not, every reason; exit code 65), and the\n"
     "memory that jobs of some sizes take. No weight is read.\n",
     "doctor -m model.gguf"},
    {"pack", NJ_FOR_PACK, command_pack, "-m MODEL | --list | --remove NAME...",
     "convert a model ahead of time, or see and remove converted ones",
     "A pack is a model converted once into nightjar's own layout, in the cache directory. With -m: makes the model's\n"
     "pack now, as the first job would, and prints its path. A removed pack is built again when it is needed.\n",
     "pack --list"},
    {"bench-model", NJ_FOR_BENCH, command_bench, "-m MODEL [OPTIONS]", "measure how fast a model runs on this machine",
     "Measures reading prompts (prefill) and writing answers of several sequences at once (decode), in tokens per\n"
     "second, with the matrix products' rate beside the machine's integer peak, measured in the same run.\n"
     "What else the machine does makes every number smaller.\n",
     "bench-model -m model.gguf --threads 4"},
};

enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void main_print_usage(FILE *to)
{
    fprintf(to, "Usage: nightjar COMMAND ...\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-12s%s\n", commands[i].name, commands[i].summary);
    fprintf(to, "  %-12s%s\n", "help", "explain a command: nightjar help run");
    fprintf(to, "\n  --version  the version and that of its arithmetic\n\nExample: nightjar %s\n", commands[0].example);
}

static void main_print_help(const struct nj_command *command)
{
    printf("Usage: nightjar %s %s\n\n%s\n", command->name, command->usage, command->about);
    options_print(command->bit, stdout);
    printf("\nExample: nightjar %s\n", command->example);
}

static const struct nj_command *main_find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int main_refuse_command(struct nj_context *context, const char *name)
{
    const char *names[COMMAND_COUNT + 1] = {"help"};
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i + 1] = commands[i].name;
    const char *nearest = nearest_name(name, names, COMMAND_COUNT + 1);
    if (nearest != NULL)
        console_error(&context->console, "unknown command %s; did you mean %s?", name, nearest);
    else
        console_error(&context->console, "unknown command %s; \"nightjar help\" lists the commands", name);
    return NJ_BAD_USAGE;
}

static int main_help(struct nj_context *context, const char *topic)
{
    if (topic == NULL) {
        main_print_usage(stdout);
        return command_finish_output(context);
    }
    const struct nj_command *command = main_find_command(topic);
    if (command == NULL)
        return main_refuse_command(context, topic);
    main_print_help(command);
    return command_finish_output(context);
}

static int main_run_command(struct nj_context *context, const struct nj_command *command, const char **words,
                            size_t count)
{
    struct nj_arguments arguments;
    struct nj_error error = {0};
    if (options_parse(command->bit, words, count, &arguments, &error) != 0)
        return console_report(&context->console, &error);
    if (arguments.help)
        return main_help(context, command->name);
    return command->run(context, &arguments);
}

/* A standard descriptor that the parent closed would be taken by the next file opened, and messages would end
 * up in a job's results. */
static void main_reserve_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) < 0)
            return;
    }
}

int main(int argc, char **argv)
{
    struct nj_context context = {.program = argc > 0 ? argv[0] : "nightjar"};
    main_reserve_descriptors();
    signals_ignore_broken_pipe();
    environment_read(&context.environment);
    console_open(&context.console, context.environment.no_color, context.environment.columns);
    if (argc < 2) {
        main_print_usage(stderr);
        return NJ_BAD_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0) {
        printf("nightjar %s (arithmetic %d)\n", NJ_VERSION, NJ_ARITHMETIC_VERSION);
        return command_finish_output(&context);
    }
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return main_help(&context, argc > 2 ? argv[2] : NULL);
    const struct nj_command *command = main_find_command(name);
    if (command == NULL)
        return main_refuse_command(&context, name);
    return main_run_command(&context, command, (const char **)argv + 2, (size_t)argc - 2);
}
