#include "engine/sweep/forward.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernels/elementary.h"

enum {
    MEMORY_ALIGNMENT = 64,
    LAUNCHES_PER_LAYER = 10,
    LAUNCHES_OUTSIDE_LAYERS = 5, /* embedding, rope angles; norm, head, statistics */
};

/* Where everything lies in the one buffer. Rows are tokens of the sweep; the head has its own rows. */
struct memory {
    struct nj_forward_batch batch;
    double *inverse_frequency; /* [rotated / 2] */
    float *cos, *sin;          /* [tokens][rotated / 2] */
    float *residual;           /* [tokens][width] */

    /* Attention, feed-forward and head are never at work together: their parts overlap. */
    struct nj_activation attention_in;    /* [tokens][width] */
    float *query, *key, *value;           /* [tokens][heads or kv_heads * head_width] */
    struct nj_activation attention_out;   /* [tokens][heads * head_width] */
    struct nj_activation feed_forward_in; /* [tokens][width] */
    float *gate, *up;                     /* [tokens][feed_forward] */
    struct nj_activation feed_forward_mid;
    struct nj_activation head_in; /* [head rows][width] */
    float *logits;                /* [head rows][vocabulary] */
    struct nj_logit_stats *stats; /* [head rows] */
};

struct nj_forward {
    struct nj_hyperparameters shape;
    struct nj_weights *weights;
    const struct nj_kv_cache *cache;
    struct nj_forward_options options;
    struct nj_buffer *buffer;
    struct nj_stream *stream;
    struct memory memory;
};

/* Cuts pieces off a buffer; with a NULL base it only measures. */
struct carver {
    char *base;
    uint64_t used;
};

static void *carve(struct carver *carver, int64_t elements, size_t element_bytes)
{
    void *piece = carver->base == NULL ? NULL : carver->base + carver->used;
    uint64_t bytes = (uint64_t)elements * element_bytes;
    carver->used += (bytes + MEMORY_ALIGNMENT - 1) / MEMORY_ALIGNMENT * MEMORY_ALIGNMENT;
    return piece;
}

static struct nj_q8 carve_q8(struct carver *carver, int64_t rows, int64_t width)
{
    const int64_t groups = rows * (width / NJ_GROUP_COLS);
    struct nj_q8 q8;
    q8.q = carve(carver, rows * width, sizeof *q8.q);
    q8.d = carve(carver, groups, sizeof *q8.d);
    q8.sum = carve(carver, groups, sizeof *q8.sum);
    return q8;
}

static struct nj_activation carve_activation(struct carver *carver, int64_t rows, int64_t width)
{
    struct nj_activation activation;
    activation.f32 = carve(carver, rows * width, sizeof(float));
    activation.q8 = carve_q8(carver, rows, width);
    return activation;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void carve_batch(struct carver *carver, const struct nj_forward_options *options, struct nj_forward_batch *batch)
{
    const int64_t tokens = options->token_budget;
    batch->token = carve(carver, tokens, sizeof(int32_t));
    batch->position = carve(carver, tokens, sizeof(int32_t));
    batch->sequence = carve(carver, tokens, sizeof(int32_t));
    batch->logit_row = carve(carver, tokens, sizeof(int32_t));
    batch->blocks = carve(carver, options->sequences * options->blocks_per_sequence, sizeof(int32_t));
}

static void carve_attention(struct carver *carver, const struct nj_hyperparameters *shape, int64_t tokens,
                            struct memory *memory)
{
    const int64_t query_width = (int64_t)shape->heads * shape->head_width;
    const int64_t kv_width = (int64_t)shape->kv_heads * shape->head_width;
    memory->attention_in = carve_activation(carver, tokens, shape->width);
    memory->query = carve(carver, tokens * query_width, sizeof(float));
    memory->key = carve(carver, tokens * kv_width, sizeof(float));
    memory->value = carve(carver, tokens * kv_width, sizeof(float));
    memory->attention_out = carve_activation(carver, tokens, query_width);
}

static void carve_feed_forward(struct carver *carver, const struct nj_hyperparameters *shape, int64_t tokens,
                               struct memory *memory)
{
    memory->feed_forward_in = carve_activation(carver, tokens, shape->width);
    memory->gate = carve(carver, tokens * shape->feed_forward, sizeof(float));
    memory->up = carve(carver, tokens * shape->feed_forward, sizeof(float));
    memory->feed_forward_mid = carve_activation(carver, tokens, shape->feed_forward);
}

static void carve_head(struct carver *carver, const struct nj_hyperparameters *shape, int64_t tokens,
                       struct memory *memory)
{
    const int64_t rows = tokens < NJ_HEAD_ROWS ? tokens : NJ_HEAD_ROWS;
    memory->head_in = carve_activation(carver, rows, shape->width);
    memory->logits = carve(carver, rows * shape->vocabulary, sizeof(float));
    memory->stats = carve(carver, rows, sizeof(struct nj_logit_stats));
}

/* Fills in `memory` for a buffer at `base`, which may be NULL; returns the buffer's size. */
static uint64_t lay_out(const struct nj_hyperparameters *shape, const struct nj_forward_options *options, char *base,
                        struct memory *memory)
{
    const int64_t tokens = options->token_budget;
    struct carver carver = {.base = base, .used = 0};
    carve_batch(&carver, options, &memory->batch);
    memory->inverse_frequency = carve(&carver, shape->rotated / 2, sizeof(double));
    memory->cos = carve(&carver, tokens * (shape->rotated / 2), sizeof(float));
    memory->sin = carve(&carver, tokens * (shape->rotated / 2), sizeof(float));
    memory->residual = carve(&carver, tokens * shape->width, sizeof(float));

