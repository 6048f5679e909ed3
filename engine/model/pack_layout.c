#include "engine/model/pack_layout.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/model/pack_header.h"

enum { TENSOR_ALIGNMENT = 64, SHAPE_TEXT_BYTES = 96 };

enum place { PLACE_EMBEDDING, PLACE_LAYER, PLACE_OUTPUT };

/* Which hyperparameter a dimension must equal. */
enum extent { EXTENT_ONE, EXTENT_WIDTH, EXTENT_FEED_FORWARD, EXTENT_QUERIES, EXTENT_KEYS, EXTENT_VOCABULARY };

/* Which models have a tensor; all others must not have it. */
enum presence { IN_ALL, IF_UNTIED, IF_BIASED };

/* Every tensor of a model, in the order of nj_tensor_slot, which is also the order within a section. */
static const struct slot {
    const char *name; /* in the model file; %d is the layer */
    enum place place;
    bool is_vector;
    enum extent rows, cols;
    enum presence presence;
} slots[NJ_SLOT_COUNT] = {
    [NJ_SLOT_EMBEDDING] = {"token_embd.weight", PLACE_EMBEDDING, false, EXTENT_VOCABULARY, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_ATTENTION_NORM] = {"blk.%d.attn_norm.weight", PLACE_LAYER, true, EXTENT_ONE, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_QUERY] = {"blk.%d.attn_q.weight", PLACE_LAYER, false, EXTENT_QUERIES, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_KEY] = {"blk.%d.attn_k.weight", PLACE_LAYER, false, EXTENT_KEYS, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_VALUE] = {"blk.%d.attn_v.weight", PLACE_LAYER, false, EXTENT_KEYS, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_ATTENTION_OUTPUT] = {"blk.%d.attn_output.weight", PLACE_LAYER, false, EXTENT_WIDTH, EXTENT_QUERIES,
                                  IN_ALL},
    [NJ_SLOT_FEED_FORWARD_NORM] = {"blk.%d.ffn_norm.weight", PLACE_LAYER, true, EXTENT_ONE, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_GATE] = {"blk.%d.ffn_gate.weight", PLACE_LAYER, false, EXTENT_FEED_FORWARD, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_UP] = {"blk.%d.ffn_up.weight", PLACE_LAYER, false, EXTENT_FEED_FORWARD, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_DOWN] = {"blk.%d.ffn_down.weight", PLACE_LAYER, false, EXTENT_WIDTH, EXTENT_FEED_FORWARD, IN_ALL},
    [NJ_SLOT_OUTPUT_NORM] = {"output_norm.weight", PLACE_OUTPUT, true, EXTENT_ONE, EXTENT_WIDTH, IN_ALL},
    [NJ_SLOT_HEAD] = {"output.weight", PLACE_OUTPUT, false, EXTENT_VOCABULARY, EXTENT_WIDTH, IF_UNTIED},
    [NJ_SLOT_QUERY_BIAS] = {"blk.%d.attn_q.bias", PLACE_LAYER, true, EXTENT_ONE, EXTENT_QUERIES, IF_BIASED},
    [NJ_SLOT_KEY_BIAS] = {"blk.%d.attn_k.bias", PLACE_LAYER, true, EXTENT_ONE, EXTENT_KEYS, IF_BIASED},
    [NJ_SLOT_VALUE_BIAS] = {"blk.%d.attn_v.bias", PLACE_LAYER, true, EXTENT_ONE, EXTENT_KEYS, IF_BIASED},
};

static uint64_t extent_value(enum extent extent, const struct nj_hyperparameters *shape)
{
    switch (extent) {
    case EXTENT_ONE:
        return 1;
    case EXTENT_WIDTH:
        return (uint64_t)shape->width;
    case EXTENT_FEED_FORWARD:
        return (uint64_t)shape->feed_forward;
    case EXTENT_QUERIES:
        return (uint64_t)shape->heads * (uint64_t)shape->head_width;
    case EXTENT_KEYS:
        return (uint64_t)shape->kv_heads * (uint64_t)shape->head_width;
    case EXTENT_VOCABULARY:
        return (uint64_t)shape->vocabulary;
    }
    return 0;
}

static bool is_present(const struct slot *slot, const struct nj_hyperparameters *shape)
{
    switch (slot->presence) {
    case IN_ALL:
        return true;
    case IF_UNTIED:
        return !shape->tied_embeddings;
    case IF_BIASED:
        return shape->architecture->has_attention_biases;
    }
    return false;
}

