#include "engine/model/pack_build.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "engine/model/model_files.h"
#include "engine/model/pack_header.h"

/* Source bytes converted at once, where a strip is not larger than that. */
enum { STEP_BYTES = 1 << 20 };

struct builder {
    const struct nj_gguf *gguf;
    struct nj_pack_layout *layout;
    const char *path; /* of the temporary file */
    int fd;
    uint64_t position; /* bytes written so far */
    const atomic_int *stop;
    unsigned char *source, *converted; /* one step of any tensor */
    XXH3_state_t *hash;                /* of the tensor being written */
};

static int fail_create(const char *what, const char *path, struct nj_error *error)
{
    error_set(error, NJ_CANT_CREATE, "cannot %s the pack: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

static size_t row_bytes(const struct builder *builder, int index)
{
    return tensor_type_row_bytes(builder->layout->sources[index]->type, builder->layout->sources[index]->shape[0]);
}

/* A vector is converted in one step, as one row. */
static int64_t rows_per_step(const struct builder *builder, int index)
{
    if (builder->layout->tensors[index].is_vector)
        return 1;
    size_t strip = NJ_STRIP_ROWS * row_bytes(builder, index);
    return strip >= STEP_BYTES ? NJ_STRIP_ROWS : (int64_t)(STEP_BYTES / strip) * NJ_STRIP_ROWS;
}

static size_t converted_step_bytes(const struct builder *builder, int index)
{
    const struct nj_pack_tensor *tensor = &builder->layout->tensors[index];
    if (tensor->is_vector)
        return (size_t)tensor->bytes;
    return (size_t)(rows_per_step(builder, index) / NJ_STRIP_ROWS) * matrix_strip_bytes(tensor->kind, tensor->cols);
}

/* The layout has checked every tensor against the file's directory, so the sizes here fit the file. */
static int allocate_buffers(struct builder *builder, struct nj_error *error)
{
    size_t source = 0, converted = builder->layout->header_bytes;
    for (int i = 0; i < builder->layout->tensor_count; i++) {
        size_t step = (size_t)rows_per_step(builder, i) * row_bytes(builder, i);
        size_t out = converted_step_bytes(builder, i);
        source = step > source ? step : source;
        converted = out > converted ? out : converted;
    }
    builder->source = malloc(source);
    builder->converted = malloc(converted);
    builder->hash = XXH3_createState();
    if (builder->source == NULL || builder->converted == NULL || builder->hash == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory building the pack: %zu bytes needed", source + converted);
    return 0;
}

static int write_bytes(struct builder *builder, const void *bytes, size_t count, struct nj_error *error)
{
    if (file_write_all(builder->fd, builder->path, bytes, count, error) != 0)
        return -1;
    builder->position += count;
    return 0;
}

static int write_zeros_up_to(struct builder *builder, uint64_t offset, struct nj_error *error)
{
    static const unsigned char zeros[NJ_PACK_ALIGNMENT];
    while (builder->position < offset) {
        uint64_t left = offset - builder->position;
        if (write_bytes(builder, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros, error) != 0)
            return -1;
    }
    return 0;
}

/* Says which tensor and rows a converter refused. */
static int name_tensor(const struct builder *builder, int index, int64_t first_row, int64_t rows,
                       struct nj_error *error)
{
    char name[NJ_TENSOR_NAME_BYTES];
    pack_tensor_name(builder->layout->tensors[index].slot, builder->layout->tensors[index].layer, name);
    if (error != NULL) {
        struct nj_error cause = *error;
        error_set(error, cause.code, "tensor %s, rows %" PRId64 " to %" PRId64 ": %.800s", name, first_row,
                  first_row + rows - 1, cause.message);
    }
    return error_at(error, gguf_part_path(builder->gguf, builder->layout->sources[index]->part), 0, -1);
}

static int convert_vector(struct builder *builder, int index, struct nj_error *error)
{
    const struct nj_pack_tensor *tensor = &builder->layout->tensors[index];
    float *values = (float *)(void *)builder->converted;
    builder->layout->sources[index]->type->dequantize_row(builder->source, tensor->cols, values);
    for (int64_t i = 0; i < tensor->cols; i++) {
        if (isfinite(values[i]))
            continue;
        error_set(error, NJ_BAD_DATA, "element %" PRId64 " is not a finite number", i);
        return name_tensor(builder, index, 0, 1, error);
    }
    return 0;
}

static int convert_strips(struct builder *builder, int index, int64_t first_row, int64_t rows, struct nj_error *error)
{
    const struct nj_pack_tensor *tensor = &builder->layout->tensors[index];
    const struct nj_tensor_type *type = builder->layout->sources[index]->type;
    size_t source_row = row_bytes(builder, index), strip = matrix_strip_bytes(tensor->kind, tensor->cols);
    unsigned char *to = builder->converted;
    for (int64_t row = 0; row < rows; row += NJ_STRIP_ROWS, to += strip) {
        int present = rows - row < NJ_STRIP_ROWS ? (int)(rows - row) : NJ_STRIP_ROWS;
        const unsigned char *from = builder->source + (size_t)row * source_row;
        if (type->convert_strip(from, source_row, present, tensor->cols, to, error) != 0)
            return name_tensor(builder, index, first_row + row, present, error);
    }
    return 0;
}

/* Rows [first_row, first_row + rows): read, converted, written, added to the checksum. */
static int write_step(struct builder *builder, int index, int64_t first_row, int64_t rows, struct nj_error *error)
{
    const struct nj_pack_tensor *tensor = &builder->layout->tensors[index];
    size_t source_row = row_bytes(builder, index);
    if (gguf_read(builder->gguf, builder->layout->sources[index], (uint64_t)first_row * source_row, builder->source,
                  (size_t)rows * source_row, error) != 0)
        return -1;
    int failed = tensor->is_vector ? convert_vector(builder, index, error)
                                   : convert_strips(builder, index, first_row, rows, error);
    if (failed != 0)
        return -1;
    uint64_t left = tensor->offset + tensor->bytes - builder->position;
    size_t bytes = converted_step_bytes(builder, index);
    if (left < bytes)
        bytes = (size_t)left;
    XXH3_64bits_update(builder->hash, builder->converted, bytes);
    return write_bytes(builder, builder->converted, bytes, error);
}

static int write_tensor(struct builder *builder, int index, struct nj_error *error)
{
    struct nj_pack_tensor *tensor = &builder->layout->tensors[index];
    int64_t step_rows = rows_per_step(builder, index);
    if (write_zeros_up_to(builder, tensor->offset, error) != 0)
        return -1;
    XXH3_64bits_reset(builder->hash);
    for (int64_t row = 0; row < tensor->rows; row += step_rows) {
        int64_t rows = tensor->rows - row < step_rows ? tensor->rows - row : step_rows;
        if (builder->stop != NULL && atomic_load(builder->stop) != 0)
            return error_set(error, NJ_INTERRUPTED, "interrupted while building the pack");
        if (write_step(builder, index, row, rows, error) != 0)
            return -1;
    }
    tensor->checksum = XXH3_64bits_digest(builder->hash);
    return 0;
}

/* The header is written last, when the checksums are known. */
static int write_pack(struct builder *builder, const char *digest, struct nj_error *error)
{
    const struct nj_pack_layout *layout = builder->layout;
    if (write_zeros_up_to(builder, layout->header_bytes, error) != 0)
        return -1;
    for (int i = 0; i < layout->tensor_count; i++)
        if (write_tensor(builder, i, error) != 0)
            return -1;
    if (write_zeros_up_to(builder, layout->file_bytes, error) != 0)
        return -1;
    pack_header_write(layout, digest, builder->converted);
    if (lseek(builder->fd, 0, SEEK_SET) != 0)
        return fail_create("write the header of", builder->path, error);
    if (file_write_all(builder->fd, builder->path, builder->converted, layout->header_bytes, error) != 0)
        return -1;
    if (file_sync(builder->fd, builder->path, error) != 0)
        return -1;
    posix_fadvise(builder->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int fail_no_room(const char *path, uint64_t needed, uint64_t available, struct nj_error *error)
{
    error_set(error, NJ_CANT_CREATE,
              "not enough room for the pack: %" PRIu64 " bytes needed, %" PRIu64
              " available; free some space or choose another cache directory",
              needed, available);
    return error_at(error, path, 0, -1);
}

static int available_bytes(const char *path, uint64_t *out, struct nj_error *error)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    struct statvfs info;
    if (statvfs(dirname(copy), &info) != 0)
        return fail_create("find the free space for", path, error);
    if (!checked_mul(info.f_bavail, info.f_frsize, out))
        *out = UINT64_MAX;
    return 0;
}

/* Creates the file and takes its room at once, so that a full disk shows now and not after an hour. File systems
 * that cannot reserve are trusted to have what statvfs said. */
static int create_with_room(struct builder *builder, struct nj_error *error)
{
    uint64_t needed = builder->layout->file_bytes, available = 0;
    if (unlink(builder->path) != 0 && errno != ENOENT)
        return fail_create("remove an unfinished build of", builder->path, error);
    if (available_bytes(builder->path, &available, error) != 0)
        return -1;
    if (available < needed)
        return fail_no_room(builder->path, needed, available, error);
    builder->fd = open(builder->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (builder->fd < 0)
        return fail_create("create", builder->path, error);
    if (fallocate(builder->fd, 0, 0, (off_t)needed) != 0 && errno == ENOSPC)
        return fail_no_room(builder->path, needed, available, error);
    return 0;
}

/* The pack bears the digest that the model file had when it was opened; a file that somebody wrote to since then
 * must not get into it. */
static int build_temporary(struct builder *builder, const char *digest, struct nj_error *error)
{
    int result = -1;
    struct nj_file_identity *before = model_files_identify(builder->gguf, error);
    if (before != NULL && allocate_buffers(builder, error) == 0 && create_with_room(builder, error) == 0 &&
        write_pack(builder, digest, error) == 0)
        result = model_files_refuse_changed(builder->gguf, before, "while its pack was being built", error);
    free(before);
    return result;
}

int pack_build(const char *path, struct nj_pack_layout *layout, const struct nj_gguf *gguf, const char *digest,
               const atomic_int *stop, struct nj_error *error)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return fail_create("create", path, error);
    }
    struct builder builder = {.gguf = gguf, .layout = layout, .path = temporary, .fd = -1, .stop = stop};
    int result = build_temporary(&builder, digest, error);
    if (builder.fd >= 0 && close(builder.fd) != 0 && result == 0)
        result = fail_create("close", temporary, error);
    if (result == 0 && rename(temporary, path) != 0)
        result = fail_create("rename", path, error);
    if (result != 0 && builder.fd >= 0)
        unlink(temporary);
    free(builder.source);
    free(builder.converted);
    XXH3_freeState(builder.hash);
    return result == 0 ? file_sync_directory_of(path, error) : result;
}
