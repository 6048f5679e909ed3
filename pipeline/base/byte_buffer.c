#include "pipeline/base/byte_buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int byte_buffer_reserve(struct nj_byte_buffer *bytes, size_t more, struct nj_error *error)
{
    if (more > SIZE_MAX / 4 || bytes->length > SIZE_MAX / 4)
        return error_set(error, NJ_INTERNAL, "out of memory");
    size_t needed = bytes->length + more;
    if (needed <= bytes->capacity)
        return 0;
    size_t capacity = bytes->capacity == 0 ? 4096 : bytes->capacity;
    while (capacity < needed)
        capacity *= 2;
    char *grown = realloc(bytes->data, capacity);
    if (grown == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory (%zu bytes)", capacity);
    bytes->data = grown;
    bytes->capacity = capacity;
    return 0;
}

int byte_buffer_append(struct nj_byte_buffer *bytes, const void *from, size_t length, struct nj_error *error)
{
    if (length == 0)
        return 0;
    if (byte_buffer_reserve(bytes, length, error) != 0)
        return -1;
    memcpy(bytes->data + bytes->length, from, length);
    bytes->length += length;
    return 0;
}

void byte_buffer_free(struct nj_byte_buffer *bytes)
{
    free(bytes->data);
    *bytes = (struct nj_byte_buffer){0};
}