    struct carver attention = carver, feed_forward = carver, head = carver;
    carve_attention(&attention, shape, tokens, memory);
    carve_feed_forward(&feed_forward, shape, tokens, memory);
    carve_head(&head, shape, tokens, memory);
    return max_u64(attention.used, max_u64(feed_forward.used, head.used));
}

uint64_t forward_bytes(const struct nj_hyperparameters *shape, const struct nj_forward_options *options)
{
    struct memory unused = {0};
    return lay_out(shape, options, NULL, &unused);
}

/* base^(-2i / rotated), divided by the linear scale. */
static void fill_inverse_frequency(const struct nj_hyperparameters *shape, double *out)
{
    const double log_base = elementary_log64(shape->rope_base);
    for (int32_t i = 0; i < shape->rotated / 2; i++)
        out[i] = elementary_exp64(-(2.0 * i / shape->rotated) * log_base) / shape->rope_scale;
}

struct nj_forward *forward_create(const struct nj_model *model, struct nj_device *device, struct nj_kv_cache *cache,
                                  const struct nj_forward_options *options, struct nj_error *error)
{
    const uint64_t bytes = forward_bytes(&model->shape, options);
    struct nj_forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL)
        goto failed;
    forward->shape = model->shape;
    forward->weights = model->weights;
    forward->cache = cache;
    forward->options = *options;
    forward->buffer = buffer_create(device, bytes);
    forward->stream = stream_create(device, (size_t)model->shape.layers * LAUNCHES_PER_LAYER + LAUNCHES_OUTSIDE_LAYERS);
    if (forward->buffer == NULL || forward->stream == NULL)
        goto failed;
    lay_out(&forward->shape, options, buffer_address(forward->buffer), &forward->memory);
    fill_inverse_frequency(&forward->shape, forward->memory.inverse_frequency);
    return forward;

failed:
    error_set(error, NJ_DOES_NOT_FIT, "no memory for %llu bytes of activations; use a smaller --token-budget",
              (unsigned long long)bytes);
    forward_destroy(forward);
    return NULL;
}

void forward_destroy(struct nj_forward *forward)
{
    if (forward == NULL)
        return;
    stream_destroy(forward->stream);
    buffer_destroy(forward->buffer);
    free(forward);
}

struct nj_forward_batch *forward_batch(struct nj_forward *forward)
{
    return &forward->memory.batch;
}

/* The forms of an activation that these products read: float kinds float32, integer kinds int8, and on the
 * float path float32 for all. */
static struct nj_activation select_forms(const struct nj_forward *forward, struct nj_activation both,
                                         const struct nj_matmul_output *readers, int count)
{
    bool needs_f32 = forward->options.float_path != 0, needs_q8 = false;
    for (int i = 0; i < count; i++) {
        bool is_float = matrix_kind_info(readers[i].w.kind)->is_float != 0;
        needs_f32 |= is_float;
        needs_q8 |= !is_float && !forward->options.float_path;
    }
    if (!needs_f32)
        both.f32 = NULL;
    if (!needs_q8)
        both.q8 = (struct nj_q8){0};
    return both;
}

static void launch_norm(struct nj_forward *forward, const float *weight, const int32_t *row_index, int64_t count,
                        struct nj_activation out)
{
    union nj_operation_args args = {.rms_norm = {.x = forward->memory.residual,
                                                 .row_index = row_index,
                                                 .count = count,
                                                 .width = forward->shape.width,
                                                 .weight = weight,
                                                 .epsilon = forward->shape.norm_epsilon,
                                                 .out = out}};
    stream_launch(forward->stream, NJ_OP_RMS_NORM, &args);
}

