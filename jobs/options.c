#include "jobs/options.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "engine/sweep/kv_cache.h"
#include "jobs/nearest.h"
#include "jobs/values.h"
#include "kernels/cpu_kernels.h"
#include "pipeline/job/job.h"

enum { MOST_THREADS = 1024, MOST_TOKEN_BUDGET = 1000000, MOST_REQUESTS = 1000000000, MOST_BENCH_TOKENS = 1000000 };

enum nj_value_kind {
    VALUE_FLAG,
    VALUE_TEXT,
    VALUE_COUNT,
    VALUE_SIZE,
    VALUE_CAPS,
    VALUE_TIME,
    VALUE_KERNELS,
    VALUE_KV_TYPE,
    VALUE_ACCEPT,
    VALUE_RETRY
};

struct nj_option {
    const char *name; /* without the dashes */
    char letter;      /* 0: none */
    enum nj_value_kind kind;
    const char *value_name; /* in the help text; NULL for flags */
    int64_t most;           /* VALUE_COUNT: 1 to this */
    size_t offset;          /* of its field in struct nj_arguments */
    unsigned commands;      /* enum nj_command_bit, or'ed */
    const char *help;
};

enum {
    FOR_JOBS = NJ_FOR_RUN | NJ_FOR_RESUME,
    FOR_INPUT = NJ_FOR_RUN | NJ_FOR_PLAN,
    FOR_COMPUTING = FOR_JOBS | NJ_FOR_PLAN | NJ_FOR_BENCH,
    FOR_ALL = FOR_JOBS | NJ_FOR_STATUS | NJ_FOR_EXPORT | NJ_FOR_PLAN | NJ_FOR_DOCTOR | NJ_FOR_BENCH | NJ_FOR_PACK
};

#define FIELD(name) offsetof(struct nj_arguments, name)

