/* The tensor half of a GGUF file's directory. */
#include "engine/formats/gguf_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"

enum { TENSOR_NAME_BYTES_MOST = 255, DIMENSIONS_MOST = 4 };
enum { TENSOR_BYTES_LEAST = 8 + 1 + 4 + 8 + 4 + 8 }; /* name length, name, dimensions, one of them, type, offset */

static int read_shape(struct nj_gguf_cursor *cursor, struct nj_gguf_tensor *tensor)
{
    uint64_t position = cursor->position;
    uint32_t dimensions;
    if (gguf_cursor_u32(cursor, &dimensions) != 0)
        return -1;
    if (dimensions < 1 || dimensions > DIMENSIONS_MOST)
        return gguf_cursor_fail(cursor, position, "%s has %" PRIu32 " dimensions, not 1 to %d", cursor->what,
                                dimensions, DIMENSIONS_MOST);
    tensor->dimensions = (int)dimensions;
    uint64_t elements = 1;
    for (int i = 0; i < DIMENSIONS_MOST; i++) {
        tensor->shape[i] = 1;
        if (i >= tensor->dimensions)
            continue;
        position = cursor->position;
        if (gguf_cursor_u64(cursor, &tensor->shape[i]) != 0)
            return -1;
        if (tensor->shape[i] == 0)
            return gguf_cursor_fail(cursor, position, "%s: dimension %d is zero", cursor->what, i + 1);
        if (!checked_mul(elements, tensor->shape[i], &elements) || elements > INT64_MAX)
            return gguf_cursor_fail(cursor, position, "%s: the number of elements overflows", cursor->what);
    }
    return 0;
}

/* A type that is not read keeps 0 bytes: its size is not known. */
static int compute_bytes(struct nj_gguf_cursor *cursor, uint64_t position, struct nj_gguf_tensor *tensor)
{
    const struct nj_tensor_type *type = tensor->type;
    if (type == NULL)
        return 0;
    if (tensor->shape[0] % type->block_elements != 0)
        return gguf_cursor_fail(cursor, position,
                                "%s: rows of %" PRIu64 " elements are not whole %s blocks of %" PRIu32, cursor->what,
                                tensor->shape[0], type->name, type->block_elements);
    uint64_t row_bytes = tensor_type_row_bytes(type, tensor->shape[0]);
    uint64_t rows = tensor->shape[1] * tensor->shape[2] * tensor->shape[3]; /* at most the checked product */
    if (row_bytes == 0 || !checked_mul(row_bytes, rows, &tensor->bytes))
        return gguf_cursor_fail(cursor, position, "%s: the size in bytes overflows", cursor->what);
    return 0;
}

/* Leaves the offset as the file has it: from the start of the data section. */
static int read_tensor(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, struct nj_gguf_tensor *tensor)
{
    if (gguf_cursor_name_text(cursor, &gguf->memory, TENSOR_NAME_BYTES_MOST, &tensor->name) != 0)
        return -1;
    gguf_cursor_name(cursor, "the tensor '%.*s'", (int)tensor->name.length, tensor->name.bytes);
    uint64_t position = cursor->position;
    if (read_shape(cursor, tensor) != 0 || gguf_cursor_u32(cursor, &tensor->type_id) != 0)
        return -1;
    tensor->type = tensor_type_by_gguf_id(tensor->type_id);
    if (compute_bytes(cursor, position, tensor) != 0)
        return -1;
    position = cursor->position;
    if (gguf_cursor_u64(cursor, &tensor->offset) != 0)
        return -1;
    if (tensor->offset % gguf->alignment != 0)
        return gguf_cursor_fail(cursor, position, "%s: the offset %" PRIu64 " is not a multiple of %" PRIu64,
                                cursor->what, tensor->offset, gguf->alignment);
    return 0;
}

