/* What is in a model file and whether nightjar can run it, told without reading a weight: for `doctor`. Where
 * model_open stops at the first thing that it cannot run, this lists one of each kind. */
#ifndef NJ_ENGINE_MODEL_MODEL_FACTS_H
#define NJ_ENGINE_MODEL_MODEL_FACTS_H

#include "engine/model/architecture.h"

enum { NJ_MODEL_TYPES_MOST = 48, NJ_MODEL_PROBLEMS_MOST = 3 + NJ_MODEL_TYPES_MOST };

struct nj_model_type_count {
    uint32_t type_id;
    const char *name; /* of the format; NULL: a number that no published format has */
    bool is_read;
    uint64_t tensors, bytes; /* bytes 0 if the type is not read: its size is not known */
};

struct nj_model_problem {
    const char *about; /* "architecture", "tensors", "tokenizer" */
    struct nj_error why;
};

struct nj_model_facts {
    struct nj_gguf *gguf;
    struct nj_text name, architecture, tokenizer, pretokenizer; /* as the file says; length 0: it does not */
    /* What could be read of it. Unless `is_shape_known`, numbers that the file does not give in the usual place are
     * 0, and none has been checked. */
    struct nj_hyperparameters shape;
    bool is_shape_known;
    struct nj_model_type_count types[NJ_MODEL_TYPES_MOST]; /* most bytes first */
    size_t type_count;
    uint64_t tensors, tensor_bytes;
    bool has_template;
    struct nj_error template_problem; /* NJ_OK, or why chat requests cannot be run: raw prompts work all the same */
    struct nj_model_problem problems[NJ_MODEL_PROBLEMS_MOST]; /* none: nightjar runs this model */
    size_t problem_count;
};

/* NULL with NJ_NO_INPUT if there is no such file, NJ_BAD_DATA if it is not a whole GGUF file. */
struct nj_model_facts *model_facts_read(const char *path, struct nj_error *error);
void model_facts_free(struct nj_model_facts *facts);

/* Bytes of all tensors in the file; those of a pack differ by a few percent at most. */
uint64_t model_tensor_bytes(const struct nj_gguf *gguf);

#endif
