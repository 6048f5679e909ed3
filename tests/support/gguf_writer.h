/* Builds the bytes of a GGUF file, good or bad: nothing that is added is checked. Running out of memory ends
 * the program. Numbers are written as the machine has them (little endian). */
#ifndef NJ_TESTS_SUPPORT_GGUF_WRITER_H
#define NJ_TESTS_SUPPORT_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/gguf.h"

/* A growing run of bytes; zero-initialise. */
struct nj_bytes {
    unsigned char *data;
    size_t count, capacity;
};
void bytes_add(struct nj_bytes *bytes, const void *from, size_t count);
void bytes_add_u32(struct nj_bytes *bytes, uint32_t value);
void bytes_add_u64(struct nj_bytes *bytes, uint64_t value);
void bytes_add_text(struct nj_bytes *bytes, const char *text); /* length as uint64, then the bytes */
void bytes_add_zeros(struct nj_bytes *bytes, size_t count);
void bytes_free(struct nj_bytes *bytes);

/* Value types of the format. */
enum nj_gguf_type {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64
};

struct nj_gguf_writer {
    /* Set by gguf_writer_start; may be changed at any time before gguf_writer_finish. */
    char magic[4];
    uint32_t version;
    uint64_t entry_count, tensor_count; /* grow by one with each addition */
    uint64_t alignment;                 /* of offsets and of the data's start; no key is written for it */
    uint64_t data_bytes;                /* where the next tensor's data begins, before alignment */
    struct nj_bytes entries, tensors;
};

void gguf_writer_start(struct nj_gguf_writer *writer);
void gguf_writer_free(struct nj_gguf_writer *writer);

void gguf_writer_add_u32(struct nj_gguf_writer *writer, const char *key, uint32_t value);
void gguf_writer_add_f32(struct nj_gguf_writer *writer, const char *key, float value);
void gguf_writer_add_bool(struct nj_gguf_writer *writer, const char *key, bool value);
void gguf_writer_add_text(struct nj_gguf_writer *writer, const char *key, const char *value);
void gguf_writer_add_texts(struct nj_gguf_writer *writer, const char *key, const char *const *values, size_t count);
void gguf_writer_add_integers(struct nj_gguf_writer *writer, const char *key, const int32_t *values, size_t count);

/* Any value: its type and then these bytes as they are. */
void gguf_writer_add_raw(struct nj_gguf_writer *writer, const char *key, uint32_t type, const void *value,
                         size_t bytes);

/* A tensor whose data follows the earlier ones'. `bytes` is its size in the file. */
void gguf_writer_add_tensor(struct nj_gguf_writer *writer, const char *name, uint32_t type_id, uint32_t dimensions,
                            const uint64_t *shape, uint64_t bytes);
/* The same at an offset of the caller's choice. */
void gguf_writer_add_tensor_at(struct nj_gguf_writer *writer, const char *name, uint32_t type_id, uint32_t dimensions,
                               const uint64_t *shape, uint64_t offset);

/* Header and directory, padded to the alignment: the tensors' data follows, each padded to the alignment. */
void gguf_writer_finish(const struct nj_gguf_writer *writer, struct nj_bytes *out);

#endif