static int index_tensors(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor)
{
    const struct nj_gguf_name *twice = gguf_names_sort(gguf->tensor_names, gguf->tensor_count);
    if (twice == NULL)
        return 0;
    return gguf_cursor_fail(cursor, twice->position, "the tensor '%.*s' occurs twice", (int)twice->name.length,
                            twice->name.bytes);
}

static int place_tensor(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, uint64_t data_start,
                        struct nj_gguf_tensor *tensor)
{
    uint64_t end;
    uint64_t least = tensor->type == NULL ? 1 : tensor->bytes;
    if (!checked_add(tensor->offset, data_start, &tensor->offset) || !checked_add(tensor->offset, least, &end) ||
        end > gguf->file_bytes)
        return gguf_cursor_fail(cursor, gguf->file_bytes,
                                "the tensor '%.*s' (%" PRIu64 " bytes) leaves the file, which ends at byte %" PRIu64
                                "; it is damaged or was not downloaded completely",
                                (int)tensor->name.length, tensor->name.bytes, tensor->bytes, gguf->file_bytes);
    return 0;
}

static int compare_offsets(const void *left, const void *right)
{
    const struct nj_gguf_tensor *a = *(const struct nj_gguf_tensor *const *)left;
    const struct nj_gguf_tensor *b = *(const struct nj_gguf_tensor *const *)right;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static int check_overlaps(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor)
{
    const struct nj_gguf_tensor **by_offset = gguf_memory_take(&gguf->memory, gguf->tensor_count * sizeof *by_offset);
    if (by_offset == NULL)
        return gguf_cursor_no_memory(cursor);
    for (size_t i = 0; i < gguf->tensor_count; i++)
        by_offset[i] = &gguf->tensors[i];
    qsort(by_offset, gguf->tensor_count, sizeof *by_offset, compare_offsets);
    for (size_t i = 1; i < gguf->tensor_count; i++) {
        const struct nj_gguf_tensor *before = by_offset[i - 1];
        const struct nj_gguf_tensor *tensor = by_offset[i];
        if (before->offset + before->bytes > tensor->offset || before->offset == tensor->offset)
            return gguf_cursor_fail(cursor, tensor->offset, "the tensors '%.*s' and '%.*s' overlap",
                                    (int)before->name.length, before->name.bytes, (int)tensor->name.length,
                                    tensor->name.bytes);
    }
    return 0;
}

int gguf_read_tensors(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, uint64_t count)
{
    gguf_cursor_name(cursor, "the list of tensors");
    if (gguf_cursor_check_count(cursor, count, TENSOR_BYTES_LEAST) != 0)
        return -1;
    gguf->tensors = gguf_memory_take(&gguf->memory, (size_t)count * sizeof *gguf->tensors);
    gguf->tensor_names = gguf_memory_take(&gguf->memory, (size_t)count * sizeof *gguf->tensor_names);
    if (gguf->tensors == NULL || gguf->tensor_names == NULL)
        return gguf_cursor_no_memory(cursor);
    memset(gguf->tensors, 0, (size_t)count * sizeof *gguf->tensors);
    gguf->tensor_count = (size_t)count;
    for (size_t i = 0; i < gguf->tensor_count; i++) {
        uint64_t position = cursor->position;
        gguf_cursor_name(cursor, "tensor %zu of %zu", i + 1, gguf->tensor_count);
        if (read_tensor(gguf, cursor, &gguf->tensors[i]) != 0)
            return -1;
        gguf->tensor_names[i] = (struct nj_gguf_name){gguf->tensors[i].name, i, position};
    }
    if (index_tensors(gguf, cursor) != 0)
        return -1;
    uint64_t data_start;
    if (!checked_round_up(cursor->position, gguf->alignment, &data_start))
        return gguf_cursor_fail(cursor, cursor->position, "the start of the tensor data overflows");
    for (size_t i = 0; i < gguf->tensor_count; i++)
        if (place_tensor(gguf, cursor, data_start, &gguf->tensors[i]) != 0)
            return -1;
    return check_overlaps(gguf, cursor);
}
