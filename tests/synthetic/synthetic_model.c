#include "tests/synthetic/synthetic_model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "tests/support/gguf_writer.h"
#include "tests/synthetic/quantize.h"

enum { TEXT_FILE_BYTES_MOST = 16 * 1024 * 1024, NAME_BYTES = 64, LAYER_TENSORS = 12 };
enum { TOKEN_TYPE_NORMAL = 1, TOKEN_TYPE_CONTROL = 3, CONTROL_TOKENS = 3, END_OF_TURN = 2 };

struct vocabulary {
    char *token_text, *merge_text; /* own the bytes of: */
    const char **tokens, **merges;
    size_t token_count, merge_count;
    char *chat_template;
};

/* How a tensor is filled: every weight is mean + spread * (normal number), and with `flips_sign` half of
 * them are negated. `loud_row` (-1: none) is made LOUD_ROW_FACTOR times larger. */
struct planned_tensor {
    char name[NAME_BYTES];
    const struct nj_quantizer *quantizer;
    int64_t rows, cols; /* rows 0: a vector */
    float mean, spread;
    bool flips_sign;
    int64_t loud_row;
};

struct plan {
    struct planned_tensor *tensors;
    size_t count;
};

struct random {
    uint64_t state;
};

static const float LOGIT_SPREAD = 2.5f;
static const float ATTENTION_SPREAD = 1.5f; /* of queries and keys: sharp enough not to average all values away */
static const float BIAS_SPREAD = 0.5f;
static const float NORM_SPREAD = 0.1f;
static const float LOUD_ROW_FACTOR = 1.5f;

struct nj_synthetic_shape synthetic_shape_small(void)
{
    return (struct nj_synthetic_shape){.layers = 2,
                                       .width = 64,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .feed_forward = 128,
                                       .context = 4096,
                                       .type = "q4_1",
                                       .embedding_type = "q8_0",
                                       .tied = true,
                                       .seed = 1};
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). */
static uint64_t random_next(struct random *random)
{
    uint64_t z = random->state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Near enough to a normal number, and exact everywhere: the sum of four uniform ones, whose variance is 1/3. */
static float random_normal(struct random *random)
{
    uint64_t bits = random_next(random);
    uint64_t sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return ((float)sum - 2.0f * 65535.0f) / 65536.0f * 1.7320508f;
}

static void free_vocabulary(struct vocabulary *vocabulary)
{
    free(vocabulary->token_text);
    free(vocabulary->merge_text);
    free(vocabulary->tokens);
    free(vocabulary->merges);
    free(vocabulary->chat_template);
}

static char *read_text(const char *directory, const char *name, size_t *bytes, struct nj_error *error)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return file_read_whole(path, TEXT_FILE_BYTES_MOST, bytes, error);
}

/* Cuts `text` into its lines in place. */
static const char **split_lines(char *text, size_t *count)
{
    size_t capacity = 1;
    for (const char *c = text; *c != '\0'; c++)
        capacity += *c == '\n';
    const char **lines = calloc(capacity, sizeof *lines);
    *count = 0;
    while (lines != NULL && *text != '\0') {
        lines[(*count)++] = text;
        text += strcspn(text, "\n");
        if (*text == '\n')
            *text++ = '\0';
    }
    return lines;
}

