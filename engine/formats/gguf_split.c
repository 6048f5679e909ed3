/* Split models: NAME-00001-of-0000N.gguf holds the metadata, every part has some of the tensors. */
#include "engine/formats/gguf_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const struct nj_gguf *gguf, struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, "split.count");
    return error_at(error, gguf->path, 0, entry == NULL ? -1 : (int64_t)entry->position);
}

/* Which part of how many a file says it is; a file that says nothing is the only one. */
static int read_place(const struct nj_gguf *gguf, uint64_t *number, uint64_t *count, struct nj_error *error)
{
    *number = 0;
    *count = 1;
    if (gguf_get_u64(gguf, "split.count", UINT16_MAX, count, error) < 0)
        return -1;
    if (*count > 1 && gguf_get_u64(gguf, "split.no", UINT16_MAX, number, error) < 0)
        return -1;
    return 0;
}

/* "-00002-of-00003.gguf" */
static void print_ending(uint64_t number, uint64_t count, char out[64])
{
    snprintf(out, 64, "-%05" PRIu64 "-of-%05" PRIu64 ".gguf", number + 1, count);
}

/* The path of part `number`, from that of the first one; the caller frees it. */
static char *make_part_path(const struct nj_gguf *first, uint64_t number, uint64_t count, struct nj_error *error)
{
    char ending[64], wanted[64];
    print_ending(0, count, ending);
    print_ending(number, count, wanted);
    const size_t length = strlen(first->path), ending_length = strlen(ending);
    if (length <= ending_length || strcmp(first->path + length - ending_length, ending) != 0) {
        error_set(error, NJ_BAD_DATA,
                  "the first of %" PRIu64
                  " parts of a split model, whose name must end in %s for the others to be found",
                  count, ending);
        fail(first, error);
        return NULL;
    }
    char *path = strdup(first->path);
    if (path == NULL)
        error_set(error, NJ_INTERNAL, "out of memory opening the model file");
    else
        strcpy(path + length - ending_length, wanted);
    return path;
}

static int open_part(struct nj_gguf *first, uint64_t number, uint64_t count, struct nj_error *error)
{
    uint64_t its_number, its_count;
    char *path = make_part_path(first, number, count, error);
    if (path == NULL)
        return -1;
    struct nj_gguf *part = gguf_open_file(path, error);
    free(path);
    if (part == NULL)
        return -1;
    first->further[first->further_count++] = part;
    if (read_place(part, &its_number, &its_count, error) != 0)
        return -1;
    if (its_number == number && its_count == count)
        return 0;
    error_set(error, NJ_BAD_DATA,
              "this file is part %" PRIu64 " of %" PRIu64 " of a split model, but part %" PRIu64 " of %" PRIu64
              " is needed here",
              its_number + 1, its_count, number + 1, count);
    return fail(part, error);
}

static const struct nj_gguf *file_at(const struct nj_gguf *gguf, size_t index)
{
    return index == 0 ? gguf : gguf->further[index - 1];
}

/* The parts' tensors after the first file's own. */
static int join_tensors(struct nj_gguf *gguf, struct nj_error *error)
{
    size_t count = 0, at = 0;
    for (size_t i = 0; i <= gguf->further_count; i++)
        count += file_at(gguf, i)->tensor_count;
    struct nj_gguf_tensor *tensors = gguf_memory_take(&gguf->memory, count * sizeof *tensors);
    struct nj_gguf_name *names = gguf_memory_take(&gguf->memory, count * sizeof *names);
    if (tensors == NULL || names == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory reading the list of tensors");
        return fail(gguf, error);
    }
    for (size_t i = 0; i <= gguf->further_count; i++) {
        const struct nj_gguf *file = file_at(gguf, i);
        for (size_t t = 0; t < file->tensor_count; t++, at++) {
            tensors[at] = file->tensors[t];
            tensors[at].part = (uint32_t)i;
            names[at] = (struct nj_gguf_name){.name = tensors[at].name, .index = at};
        }
    }
    const struct nj_gguf_name *twice = gguf_names_sort(names, count);
    if (twice != NULL) {
        error_set(error, NJ_BAD_DATA, "the tensor '%.*s' is also in another part of the split model",
                  (int)twice->name.length, twice->name.bytes);
        return fail(file_at(gguf, tensors[twice->index].part), error);
    }
    gguf->tensors = tensors;
    gguf->tensor_names = names;
    gguf->tensor_count = count;
    return 0;
}

static int check_tensor_count(const struct nj_gguf *gguf, struct nj_error *error)
{
    uint64_t expected = gguf->tensor_count;
    if (gguf_get_u64(gguf, "split.tensors.count", INT32_MAX, &expected, error) < 0)
        return -1;
    if (expected == gguf->tensor_count)
        return 0;
    error_set(error, NJ_BAD_DATA, "the parts of the split model have %zu tensors together, not %" PRIu64,
              gguf->tensor_count, expected);
    return fail(gguf, error);
}

int gguf_join_parts(struct nj_gguf *gguf, struct nj_error *error)
{
    uint64_t number, count;
    if (read_place(gguf, &number, &count, error) != 0)
        return -1;
    if (count <= 1)
        return 0;
    if (number != 0) {
        error_set(error, NJ_BAD_DATA, "part %" PRIu64 " of %" PRIu64 " of a split model; name its first part",
                  number + 1, count);
        return fail(gguf, error);
    }
    gguf->further = gguf_memory_take(&gguf->memory, (size_t)(count - 1) * sizeof(struct nj_gguf *));
    if (gguf->further == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening the model file");
        return fail(gguf, error);
    }
    for (uint64_t i = 1; i < count; i++)
        if (open_part(gguf, i, count, error) != 0)
            return -1;
    return join_tensors(gguf, error) != 0 ? -1 : check_tensor_count(gguf, error);
}

size_t gguf_part_count(const struct nj_gguf *gguf)
{
    return gguf->further_count + 1;
}

const char *gguf_part_path(const struct nj_gguf *gguf, size_t index)
{
    return file_at(gguf, index)->path;
}

int gguf_read(const struct nj_gguf *gguf, const struct nj_gguf_tensor *tensor, uint64_t offset, void *to, size_t bytes,
              struct nj_error *error)
{
    return gguf_read_file(file_at(gguf, tensor->part), tensor, offset, to, bytes, error);
}
