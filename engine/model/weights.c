#include "engine/model/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/pack_layout.h"

/* What blank weights are filled with: small numbers in every kind, none of them subnormal. */
enum { BLANK_FILL = 0x11, BLANK_ALIGNMENT = 64 };

/* Two, so that one is filled while the other one is used. */
enum { RING_SLOTS = 2 };

struct nj_weights {
    struct nj_pack *pack;        /* NULL if blank */
    struct nj_buffer **sections; /* [section_count], each holds one section of the pack; NULL: a layer on disk */
    int section_count;
    int32_t layer_count, disk_layers;
    struct nj_layer_weights *layers; /* [layer_count]; of a layer on disk only while it is taken */
    struct nj_layer_ring *ring;      /* NULL: no layer is on disk */
    struct nj_buffer *slots[RING_SLOTS];
    bool *is_checked; /* [layer_count]: its checksums have been compared */
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

/* All tensors of a section that lies at this address. */
static void place_section(struct nj_weights *weights, const struct nj_pack *pack, int index, const char *address)
{
    const struct nj_pack_section *section = pack_section_at(pack, index);
    for (int i = 0; i < section->tensors; i++) {
        const struct nj_pack_tensor *tensor = pack_tensor_at(pack, section->first_tensor + i);
        place_tensor(weights, tensor, address + (tensor->offset - section->offset));
    }
}

static struct nj_buffer *take_memory(const struct nj_weights *weights, uint64_t bytes, struct nj_device *device,
                                     struct nj_error *error)
{
    struct nj_buffer *buffer = buffer_create(device, (size_t)bytes);
    if (buffer == NULL)
        error_set(error, NJ_DOES_NOT_FIT,
                  "the weights need %" PRIu64 " bytes of memory and only part of that could be had; free memory "
                  "or use a smaller model",
                  pack_bytes(weights->pack));
    return buffer;
}

static int load_section(struct nj_weights *weights, int index, struct nj_device *device, struct nj_error *error)
{
    const struct nj_pack_section *section = pack_section_at(weights->pack, index);
    struct nj_buffer *buffer = take_memory(weights, section->bytes, device, error);
    if (buffer == NULL)
        return -1;
    weights->sections[index] = buffer;
    if (pack_read_section(weights->pack, index, buffer_address(buffer), error) != 0)
        return -1;
    place_section(weights, weights->pack, index, buffer_address(buffer));
    return 0;
}

bool weights_layer_is_on_disk(int32_t layer, int32_t layers, int32_t disk_layers)
{
    return ((int64_t)layer + 1) * disk_layers / layers != (int64_t)layer * disk_layers / layers;
}

static int ring_slots(int32_t disk_layers)
{
    return disk_layers < RING_SLOTS ? disk_layers : RING_SLOTS;
}

/* The pack's section of a layer. */
static int section_of(int32_t layer)
{
    return 1 + layer;
}

static struct nj_weights_memory plan_memory(const struct nj_pack_section *sections, int32_t layers, int32_t disk_layers)
{
    struct nj_weights_memory memory = {.fixed_bytes = sections[0].bytes + sections[layers + 1].bytes};
    uint64_t largest = 0;
    for (int32_t layer = 0; layer < layers; layer++) {
        const uint64_t bytes = sections[section_of(layer)].bytes;
        const bool is_on_disk = weights_layer_is_on_disk(layer, layers, disk_layers);
        *(is_on_disk ? &memory.disk_bytes : &memory.layer_bytes) += bytes;
        largest = is_on_disk && bytes > largest ? bytes : largest;
    }
    memory.ring_bytes = largest * (uint64_t)ring_slots(disk_layers);
    return memory;
}

int weights_plan_memory(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape, int32_t disk_layers,
                        struct nj_weights_memory *out, struct nj_error *error)
{
    struct nj_pack_layout layout;
    if (pack_layout_plan(gguf, shape, &layout, error) != 0)
        return -1;
    *out = plan_memory(layout.sections, shape->layers, disk_layers);
    pack_layout_free(&layout);
    return 0;
}

/* The ring of the layers on disk and its memory. `places` has room for every layer. */
static int open_ring(struct nj_weights *weights, const struct nj_weights_options *options, struct nj_device *device,
                     struct nj_ring_layer *places, struct nj_error *error)
{
    struct nj_layer_ring_options ring = {.file = pack_direct_file(weights->pack),
                                         .layers = places,
                                         .slot_count = ring_slots(options->disk_layers),
                                         .reader = options->reader};
    for (int32_t layer = 0; layer < weights->layer_count; layer++) {
        const struct nj_pack_section *section = pack_section_at(weights->pack, section_of(layer));
        if (weights_layer_is_passing(weights, layer))
            places[ring.count++] = (struct nj_ring_layer){.offset = section->offset, .bytes = section->bytes};
    }
    const struct nj_weights_memory memory =
        plan_memory(pack_section_at(weights->pack, 0), weights->layer_count, weights->disk_layers);
    void *slots[RING_SLOTS];
    for (int i = 0; i < ring.slot_count; i++) {
        weights->slots[i] = take_memory(weights, memory.ring_bytes / (uint64_t)ring.slot_count, device, error);
        if (weights->slots[i] == NULL)
            return -1;
        slots[i] = buffer_address(weights->slots[i]);
    }
    ring.slots = slots;
    weights->ring = layer_ring_create(&ring, error);
    return weights->ring == NULL ? -1 : 0;
}

static int load_all(struct nj_weights *weights, const struct nj_weights_options *options, struct nj_device *device,
                    struct nj_error *error)
{
    weights->section_count = pack_section_count(weights->pack);
    weights->sections = calloc((size_t)weights->section_count, sizeof *weights->sections);
    weights->layers = calloc((size_t)weights->layer_count, sizeof *weights->layers);
    weights->is_checked = calloc((size_t)weights->layer_count, sizeof *weights->is_checked);
    if (weights->sections == NULL || weights->layers == NULL || weights->is_checked == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory loading the weights");
    for (int i = 0; i < weights->section_count; i++) {
        const bool is_layer = i > 0 && i <= weights->layer_count;
        if (!(is_layer && weights_layer_is_passing(weights, i - 1)) && load_section(weights, i, device, error) != 0)
            return -1;
    }
    if (options->disk_layers == 0)
        return 0;
    struct nj_ring_layer *places = calloc((size_t)weights->layer_count, sizeof *places);
    const int status = places == NULL ? error_set(error, NJ_INTERNAL, "out of memory loading the weights")
                                      : open_ring(weights, options, device, places, error);
    free(places);
    return status;
}

struct nj_weights *weights_load(struct nj_pack *pack, const struct nj_hyperparameters *shape, struct nj_device *device,
                                const struct nj_weights_options *options, struct nj_error *error)
{
    struct nj_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory loading the weights");
        return NULL;
    }
    weights->pack = pack;
    weights->layer_count = shape->layers;
    weights->disk_layers = options->disk_layers;
    if (load_all(weights, options, device, error) == 0)
        return weights;
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
    weights->layer_count = layers;
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
    layer_ring_destroy(weights->ring); /* nothing reads into the slots any more, or from the pack */
    for (int i = 0; i < RING_SLOTS; i++)
        if (weights->slots[i] != NULL)
            buffer_destroy(weights->slots[i]);
    for (int i = 0; weights->sections != NULL && i < weights->section_count; i++)
        if (weights->sections[i] != NULL)
            buffer_destroy(weights->sections[i]);
    free(weights->is_checked);
    free(weights->sections);
    free(weights->layers);
    free(weights);
}

void weights_begin_sweep(struct nj_weights *weights, bool another_follows)
{
    if (weights->ring != NULL)
        layer_ring_begin_sweep(weights->ring, another_follows);
}

bool weights_layer_is_passing(const struct nj_weights *weights, int32_t layer)
{
    return weights_layer_is_on_disk(layer, weights->layer_count, weights->disk_layers);
}

bool weights_layer_is_ready(struct nj_weights *weights, int32_t layer)
{
    return !weights_layer_is_passing(weights, layer) || layer_ring_is_ready(weights->ring);
}

static int fail_taking(const struct nj_weights *weights, struct nj_error *error)
{
    if (error->code == NJ_INTERRUPTED)
        return -1;
    return error_set(error, error->code,
                     "%s (a layer of the model could not be read from %s; answers are kept: run the "
                     "same command again to go on)",
                     error->message, pack_path(weights->pack));
}

/* Compares checksums once: what comes later comes from the same file. */
static int check_layer(struct nj_weights *weights, int32_t layer, const void *address, struct nj_error *error)
{
    if (weights->is_checked[layer])
        return 0;
    if (pack_check_section(weights->pack, section_of(layer), address, error) != 0)
        return -1;
    weights->is_checked[layer] = true;
    return 0;
}

const struct nj_layer_weights *weights_take_layer(struct nj_weights *weights, int32_t layer, const atomic_int *cancel,
                                                  struct nj_error *error)
{
    if (!weights_layer_is_passing(weights, layer))
        return &weights->layers[layer];
    const char *address = layer_ring_take(weights->ring, cancel, error);
    if (address == NULL) {
        fail_taking(weights, error);
        return NULL;
    }
    if (check_layer(weights, layer, address, error) != 0)
        return NULL;
    place_section(weights, weights->pack, section_of(layer), address);
    return &weights->layers[layer];
}

void weights_give_back_layer(struct nj_weights *weights, int32_t layer)
{
    if (weights_layer_is_passing(weights, layer))
        layer_ring_give_back(weights->ring);
}

void weights_end_sweep(struct nj_weights *weights, bool is_completed)
{
    if (weights->ring != NULL)
        layer_ring_end_sweep(weights->ring, is_completed);
}

struct nj_ring_counts weights_ring_counts(const struct nj_weights *weights)
{
    return weights->ring == NULL ? (struct nj_ring_counts){0} : layer_ring_counts(weights->ring);
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