void pack_tensor_name(enum nj_tensor_slot slot, int32_t layer, char out[NJ_TENSOR_NAME_BYTES])
{
    const char *name = slots[slot].name, *hole = strstr(name, "%d");
    if (hole == NULL)
        snprintf(out, NJ_TENSOR_NAME_BYTES, "%s", name);
    else
        snprintf(out, NJ_TENSOR_NAME_BYTES, "%.*s%" PRId32 "%s", (int)(hole - name), name, layer, hole + 2);
}

/* "576 x 1536": row length first, as the file stores it. */
static void shape_print(const uint64_t *extents, int dimensions, char out[SHAPE_TEXT_BYTES])
{
    size_t length = 0;
    out[0] = '\0';
    for (int i = 0; i < dimensions && length < SHAPE_TEXT_BYTES; i++)
        length +=
            (size_t)snprintf(out + length, SHAPE_TEXT_BYTES - length, "%s%" PRIu64, i == 0 ? "" : " x ", extents[i]);
}

static int check_shape(const struct nj_gguf_tensor *source, const char *name, const struct slot *slot,
                       const struct nj_hyperparameters *shape, struct nj_error *error)
{
    uint64_t expected[2] = {extent_value(slot->cols, shape), extent_value(slot->rows, shape)};
    int dimensions = slot->is_vector ? 1 : 2;
    if (source->dimensions == dimensions &&
        memcmp(source->shape, expected, (size_t)dimensions * sizeof expected[0]) == 0)
        return 0;
    char found_text[SHAPE_TEXT_BYTES], expected_text[SHAPE_TEXT_BYTES];
    shape_print(source->shape, source->dimensions, found_text);
    shape_print(expected, dimensions, expected_text);
    return error_set(error, NJ_BAD_DATA, "tensor %s is %s, expected %s", name, found_text, expected_text);
}

/* The names of the readable types, those that fit a vector only if asked so. */
static void types_print(bool vectors, char *out, size_t out_bytes)
{
    size_t length = 0;
    const struct nj_tensor_type *type;
    for (size_t i = 0; (type = tensor_type_at(i)) != NULL && length < out_bytes; i++)
        if (!vectors || matrix_kind_info(type->kind)->is_float)
            length += (size_t)snprintf(out + length, out_bytes - length, "%s%s", length == 0 ? "" : ", ", type->name);
}

static int check_type(const struct nj_gguf_tensor *source, const char *name, bool is_vector, struct nj_error *error)
{
    char known[256] = "";
    types_print(is_vector, known, sizeof known);
    if (source->type == NULL)
        return error_set(error, NJ_BAD_DATA, "tensor %s has type number %" PRIu32 "; nightjar reads: %s", name,
                         source->type_id, known);
    if (is_vector && !matrix_kind_info(source->type->kind)->is_float)
        return error_set(error, NJ_BAD_DATA, "tensor %s is %s; a vector must be one of: %s", name, source->type->name,
                         known);
    return 0;
}

static uint64_t tensor_bytes(const struct nj_pack_tensor *tensor)
{
    if (tensor->is_vector)
        return (uint64_t)tensor->cols * sizeof(float);
    return matrix_bytes(tensor->kind, tensor->rows, tensor->cols);
}

/* Appends one tensor at *offset, which moves past it. */
static int add_tensor(struct nj_pack_layout *layout, const struct nj_gguf *gguf, const struct nj_hyperparameters *shape,
                      enum nj_tensor_slot slot_id, int32_t layer, uint64_t *offset, struct nj_error *error)
{
    const struct slot *slot = &slots[slot_id];
    char name[NJ_TENSOR_NAME_BYTES];
    pack_tensor_name(slot_id, layer, name);
    const struct nj_gguf_tensor *source = gguf_tensor_find(gguf, name);
    if (source == NULL)
        return error_set(error, NJ_BAD_DATA, "the model file has no tensor %s", name);
    if (check_shape(source, name, slot, shape, error) != 0 || check_type(source, name, slot->is_vector, error) != 0)
        return -1;
    struct nj_pack_tensor tensor = {.slot = slot_id,
                                    .layer = layer,
                                    .kind = slot->is_vector ? NJ_KIND_F32 : source->type->kind,
                                    .is_vector = slot->is_vector,
                                    .rows = (int64_t)extent_value(slot->rows, shape),
                                    .cols = (int64_t)extent_value(slot->cols, shape)};
    tensor.bytes = tensor_bytes(&tensor);
    if (tensor.bytes == 0 || tensor_type_row_bytes(source->type, source->shape[0]) == 0 ||
        !checked_round_up(*offset, TENSOR_ALIGNMENT, &tensor.offset) ||
        !checked_add(tensor.offset, tensor.bytes, offset))
        return error_set(error, NJ_BAD_DATA, "tensor %s has an impossible size", name);
    layout->sources[layout->tensor_count] = source;
    layout->tensors[layout->tensor_count++] = tensor;
    return 0;
}