static int read_vocabulary(const char *directory, const char *template_path, struct vocabulary *out,
                           struct nj_error *error)
{
    size_t bytes;
    *out = (struct vocabulary){0};
    out->token_text = read_text(directory, "tokens.txt", &bytes, error);
    if (out->token_text == NULL)
        return -1;
    out->merge_text = read_text(directory, "merges.txt", &bytes, error);
    if (out->merge_text == NULL)
        return -1;
    out->chat_template = template_path != NULL ? file_read_whole(template_path, TEXT_FILE_BYTES_MOST, &bytes, error)
                                               : read_text(directory, "chat_template.jinja", &bytes, error);
    if (out->chat_template == NULL)
        return -1;
    out->tokens = split_lines(out->token_text, &out->token_count);
    out->merges = split_lines(out->merge_text, &out->merge_count);
    if (out->tokens == NULL || out->merges == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the vocabulary");
    if (out->token_count <= CONTROL_TOKENS)
        return error_set(error, NJ_BAD_DATA, "tokens.txt has no tokens beside the control tokens");
    return 0;
}

static void add_tokenizer(struct nj_gguf_writer *writer, const struct vocabulary *vocabulary)
{
    int32_t *types = calloc(vocabulary->token_count, sizeof *types);
    if (types == NULL)
        abort();
    for (size_t i = 0; i < vocabulary->token_count; i++)
        types[i] = i < CONTROL_TOKENS ? TOKEN_TYPE_CONTROL : TOKEN_TYPE_NORMAL;
    gguf_writer_add_text(writer, "tokenizer.ggml.model", "gpt2");
    gguf_writer_add_text(writer, "tokenizer.ggml.pre", "smollm");
    gguf_writer_add_texts(writer, "tokenizer.ggml.tokens", vocabulary->tokens, vocabulary->token_count);
    gguf_writer_add_integers(writer, "tokenizer.ggml.token_type", types, vocabulary->token_count);
    gguf_writer_add_texts(writer, "tokenizer.ggml.merges", vocabulary->merges, vocabulary->merge_count);
    gguf_writer_add_u32(writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_add_u32(writer, "tokenizer.ggml.eos_token_id", END_OF_TURN);
    gguf_writer_add_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
    gguf_writer_add_u32(writer, "tokenizer.ggml.padding_token_id", END_OF_TURN);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_space_prefix", false);
    gguf_writer_add_bool(writer, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_add_text(writer, "tokenizer.chat_template", vocabulary->chat_template);
    free(types);
}

static int head_width(const struct nj_synthetic_shape *shape)
{
    return shape->head_width != 0 ? shape->head_width : shape->width / shape->heads;
}

static const char *architecture_name(const struct nj_synthetic_shape *shape)
{
    return shape->architecture != NULL ? shape->architecture : "llama";
}

static bool has_biases(const struct nj_synthetic_shape *shape)
{
    return strcmp(architecture_name(shape), "qwen2") == 0;
}

static void add_count(struct nj_gguf_writer *writer, const struct nj_synthetic_shape *shape, const char *suffix,
                      size_t value)
{
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", architecture_name(shape), suffix);
    gguf_writer_add_u32(writer, key, (uint32_t)value);
}

static void add_number(struct nj_gguf_writer *writer, const struct nj_synthetic_shape *shape, const char *suffix,
                       float value)
{
    char key[NAME_BYTES];
    snprintf(key, sizeof key, "%s.%s", architecture_name(shape), suffix);
    gguf_writer_add_f32(writer, key, value);
}

static void add_metadata(struct nj_gguf_writer *writer, const struct nj_synthetic_shape *shape,
                         const struct vocabulary *vocabulary)
{
    gguf_writer_add_text(writer, "general.architecture", architecture_name(shape));
    gguf_writer_add_text(writer, "general.type", "model");
    gguf_writer_add_text(writer, "general.name", "nightjar synthetic test model");
    gguf_writer_add_u32(writer, "general.quantization_version", 2);
    add_count(writer, shape, "block_count", (size_t)shape->layers);
    add_count(writer, shape, "context_length", (size_t)shape->context);
    add_count(writer, shape, "embedding_length", (size_t)shape->width);
    add_count(writer, shape, "feed_forward_length", (size_t)shape->feed_forward);
    add_count(writer, shape, "attention.head_count", (size_t)shape->heads);
    add_count(writer, shape, "attention.head_count_kv", (size_t)shape->kv_heads);
    if (shape->head_width != 0) {
        add_count(writer, shape, "attention.key_length", (size_t)shape->head_width);
        add_count(writer, shape, "attention.value_length", (size_t)shape->head_width);
    }
    add_number(writer, shape, "attention.layer_norm_rms_epsilon", 1e-5f);
    add_number(writer, shape, "rope.freq_base", 10000.0f);
    add_count(writer, shape, "rope.dimension_count", (size_t)head_width(shape));
    add_count(writer, shape, "vocab_size", (size_t)vocabulary->token_count);
    add_tokenizer(writer, vocabulary);
}

static struct planned_tensor *plan_tensor(struct plan *plan, const char *name, int layer)
{
    struct planned_tensor *tensor = &plan->tensors[plan->count++];
    *tensor = (struct planned_tensor){.loud_row = -1};
    if (layer < 0)
        snprintf(tensor->name, sizeof tensor->name, "%s.weight", name);
    else
        snprintf(tensor->name, sizeof tensor->name, "blk.%d.%s.weight", layer, name);
    return tensor;
}

static struct planned_tensor *plan_norm(struct plan *plan, const char *name, int layer, int64_t width)
{
    struct planned_tensor *tensor = plan_tensor(plan, name, layer);
    tensor->quantizer = quantizer_find("f32");
    tensor->cols = width;
    tensor->mean = 1.0f;
    tensor->spread = NORM_SPREAD;
    return tensor;
}

static void plan_bias(struct plan *plan, const char *name, int layer, int64_t width)
{
    struct planned_tensor *tensor = plan_tensor(plan, name, layer);
    snprintf(tensor->name, sizeof tensor->name, "blk.%d.%s.bias", layer, name);
    tensor->quantizer = quantizer_find("f32");
    tensor->cols = width;
    tensor->spread = BIAS_SPREAD;
}

/* A matrix whose outputs have a spread of about `spread` where its inputs have one of 1. */
static struct planned_tensor *plan_matrix(struct plan *plan, const char *name, int layer, const char *type,
                                          int64_t rows, int64_t cols, float spread)
{
    struct planned_tensor *tensor = plan_tensor(plan, name, layer);
    tensor->quantizer = quantizer_find(type);
    tensor->rows = rows;
    tensor->cols = cols;
    tensor->spread = spread / sqrtf((float)cols);
    return tensor;
}

static void plan_layer(struct plan *plan, const struct nj_synthetic_shape *shape, int layer, float stream_spread)
{
    const char *type = shape->type;
    int64_t width = shape->width;
    int64_t queries = (int64_t)shape->heads * head_width(shape);
    int64_t keys = (int64_t)shape->kv_heads * head_width(shape);
    /* All layers together add about as much to the stream as the embedding put there. The input of ffn_down,
     * silu(gate) * up, has a spread of about 0.6. */
    float added = stream_spread / sqrtf((float)shape->layers);
    plan_norm(plan, "attn_norm", layer, width);
    plan_matrix(plan, "attn_q", layer, type, queries, width, ATTENTION_SPREAD);
    plan_matrix(plan, "attn_k", layer, type, keys, width, ATTENTION_SPREAD);
    plan_matrix(plan, "attn_v", layer, type, keys, width, 1.0f);
    plan_matrix(plan, "attn_output", layer, type, width, queries, added);
    plan_norm(plan, "ffn_norm", layer, width);
    plan_matrix(plan, "ffn_gate", layer, type, shape->feed_forward, width, 1.0f);
    plan_matrix(plan, "ffn_up", layer, type, shape->feed_forward, width, 1.0f);
    plan_matrix(plan, "ffn_down", layer, type, width, shape->feed_forward, added / 0.6f);
    if (!has_biases(shape))
        return;
    plan_bias(plan, "attn_q", layer, queries);
    plan_bias(plan, "attn_k", layer, keys);
    plan_bias(plan, "attn_v", layer, keys);
}

static int plan_model(struct plan *plan, const struct nj_synthetic_shape *shape, int64_t vocabulary,
                      struct nj_error *error)
{
    const char *embedding_type = shape->embedding_type != NULL ? shape->embedding_type : shape->type;
    *plan = (struct plan){0};
    plan->tensors = calloc((size_t)shape->layers * LAYER_TENSORS + 3, sizeof *plan->tensors);
    if (plan->tensors == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the list of tensors");
    plan_matrix(plan, "token_embd", -1, embedding_type, vocabulary, shape->width, LOGIT_SPREAD)->loud_row =
        shape->tied ? END_OF_TURN : -1;
    float stream_spread = LOGIT_SPREAD / sqrtf((float)shape->width);
    for (int layer = 0; layer < shape->layers; layer++)
        plan_layer(plan, shape, layer, stream_spread);
    /* Random signs: else a tied head would see the last token's own embedding in the stream and repeat it. */
    plan_norm(plan, "output_norm", -1, shape->width)->flips_sign = true;
    if (!shape->tied)
        plan_matrix(plan, "output", -1, embedding_type, vocabulary, shape->width, LOGIT_SPREAD)->loud_row = END_OF_TURN;
    return 0;
}

static uint64_t tensor_row_bytes(const struct planned_tensor *tensor)
{
    return tensor_type_row_bytes(tensor_type_by_gguf_id(tensor->quantizer->gguf_id), (uint64_t)tensor->cols);
}

static uint64_t tensor_bytes(const struct planned_tensor *tensor)
{
    return tensor_row_bytes(tensor) * (uint64_t)(tensor->rows == 0 ? 1 : tensor->rows);
}

static void fill_row(const struct planned_tensor *tensor, int64_t row_index, struct random *random, float *row)
{
    float factor = row_index == tensor->loud_row ? LOUD_ROW_FACTOR : 1.0f;
    for (int64_t col = 0; col < tensor->cols; col++) {
        row[col] = factor * (tensor->mean + tensor->spread * random_normal(random));
        if (tensor->flips_sign && random_next(random) >> 63 != 0)
            row[col] = -row[col];
    }
}

static int write_tensor(FILE *file, const struct planned_tensor *tensor, uint64_t seed, uint64_t alignment)
{
    uint64_t row_bytes = tensor_row_bytes(tensor);
    float *row = malloc((size_t)tensor->cols * sizeof *row);
    unsigned char *stored = malloc(row_bytes);
    struct random random = {seed};
    int64_t rows = tensor->rows == 0 ? 1 : tensor->rows;
    bool failed = row == NULL || stored == NULL;
    for (int64_t i = 0; i < rows && !failed; i++) {
        fill_row(tensor, i, &random, row);
        tensor->quantizer->quantize_row(row, tensor->cols, stored);
        failed = fwrite(stored, 1, row_bytes, file) != row_bytes;
    }
    free(stored);
    free(row);
    for (uint64_t at = tensor_bytes(tensor); at % alignment != 0 && !failed; at++)
        failed = fputc(0, file) == EOF;
    return failed ? -1 : 0;
}

static int write_file(FILE *file, const struct plan *plan, struct nj_gguf_writer *writer, uint64_t seed)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct planned_tensor *tensor = &plan->tensors[i];
        uint64_t shape[2] = {(uint64_t)tensor->cols, (uint64_t)tensor->rows};
        gguf_writer_add_tensor(writer, tensor->name, tensor->quantizer->gguf_id, tensor->rows == 0 ? 1 : 2, shape,
                               tensor_bytes(tensor));
    }
    struct nj_bytes header = {0};
    gguf_writer_finish(writer, &header);
    int failed = fwrite(header.data, 1, header.count, file) != header.count;
    bytes_free(&header);
    struct random seeds = {seed};
    for (size_t i = 0; i < plan->count && !failed; i++)
        failed = write_tensor(file, &plan->tensors[i], random_next(&seeds), writer->alignment) != 0;
    return failed ? -1 : 0;
}

/* Rows must be whole blocks of the type. */
static bool fits_type(const char *type, int64_t cols)
{
    const struct nj_quantizer *quantizer = quantizer_find(type);
    return quantizer != NULL && tensor_type_row_bytes(tensor_type_by_gguf_id(quantizer->gguf_id), (uint64_t)cols) != 0;
}

static int check_shape(const struct nj_synthetic_shape *shape, struct nj_error *error)
{
    if (shape->layers < 1 || shape->width < 32 || shape->heads < 1 || shape->kv_heads < 1 || shape->feed_forward < 32 ||
        shape->context < 1)
        return error_set(error, NJ_BAD_USAGE, "every dimension of the model must be positive");
    if (shape->width % 32 != 0 || shape->feed_forward % 32 != 0 || (int64_t)shape->heads * head_width(shape) % 32 != 0)
        return error_set(error, NJ_BAD_USAGE, "width, feed-forward and heads times head width must be multiples of 32");
    if (shape->heads % shape->kv_heads != 0 || head_width(shape) < 2 || head_width(shape) % 2 != 0)
        return error_set(error, NJ_BAD_USAGE,
                         "heads must be a multiple of KV heads, and the head width a positive even number");
    if (strcmp(architecture_name(shape), "llama") != 0 && !has_biases(shape))
        return error_set(error, NJ_BAD_USAGE, "the architectures are llama and qwen2");
    if (shape->type == NULL || quantizer_find(shape->type) == NULL ||
        (shape->embedding_type != NULL && quantizer_find(shape->embedding_type) == NULL))
        return error_set(error, NJ_BAD_USAGE,
                         "the types are q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k, f16, bf16 and f32");
    const char *embedding_type = shape->embedding_type != NULL ? shape->embedding_type : shape->type;
    if (!fits_type(shape->type, shape->width) || !fits_type(shape->type, shape->feed_forward) ||
        !fits_type(shape->type, (int64_t)shape->heads * head_width(shape)) || !fits_type(embedding_type, shape->width))
        return error_set(error, NJ_BAD_USAGE, "q4_k, q5_k and q6_k need rows of a multiple of 256");
    return 0;
}

static int write_model(const struct nj_synthetic_shape *shape, const struct vocabulary *vocabulary,
                       const struct plan *plan, const char *path, struct nj_error *error)
{
    FILE *file = fopen(path, "wbe");
    if (file == NULL)
        return error_set(error, NJ_CANT_CREATE, "cannot create %s: %s", path, strerror(errno));
    struct nj_gguf_writer writer;
    gguf_writer_start(&writer);
    add_metadata(&writer, shape, vocabulary);
    int failed = write_file(file, plan, &writer, shape->seed);
    gguf_writer_free(&writer);
    failed |= fclose(file) != 0;
    return failed ? error_set(error, NJ_IO_FAILED, "cannot write %s: %s", path, strerror(errno)) : 0;
}

int synthetic_model_write(const struct nj_synthetic_shape *shape, const char *vocabulary_directory,
                          const char *template_path, const char *path, struct nj_error *error)
{
    if (check_shape(shape, error) != 0)
        return -1;
    struct vocabulary vocabulary;
    struct plan plan = {0};
    int result = read_vocabulary(vocabulary_directory, template_path, &vocabulary, error);
    if (result == 0)
        result = plan_model(&plan, shape, (int64_t)vocabulary.token_count, error);
    if (result == 0)
        result = write_model(shape, &vocabulary, &plan, path, error);
    free(plan.tensors);
    free_vocabulary(&vocabulary);
    return result;
}
