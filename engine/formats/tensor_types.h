/* The tensor types of model files and how each becomes a weight kind of the arithmetic contract. A format
 * is added by a row in this table and a converter. */
#ifndef NJ_ENGINE_FORMATS_TENSOR_TYPES_H
#define NJ_ENGINE_FORMATS_TENSOR_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/matrix.h"

struct nj_tensor_type {
    const char *name;
    uint32_t gguf_id;
    uint32_t block_elements; /* consecutive elements of a row per block */
    uint32_t block_bytes;
    enum nj_matrix_kind kind; /* what it becomes in the pack */
    /* Converts one strip: 16 rows of `cols` elements, `row_bytes` apart (rows_present of them; the rest
     * become zero), into matrix_strip_bytes(kind, cols) bytes. Fails (NJ_BAD_DATA, without a place) on a
     * value that the contract cannot hold: a non-finite number or scale, a stored -128. */
    int (*convert_strip)(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
    /* Dequantises one row to float32, as the file's own format defines it. */
    void (*dequantize_row)(const void *row, int64_t cols, float *out);
};

const struct nj_tensor_type *tensor_type_at(size_t index);        /* NULL past the end */
const struct nj_tensor_type *tensor_type_by_gguf_id(uint32_t id); /* NULL: not read */

/* Bytes of a row of `cols` elements; 0 if cols is not a multiple of the block or the size overflows. */
size_t tensor_type_row_bytes(const struct nj_tensor_type *type, uint64_t cols);

#endif
