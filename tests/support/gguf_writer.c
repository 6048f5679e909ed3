#include "tests/support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bytes_add(struct nj_bytes *bytes, const void *from, size_t count)
{
    if (bytes->capacity - bytes->count < count) {
        bytes->capacity = bytes->capacity * 2 + count + 64;
        bytes->data = realloc(bytes->data, bytes->capacity);
        if (bytes->data == NULL) {
            fprintf(stderr, "out of memory for %zu bytes\n", bytes->capacity);
            abort();
        }
    }
    if (count > 0)
        memcpy(bytes->data + bytes->count, from, count);
    bytes->count += count;
}

void bytes_add_u32(struct nj_bytes *bytes, uint32_t value)
{
    bytes_add(bytes, &value, sizeof value);
}

void bytes_add_u64(struct nj_bytes *bytes, uint64_t value)
{
    bytes_add(bytes, &value, sizeof value);
}

void bytes_add_text(struct nj_bytes *bytes, const char *text)
{
    bytes_add_u64(bytes, strlen(text));
    bytes_add(bytes, text, strlen(text));
}

void bytes_add_zeros(struct nj_bytes *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes_add(bytes, "", 1);
}

void bytes_free(struct nj_bytes *bytes)
{
    free(bytes->data);
    *bytes = (struct nj_bytes){0};
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

void gguf_writer_start(struct nj_gguf_writer *writer)
{
    *writer = (struct nj_gguf_writer){.magic = {'G', 'G', 'U', 'F'}, .version = 3, .alignment = 32};
}

void gguf_writer_free(struct nj_gguf_writer *writer)
{
    bytes_free(&writer->entries);
    bytes_free(&writer->tensors);
}

static void add_key(struct nj_gguf_writer *writer, const char *key, uint32_t type)
{
    writer->entry_count++;
    bytes_add_text(&writer->entries, key);
    bytes_add_u32(&writer->entries, type);
}

void gguf_writer_add_raw(struct nj_gguf_writer *writer, const char *key, uint32_t type, const void *value, size_t bytes)
{
    add_key(writer, key, type);
    bytes_add(&writer->entries, value, bytes);
}

void gguf_writer_add_u32(struct nj_gguf_writer *writer, const char *key, uint32_t value)
{
    gguf_writer_add_raw(writer, key, GGUF_UINT32, &value, sizeof value);
}

void gguf_writer_add_f32(struct nj_gguf_writer *writer, const char *key, float value)
{
    gguf_writer_add_raw(writer, key, GGUF_FLOAT32, &value, sizeof value);
}

void gguf_writer_add_bool(struct nj_gguf_writer *writer, const char *key, bool value)
{
    uint8_t byte = value;
    gguf_writer_add_raw(writer, key, GGUF_BOOL, &byte, sizeof byte);
}

void gguf_writer_add_text(struct nj_gguf_writer *writer, const char *key, const char *value)
{
    add_key(writer, key, GGUF_STRING);
    bytes_add_text(&writer->entries, value);
}

static void add_array(struct nj_gguf_writer *writer, const char *key, uint32_t element_type, size_t count)
{
    add_key(writer, key, GGUF_ARRAY);
    bytes_add_u32(&writer->entries, element_type);
    bytes_add_u64(&writer->entries, count);
}

void gguf_writer_add_texts(struct nj_gguf_writer *writer, const char *key, const char *const *values, size_t count)
{
    add_array(writer, key, GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        bytes_add_text(&writer->entries, values[i]);
}

void gguf_writer_add_integers(struct nj_gguf_writer *writer, const char *key, const int32_t *values, size_t count)
{
    add_array(writer, key, GGUF_INT32, count);
    bytes_add(&writer->entries, values, count * sizeof *values);
}

void gguf_writer_add_tensor_at(struct nj_gguf_writer *writer, const char *name, uint32_t type_id, uint32_t dimensions,
                               const uint64_t *shape, uint64_t offset)
{
    writer->tensor_count++;
    bytes_add_text(&writer->tensors, name);
    bytes_add_u32(&writer->tensors, dimensions);
    bytes_add(&writer->tensors, shape, dimensions * sizeof *shape);
    bytes_add_u32(&writer->tensors, type_id);
    bytes_add_u64(&writer->tensors, offset);
}

void gguf_writer_add_tensor(struct nj_gguf_writer *writer, const char *name, uint32_t type_id, uint32_t dimensions,
                            const uint64_t *shape, uint64_t bytes)
{
    uint64_t offset = round_up(writer->data_bytes, writer->alignment);
    gguf_writer_add_tensor_at(writer, name, type_id, dimensions, shape, offset);
    writer->data_bytes = offset + bytes;
}

void gguf_writer_finish(const struct nj_gguf_writer *writer, struct nj_bytes *out)
{
    bytes_add(out, writer->magic, sizeof writer->magic);
    bytes_add_u32(out, writer->version);
    bytes_add_u64(out, writer->tensor_count);
    bytes_add_u64(out, writer->entry_count);
    bytes_add(out, writer->entries.data, writer->entries.count);
    bytes_add(out, writer->tensors.data, writer->tensors.count);
    bytes_add_zeros(out, round_up(out->count, writer->alignment) - out->count);
}
