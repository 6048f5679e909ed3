/* The pack: a model converted once into the kernels' own layout, one file in the pack directory, named by
 * the model's digest and the pack version. Page-aligned, layer by layer, each tensor with an XXH3-64
 * checksum that is verified when the tensor is first read. Written under a temporary name and renamed; one
 * process builds, others wait (an open-file-description lock) and say so. docs/pack.md gives the format. */
#ifndef NJ_ENGINE_MODEL_PACK_H
#define NJ_ENGINE_MODEL_PACK_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/formats/gguf.h"
#include "engine/model/architecture.h"
#include "kernels/matrix.h"

enum { NJ_PACK_VERSION = 1, NJ_PACK_ALIGNMENT = 4096 };

/* Where a tensor belongs. Those of a layer exist once per layer. Packs store these numbers: new slots come last. */
enum nj_tensor_slot {
    NJ_SLOT_EMBEDDING,
    NJ_SLOT_ATTENTION_NORM,
    NJ_SLOT_QUERY,
    NJ_SLOT_KEY,
    NJ_SLOT_VALUE,
    NJ_SLOT_ATTENTION_OUTPUT,
    NJ_SLOT_FEED_FORWARD_NORM,
    NJ_SLOT_GATE,
    NJ_SLOT_UP,
    NJ_SLOT_DOWN,
    NJ_SLOT_OUTPUT_NORM,
    NJ_SLOT_HEAD,       /* absent when embeddings are tied */
    NJ_SLOT_QUERY_BIAS, /* these three only in architectures with attention biases */
    NJ_SLOT_KEY_BIAS,
    NJ_SLOT_VALUE_BIAS,
    NJ_SLOT_COUNT
};

/* A tensor in the pack. Vectors (norms, biases) have rows 1 and are plain float32 arrays (kind NJ_KIND_F32,
 * is_vector 1), not strips. */
struct nj_pack_tensor {
    enum nj_tensor_slot slot;
    int32_t layer; /* -1 outside the layers */
    enum nj_matrix_kind kind;
    int is_vector;
    int64_t rows, cols;
    uint64_t offset; /* from the start of the file, 64-byte aligned */
    uint64_t bytes;
    uint64_t checksum; /* XXH3-64 of the bytes */
};

/* A run of tensors that is read in one piece: embedding, one layer, or output norm and head. */
struct nj_pack_section {
    uint64_t offset, bytes; /* multiples of NJ_PACK_ALIGNMENT */
    int first_tensor, tensors;
};

struct nj_pack;

/* One line of news for people ("building the pack ...", "waiting for process 123 ..."). May be NULL. */
typedef void (*nj_notice)(void *context, const char *line);

/* Everything here is borrowed; gguf, shape, digest and strings only during pack_open, stop for the pack's life. */
struct nj_pack_options {
    const char *directory; /* made if missing */
    const struct nj_gguf *gguf;
    const struct nj_hyperparameters *shape;
    const char *model_digest; /* 32 lower-case hexadecimal digits */
    nj_notice notice;
    void *notice_context;
    const atomic_int *stop; /* non-zero: stop building, waiting or reading with NJ_INTERRUPTED; may be NULL */
};

/* Refuses (NJ_BAD_DATA, by name) a model file that lacks a tensor, has one too many, or has one of a wrong
 * shape or type. Reads no tensor data; pack_open does the same first. */
int pack_check_tensors(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, struct nj_error *error);

/* Opens the pack of this model, building it first if it is missing. A pack whose header is damaged, that was
 * cut short or that another version wrote is built anew. */
struct nj_pack *pack_open(const struct nj_pack_options *options, struct nj_error *error);
void pack_close(struct nj_pack *pack);

const char *pack_path(const struct nj_pack *pack);
int pack_section_count(const struct nj_pack *pack); /* layers + 2, in file order */
const struct nj_pack_section *pack_section_at(const struct nj_pack *pack, int index);
const struct nj_pack_tensor *pack_tensor_at(const struct nj_pack *pack, int index);
uint64_t pack_bytes(const struct nj_pack *pack); /* the whole file */

/* The open file, for reading in other ways; the pack's. */
struct nj_direct_file *pack_direct_file(const struct nj_pack *pack);
/* Compares the checksums of a section that has been read (damage: NJ_BAD_DATA naming pack, tensor and the remedy). */
int pack_check_section(const struct nj_pack *pack, int index, const void *bytes, struct nj_error *error);
/* Reads a section with direct I/O into page-aligned memory of section->bytes and compares its checksums. */
int pack_read_section(struct nj_pack *pack, int index, void *to, struct nj_error *error);

#endif
