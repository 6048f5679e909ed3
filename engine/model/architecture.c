#include "engine/model/architecture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYERS_MOST = 1024,
    WIDTH_MOST = 65536,
    FEED_FORWARD_MOST = 1048576,
    HEADS_MOST = 1024,
    HEAD_WIDTH_MOST = NJ_MOST_HEAD_WIDTH,
    CONTEXT_MOST = 16777216,
    VOCABULARY_MOST = 4194304,
    KEY_BYTES = 128
};

/* Angles are computed for |x| <= 2^30 (kernels/elementary.h): 2^24 positions leave 2^6 for the scale. */
static const double ROPE_SCALE_LEAST = 1.0 / 64, ROPE_SCALE_MOST = 65536;
static const double ROPE_BASE_DEFAULT = 10000, ROPE_BASE_MOST = 1e15;

static const struct nj_architecture architectures[] = {
    {.name = "llama", .rope = NJ_ROPE_ADJACENT},
    {.name = "qwen2", .rope = NJ_ROPE_HALVES, .has_attention_biases = true},
};

enum { ARCHITECTURE_COUNT = sizeof architectures / sizeof architectures[0] };

/* Switches that change the arithmetic of a model and that nightjar does not have: any value but the neutral one is
 * refused, since ignoring it would give other answers than the model's. */
static const struct {
    const char *suffix;
    double neutral;
} unsupported_factors[] = {
    {"attention.scale", 0},        {"attention.clamp_kqv", 0},     {"attention.max_alibi_bias", 0},
    {"attn_logit_softcapping", 0}, {"final_logit_softcapping", 0}, {"logit_scale", 1},
    {"residual_scale", 1},         {"embedding_scale", 1},         {"rope.scaling.attn_factor", 1},
};

static bool text_equals(struct nj_text text, const char *string)
{
    return text.length == strlen(string) && memcmp(text.bytes, string, text.length) == 0;
}

const struct nj_architecture *architecture_find(struct nj_text name)
{
    for (int i = 0; i < ARCHITECTURE_COUNT; i++)
        if (text_equals(name, architectures[i].name))
            return &architectures[i];
    return NULL;
}

const struct nj_architecture *architecture_at(int index)
{
    return index >= 0 && index < ARCHITECTURE_COUNT ? &architectures[index] : NULL;
}

/* Names from a file are shown cut to a sensible length. */
static int shown_length(struct nj_text text)
{
    return text.length < 64 ? (int)text.length : 64;
}

static void key_of(const struct nj_architecture *architecture, const char *suffix, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.%s", architecture->name, suffix);
}

static int fail_missing(const char *key, struct nj_error *error)
{
    return error_set(error, NJ_BAD_DATA, "the model file has no %s", key);
}

/* A value that files give either as one integer or as one integer per layer; 1, 0 or -1 as the getters. Layers
 * that differ are not supported. */
static int get_integer_or_equal_array(const struct nj_gguf *gguf, const char *key, uint64_t most, uint64_t *out,
                                      struct nj_error *error)
{
    int found = gguf_get_u64(gguf, key, most, out, error);
    const int64_t *values;
    size_t count;
    struct nj_error not_an_array;
    if (found >= 0 || gguf_get_integers(gguf, key, &values, &count, &not_an_array) != 1)
        return found;
    if (count == 0)
        return error_set(error, NJ_BAD_DATA, "%s is an empty array", key);
    for (size_t i = 1; i < count; i++)
        if (values[i] != values[0])
            return error_set(error, NJ_BAD_DATA,
                             "%s differs between layers (%" PRId64 " in layer 0, %" PRId64
                             " in layer %zu); nightjar runs only models whose layers are alike",
                             key, values[0], values[i], i);
    if (values[0] < 0 || (uint64_t)values[0] > most)
        return error_set(error, NJ_BAD_DATA, "%s is %" PRId64 "; it must be at most %" PRIu64, key, values[0], most);
    *out = (uint64_t)values[0];
    return 1;
}

/* Reads an integer in 1..most. `fallback` stands for an absent key; 0: the key must be there. */
static int read_count(const struct nj_gguf *gguf, const struct nj_architecture *architecture, const char *suffix,
                      int32_t most, int32_t fallback, int32_t *out, struct nj_error *error)
{
    char key[KEY_BYTES];
    key_of(architecture, suffix, key);
    uint64_t value = 0;
    int found = get_integer_or_equal_array(gguf, key, (uint64_t)most, &value, error);
    if (found < 0)
        return -1;
    if (found == 0 && fallback == 0)
        return fail_missing(key, error);
    if (found == 0)
        value = (uint64_t)fallback;
    if (value == 0)
        return error_set(error, NJ_BAD_DATA, "%s is 0; it must be at least 1", key);
    *out = (int32_t)value;
    return 0;
}

