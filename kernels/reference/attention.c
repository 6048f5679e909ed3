/* Causal attention: online softmax over blocks of 64 positions, whatever the type of keys and values. */
#include "kernels/reference/attention.h"

#include <math.h>
#include <stddef.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS };

/* Softmax state of one query head. */
struct state {
    float max, sum;
};

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

static void join_block(const struct reference_kv_head *head, float scale, int is_first, const float *q,
                       struct state *state, float *out)
{
    int is_q8 = head->kv->type == NJ_KV_Q8;
    float p[BLOCK], weighted[NJ_MOST_HEAD_WIDTH];
    (is_q8 ? reference_score_q8 : reference_score_float)(head, q, p);
    float max = is_first ? -INFINITY : state->max;
    for (int64_t j = 0; j < head->valid; j++) {
        p[j] *= scale;
        max = p[j] > max ? p[j] : max;
    }
    float block_sum = exponentiate(p, head->valid, max);
    float correction = is_first ? 0.0f : elementary_exp(state->max - max);
    state->sum = is_first ? block_sum : fmaf(state->sum, correction, block_sum);
    state->max = max;
    (is_q8 ? reference_weigh_q8 : reference_weigh_float)(head, p, weighted);
    for (int64_t d = 0; d < head->kv->head_width; d++)
        out[d] = is_first ? weighted[d] : fmaf(out[d], correction, weighted[d]);
}

static void attend(const struct nj_attention_args *a, int64_t t, int64_t head)
{
    int64_t width = a->kv.head_width;
    int64_t positions = (int64_t)a->batch.position[t] + 1;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    const float *q = a->q + (t * a->heads + head) * width;
    float *out = a->out + (t * a->heads + head) * width;
    struct state state = {0};
    struct reference_kv_head kv_head = {.kv = &a->kv, .index = head / (a->heads / a->kv.kv_heads)};
    for (int64_t first = 0; first < positions; first += BLOCK) {
        kv_head.valid = positions - first < BLOCK ? positions - first : BLOCK;
        kv_head.block = a->kv.base + blocks[first / BLOCK] * a->kv.block_stride_bytes;
        join_block(&kv_head, a->scale, first == 0, q, &state, out);
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
