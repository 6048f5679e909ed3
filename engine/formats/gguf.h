/* GGUF v2/v3 reader: metadata and tensor directory are read into memory, tensor data is read on demand
 * with pread (never mapped). No size from the file is used before it is checked; every kind of bad file
 * gets one error (NJ_BAD_DATA) that names the file and, where known, the byte.
 * Of a split model the first file is opened, NAME-00001-of-0000N.gguf; the others are found beside it by their names.
 * A reader may be used by several threads at once.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
#ifndef NJ_ENGINE_FORMATS_GGUF_H
#define NJ_ENGINE_FORMATS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/formats/tensor_types.h"

struct nj_gguf;

struct nj_gguf *gguf_open(const char *path, struct nj_error *error);
void gguf_close(struct nj_gguf *gguf);
const char *gguf_path(const struct nj_gguf *gguf);

/* The files of the model: one, or those of a split model in their order, the first of which is gguf_path. */
size_t gguf_part_count(const struct nj_gguf *gguf);
const char *gguf_part_path(const struct nj_gguf *gguf, size_t index);

/* A string inside the file's metadata: not NUL-terminated, lives as long as the reader. */
struct nj_text {
    const char *bytes;
    size_t length;
};

/* Metadata by key. Each getter returns 1 if found, 0 if the key is absent, -1 (error filled) if it has
 * another type or is out of the range asked for. */
int gguf_get_u64(const struct nj_gguf *gguf, const char *key, uint64_t most, uint64_t *out, struct nj_error *error);
int gguf_get_f64(const struct nj_gguf *gguf, const char *key, double *out, struct nj_error *error);
int gguf_get_bool(const struct nj_gguf *gguf, const char *key, bool *out, struct nj_error *error);
int gguf_get_text(const struct nj_gguf *gguf, const char *key, struct nj_text *out, struct nj_error *error);

/* Arrays of strings and of integers of any width. Memory belongs to the reader. Arrays of floats and bools are
 * checked but not kept. */
int gguf_get_texts(const struct nj_gguf *gguf, const char *key, const struct nj_text **out, size_t *count,
                   struct nj_error *error);
int gguf_get_integers(const struct nj_gguf *gguf, const char *key, const int64_t **out, size_t *count,
                      struct nj_error *error);

struct nj_gguf_tensor {
    struct nj_text name;
    const struct nj_tensor_type *type; /* NULL: a type that nightjar does not read; type_id says which */
    uint32_t type_id;
    int dimensions;
    uint64_t shape[4]; /* shape[0] is the row length (columns), shape[1] the number of rows */
    uint32_t part;     /* of a split model: which file holds it, from 0 */
    uint64_t offset;   /* from the start of that file */
    uint64_t bytes;    /* 0 if the type is not read: its size is not known */
};

size_t gguf_tensor_count(const struct nj_gguf *gguf);
const struct nj_gguf_tensor *gguf_tensor_at(const struct nj_gguf *gguf, size_t index);
const struct nj_gguf_tensor *gguf_tensor_find(const struct nj_gguf *gguf, const char *name); /* NULL: absent */

/* Reads bytes [offset, offset + bytes) of a tensor's data; the range is checked against the tensor. */
int gguf_read(const struct nj_gguf *gguf, const struct nj_gguf_tensor *tensor, uint64_t offset, void *to, size_t bytes,
              struct nj_error *error);

#endif