static int require_multiple(const char *what, int64_t value, int64_t unit, struct nj_error *error)
{
    if (value % unit == 0)
        return 0;
    return error_set(error, NJ_BAD_DATA, "%s is %" PRId64 ", which is not a multiple of %" PRId64, what, value, unit);
}

static int read_heads(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    const struct nj_architecture *a = out->architecture;
    if (read_count(gguf, a, "attention.head_count", HEADS_MOST, 0, &out->heads, error) != 0 ||
        read_count(gguf, a, "attention.head_count_kv", HEADS_MOST, out->heads, &out->kv_heads, error) != 0)
        return -1;
    if (out->heads % out->kv_heads != 0)
        return error_set(error, NJ_BAD_DATA,
                         "%s.attention.head_count is %" PRId32 ", which is not a multiple of head_count_kv %" PRId32,
                         a->name, out->heads, out->kv_heads);
    /* Without a key length the heads share the width; where they cannot, the key must be there. */
    int32_t from_width = out->width % out->heads == 0 ? out->width / out->heads : 0;
    if (from_width > HEAD_WIDTH_MOST)
        from_width = 0;
    int32_t value_width;
    if (read_count(gguf, a, "attention.key_length", HEAD_WIDTH_MOST, from_width, &out->head_width, error) != 0 ||
        read_count(gguf, a, "attention.value_length", HEAD_WIDTH_MOST, out->head_width, &value_width, error) != 0)
        return -1;
    if (value_width != out->head_width)
        return error_set(error, NJ_BAD_DATA,
                         "%s.attention.value_length is %" PRId32 " but the keys' length is %" PRId32
                         "; nightjar runs only models where they agree",
                         a->name, value_width, out->head_width);
    if (require_multiple("the head width", out->head_width, 2, error) != 0)
        return -1;
    return require_multiple("heads times head width", (int64_t)out->heads * out->head_width, NJ_GROUP_COLS, error);
}

static int read_norm_epsilon(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    char key[KEY_BYTES];
    key_of(out->architecture, "attention.layer_norm_rms_epsilon", key);
    double epsilon;
    int found = gguf_get_f64(gguf, key, &epsilon, error);
    if (found <= 0)
        return found < 0 ? -1 : fail_missing(key, error);
    if (!(epsilon > 0 && epsilon < 1))
        return error_set(error, NJ_BAD_DATA, "%s is %g; it must be above 0 and below 1", key, epsilon);
    out->norm_epsilon = (float)epsilon;
    return 0;
}

static int read_rope_scale(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    char type_key[KEY_BYTES], key[KEY_BYTES];
    key_of(out->architecture, "rope.scaling.type", type_key);
    out->rope_scale = 1;
    struct nj_text type;
    int has_type = gguf_get_text(gguf, type_key, &type, error);
    if (has_type < 0)
        return -1;
    if (has_type && text_equals(type, "none"))
        return 0;
    if (has_type && !text_equals(type, "linear"))
        return error_set(error, NJ_BAD_DATA, "%s is \"%.*s\"; nightjar knows only none and linear", type_key,
                         shown_length(type), type.bytes);
    /* A factor without a type means linear; old files call it rope.scale_linear. */
    double scale;
    key_of(out->architecture, "rope.scaling.factor", key);
    int found = gguf_get_f64(gguf, key, &scale, error);
    if (found == 0) {
        key_of(out->architecture, "rope.scale_linear", key);
        found = gguf_get_f64(gguf, key, &scale, error);
    }
    if (found < 0)
        return -1;
    if (found == 0) {
        key_of(out->architecture, "rope.scaling.factor", key);
        return has_type ? fail_missing(key, error) : 0;
    }
    if (!(scale >= ROPE_SCALE_LEAST && scale <= ROPE_SCALE_MOST))
        return error_set(error, NJ_BAD_DATA, "%s is %g; it must be between %g and %g", key, scale, ROPE_SCALE_LEAST,
                         ROPE_SCALE_MOST);
    out->rope_scale = scale;
    return 0;
}

static int read_rope(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    char key[KEY_BYTES];
    if (read_count(gguf, out->architecture, "rope.dimension_count", out->head_width, out->head_width, &out->rotated,
                   error) != 0)
        return -1;
    if (require_multiple("the number of rotated dimensions", out->rotated, 2, error) != 0)
        return -1;
    key_of(out->architecture, "rope.freq_base", key);
    out->rope_base = ROPE_BASE_DEFAULT;
    if (gguf_get_f64(gguf, key, &out->rope_base, error) < 0)
        return -1;
    if (!(out->rope_base >= 1 && out->rope_base <= ROPE_BASE_MOST))
        return error_set(error, NJ_BAD_DATA, "%s is %g; it must be between 1 and %g", key, out->rope_base,
                         ROPE_BASE_MOST);
    if (gguf_tensor_find(gguf, "rope_freqs.weight") != NULL)
        return error_set(error, NJ_BAD_DATA,
                         "the model has a tensor rope_freqs.weight (frequency factors, as Llama 3.1 and later use); "
                         "nightjar does not support it");
    return read_rope_scale(gguf, out, error);
}

