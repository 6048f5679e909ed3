#include "tests/sweep/plain_forward.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A tensor of the file as [rows][cols] of doubles. */
struct plain_tensor {
    double *value;
    int64_t rows, cols;
};

static double *allocate(int64_t count)
{
    double *memory = calloc((size_t)count, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static struct plain_tensor load(const struct nj_model *model, const char *name)
{
    const struct nj_gguf_tensor *tensor = gguf_tensor_find(model->gguf, name);
    assert_non_null(tensor);
    struct plain_tensor plain = {.cols = (int64_t)tensor->shape[0],
                                 .rows = tensor->dimensions > 1 ? (int64_t)tensor->shape[1] : 1};
    const size_t row_bytes = tensor_type_row_bytes(tensor->type, (uint64_t)plain.cols);
    void *stored = malloc(row_bytes);
    float *row = malloc((size_t)plain.cols * sizeof *row);
    assert_true(stored != NULL && row != NULL);
    plain.value = allocate(plain.rows * plain.cols);
    for (int64_t r = 0; r < plain.rows; r++) {
        assert_int_equal(gguf_read(model->gguf, tensor, (uint64_t)r * row_bytes, stored, row_bytes, NULL), 0);
        tensor->type->dequantize_row(stored, plain.cols, row);
        for (int64_t c = 0; c < plain.cols; c++)
            plain.value[r * plain.cols + c] = row[c];
    }
    free(row);
    free(stored);
    return plain;
}

static struct plain_tensor load_of_layer(const struct nj_model *model, int layer, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    return load(model, name);
}

/* [count][rows] */
static double *multiply(const struct plain_tensor *w, const double *x, int32_t count)
{
    double *y = allocate(count * w->rows);
    for (int32_t t = 0; t < count; t++)
        for (int64_t r = 0; r < w->rows; r++)
            for (int64_t c = 0; c < w->cols; c++)
                y[t * w->rows + r] += w->value[r * w->cols + c] * x[t * w->cols + c];
    return y;
}

static double *multiply_by(const struct nj_model *model, int layer, const char *part, const double *x, int32_t count)
{
    struct plain_tensor w = load_of_layer(model, layer, part);
    double *y = multiply(&w, x, count);
    free(w.value);
    return y;
}

/* Adds a vector of the layer to every row of y; models without it have none of that name. */
static void add_bias(const struct nj_model *model, int layer, const char *part, double *y, int32_t count)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, part);
    if (gguf_tensor_find(model->gguf, name) == NULL)
        return;
    struct plain_tensor bias = load(model, name);
    for (int32_t t = 0; t < count; t++)
        for (int64_t i = 0; i < bias.cols; i++)
            y[t * bias.cols + i] += bias.value[i];
    free(bias.value);
}

static double *normalize(const struct plain_tensor *weight, double epsilon, const double *x, int32_t count)
{
    const int64_t width = weight->cols;
    double *y = allocate(count * width);
    for (int32_t t = 0; t < count; t++) {
        double squares = 0;
        for (int64_t i = 0; i < width; i++)
            squares += x[t * width + i] * x[t * width + i];
        for (int64_t i = 0; i < width; i++)
            y[t * width + i] = x[t * width + i] / sqrt(squares / (double)width + epsilon) * weight->value[i];
    }
    return y;
}

/* Rotates the pairs of every head: (2i, 2i + 1) in llama, (i, i + rotated / 2) in qwen2. */
static void rotate(const struct nj_model *model, double *x, int32_t count, int heads)
{
    const struct nj_hyperparameters *shape = &model->shape;
    const int half = shape->rotated / 2;
    const bool is_qwen2 = strcmp(shape->architecture->name, "qwen2") == 0;
    for (int32_t t = 0; t < count; t++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < half; i++) {
                double *head = x + ((int64_t)t * heads + h) * shape->head_width;
                double *one = head + (is_qwen2 ? i : 2 * i), *other = one + (is_qwen2 ? half : 1);
                double angle = t * pow(shape->rope_base, -2.0 * i / shape->rotated) / shape->rope_scale;
                double first = *one, second = *other;
                *one = first * cos(angle) - second * sin(angle);
                *other = first * sin(angle) + second * cos(angle);
            }
}

