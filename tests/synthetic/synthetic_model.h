/* Writes GGUF models of the architectures `llama` and `qwen2` with random weights, for tests: any shape, deterministic
 * (the same shape and seed give the same bytes on every machine). The weights are scaled so that the
 * residual stream keeps its size through the layers, logits have a spread of about 2.5, greedy decoding
 * wanders through the vocabulary and <|im_end|> comes up every few dozen tokens.
 *
 * The vocabulary directory (tests/data/synthetic, NJ_TEST_DATA "/synthetic" in test programs) holds
 * tokens.txt, merges.txt and chat_template.jinja. Control tokens: 0 <|endoftext|>, 1 <|im_start|> (BOS, not
 * added), 2 <|im_end|> (EOS). */
#ifndef NJ_TESTS_SYNTHETIC_SYNTHETIC_MODEL_H
#define NJ_TESTS_SYNTHETIC_SYNTHETIC_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"

struct nj_synthetic_shape {
    int layers, width, heads, kv_heads;
    int head_width; /* 0: width / heads */
    int feed_forward, context;
    const char *type; /* of matrices: "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k" (rows of 256),
                         "f16", "bf16" or "f32" */
    const char *embedding_type; /* of token_embd and output; NULL: as `type` */
    bool tied;                  /* no output.weight */
    uint64_t seed;
    const char *architecture; /* NULL: "llama"; "qwen2" has attention biases */
};

/* 2 layers, width 64, 4 heads, 2 KV heads, feed forward 128, context 4,096, q4_1, embedding q8_0, tied. */
struct nj_synthetic_shape synthetic_shape_small(void);

/* `template_path` NULL: the vocabulary directory's chat_template.jinja. Overwrites `path`. */
int synthetic_model_write(const struct nj_synthetic_shape *shape, const char *vocabulary_directory,
                          const char *template_path, const char *path, struct nj_error *error);

/* The small model, but in float32 and such that the logits behind this token overflow, and only those. */
enum { SYNTHETIC_FATAL_TOKEN = 300 };
int synthetic_model_write_fatal(const char *vocabulary_directory, const char *path, struct nj_error *error);

#endif