/* One launch for products of the same activation; each writes rows of its own width. */
static void launch_matmul(struct nj_forward *forward, struct nj_activation x, int64_t count,
                          const struct nj_matmul_output *products, int products_count)
{
    union nj_operation_args args = {.matmul = {.x = x, .count = count, .outputs = products_count}};
    for (int i = 0; i < products_count; i++) {
        args.matmul.output[i] = products[i];
        args.matmul.output[i].y_stride = products[i].w.rows;
    }
    stream_launch(forward->stream, NJ_OP_MATMUL, &args);
}

static void launch_embedding(struct nj_forward *forward)
{
    const struct memory *memory = &forward->memory;
    union nj_operation_args embed = {.embed = {.table = *weights_embedding(forward->weights),
                                               .token = memory->batch.token,
                                               .count = memory->batch.count,
                                               .out = memory->residual}};
    stream_launch(forward->stream, NJ_OP_EMBED, &embed);
    union nj_operation_args angles = {.rope_angles = {.position = memory->batch.position,
                                                      .inverse_frequency = memory->inverse_frequency,
                                                      .count = memory->batch.count,
                                                      .half = forward->shape.rotated / 2,
                                                      .cos = memory->cos,
                                                      .sin = memory->sin}};
    stream_launch(forward->stream, NJ_OP_ROPE_ANGLES, &angles);
}

static struct nj_token_batch token_batch(const struct nj_forward *forward)
{
    const struct nj_forward_batch *batch = &forward->memory.batch;
    return (struct nj_token_batch){.count = batch->count,
                                   .token = batch->token,
                                   .position = batch->position,
                                   .sequence = batch->sequence,
                                   .blocks = batch->blocks,
                                   .blocks_stride = forward->options.blocks_per_sequence};
}

/* Queries, keys and values into place, then attention. */
static void launch_attention_core(struct nj_forward *forward, int layer)
{
    const struct memory *memory = &forward->memory;
    const struct nj_kv_layer kv = kv_cache_layer(forward->cache, layer);
    union nj_operation_args store = {.rope_store = {.batch = token_batch(forward),
                                                    .kind = forward->shape.architecture->rope,
                                                    .half = forward->shape.rotated / 2,
                                                    .cos = memory->cos,
                                                    .sin = memory->sin,
                                                    .heads = forward->shape.heads,
                                                    .q = memory->query,
                                                    .k = memory->key,
                                                    .v = memory->value,
                                                    .kv = kv}};
    stream_launch(forward->stream, NJ_OP_ROPE_STORE, &store);
    union nj_operation_args attention = {.attention = {.batch = token_batch(forward),
                                                       .heads = forward->shape.heads,
                                                       .scale = 1.0f / sqrtf((float)forward->shape.head_width),
                                                       .q = memory->query,
                                                       .out = memory->attention_out.f32,
                                                       .kv = kv}};
    stream_launch(forward->stream, NJ_OP_ATTENTION, &attention);
}

static void launch_attention(struct nj_forward *forward, const struct nj_layer_weights *layer, int layer_index)
{
    struct memory *memory = &forward->memory;
    const int64_t count = memory->batch.count;
    const struct nj_matmul_output inputs[] = {
        {.w = layer->query, .bias = layer->query_bias, .y = memory->query},
        {.w = layer->key, .bias = layer->key_bias, .y = memory->key},
        {.w = layer->value, .bias = layer->value_bias, .y = memory->value},
    };
    struct nj_activation in = select_forms(forward, memory->attention_in, inputs, 3);
    launch_norm(forward, layer->attention_norm, NULL, count, in);
    launch_matmul(forward, in, count, inputs, 3);
    launch_attention_core(forward, layer_index);

    const struct nj_matmul_output output = {.w = layer->attention_output, .y = memory->residual, .accumulate = 1};
    struct nj_activation out = select_forms(forward, memory->attention_out, &output, 1);
    if (out.q8.q != NULL) {
        union nj_operation_args args = {.quantize = {.x = memory->attention_out.f32,
                                                     .count = count,
                                                     .width = (int64_t)forward->shape.heads * forward->shape.head_width,
                                                     .out = out}};
        stream_launch(forward->stream, NJ_OP_QUANTIZE, &args);
    }
    launch_matmul(forward, out, count, &output, 1);
}

