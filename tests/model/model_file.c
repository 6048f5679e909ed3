#include "tests/model/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/formats/tensor_types.h"
#include "tests/support/temporary_directory.h"

enum { TENSORS_MOST = 64, NAME_BYTES = 64, ID_F32 = 0, ID_Q4_1 = 3, ID_Q8_0 = 8 };

struct planned_tensor {
    char name[NAME_BYTES];
    uint32_t type_id, dimensions;
    uint64_t shape[2];
};

struct plan {
    const struct model_recipe *recipe;
    struct planned_tensor tensor[TENSORS_MOST];
    int count;
    uint64_t random;
};

struct model_recipe model_recipe_small(void)
{
    return (struct model_recipe){.layers = 2,
                                 .width = 64,
                                 .heads = 4,
                                 .kv_heads = 1,
                                 .head_width = 24,
                                 .feed_forward = 96,
                                 .vocabulary = 37,
                                 .matrix_type = ID_Q4_1,
                                 .embedding_type = ID_Q8_0,
                                 .norm_type = ID_F32,
                                 .tied = true};
}

static uint32_t next_random(struct plan *plan)
{
    plan->random = plan->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(plan->random >> 33);
}

static void plan_tensor(struct plan *plan, const char *name, uint32_t type_id, uint64_t cols, uint64_t rows)
{
    const struct model_recipe *recipe = plan->recipe;
    if (recipe->without_tensor != NULL && strcmp(recipe->without_tensor, name) == 0)
        return;
    if (plan->count == TENSORS_MOST)
        abort();
    struct planned_tensor *tensor = &plan->tensor[plan->count++];
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->type_id = type_id;
    tensor->dimensions = rows == 0 ? 1 : 2;
    tensor->shape[0] = cols;
    tensor->shape[1] = rows == 0 ? 1 : rows;
    if (recipe->changed_tensor == NULL || strcmp(recipe->changed_tensor, name) != 0)
        return;
    tensor->type_id = recipe->changed_type;
    for (int i = 0; i < 2; i++)
        if (recipe->changed_shape[i] != 0)
            tensor->shape[i] = recipe->changed_shape[i];
}

static void plan_layer_tensor(struct plan *plan, uint32_t layer, const char *part, uint32_t type_id, uint64_t cols,
                              uint64_t rows)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%u.%s.weight", layer, part);
    plan_tensor(plan, name, type_id, cols, rows);
}

static void plan_bias(struct plan *plan, uint32_t layer, const char *part, uint64_t width)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "blk.%u.%s.bias", layer, part);
    plan_tensor(plan, name, plan->recipe->norm_type, width, 0);
}

static void plan_layer(struct plan *plan, uint32_t layer)
{
    const struct model_recipe *r = plan->recipe;
    uint64_t queries = (uint64_t)r->heads * r->head_width, keys = (uint64_t)r->kv_heads * r->head_width;
    plan_layer_tensor(plan, layer, "attn_norm", r->norm_type, r->width, 0);
    plan_layer_tensor(plan, layer, "ffn_down", r->matrix_type, r->feed_forward, r->width);
    plan_layer_tensor(plan, layer, "ffn_gate", r->matrix_type, r->width, r->feed_forward);
    plan_layer_tensor(plan, layer, "ffn_up", r->matrix_type, r->width, r->feed_forward);
    plan_layer_tensor(plan, layer, "ffn_norm", r->norm_type, r->width, 0);
    plan_layer_tensor(plan, layer, "attn_k", r->matrix_type, r->width, keys);
    plan_layer_tensor(plan, layer, "attn_output", r->matrix_type, queries, r->width);
    plan_layer_tensor(plan, layer, "attn_q", r->matrix_type, r->width, queries);
    plan_layer_tensor(plan, layer, "attn_v", r->matrix_type, r->width, keys);
    if (r->with_biases) {
        plan_bias(plan, layer, "attn_q", queries);
        plan_bias(plan, layer, "attn_k", keys);
        plan_bias(plan, layer, "attn_v", keys);
    }
}