static const struct nj_option options[] = {
    {"model", 'm', VALUE_TEXT, "FILE", 0, FIELD(model), NJ_FOR_RUN | NJ_FOR_PLAN, "the model, a GGUF file"},
    {"model", 'm', VALUE_TEXT, "FILE", 0, FIELD(model), NJ_FOR_RESUME, "where the same model is now, if it was moved"},
    {"model", 'm', VALUE_TEXT, "FILE", 0, FIELD(model), NJ_FOR_DOCTOR, "look at this model instead of the machine"},
    {"model", 'm', VALUE_TEXT, "FILE", 0, FIELD(model), NJ_FOR_BENCH | NJ_FOR_PACK, "the model, a GGUF file"},
    {"output", 'o', VALUE_TEXT, "DIR", 0, FIELD(output), NJ_FOR_RUN, "where the job lives; made if it is not there"},
    {"output", 'o', VALUE_TEXT, "DIR", 0, FIELD(output), NJ_FOR_PLAN, "as for run; not used, nothing is written"},
    {"output", 'o', VALUE_TEXT, "FILE", 0, FIELD(output), NJ_FOR_EXPORT,
     "write to FILE, replaced when complete (default: standard output)"},
    {"as-chat", 0, VALUE_FLAG, NULL, 0, FIELD(as_chat), FOR_INPUT,
     "send a raw prompt as a user's message through the chat template"},
    {"strict", 0, VALUE_FLAG, NULL, 0, FIELD(strict), FOR_INPUT, "stop at the first bad line instead of recording it"},
    {"kv-type", 0, VALUE_KV_TYPE, "TYPE", 0, FIELD(kv_type), FOR_INPUT | NJ_FOR_DOCTOR | NJ_FOR_BENCH,
     "how keys and values are kept: q8 or f16 (default: q8)"},
    {"job-time", 0, VALUE_TIME, "TIME", 0, FIELD(job_time), FOR_INPUT,
     "time for all timestamps: seconds since 1970 or ISO 8601 (default: now)"},
    {"threads", 0, VALUE_COUNT, "N", MOST_THREADS, FIELD(threads), FOR_COMPUTING | NJ_FOR_DOCTOR,
     "CPU threads (default: as many as this process may use)"},
    {"kv-memory", 0, VALUE_SIZE, "SIZE", 0, FIELD(kv_memory_bytes), FOR_JOBS | NJ_FOR_PLAN,
     "memory for keys and values, as 2GiB"},
    {"max-memory", 0, VALUE_CAPS, "cpu=SIZE", 0, FIELD(max_memory_bytes), FOR_JOBS | NJ_FOR_PLAN,
     "memory for everything (default: what the machine or cgroup has but an eighth)"},
    {"token-budget", 0, VALUE_COUNT, "N", MOST_TOKEN_BUDGET, FIELD(token_budget), FOR_COMPUTING,
     "most tokens that go through the model together"},
    {"kernels", 0, VALUE_KERNELS, "NAME", 0, FIELD(kernels), FOR_COMPUTING | NJ_FOR_DOCTOR, "instruction set: "},
    {"first", 0, VALUE_COUNT, "N", MOST_REQUESTS, FIELD(first), FOR_JOBS,
     "answer the input's first N requests only, and show them"},
    {"first", 0, VALUE_COUNT, "N", MOST_REQUESTS, FIELD(first), NJ_FOR_PLAN,
     "plan for the input's first N requests only"},
    {"prompt-tokens", 0, VALUE_COUNT, "N", MOST_BENCH_TOKENS, FIELD(prompt_tokens), NJ_FOR_BENCH,
     "length of the prompt that is read (default: 512)"},
    {"context", 0, VALUE_COUNT, "N", MOST_BENCH_TOKENS, FIELD(context_tokens), NJ_FOR_BENCH,
     "tokens that stand before each new one (default: 200)"},
    {"seconds", 0, VALUE_COUNT, "N", 3600, FIELD(seconds), NJ_FOR_BENCH,
     "for each of the measurements, about (default: 5)"},
    {"list", 0, VALUE_FLAG, NULL, 0, FIELD(list), NJ_FOR_PACK, "show the packs, the last used first"},
    {"remove", 0, VALUE_FLAG, NULL, 0, FIELD(remove), NJ_FOR_PACK, "remove the packs named, as --list shows them"},
    {"accept", 0, VALUE_ACCEPT, "WHAT", 0, FIELD(accept), FOR_JOBS,
     "go on although requests have changed (changed) or are gone (removed)"},
    {"retry", 0, VALUE_RETRY, "WHAT", 0, FIELD(retry), FOR_JOBS,
     "answer again: errors, length (what it ended), ids=FILE (one per line)"},
    {"cache-dir", 0, VALUE_TEXT, "DIR", 0, FIELD(cache_directory), FOR_COMPUTING | NJ_FOR_DOCTOR | NJ_FOR_PACK,
     "where converted models are kept (default: the user's cache)"},
    {"quiet", 0, VALUE_FLAG, NULL, 0, FIELD(quiet), FOR_COMPUTING, "only warnings and errors"},
    {"json", 0, VALUE_FLAG, NULL, 0, FIELD(json),
     NJ_FOR_STATUS | NJ_FOR_PLAN | NJ_FOR_DOCTOR | NJ_FOR_BENCH | NJ_FOR_PACK, "for programs: one JSON object"},
    {"help", 'h', VALUE_FLAG, NULL, 0, FIELD(help), FOR_ALL, "this text"},
};

enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static const struct nj_option *option_find(enum nj_command_bit command, const char *name, size_t length, char letter)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct nj_option *option = &options[i];
        bool named = name != NULL ? strlen(option->name) == length && memcmp(option->name, name, length) == 0
                                  : option->letter == letter;
        if (named && (option->commands & (unsigned)command) != 0)
            return option;
    }
    return NULL;
}

static int option_refuse_unknown(enum nj_command_bit command, const char *word, struct nj_error *error)
{
    const char *names[OPTION_COUNT];
    char typed[128];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(word, "="), word);
    for (size_t i = 0; i < OPTION_COUNT; i++)
        names[i] = (options[i].commands & (unsigned)command) != 0 ? options[i].name : NULL;
    const char *nearest = typed[1] == '-' ? nearest_name(typed + 2, names, OPTION_COUNT) : NULL;
    if (nearest != NULL)
        return error_set(error, NJ_BAD_USAGE, "unknown option %s; did you mean --%s?", typed, nearest);
    return error_set(error, NJ_BAD_USAGE, "unknown option %s; --help lists the options", typed);
}

