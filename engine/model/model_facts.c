#include "engine/model/model_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/chat_template.h"
#include "engine/model/model.h"

enum { KEY_BYTES = 192, ARCHITECTURE_SHOWN_MOST = 64 };

/* Names of the format's tensor types by number, those that nightjar does not read included. */
static const char *const TYPE_NAMES[] = {
    [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
    [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
    [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4",
};

static const char *type_name(uint32_t id)
{
    return id < sizeof TYPE_NAMES / sizeof TYPE_NAMES[0] ? TYPE_NAMES[id] : NULL;
}

uint64_t model_tensor_bytes(const struct nj_gguf *gguf)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++)
        bytes += gguf_tensor_at(gguf, i)->bytes;
    return bytes;
}

static struct nj_error *add_problem(struct nj_model_facts *facts, const char *about)
{
    struct nj_model_problem *problem = &facts->problems[facts->problem_count++];
    problem->about = about;
    return &problem->why;
}

static void count_tensor(struct nj_model_facts *facts, const struct nj_gguf_tensor *tensor)
{
    size_t i = 0;
    while (i < facts->type_count && facts->types[i].type_id != tensor->type_id)
        i++;
    if (i == NJ_MODEL_TYPES_MOST)
        return; /* a file of nonsense: its other types are problem enough */
    struct nj_model_type_count *type = &facts->types[i];
    if (i == facts->type_count)
        facts->types[facts->type_count++] = (struct nj_model_type_count){
            .type_id = tensor->type_id, .name = type_name(tensor->type_id), .is_read = tensor->type != NULL};
    type->tensors++;
    type->bytes += tensor->bytes;
}

static int compare_types(const void *left, const void *right)
{
    const struct nj_model_type_count *a = left, *b = right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->type_id < b->type_id ? -1 : a->type_id > b->type_id;
}

/* Returns whether all types are read. */
static bool count_types(struct nj_model_facts *facts)
{
    bool all_read = true;
    facts->tensors = gguf_tensor_count(facts->gguf);
    facts->tensor_bytes = model_tensor_bytes(facts->gguf);
    for (size_t i = 0; i < facts->tensors; i++)
        count_tensor(facts, gguf_tensor_at(facts->gguf, i));
    qsort(facts->types, facts->type_count, sizeof facts->types[0], compare_types);
    for (size_t i = 0; i < facts->type_count; i++) {
        const struct nj_model_type_count *type = &facts->types[i];
        if (type->is_read)
            continue;
        all_read = false;
        error_set(add_problem(facts, "tensors"), NJ_BAD_DATA,
                  "%" PRIu64 " tensors have type %s (number %" PRIu32 "), which nightjar does not read", type->tensors,
                  type->name != NULL ? type->name : "unknown", type->type_id);
    }
    return all_read;
}

/* A number of an architecture that nightjar does not know, where its files usually have it; 0: not there. */
static int32_t guess_number(const struct nj_model_facts *facts, const char *suffix)
{
    char key[KEY_BYTES];
    uint64_t value = 0;
    int shown = facts->architecture.length < ARCHITECTURE_SHOWN_MOST ? (int)facts->architecture.length
                                                                     : ARCHITECTURE_SHOWN_MOST;
    snprintf(key, sizeof key, "%.*s.%s", shown, facts->architecture.bytes, suffix);
    return gguf_get_u64(facts->gguf, key, INT32_MAX, &value, NULL) > 0 ? (int32_t)value : 0;
}

static void guess_shape(struct nj_model_facts *facts)
{
    struct nj_hyperparameters *shape = &facts->shape;
    const struct nj_gguf_tensor *embedding = gguf_tensor_find(facts->gguf, "token_embd.weight");
    *shape = (struct nj_hyperparameters){.layers = guess_number(facts, "block_count"),
                                         .width = guess_number(facts, "embedding_length"),
                                         .feed_forward = guess_number(facts, "feed_forward_length"),
                                         .heads = guess_number(facts, "attention.head_count"),
                                         .kv_heads = guess_number(facts, "attention.head_count_kv"),
                                         .head_width = guess_number(facts, "attention.key_length"),
                                         .context = guess_number(facts, "context_length"),
                                         .tied_embeddings = gguf_tensor_find(facts->gguf, "output.weight") == NULL};
    if (shape->kv_heads == 0)
        shape->kv_heads = shape->heads;
    if (shape->head_width == 0 && shape->heads > 0)
        shape->head_width = shape->width / shape->heads;
    if (embedding != NULL && embedding->dimensions == 2 && embedding->shape[1] <= INT32_MAX)
        shape->vocabulary = (int32_t)embedding->shape[1];
}

static struct nj_text text_of(const struct nj_gguf *gguf, const char *key)
{
    struct nj_text text = {"", 0};
    if (gguf_get_text(gguf, key, &text, NULL) <= 0)
        text = (struct nj_text){"", 0};
    return text;
}

static void check_tokenizer(struct nj_model_facts *facts)
{
    struct nj_error error = {0};
    struct nj_tokenizer *tokenizer = tokenizer_create(facts->gguf, &error);
    if (tokenizer == NULL)
        *add_problem(facts, "tokenizer") = error;
    tokenizer_destroy(tokenizer);
}

static void check_template(struct nj_model_facts *facts)
{
    struct nj_text source = text_of(facts->gguf, "tokenizer.chat_template");
    facts->has_template = source.length > 0;
    if (!facts->has_template)
        return;
    struct nj_chat_template *chat = chat_template_compile(source.bytes, source.length, &facts->template_problem);
    chat_template_destroy(chat);
}

static void read_facts(struct nj_model_facts *facts)
{
    struct nj_error error = {0};
    facts->name = text_of(facts->gguf, "general.name");
    facts->architecture = text_of(facts->gguf, "general.architecture");
    facts->tokenizer = text_of(facts->gguf, "tokenizer.ggml.model");
    facts->pretokenizer = text_of(facts->gguf, "tokenizer.ggml.pre");
    facts->is_shape_known = hyperparameters_read(facts->gguf, &facts->shape, &error) == 0;
    if (!facts->is_shape_known) {
        *add_problem(facts, "architecture") = error;
        guess_shape(facts);
    }
    bool all_read = count_types(facts);
    if (all_read && facts->is_shape_known && pack_check_tensors(facts->gguf, &facts->shape, &error) != 0)
        *add_problem(facts, "tensors") = error;
    check_tokenizer(facts);
    check_template(facts);
}

struct nj_model_facts *model_facts_read(const char *path, struct nj_error *error)
{
    char *resolved;
    if (model_resolve_path(path, &resolved, error) != 0)
        return NULL;
    struct nj_model_facts *facts = calloc(1, sizeof *facts);
    if (facts == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    else
        facts->gguf = gguf_open(resolved, error);
    free(resolved);
    if (facts == NULL || facts->gguf == NULL) {
        model_facts_free(facts);
        return NULL;
    }
    read_facts(facts);
    return facts;
}

void model_facts_free(struct nj_model_facts *facts)
{
    if (facts == NULL)
        return;
    gguf_close(facts->gguf);
    free(facts);
}
