/* The first bytes of a pack. They are a pure function of the layout, the model's digest and the tensors'
 * checksums; so reading is: take the checksums out, write the header again, compare. Nothing else in the file
 * is ever believed. docs/pack.md gives the format. */
#ifndef NJ_ENGINE_MODEL_PACK_HEADER_H
#define NJ_ENGINE_MODEL_PACK_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/model/pack_layout.h"

/* Size of the header with its tables, a multiple of NJ_PACK_ALIGNMENT. */
uint64_t pack_header_bytes(int sections, int tensors);

/* Writes layout->header_bytes bytes. `digest` is 32 hexadecimal digits. */
void pack_header_write(const struct nj_pack_layout *layout, const char *digest, unsigned char *out);

/* Checks a header of layout->header_bytes bytes and sets the checksums of layout->tensors. NULL if it is good,
 * else what is wrong, as a phrase. `scratch` has layout->header_bytes bytes. */
const char *pack_header_check(struct nj_pack_layout *layout, const char *digest, const unsigned char *header,
                              unsigned char *scratch);

#endif
