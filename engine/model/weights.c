#include "engine/model/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/pack_layout.h"

/* What blank weights are filled with: small numbers in every kind, none of them subnormal. */
enum { BLANK_FILL = 0x11, BLANK_ALIGNMENT = 64 };

struct nj_weights {
    struct nj_buffer **sections; /* [section_count], each holds one section of the pack */
    int section_count;
    struct nj_layer_weights *layers;
    struct nj_matrix embedding, head;
    const float *output_norm;
};

static void place_tensor(struct nj_weights *weights, const struct nj_pack_tensor *tensor, const void *address)
{
    struct nj_matrix matrix = {.kind = tensor->kind, .rows = tensor->rows, .cols = tensor->cols, .data = address};
    struct nj_layer_weights *layer = tensor->layer < 0 ? NULL : &weights->layers[tensor->layer];
    switch (tensor->slot) {
    case NJ_SLOT_EMBEDDING:
        weights->embedding = matrix;
        weights->head = matrix; /* replaced if the model has a head of its own */
        break;
    case NJ_SLOT_ATTENTION_NORM:
        layer->attention_norm = address;
        break;
    case NJ_SLOT_QUERY:
        layer->query = matrix;
        break;
    case NJ_SLOT_KEY:
        layer->key = matrix;
        break;
    case NJ_SLOT_VALUE:
        layer->value = matrix;
        break;
    case NJ_SLOT_ATTENTION_OUTPUT:
        layer->attention_output = matrix;
        break;
    case NJ_SLOT_FEED_FORWARD_NORM:
        layer->feed_forward_norm = address;
        break;
    case NJ_SLOT_GATE:
        layer->gate = matrix;
        break;
    case NJ_SLOT_UP:
        layer->up = matrix;
        break;
    case NJ_SLOT_DOWN:
        layer->down = matrix;
        break;
    case NJ_SLOT_OUTPUT_NORM:
        weights->output_norm = address;
        break;
    case NJ_SLOT_HEAD:
        weights->head = matrix;
        break;
    case NJ_SLOT_QUERY_BIAS:
        layer->query_bias = address;
        break;
    case NJ_SLOT_KEY_BIAS:
        layer->key_bias = address;
        break;
    case NJ_SLOT_VALUE_BIAS:
        layer->value_bias = address;
        break;
    case NJ_SLOT_COUNT:
        break;
    }
}

static int load_section(struct nj_weights *weights, struct nj_pack *pack, int index, struct nj_device *device,
                        struct nj_error *error)
{
    const struct nj_pack_section *section = pack_section_at(pack, index);
    struct nj_buffer *buffer = buffer_create(device, (size_t)section->bytes);
    if (buffer == NULL)
        return error_set(error, NJ_DOES_NOT_FIT,
                         "the weights need %" PRIu64 " bytes of memory and only part of that could be had; free memory "
                         "or use a smaller model",
                         pack_bytes(pack));
    weights->sections[index] = buffer;
    char *address = buffer_address(buffer);
    if (pack_read_section(pack, index, address, error) != 0)
        return -1;
    for (int i = 0; i < section->tensors; i++) {
        const struct nj_pack_tensor *tensor = pack_tensor_at(pack, section->first_tensor + i);
        place_tensor(weights, tensor, address + (tensor->offset - section->offset));
    }
    return 0;
}

struct nj_weights *weights_load(struct nj_pack *pack, const struct nj_hyperparameters *shape, struct nj_device *device,
                                struct nj_error *error)
{
    struct nj_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL)
        goto out_of_memory;
    weights->section_count = pack_section_count(pack);
    weights->sections = calloc((size_t)weights->section_count, sizeof *weights->sections);
    weights->layers = calloc((size_t)shape->layers, sizeof *weights->layers);
    if (weights->sections == NULL || weights->layers == NULL)
        goto out_of_memory;
    for (int i = 0; i < weights->section_count; i++)
        if (load_section(weights, pack, i, device, error) != 0)
            goto failed;
    return weights;