static void plan_tensors(struct plan *plan)
{
    const struct model_recipe *r = plan->recipe;
    plan_tensor(plan, "output_norm.weight", r->norm_type, r->width, 0);
    plan_tensor(plan, "token_embd.weight", r->embedding_type, r->width, r->vocabulary);
    for (uint32_t layer = 0; layer < r->layers; layer++)
        plan_layer(plan, layer);
    if (!r->tied)
        plan_tensor(plan, "output.weight", r->embedding_type, r->width, r->vocabulary);
    if (r->extra_tensor != NULL)
        plan_tensor(plan, r->extra_tensor, ID_F32, 32, 0);
}

static const char *architecture_name(const struct model_recipe *recipe)
{
    return recipe->architecture != NULL ? recipe->architecture : "llama";
}

/* Puts "ARCHITECTURE.suffix" into `key`; false if the recipe leaves that key out. */
static bool wanted_key(const struct model_recipe *recipe, const char *suffix, char key[NAME_BYTES])
{
    snprintf(key, NAME_BYTES, "%s.%s", architecture_name(recipe), suffix);
    return recipe->without_key == NULL || strcmp(recipe->without_key, key) != 0;
}

static void add_u32(struct nj_gguf_writer *writer, const struct model_recipe *recipe, const char *suffix,
                    uint32_t value)
{
    char key[NAME_BYTES];
    if (wanted_key(recipe, suffix, key))
        gguf_writer_add_u32(writer, key, value);
}

static void add_tokens(struct nj_gguf_writer *writer, uint32_t count)
{
    const char **tokens = malloc(count * sizeof *tokens);
    if (tokens == NULL)
        abort();
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = "x";
    gguf_writer_add_texts(writer, "tokenizer.ggml.tokens", tokens, count);
    free(tokens);
}

static void add_keys(struct nj_gguf_writer *writer, const struct model_recipe *r)
{
    const char *without = r->without_key != NULL ? r->without_key : "";
    if (strcmp(without, "general.architecture") != 0)
        gguf_writer_add_text(writer, "general.architecture", architecture_name(r));
    add_u32(writer, r, "block_count", r->layers);
    add_u32(writer, r, "context_length", 2048);
    add_u32(writer, r, "embedding_length", r->width);
    add_u32(writer, r, "feed_forward_length", r->feed_forward);
    add_u32(writer, r, "attention.head_count", r->heads);
    add_u32(writer, r, "attention.head_count_kv", r->kv_heads);
    add_u32(writer, r, "attention.key_length", r->head_width);
    add_u32(writer, r, "attention.value_length", r->head_width);
    char epsilon[NAME_BYTES];
    if (wanted_key(r, "attention.layer_norm_rms_epsilon", epsilon))
        gguf_writer_add_f32(writer, epsilon, 1e-5f);
    if (strcmp(without, "tokenizer.ggml.tokens") != 0)
        add_tokens(writer, r->vocabulary);
    if (r->add_keys != NULL)
        r->add_keys(writer);
}

/* A half between 2^-7 and 2^-3, of either sign. */
static void put_half(struct plan *plan, unsigned char *at)
{
    uint32_t random = next_random(plan);
    uint16_t half = (uint16_t)((random & 0x83ff) | (8u + (random >> 16) % 4u) << 10);
    memcpy(at, &half, sizeof half);
}

/* One block of random numbers that the type can hold and the converter takes. */
static void put_block(struct plan *plan, const struct nj_tensor_type *type, unsigned char *at)
{
    for (uint32_t i = 0; i < type->block_bytes; i++) {
        at[i] = (unsigned char)next_random(plan);
        if (at[i] == 0x80)
            at[i] = 0x7f; /* a stored -128 is refused */
    }
    float number = (float)((int)(next_random(plan) % 20001) - 10000) / 4096.0f;
    switch (type->kind) {
    case NJ_KIND_F32:
        memcpy(at, &number, sizeof number);
        break;
    case NJ_KIND_BF16:
        memcpy(at, (unsigned char *)&number + 2, 2);
        break;
    case NJ_KIND_U4_MIN:
    case NJ_KIND_U5_MIN:
    case NJ_KIND_U4_SUPER:
    case NJ_KIND_U5_SUPER:
        put_half(plan, at + 2);
        put_half(plan, at);
        break;
    case NJ_KIND_U6_SUPER:
        put_half(plan, at + type->block_bytes - 2);
        break;
    default:
        put_half(plan, at);
        break;
    }
}

