#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/machine/machine.h"

enum { LINE_BYTES = 16384, PATH_BYTES = 4096, CORES_MOST = 8192 };

/* What kernels use or could use, weakest first. */
static const char *const INSTRUCTIONS[] = {"avx",      "f16c",        "fma",         "avx2",
                                           "avx_vnni", "avx512f",     "avx512bw",    "avx512dq",
                                           "avx512vl", "avx512_vnni", "avx512_bf16", "amx_int8"};

/* The value of a line "NAME<tab>: VALUE"; NULL: it is another line. */
static char *value_of(char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) != 0)
        return NULL;
    char *colon = line + length + strspn(line + length, "\t ");
    if (*colon != ':')
        return NULL;
    colon[1 + strcspn(colon + 1, "\n")] = '\0';
    return colon + 1 + strspn(colon + 1, " ");
}

static bool has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

static void note_instructions(struct nj_processor *processor, const char *flags)
{
    for (size_t i = 0; i < sizeof INSTRUCTIONS / sizeof INSTRUCTIONS[0]; i++) {
        size_t used = strlen(processor->instructions);
        if (has_word(flags, INSTRUCTIONS[i]))
            snprintf(processor->instructions + used, sizeof processor->instructions - used, "%s%s", used > 0 ? " " : "",
                     INSTRUCTIONS[i]);
    }
}

/* Cores are counted by socket and number: threads of one core share both. */
struct core_set {
    long core[CORES_MOST];
    int count;
    long socket;
};

static void note_core(struct core_set *set, long number)
{
    const long core = set->socket << 20 | number;
    for (int i = 0; i < set->count; i++)
        if (set->core[i] == core)
            return;
    if (set->count < CORES_MOST)
        set->core[set->count++] = core;
}

static void note_line(struct nj_processor *processor, struct core_set *cores, char *line)
{
    const char *value;
    processor->threads += value_of(line, "processor") != NULL;
    if (processor->name[0] == '\0' && (value = value_of(line, "model name")) != NULL)
        snprintf(processor->name, sizeof processor->name, "%s", value);
    if (processor->instructions[0] == '\0' && (value = value_of(line, "flags")) != NULL)
        note_instructions(processor, value);
    if ((value = value_of(line, "physical id")) != NULL)
        cores->socket = strtol(value, NULL, 10);
    if ((value = value_of(line, "core id")) != NULL)
        note_core(cores, strtol(value, NULL, 10));
}

struct nj_processor processor_read(const char *root)
{
    struct nj_processor processor = {0};
    char path[PATH_BYTES], line[LINE_BYTES];
    struct core_set *cores = calloc(1, sizeof *cores);
    int length = snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
    while (file != NULL && cores != NULL && fgets(line, sizeof line, file) != NULL)
        note_line(&processor, cores, line);
    if (cores != NULL)
        processor.cores = cores->count;
    if (file != NULL)
        fclose(file);
    free(cores);
    return processor;
}
