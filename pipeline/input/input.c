#include "pipeline/input/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/input/input_internal.h"

static struct nj_input *open_input(const char *const *arguments, size_t count, bool may_lack_originals,
                                   struct nj_error *error)
{
    struct nj_input *input = calloc(1, sizeof *input);
    if (input == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    input->limits = NJ_UNPACK_LIMITS;
    input->may_lack_originals = may_lack_originals;
    if (input_list(input, arguments, count, error) == 0)
        return input;
    input_close(input);
    return NULL;
}

struct nj_input *input_open(const char *const *arguments, size_t count, struct nj_error *error)
{
    return open_input(arguments, count, false, error);
}

struct nj_input *input_open_copied(const char *const *arguments, size_t count, struct nj_error *error)
{
    return open_input(arguments, count, true, error);
}

void input_set_limits(struct nj_input *input, const struct nj_unpack_limits *limits)
{
    input->limits = *limits;
}

void input_close(struct nj_input *input)
{
    if (input == NULL)
        return;
    for (size_t i = 0; i < input->opened; i++)
        close(input->open[i].fd);
    for (size_t i = 0; i < input->count; i++) {
        free(input->files[i].file.path);
        free(input->files[i].file.label);
    }
    free(input->files);
    byte_source_close(input->standard_input);
    spool_close(input->writer);
    spool_close(input->old);
    free(input);
}

size_t input_file_count(const struct nj_input *input)
{
    return input->count;
}

const struct nj_input_file *input_file_at(const struct nj_input *input, size_t index)
{
    return &input->files[index].file;
}

/* From the ring of open ones. */
int input_descriptor(struct nj_input *input, size_t file, struct nj_error *error)
{
    for (size_t i = 0; i < input->opened; i++) {
        if (input->open[i].file == file)
            return input->open[i].fd;
    }
    const char *path = input->files[file].file.path;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error_set(error, NJ_NO_INPUT, "%s", strerror(errno));
        return error_at(error, path, 0, -1);
    }
    if (input->opened < NJ_OPEN_FILES_MOST) {
        input->open[input->opened++] = (struct open_file){.file = file, .fd = fd};
        return fd;
    }
    close(input->open[input->oldest].fd);
    input->open[input->oldest] = (struct open_file){.file = file, .fd = fd};
    input->oldest = (input->oldest + 1) % NJ_OPEN_FILES_MOST;
    return fd;
}

int input_read_at(struct nj_input *input, size_t file, uint64_t offset, void *to, size_t bytes, struct nj_error *error)
{
    const struct nj_input_file *from = &input->files[file].file;
    if (from->kind != NJ_INPUT_PLAIN)
        return spool_read(input->writer != NULL ? input->writer : input->old, from->spool_start + offset, to, bytes,
                          error);
    int fd = input_descriptor(input, file, error);
    return fd < 0 ? -1 : file_read_at(fd, from->path, to, bytes, offset, error);
}
