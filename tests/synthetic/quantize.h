/* Float rows to the tensor types of model files: what a model's maker does, plainly. */
#ifndef NJ_TESTS_SYNTHETIC_QUANTIZE_H
#define NJ_TESTS_SYNTHETIC_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/formats/tensor_types.h"

struct nj_quantizer {
    const char *name; /* as on make_model's command line */
    uint32_t gguf_id;
    /* `cols` is a multiple of the type's block; `out` has tensor_type_row_bytes. */
    void (*quantize_row)(const float *row, int64_t cols, unsigned char *out);
};

const struct nj_quantizer *quantizer_find(const char *name); /* NULL: unknown */

#endif
