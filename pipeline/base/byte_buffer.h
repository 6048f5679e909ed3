/* A growing byte buffer. Zero-initialise, free with byte_buffer_free. */
#ifndef NJ_PIPELINE_BASE_BYTE_BUFFER_H
#define NJ_PIPELINE_BASE_BYTE_BUFFER_H

#include <stddef.h>

#include "engine/base/error.h"

struct nj_byte_buffer {
    char *data;
    size_t length, capacity;
};

/* Makes room for `more` bytes behind the present length. */
int byte_buffer_reserve(struct nj_byte_buffer *bytes, size_t more, struct nj_error *error);
int byte_buffer_append(struct nj_byte_buffer *bytes, const void *from, size_t length, struct nj_error *error);
void byte_buffer_free(struct nj_byte_buffer *bytes);

#endif