static int refuse_unsupported(const struct nj_gguf *gguf, const struct nj_hyperparameters *shape,
                              struct nj_error *error)
{
    char key[KEY_BYTES];
    uint64_t count = 0;
    key_of(shape->architecture, "expert_count", key);
    if (gguf_get_u64(gguf, key, UINT64_MAX, &count, error) < 0)
        return -1;
    if (count > 0)
        return error_set(error, NJ_BAD_DATA, "%s is %" PRIu64 "; nightjar does not run mixtures of experts", key,
                         count);
    uint64_t window = 0;
    key_of(shape->architecture, "attention.sliding_window", key);
    if (gguf_get_u64(gguf, key, UINT64_MAX, &window, error) < 0)
        return -1;
    if (window > 0 && window < (uint64_t)shape->context)
        return error_set(error, NJ_BAD_DATA, "%s is %" PRIu64 "; nightjar does not support sliding-window attention",
                         key, window);
    for (size_t i = 0; i < sizeof unsupported_factors / sizeof unsupported_factors[0]; i++) {
        double value = unsupported_factors[i].neutral;
        key_of(shape->architecture, unsupported_factors[i].suffix, key);
        if (gguf_get_f64(gguf, key, &value, error) < 0)
            return -1;
        if (value != unsupported_factors[i].neutral)
            return error_set(error, NJ_BAD_DATA, "%s is %g; nightjar does not support it", key, value);
    }
    return 0;
}

static int read_vocabulary(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    const struct nj_gguf_tensor *embedding = gguf_tensor_find(gguf, "token_embd.weight");
    if (embedding == NULL)
        return error_set(error, NJ_BAD_DATA, "the model file has no tensor token_embd.weight");
    uint64_t rows = embedding->dimensions == 2 ? embedding->shape[1] : 0;
    if (rows == 0 || rows > VOCABULARY_MOST)
        return error_set(error, NJ_BAD_DATA, "tensor token_embd.weight must have two dimensions and 1 to %d rows",
                         VOCABULARY_MOST);
    const struct nj_text *tokens;
    size_t count;
    int found = gguf_get_texts(gguf, "tokenizer.ggml.tokens", &tokens, &count, error);
    if (found <= 0)
        return found < 0 ? -1 : fail_missing("tokenizer.ggml.tokens", error);
    if (count != rows)
        return error_set(error, NJ_BAD_DATA,
                         "tensor token_embd.weight has %" PRIu64 " rows but tokenizer.ggml.tokens has %zu entries",
                         rows, count);
    out->vocabulary = (int32_t)rows;
    out->tied_embeddings = gguf_tensor_find(gguf, "output.weight") == NULL;
    return 0;
}

static int read_architecture(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    struct nj_text name;
    int found = gguf_get_text(gguf, "general.architecture", &name, error);
    if (found <= 0)
        return found < 0 ? -1 : fail_missing("general.architecture", error);
    out->architecture = architecture_find(name);
    if (out->architecture != NULL)
        return 0;
    char known[256] = "";
    for (int i = 0; i < ARCHITECTURE_COUNT; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i == 0 ? "" : ", ",
                 architectures[i].name);
    return error_set(error, NJ_BAD_DATA, "the model's architecture is \"%.*s\"; nightjar runs: %s", shown_length(name),
                     name.bytes, known);
}

static int read_all(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    memset(out, 0, sizeof *out);
    if (read_architecture(gguf, out, error) != 0)
        return -1;
    const struct nj_architecture *a = out->architecture;
    if (read_count(gguf, a, "block_count", LAYERS_MOST, 0, &out->layers, error) != 0 ||
        read_count(gguf, a, "embedding_length", WIDTH_MOST, 0, &out->width, error) != 0 ||
        read_count(gguf, a, "feed_forward_length", FEED_FORWARD_MOST, 0, &out->feed_forward, error) != 0 ||
        read_count(gguf, a, "context_length", CONTEXT_MOST, 0, &out->context, error) != 0)
        return -1;
    if (require_multiple("the embedding length", out->width, NJ_GROUP_COLS, error) != 0 ||
        require_multiple("the feed-forward length", out->feed_forward, NJ_GROUP_COLS, error) != 0)
        return -1;
    if (read_heads(gguf, out, error) != 0 || read_norm_epsilon(gguf, out, error) != 0 ||
        read_rope(gguf, out, error) != 0)
        return -1;
    return refuse_unsupported(gguf, out, error) != 0 ? -1 : read_vocabulary(gguf, out, error);
}

int hyperparameters_read(const struct nj_gguf *gguf, struct nj_hyperparameters *out, struct nj_error *error)
{
    return read_all(gguf, out, error) == 0 ? 0 : error_at(error, gguf_path(gguf), 0, -1);
}