/* "auto, avx2 or reference" */
static void option_list_kernels(char *out, size_t out_bytes)
{
    const struct nj_cpu_kernels *kernels;
    size_t used = (size_t)snprintf(out, out_bytes, "auto");
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL && used < out_bytes; i++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", cpu_kernels_at(i + 1) != NULL ? ", " : " or ",
                                 kernels->name);
}

static int option_refuse_value(const struct nj_option *option, const char *value, struct nj_error *error)
{
    char accepted[256] = "";
    switch (option->kind) {
    case VALUE_COUNT:
        snprintf(accepted, sizeof accepted, "a whole number from 1 to %lld", (long long)option->most);
        break;
    case VALUE_SIZE:
        snprintf(accepted, sizeof accepted, "a size such as 512MiB, 7GiB or 1.5G");
        break;
    case VALUE_CAPS:
        snprintf(accepted, sizeof accepted,
                 "cpu=SIZE, or SIZE alone, as cpu=3GiB or 512MiB; there is no other memory yet");
        break;
    case VALUE_TIME:
        snprintf(accepted, sizeof accepted, "seconds since 1970 or a time such as 2026-01-31T22:00:00Z");
        break;
    case VALUE_KV_TYPE:
        snprintf(accepted, sizeof accepted, "f16 or q8");
        break;
    case VALUE_KERNELS:
        option_list_kernels(accepted, sizeof accepted);
        break;
    case VALUE_ACCEPT:
        snprintf(accepted, sizeof accepted, "changed, removed or changed,removed");
        break;
    case VALUE_RETRY:
        snprintf(accepted, sizeof accepted, "errors, length, errors,length or ids=FILE");
        break;
    default:
        snprintf(accepted, sizeof accepted, "a name that is not empty");
        break;
    }
    return error_set(error, NJ_BAD_USAGE, "--%s does not take \"%.100s\"; give %s", option->name, value, accepted);
}

/* Names are checked here, so that a typo is noticed before a long input is read. */
static int option_check_kernels(const struct nj_option *option, const char *name, struct nj_error *error)
{
    const struct nj_cpu_kernels *kernels;
    if (strcmp(name, "auto") == 0)
        return 0;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++) {
        if (strcmp(name, kernels->name) != 0)
            continue;
        if (cpu_kernels_runnable(kernels))
            return 0;
        return error_set(error, NJ_UNAVAILABLE,
                         "--%s %s: this machine lacks the instructions; leave the option out to take the best it has",
                         option->name, name);
    }
    return option_refuse_value(option, name, error);
}

/* Words that are given as a list, or one by one by the same option again. */
static int option_set_accept(const char *value, unsigned *accept)
{
    static const char *const words[] = {"changed", "removed", NULL};
    static_assert(NJ_ACCEPT_CHANGED == 1 && NJ_ACCEPT_REMOVED == 2, "bits in the order of the words");
    return value_parse_words(value, words, accept);
}

static int option_set_retry(const char *value, struct nj_arguments *arguments, struct nj_error *error)
{
    static const char *const words[] = {"errors", "length", NULL};
    static_assert(NJ_RETRY_ERRORS == 1 && NJ_RETRY_LENGTH == 2, "bits in the order of the words");
    static const char ids[] = "ids=";
    if (strncmp(value, ids, strlen(ids)) != 0)
        return value_parse_words(value, words, &arguments->retry);
    if (value[strlen(ids)] == '\0')
        return -1;
    if (arguments->retry_ids != NULL) {
        error_set(error, NJ_BAD_USAGE, "--retry ids=FILE is given twice; put all ids into one file");
        return -2;
    }
    arguments->retry |= NJ_RETRY_IDS;
    arguments->retry_ids = value + strlen(ids);
    return 0;
}