static void launch_feed_forward(struct nj_forward *forward, const struct nj_layer_weights *layer)
{
    struct memory *memory = &forward->memory;
    const int64_t count = memory->batch.count;
    const struct nj_matmul_output inputs[] = {{.w = layer->gate, .y = memory->gate}, {.w = layer->up, .y = memory->up}};
    struct nj_activation in = select_forms(forward, memory->feed_forward_in, inputs, 2);
    launch_norm(forward, layer->feed_forward_norm, NULL, count, in);
    launch_matmul(forward, in, count, inputs, 2);

    const struct nj_matmul_output output = {.w = layer->down, .y = memory->residual, .accumulate = 1};
    struct nj_activation mid = select_forms(forward, memory->feed_forward_mid, &output, 1);
    union nj_operation_args args = {
        .silu_mul = {
            .gate = memory->gate, .up = memory->up, .count = count, .width = forward->shape.feed_forward, .out = mid}};
    stream_launch(forward->stream, NJ_OP_SILU_MUL, &args);
    launch_matmul(forward, mid, count, &output, 1);
}

static void launch_head(struct nj_forward *forward, const int32_t *rows, int64_t count)
{
    struct memory *memory = &forward->memory;
    const struct nj_matmul_output head = {.w = *weights_head(forward->weights), .y = memory->logits};
    struct nj_activation in = select_forms(forward, memory->head_in, &head, 1);
    launch_norm(forward, weights_output_norm(forward->weights), rows, count, in);
    launch_matmul(forward, in, count, &head, 1);
    union nj_operation_args args = {.logit_stats = {.logits = memory->logits,
                                                    .count = count,
                                                    .vocabulary = forward->shape.vocabulary,
                                                    .stride = forward->shape.vocabulary,
                                                    .out = memory->stats}};
    stream_launch(forward->stream, NJ_OP_LOGIT_STATS, &args);
}

/* What is queued belongs to a sweep that failed. */
static void drop_queue(struct nj_forward *forward)
{
    const atomic_int at_once = 1;
    stream_synchronize(forward->stream, &at_once);
}

static int synchronize(struct nj_forward *forward, const atomic_int *cancel, struct nj_error *error)
{
    if (stream_synchronize(forward->stream, cancel) == 0)
        return 0;
    return error_set(error, NJ_INTERRUPTED, "stopped in the middle of a sweep");
}

/* The head over all rows that need it, a group at a time, the first one together with what is queued. */
static int run_head(struct nj_forward *forward, nj_logits_visitor visit, void *context, const atomic_int *cancel,
                    struct nj_error *error)
{
    const struct memory *memory = &forward->memory;
    const int32_t total = memory->batch.logit_count;
    for (int32_t first = 0; first < total; first += NJ_HEAD_ROWS) {
        const int32_t count = total - first < NJ_HEAD_ROWS ? total - first : NJ_HEAD_ROWS;
        launch_head(forward, memory->batch.logit_row + first, count);
        if (synchronize(forward, cancel, error) != 0)
            return -1;
        for (int32_t i = 0; i < count; i++)
            visit(context, first + i, memory->logits + (int64_t)i * forward->shape.vocabulary, &memory->stats[i]);
    }
    return 0;
}

static void launch_layer(struct nj_forward *forward, const struct nj_layer_weights *layer, int32_t index)
{
    launch_attention(forward, layer, index);
    launch_feed_forward(forward, layer);
}

/* Layers in RAM are only queued. A layer on disk is run at once, so that its memory is free for the next one while the
 * layers behind it run; and what is queued runs first where the disk is still busy with it. */
static int run_layer(struct nj_forward *forward, int32_t index, const atomic_int *cancel, struct nj_error *error)
{
    if (!weights_layer_is_ready(forward->weights, index) && synchronize(forward, cancel, error) != 0)
        return -1;
    const struct nj_layer_weights *layer = weights_take_layer(forward->weights, index, cancel, error);
    if (layer == NULL)
        return -1;
    launch_layer(forward, layer, index);
    if (!weights_layer_is_passing(forward->weights, index))
        return 0;
    if (synchronize(forward, cancel, error) != 0)
        return -1;
    weights_give_back_layer(forward->weights, index);
    return 0;
}

static int run_sweep(struct nj_forward *forward, nj_logits_visitor visit, void *context, const atomic_int *cancel,
                     struct nj_error *error)
{
    launch_embedding(forward);
    for (int32_t i = 0; i < forward->shape.layers; i++)
        if (run_layer(forward, i, cancel, error) != 0)
            return -1;
    if (forward->memory.batch.logit_count == 0)
        return synchronize(forward, cancel, error);
    return run_head(forward, visit, context, cancel, error);
}

int forward_run(struct nj_forward *forward, nj_logits_visitor visit, void *context, const atomic_int *cancel,
                struct nj_error *error)
{
    if (forward->memory.batch.count == 0)
        return 0;
    weights_begin_sweep(forward->weights, forward->memory.batch.another_follows);
    const int status = run_sweep(forward, visit, context, cancel, error);
    if (status != 0)
        drop_queue(forward);
    weights_end_sweep(forward->weights, status == 0);
    return status;
}