static void add_data(struct plan *plan, struct nj_bytes *out, const struct planned_tensor *tensor)
{
    const struct nj_tensor_type *type = tensor_type_by_gguf_id(tensor->type_id);
    if (type == NULL) { /* a type that is not read: any data will do */
        bytes_add_zeros(out, 256);
        return;
    }
    uint64_t blocks = tensor->shape[0] / type->block_elements * tensor->shape[1];
    unsigned char block[256];
    for (uint64_t i = 0; i < blocks; i++) {
        put_block(plan, type, block);
        bytes_add(out, block, type->block_bytes);
    }
    const char *poisoned = plan->recipe->poisoned_tensor;
    if (poisoned != NULL && strcmp(poisoned, tensor->name) == 0)
        memset(out->data + out->count - type->block_bytes, 0xff, type->block_bytes); /* NaN in every type */
    bytes_add_zeros(out, (32 - out->count % 32) % 32);
}

static uint64_t data_bytes(const struct planned_tensor *tensor)
{
    const struct nj_tensor_type *type = tensor_type_by_gguf_id(tensor->type_id);
    return type == NULL ? 256 : tensor->shape[0] / type->block_elements * type->block_bytes * tensor->shape[1];
}

void model_file_part_path(const char *first, uint32_t number, uint32_t parts, char *out, size_t out_bytes)
{
    const int stem = (int)(strlen(first) - strlen("-00001-of-00001.gguf"));
    snprintf(out, out_bytes, "%.*s-%05u-of-%05u.gguf", stem, first, number + 1, parts);
}

static void add_split_keys(struct nj_gguf_writer *writer, uint32_t number, uint32_t parts, uint32_t tensors)
{
    gguf_writer_add_raw(writer, "split.no", GGUF_UINT16, &(uint16_t){(uint16_t)number}, 2);
    gguf_writer_add_raw(writer, "split.count", GGUF_UINT16, &(uint16_t){(uint16_t)parts}, 2);
    gguf_writer_add_raw(writer, "split.tensors.count", GGUF_INT32, &tensors, 4);
}

static void write_file(struct plan *plan, uint32_t number, const char *path)
{
    const uint32_t parts = plan->recipe->parts, files = parts == 0 ? 1 : parts;
    struct nj_gguf_writer writer;
    struct nj_bytes file = {0}, data = {0};
    gguf_writer_start(&writer);
    if (number == 0)
        add_keys(&writer, plan->recipe);
    if (parts > 0)
        add_split_keys(&writer, number, parts, (uint32_t)plan->count);
    for (int i = plan->count * (int)number / (int)files; i < plan->count * (int)(number + 1) / (int)files; i++) {
        const struct planned_tensor *tensor = &plan->tensor[i];
        gguf_writer_add_tensor(&writer, tensor->name, tensor->type_id, tensor->dimensions, tensor->shape,
                               data_bytes(tensor));
        add_data(plan, &data, tensor);
    }
    gguf_writer_finish(&writer, &file);
    bytes_add(&file, data.data, data.count);
    temporary_write_file(path, file.data, file.count);
    bytes_free(&data);
    bytes_free(&file);
    gguf_writer_free(&writer);
}

void model_file_write(const struct model_recipe *recipe, const char *path)
{
    struct plan plan = {.recipe = recipe, .random = 7};
    plan_tensors(&plan);
    write_file(&plan, 0, path);
    for (uint32_t number = 1; number < recipe->parts; number++) {
        char part[4096];
        model_file_part_path(path, number, recipe->parts, part, sizeof part);
        write_file(&plan, number, part);
    }
}