/* One head of one token: `query` [head_width]; keys and values of its KV head, `stride` apart. */
static void attend(int32_t position, int head_width, const double *query, const double *keys, const double *values,
                   int64_t stride, double *out)
{
    double *weight = allocate(position + 1), largest = -INFINITY, sum = 0;
    for (int32_t p = 0; p <= position; p++) {
        for (int i = 0; i < head_width; i++)
            weight[p] += query[i] * keys[p * stride + i];
        weight[p] /= sqrt(head_width);
        largest = fmax(largest, weight[p]);
    }
    for (int32_t p = 0; p <= position; p++)
        sum += weight[p] = exp(weight[p] - largest);
    for (int32_t p = 0; p <= position; p++)
        for (int i = 0; i < head_width; i++)
            out[i] += weight[p] / sum * values[p * stride + i];
    free(weight);
}

static double *attention(const struct nj_model *model, int layer, const double *x, int32_t count)
{
    const struct nj_hyperparameters *shape = &model->shape;
    const int width = shape->head_width, group = shape->heads / shape->kv_heads;
    double *query = multiply_by(model, layer, "attn_q", x, count);
    double *key = multiply_by(model, layer, "attn_k", x, count);
    double *value = multiply_by(model, layer, "attn_v", x, count);
    double *mixed = allocate((int64_t)count * shape->heads * width);
    add_bias(model, layer, "attn_q", query, count);
    add_bias(model, layer, "attn_k", key, count);
    add_bias(model, layer, "attn_v", value, count);
    rotate(model, query, count, shape->heads);
    rotate(model, key, count, shape->kv_heads);
    for (int32_t t = 0; t < count; t++)
        for (int h = 0; h < shape->heads; h++) {
            const int64_t at = ((int64_t)t * shape->heads + h) * width;
            attend(t, width, query + at, key + h / group * width, value + h / group * width,
                   (int64_t)shape->kv_heads * width, mixed + at);
        }
    double *out = multiply_by(model, layer, "attn_output", mixed, count);
    free(mixed);
    free(value);
    free(key);
    free(query);
    return out;
}

static double *feed_forward(const struct nj_model *model, int layer, const double *x, int32_t count)
{
    double *gate = multiply_by(model, layer, "ffn_gate", x, count);
    double *up = multiply_by(model, layer, "ffn_up", x, count);
    for (int64_t i = 0; i < (int64_t)count * model->shape.feed_forward; i++)
        gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
    double *out = multiply_by(model, layer, "ffn_down", gate, count);
    free(up);
    free(gate);
    return out;
}

typedef double *(*plain_block)(const struct nj_model *model, int layer, const double *x, int32_t count);

/* x += block(norm(x)) */
static void add_block(const struct nj_model *model, int layer, const char *norm, plain_block block, double *x,
                      int32_t count)
{
    struct plain_tensor weight = load_of_layer(model, layer, norm);
    double *in = normalize(&weight, model->shape.norm_epsilon, x, count);
    double *out = block(model, layer, in, count);
    for (int64_t i = 0; i < count * weight.cols; i++)
        x[i] += out[i];
    free(out);
    free(in);
    free(weight.value);
}

void plain_forward(const struct nj_model *model, const int32_t *tokens, int32_t count, double *logits)
{
    const int64_t width = model->shape.width;
    struct plain_tensor embedding = load(model, "token_embd.weight");
    double *x = allocate(count * width);
    for (int32_t t = 0; t < count; t++)
        memcpy(x + t * width, embedding.value + tokens[t] * width, (size_t)width * sizeof *x);
    for (int layer = 0; layer < model->shape.layers; layer++) {
        add_block(model, layer, "attn_norm", attention, x, count);
        add_block(model, layer, "ffn_norm", feed_forward, x, count);
    }
    struct plain_tensor norm = load(model, "output_norm.weight");
    struct plain_tensor head = model->shape.tied_embeddings ? embedding : load(model, "output.weight");
    double *normed = normalize(&norm, model->shape.norm_epsilon, x, count);
    double *result = multiply(&head, normed, count);
    memcpy(logits, result, (size_t)count * (size_t)head.rows * sizeof *logits);
    free(result);
    free(normed);
    if (head.value != embedding.value)
        free(head.value);
    free(norm.value);
    free(x);
    free(embedding.value);
}
