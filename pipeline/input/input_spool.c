/* Which files are read from their originals and which from the job's copy. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/input/input_internal.h"

enum { STANDARD_INPUT = 0 };

static int fail_standard_input(enum nj_input_run run, struct nj_error *error)
{
    if (run == NJ_RUN_RESUME)
        return error_set(error, NJ_NO_INPUT,
                         "standard input was not read to its end before the job was stopped: run the first command "
                         "again with the same input; from then on the job has its own copy");
    return error_set(error, NJ_NO_INPUT,
                     "standard input is empty, and the job was stopped before it had a whole copy of it: give the same "
                     "input again");
}

/* The complete spool's source that is this file. A file that was named twice has two. */
static bool find_old(const struct nj_input *input, bool *taken, const struct listed_file *file, size_t *source)
{
    for (size_t i = 0; input->old != NULL && i < spool_source_count(input->old); i++) {
        const struct nj_spool_source *candidate = spool_source_at(input->old, i);
        if (!taken[i] && candidate->kind == (uint32_t)file->file.kind &&
            strcmp(candidate->path, file->file.path) == 0) {
            *source = i;
            return true;
        }
    }
    return false;
}

static bool is_unchanged(const struct nj_input *input, const struct listed_file *file, size_t source)
{
    const struct nj_spool_source *old = spool_source_at(input->old, source);
    return old->bytes == file->file.bytes && old->modified_nanoseconds == file->file.modified_nanoseconds;
}

/* Standard input is read anew if it gives anything. */
static int choose_standard_input(struct nj_input *input, struct listed_file *file, enum nj_input_run run, bool has_old,
                                 struct nj_error *error)
{
    bool empty = false;
    if (run == NJ_RUN_NEW)
        return 0;
    if (run == NJ_RUN_RESUME || (has_old && isatty(STANDARD_INPUT) == 1)) {
        file->from_old = true;
        return has_old ? 0 : fail_standard_input(run, error);
    }
    input->standard_input = byte_source_open_standard_input(input->stop, error);
    if (input->standard_input == NULL || byte_source_is_empty(input->standard_input, &empty, error) != 0)
        return -1;
    file->from_old = empty;
    return !empty || has_old ? 0 : fail_standard_input(run, error);
}

static int choose(struct nj_input *input, struct listed_file *file, enum nj_input_run run, bool *taken,
                  struct nj_error *error)
{
    size_t source = 0;
    bool has_old = find_old(input, taken, file, &source);
    file->old_source = source;
    if (file->file.kind == NJ_INPUT_STANDARD) {
        if (choose_standard_input(input, file, run, has_old, error) != 0)
            return -1;
    } else {
        file->from_old = has_old && (run == NJ_RUN_RESUME || file->missing || is_unchanged(input, file, source));
        if (file->missing && !has_old) {
            error_set(error, NJ_NO_INPUT, "no such file, and the job was stopped before it had a copy of it");
            return error_at(error, file->file.path, 0, -1);
        }
    }
    if (!file->from_old)
        return 0;
    taken[source] = true;
    file->file.bytes = spool_source_at(input->old, source)->bytes;
    file->file.modified_nanoseconds = spool_source_at(input->old, source)->modified_nanoseconds;
    return 0;
}

int input_use_spool(struct nj_input *input, const char *output_directory, enum nj_input_run run, const atomic_int *stop,
                    struct nj_error *error)
{
    bool needed = false, all_old = true;
    input->stop = stop;
    for (size_t i = 0; i < input->listed; i++)
        needed = needed || input->files[i].file.kind != NJ_INPUT_PLAIN;
    if (!needed)
        return 0;
    if (spool_open(output_directory, &input->old, error) < 0)
        return -1;
    bool *taken = calloc(input->old == NULL ? 1 : spool_source_count(input->old) + 1, sizeof *taken);
    int result = taken != NULL ? 0 : error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t i = 0; i < input->listed && result == 0; i++) {
        struct listed_file *file = &input->files[i];
        if (file->file.kind == NJ_INPUT_PLAIN)
            continue;
        result = choose(input, file, run, taken, error);
        all_old = all_old && file->from_old;
    }
    free(taken);
    if (result == 0 && !all_old) {
        input->writer = spool_create(output_directory, error);
        result = input->writer != NULL ? 0 : -1;
    }
    return result;
}

void input_use_once(struct nj_input *input, const atomic_int *stop)
{
    input->is_read_once = true;
    input->stop = stop;
}

bool input_has_whole_copy(const struct nj_input *input)
{
    return input->writer == NULL;
}

uint64_t input_copy_checksum(const struct nj_input *input)
{
    const struct nj_spool *copy = input->writer != NULL ? input->writer : input->old;
    return copy == NULL ? 0 : spool_checksum(copy);
}

int input_list_streams(struct nj_input *input, struct nj_error *error)
{
    struct nj_input_walk *walk = input_walk_create(input, error);
    if (walk == NULL)
        return -1;
    size_t file;
    int got;
    while ((got = input_walk_next(walk, &file, error)) > 0)
        input_walk_skip(walk);
    input_walk_destroy(walk);
    return got;
}

void input_forget_streams(struct nj_input *input)
{
    for (size_t i = input->listed; i < input->count; i++) {
        free(input->files[i].file.path);
        free(input->files[i].file.label);
    }
    input->count = input->listed;
}

bool input_reads_copy(const struct nj_input *input)
{
    return input->old != NULL && input->writer == NULL;
}

int input_commit_spool(struct nj_input *input, struct nj_error *error)
{
    return input->writer == NULL ? 0 : spool_commit(input->writer, error);
}