static int option_set_caps(const char *value, uint64_t *cpu_bytes)
{
    static const char cpu[] = "cpu=";
    return value_parse_size(strncmp(value, cpu, strlen(cpu)) == 0 ? value + strlen(cpu) : value, cpu_bytes);
}

static int option_set(const struct nj_option *option, const char *value, struct nj_arguments *arguments,
                      struct nj_error *error)
{
    void *field = (char *)arguments + option->offset;
    enum nj_kv_type kv_type;
    int bad = 0;
    switch (option->kind) {
    case VALUE_FLAG:
        *(bool *)field = true;
        break;
    case VALUE_COUNT:
        bad = value_parse_count(value, 1, option->most, field);
        break;
    case VALUE_SIZE:
        bad = value_parse_size(value, field);
        break;
    case VALUE_CAPS:
        bad = option_set_caps(value, field);
        break;
    case VALUE_TIME:
        bad = value_parse_time(value, field);
        break;
    case VALUE_KERNELS:
        if (option_check_kernels(option, value, error) != 0)
            return -1;
        *(const char **)field = value;
        break;
    case VALUE_KV_TYPE:
        bad = kv_type_find(value, &kv_type);
        *(const char **)field = value;
        break;
    case VALUE_ACCEPT:
        bad = option_set_accept(value, field);
        break;
    case VALUE_RETRY:
        bad = option_set_retry(value, arguments, error);
        if (bad < -1)
            return -1;
        break;
    case VALUE_TEXT:
        bad = value[0] == '\0';
        *(const char **)field = value;
        break;
    }
    return bad ? option_refuse_value(option, value, error) : 0;
}

/* Parses the option in words[*index]; moves *index to the word of its value if that is a separate one. */
static int option_parse_word(enum nj_command_bit command, const char **words, size_t count, size_t *index,
                             struct nj_arguments *out, struct nj_error *error)
{
    const char *word = words[*index];
    const struct nj_option *option;
    const char *value = NULL;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        option = option_find(command, word + 2, length, 0);
        value = word[2 + length] == '=' ? word + 3 + length : NULL;
    } else {
        option = option_find(command, NULL, 0, word[1]);
        value = word[2] != '\0' ? word + 2 : NULL;
    }
    if (option == NULL)
        return option_refuse_unknown(command, word, error);
    if (option->kind == VALUE_FLAG && value != NULL)
        return error_set(error, NJ_BAD_USAGE, "--%s takes no value", option->name);
    if (option->kind != VALUE_FLAG && value == NULL) {
        if (*index + 1 >= count)
            return error_set(error, NJ_BAD_USAGE, "--%s needs a value: --%s %s", option->name, option->name,
                             option->value_name);
        value = words[++*index];
    }
    return option_set(option, value, out, error);
}

int options_parse(enum nj_command_bit command, const char **words, size_t count, struct nj_arguments *out,
                  struct nj_error *error)
{
    bool options_ended = false;
    *out = (struct nj_arguments){.job_time = -1, .operands = words};
    for (size_t i = 0; i < count; i++) {
        const char *word = words[i];
        if (!options_ended && strcmp(word, "--") == 0)
            options_ended = true;
        else if (options_ended || word[0] != '-' || word[1] == '\0')
            words[out->operand_count++] = word; /* never ahead of i: only words already read are replaced */
        else if (option_parse_word(command, words, count, &i, out, error) != 0)
            return -1;
    }
    return 0;
}

void options_print(enum nj_command_bit command, FILE *to)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct nj_option *option = &options[i];
        char names[64];
        if ((option->commands & (unsigned)command) == 0)
            continue;
        int used = option->letter != 0 ? snprintf(names, sizeof names, "-%c, ", option->letter)
                                       : snprintf(names, sizeof names, "    ");
        snprintf(names + used, sizeof names - (size_t)used, "--%s%s%s", option->name,
                 option->value_name != NULL ? " " : "", option->value_name != NULL ? option->value_name : "");
        char kernels[128] = "";
        if (option->kind == VALUE_KERNELS)
            option_list_kernels(kernels, sizeof kernels);
        fprintf(to, "  %-22s %s%s\n", names, option->help, kernels);
    }
}