static int add_section(struct nj_pack_layout *layout, const struct nj_gguf *gguf,
                       const struct nj_hyperparameters *shape, enum place place, int32_t layer, struct nj_error *error)
{
    struct nj_pack_section section = {.offset = layout->file_bytes, .first_tensor = layout->tensor_count};
    uint64_t end = section.offset;
    for (int slot = 0; slot < NJ_SLOT_COUNT; slot++) {
        if (slots[slot].place != place || !is_present(&slots[slot], shape))
            continue;
        if (add_tensor(layout, gguf, shape, (enum nj_tensor_slot)slot, layer, &end, error) != 0)
            return -1;
    }
    if (!checked_round_up(end, NJ_PACK_ALIGNMENT, &layout->file_bytes))
        return error_set(error, NJ_BAD_DATA, "the model is too large");
    section.bytes = layout->file_bytes - section.offset;
    section.tensors = layout->tensor_count - section.first_tensor;
    layout->sections[layout->section_count++] = section;
    return 0;
}

static bool is_planned(const struct nj_pack_layout *layout, const struct nj_gguf_tensor *source)
{
    for (int i = 0; i < layout->tensor_count; i++)
        if (layout->sources[i] == source)
            return true;
    return false;
}

/* A tensor that has no place would be left out of the computation: the answers would be wrong. */
static int refuse_extra_tensors(const struct nj_pack_layout *layout, const struct nj_gguf *gguf, struct nj_error *error)
{
    size_t count = gguf_tensor_count(gguf);
    if (count == (size_t)layout->tensor_count)
        return 0; /* names are distinct, so these are the planned ones */
    for (size_t i = 0; i < count; i++) {
        const struct nj_gguf_tensor *source = gguf_tensor_at(gguf, i);
        int shown = source->name.length < 64 ? (int)source->name.length : 64;
        if (!is_planned(layout, source))
            return error_set(error, NJ_BAD_DATA,
                             "the model has a tensor %.*s, which nightjar does not know in this architecture", shown,
                             source->name.bytes);
    }
    return 0;
}

/* Tensors of each place, to size the arrays. */
static int count_slots(enum place place, const struct nj_hyperparameters *shape)
{
    int count = 0;
    for (int slot = 0; slot < NJ_SLOT_COUNT; slot++)
        count += slots[slot].place == place && is_present(&slots[slot], shape);
    return count;
}

static int plan_sections(struct nj_pack_layout *layout, const struct nj_gguf *gguf,
                         const struct nj_hyperparameters *shape, struct nj_error *error)
{
    if (add_section(layout, gguf, shape, PLACE_EMBEDDING, -1, error) != 0)
        return -1;
    for (int32_t layer = 0; layer < shape->layers; layer++)
        if (add_section(layout, gguf, shape, PLACE_LAYER, layer, error) != 0)
            return -1;
    if (add_section(layout, gguf, shape, PLACE_OUTPUT, -1, error) != 0)
        return -1;
    return refuse_extra_tensors(layout, gguf, error);
}

int pack_layout_plan(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, struct nj_pack_layout *out,
                     struct nj_error *error)
{
    memset(out, 0, sizeof *out);
    int sections = shape->layers + 2;
    int tensors = count_slots(PLACE_EMBEDDING, shape) + shape->layers * count_slots(PLACE_LAYER, shape) +
                  count_slots(PLACE_OUTPUT, shape);
    out->header_bytes = pack_header_bytes(sections, tensors);
    out->file_bytes = out->header_bytes;
    out->sections = calloc((size_t)sections, sizeof *out->sections);
    out->tensors = calloc((size_t)tensors, sizeof *out->tensors);
    out->sources = calloc((size_t)tensors, sizeof *out->sources);
    int result = 0;
    if (out->sections == NULL || out->tensors == NULL || out->sources == NULL)
        result = error_set(error, NJ_INTERNAL, "out of memory planning the pack");
    else if (plan_sections(out, gguf, shape, error) != 0)
        result = error_at(error, gguf_path(gguf), 0, -1);
    if (result != 0)
        pack_layout_free(out);
    return result;
}

void pack_layout_free(struct nj_pack_layout *layout)
{
    free(layout->sections);
    free(layout->tensors);
    free(layout->sources);
    memset(layout, 0, sizeof *layout);
}

int pack_check_tensors(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, struct nj_error *error)
{
    struct nj_pack_layout layout;
    if (pack_layout_plan(gguf, shape, &layout, error) != 0)
        return -1;
    pack_layout_free(&layout);
    return 0;
}
