#include "pipeline/input/byte_source.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_MILLISECONDS = 100 };

/* A file or standard input. */
struct descriptor_source {
    struct nj_byte_source source;
    int fd;
    const char *name; /* of standard input, or owned_name */
    char *owned_name;
    const atomic_int *stop;
    uint64_t taken;
    char first; /* looked at but not given yet */
    bool has_first;
};

static struct descriptor_source *descriptor_of(struct nj_byte_source *source)
{
    return (struct descriptor_source *)(void *)source;
}

static bool must_stop(const struct descriptor_source *source)
{
    return source->stop != NULL && atomic_load(source->stop) != 0;
}

static int fail_interrupted(struct nj_error *error)
{
    return error_set(error, NJ_INTERRUPTED, "interrupted while reading the input; run the same command again");
}

/* Waits until there is something to read; a regular file always has. */
static int wait_for_bytes(const struct descriptor_source *source, struct nj_error *error)
{
    struct pollfd wanted = {.fd = source->fd, .events = POLLIN};
    while (!must_stop(source)) {
        int ready = poll(&wanted, 1, WAIT_MILLISECONDS);
        if (ready > 0 || (ready < 0 && errno != EINTR))
            return 0; /* read says what is wrong */
    }
    return fail_interrupted(error);
}

static int read_descriptor(struct descriptor_source *source, void *to, size_t most, size_t *got, struct nj_error *error)
{
    ssize_t count;
    do {
        if (wait_for_bytes(source, error) != 0)
            return -1;
        count = read(source->fd, to, most);
    } while (count < 0 && (errno == EINTR || errno == EAGAIN));
    if (count < 0) {
        error_set(error, NJ_IO_FAILED, "read failed: %s", strerror(errno));
        return error_at(error, source->name, 0, -1);
    }
    *got = (size_t)count;
    return 0;
}

static int descriptor_read(struct nj_byte_source *base, void *to, size_t most, size_t *got, struct nj_error *error)
{
    struct descriptor_source *source = descriptor_of(base);
    if (source->has_first && most > 0) {
        *(char *)to = source->first;
        source->has_first = false;
        *got = 1;
    } else if (read_descriptor(source, to, most, got, error) != 0) {
        return -1;
    }
    source->taken += *got;
    return 0;
}

static int64_t file_seek(struct nj_byte_source *base, int64_t offset, int whence)
{
    return lseek(descriptor_of(base)->fd, offset, whence);
}

static void file_close(struct nj_byte_source *base)
{
    struct descriptor_source *source = descriptor_of(base);
    close(source->fd);
    free(source->owned_name);
    free(source);
}

static void standard_input_close(struct nj_byte_source *base)
{
    free(descriptor_of(base));
}

static const struct nj_byte_source_kind FILE_KIND = {descriptor_read, file_seek, file_close};
static const struct nj_byte_source_kind STANDARD_INPUT_KIND = {descriptor_read, NULL, standard_input_close};

static struct descriptor_source *create(const struct nj_byte_source_kind *kind, const atomic_int *stop,
                                        struct nj_error *error)
{
    struct descriptor_source *source = calloc(1, sizeof *source);
    if (source == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    source->source.kind = kind;
    source->stop = stop;
    return source;
}

struct nj_byte_source *byte_source_open_file(const char *path, const atomic_int *stop, struct nj_error *error)
{
    struct descriptor_source *source = create(&FILE_KIND, stop, error);
    if (source == NULL)
        return NULL;
    source->owned_name = strdup(path);
    source->name = source->owned_name;
    source->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (source->fd < 0) {
        error_set(error, NJ_NO_INPUT, "%s", strerror(errno));
        error_at(error, path, 0, -1);
    } else if (source->owned_name == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
    } else {
        return &source->source;
    }
    file_close(&source->source);
    return NULL;
}

struct nj_byte_source *byte_source_open_standard_input(const atomic_int *stop, struct nj_error *error)
{
    struct descriptor_source *source = create(&STANDARD_INPUT_KIND, stop, error);
    if (source == NULL)
        return NULL;
    source->fd = STDIN_FILENO;
    source->name = "standard input";
    return &source->source;
}

int byte_source_is_empty(struct nj_byte_source *standard_input, bool *empty, struct nj_error *error)
{
    struct descriptor_source *source = descriptor_of(standard_input);
    size_t got = 1;
    if (!source->has_first && read_descriptor(source, &source->first, 1, &got, error) != 0)
        return -1;
    source->has_first = got > 0;
    *empty = got == 0;
    return 0;
}

uint64_t byte_source_taken(const struct nj_byte_source *source)
{
    return ((const struct descriptor_source *)(const void *)source)->taken;
}

int byte_source_read(struct nj_byte_source *source, void *to, size_t most, size_t *got, struct nj_error *error)
{
    return source->kind->read(source, to, most, got, error);
}

void byte_source_close(struct nj_byte_source *source)
{
    if (source != NULL)
        source->kind->close(source);
}