out_of_memory:
    error_set(error, NJ_INTERNAL, "out of memory loading the weights");
failed:
    weights_destroy(weights);
    return NULL;
}

/* The tensor as a model of fewer layers and words has it; 0 bytes: it has not. */
static struct nj_pack_tensor cut_tensor(const struct nj_pack_tensor *tensor, int32_t layers, int32_t vocabulary)
{
    struct nj_pack_tensor cut = *tensor;
    if (cut.layer >= layers)
        cut.bytes = 0;
    if (cut.slot == NJ_SLOT_EMBEDDING || cut.slot == NJ_SLOT_HEAD) {
        cut.rows = vocabulary < cut.rows ? vocabulary : cut.rows;
        cut.bytes = matrix_bytes(cut.kind, cut.rows, cut.cols);
    }
    return cut;
}

static uint64_t blank_bytes(const struct nj_pack_tensor *tensor)
{
    return (tensor->bytes + BLANK_ALIGNMENT - 1) / BLANK_ALIGNMENT * BLANK_ALIGNMENT;
}

static int fill_blank(struct nj_weights *weights, const struct nj_pack_layout *layout, int32_t layers,
                      int32_t vocabulary, struct nj_device *device, struct nj_error *error)
{
    uint64_t bytes = 0;
    for (int i = 0; i < layout->tensor_count; i++) {
        const struct nj_pack_tensor tensor = cut_tensor(&layout->tensors[i], layers, vocabulary);
        bytes += blank_bytes(&tensor);
    }
    weights->layers = calloc((size_t)layers, sizeof *weights->layers);
    weights->sections = calloc(1, sizeof *weights->sections);
    weights->section_count = 1;
    if (weights->layers == NULL || weights->sections == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    weights->sections[0] = buffer_create(device, (size_t)bytes);
    if (weights->sections[0] == NULL)
        return error_set(error, NJ_DOES_NOT_FIT, "no memory for %" PRIu64 " bytes of weights", bytes);
    char *address = buffer_address(weights->sections[0]);
    memset(address, BLANK_FILL, (size_t)bytes);
    for (int i = 0; i < layout->tensor_count; i++) {
        const struct nj_pack_tensor tensor = cut_tensor(&layout->tensors[i], layers, vocabulary);
        if (tensor.bytes > 0)
            place_tensor(weights, &tensor, address);
        address += blank_bytes(&tensor);
    }
    return 0;
}

struct nj_weights *weights_create_blank(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape,
                                        int32_t layers, int32_t vocabulary, struct nj_device *device,
                                        struct nj_error *error)
{
    struct nj_pack_layout layout;
    if (pack_layout_plan(gguf, shape, &layout, error) != 0)
        return NULL;
    struct nj_weights *weights = calloc(1, sizeof *weights);
    int status = weights == NULL ? error_set(error, NJ_INTERNAL, "out of memory")
                                 : fill_blank(weights, &layout, layers, vocabulary, device, error);
    pack_layout_free(&layout);
    if (status == 0)
        return weights;
    weights_destroy(weights);
    return NULL;
}

void weights_destroy(struct nj_weights *weights)
{
    if (weights == NULL)
        return;
    for (int i = 0; weights->sections != NULL && i < weights->section_count; i++)
        if (weights->sections[i] != NULL)
            buffer_destroy(weights->sections[i]);
    free(weights->sections);
    free(weights->layers);
    free(weights);
}

const struct nj_layer_weights *weights_layer(const struct nj_weights *weights, int layer)
{
    return &weights->layers[layer];
}

const struct nj_matrix *weights_embedding(const struct nj_weights *weights)
{
    return &weights->embedding;
}
const struct nj_matrix *weights_head(const struct nj_weights *weights)
{
    return &weights->head;
}
const float *weights_output_norm(const struct nj_weights *weights)
{
    return weights->output_norm;
}
