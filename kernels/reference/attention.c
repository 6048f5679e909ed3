/* Causal attention: online softmax over blocks of 64 positions. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, DIMENSIONS_AT_ONCE = 64 };

/* Softmax state of one query head. */
struct state {
    float max, sum;
};

/* Elements [index, index + count) of a block as float32. */
static void read_stored(enum nj_kv_type type, const char *block, int64_t index, int64_t count, float *out)
{
    if (type == NJ_KV_F32) {
        memcpy(out, (const float *)block + index, (size_t)count * sizeof *out);
        return;
    }
    const uint16_t *halves = (const uint16_t *)block + index;
    for (int64_t i = 0; i < count; i++)
        out[i] = elementary_float_from_half(halves[i]);
}

static void compute_scores(const struct nj_kv_layer *kv, const char *block, int64_t keys, int64_t valid, const float *q,
                           float scale, float *score)
{
    for (int64_t j = 0; j < valid; j++)
        score[j] = 0.0f;
    for (int64_t d = 0; d < kv->head_width; d++) {
        float key[BLOCK];
        read_stored(kv->type, block, keys + d * BLOCK, valid, key);
        for (int64_t j = 0; j < valid; j++)
            score[j] = fmaf(q[d], key[j], score[j]);
    }
    for (int64_t j = 0; j < valid; j++)
        score[j] *= scale;
}

/* Turns scores into exp(score - max) and returns their sum. */
static float exponentiate(float *score, int64_t valid, float max)
{
    float partial[REFERENCE_PARTIALS] = {0};
    for (int64_t j = 0; j < valid; j++) {
        score[j] = elementary_exp(score[j] - max);
        partial[j % REFERENCE_PARTIALS] += score[j];
    }
    return sum_partials(partial);
}

/* out = the block's weighted values, or out * correction + them. */
static void join_values(const struct nj_kv_layer *kv, const char *block, int64_t values, int64_t valid, const float *p,
                        int is_first, float correction, float *out)
{
    for (int64_t first = 0; first < kv->head_width; first += DIMENSIONS_AT_ONCE) {
        int64_t count = kv->head_width - first < DIMENSIONS_AT_ONCE ? kv->head_width - first : DIMENSIONS_AT_ONCE;
        float acc[DIMENSIONS_AT_ONCE] = {0};
        for (int64_t j = 0; j < valid; j++) {
            float value[DIMENSIONS_AT_ONCE];
            read_stored(kv->type, block, values + j * kv->head_width + first, count, value);
            for (int64_t d = 0; d < count; d++)
                acc[d] = fmaf(p[j], value[d], acc[d]);
        }
        for (int64_t d = 0; d < count; d++)
            out[first + d] = is_first ? acc[d] : fmaf(out[first + d], correction, acc[d]);
    }
}

static void join_block(const struct nj_attention_args *a, const char *block, int64_t kv_head, int64_t valid,
                       int is_first, const float *q, struct state *state, float *out)
{
    int64_t keys = kv_head * 2 * a->kv.head_width * BLOCK;
    float p[BLOCK];
    compute_scores(&a->kv, block, keys, valid, q, a->scale, p);
    float max = is_first ? -INFINITY : state->max;
    for (int64_t j = 0; j < valid; j++)
        max = p[j] > max ? p[j] : max;
    float block_sum = exponentiate(p, valid, max);
    float correction = is_first ? 0.0f : elementary_exp(state->max - max);
    state->sum = is_first ? block_sum : fmaf(state->sum, correction, block_sum);
    state->max = max;
    join_values(&a->kv, block, keys + a->kv.head_width * BLOCK, valid, p, is_first, correction, out);
}

static void attend(const struct nj_attention_args *a, int64_t t, int64_t head)
{
    int64_t width = a->kv.head_width;
    int64_t kv_head = head / (a->heads / a->kv.kv_heads);
    int64_t positions = (int64_t)a->batch.position[t] + 1;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    const float *q = a->q + (t * a->heads + head) * width;
    float *out = a->out + (t * a->heads + head) * width;
    struct state state = {0};
    for (int64_t first = 0; first < positions; first += BLOCK) {
        int64_t valid = positions - first < BLOCK ? positions - first : BLOCK;
        const char *block = a->kv.base + blocks[first / BLOCK] * a->kv.block_stride_bytes;
        join_block(a, block, kv_head, valid, first == 0, q, &state, out);
    }
    for (int64_t d = 0; d < width; d++)
        out[d] /= state.sum;
}

/* Heads are dealt out in turn, so that every thread gets short and long contexts alike. */
void reference_run_attention(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_attention_args *a = &args->attention;
    for (int64_t item = thread; item < a->batch.count * a->heads; item += threads)
        attend(a, item / a->heads, item % a->heads);
}
