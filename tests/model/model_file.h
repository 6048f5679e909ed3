/* Small GGUF files of the architectures `llama` and `qwen2` with random tensors, correct but for what a test asks to be
 * wrong. The tokenizer part is only as much as hyperparameters_read looks at. */
#ifndef NJ_TESTS_MODEL_MODEL_FILE_H
#define NJ_TESTS_MODEL_MODEL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/support/gguf_writer.h"

struct model_recipe {
    uint32_t layers, width, heads, kv_heads, head_width, feed_forward, vocabulary;
    uint32_t matrix_type, embedding_type, norm_type; /* GGUF type ids */
    bool tied;
    const char *architecture; /* NULL: "llama" */
    bool with_biases;         /* of queries, keys and values, of norm_type */
    const char *without_key, *without_tensor;
    void (*add_keys)(struct nj_gguf_writer *writer); /* further keys */
    const char *changed_tensor;                      /* gets changed_type, and changed_shape where that is not 0 */
    uint32_t changed_type;
    uint64_t changed_shape[2];
    const char *extra_tensor;
    const char *poisoned_tensor; /* its last row holds a value that cannot be converted */
    uint32_t parts;              /* 0: one file; else the tensors are shared among the files of a split model */
};

/* 2 layers, width 64, 4 heads of 24, 1 KV head, feed forward 96, vocabulary 37: no row count but the width is a
 * multiple of 16. Matrices Q4_1, embedding Q8_0, norms F32, tied. */
struct model_recipe model_recipe_small(void);

/* `path` is the first file's where there are parts: "NAME-00001-of-0000N.gguf". */
void model_file_write(const struct model_recipe *recipe, const char *path);
/* The path of part `number` (from 0) of `parts`, from the first one's. */
void model_file_part_path(const char *first, uint32_t number, uint32_t parts, char *out, size_t out_bytes);

#endif
