/* Where everything lies in a pack: planned from the model file's tensor directory alone, so that it is known
 * before a byte is converted and so that a pack's header can be checked against it. */
#ifndef NJ_ENGINE_MODEL_PACK_LAYOUT_H
#define NJ_ENGINE_MODEL_PACK_LAYOUT_H

#include "engine/model/pack.h"

struct nj_pack_layout {
    struct nj_pack_tensor *tensors;        /* [tensor_count]; checksums are 0 */
    const struct nj_gguf_tensor **sources; /* [tensor_count], owned by the GGUF reader */
    struct nj_pack_section *sections;      /* [section_count] */
    int tensor_count, section_count;
    uint64_t header_bytes, file_bytes; /* multiples of NJ_PACK_ALIGNMENT */
};

enum { NJ_TENSOR_NAME_BYTES = 64 };

/* The tensor's name in the model file, e.g. "blk.3.attn_q.weight". */
void pack_tensor_name(enum nj_tensor_slot slot, int32_t layer, char out[NJ_TENSOR_NAME_BYTES]);

/* Checks the presence, shape and type of every tensor (NJ_BAD_DATA, by name). On success the layout's arrays are
 * the caller's, freed by pack_layout_free; on failure there is nothing to free. */
int pack_layout_plan(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, struct nj_pack_layout *out,
                     struct nj_error *error);
void pack_layout_free(struct nj_pack_layout *layout);

#endif
