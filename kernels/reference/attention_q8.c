/* Scores and weighted values over keys and values in int8: exact integer sums, joined by their scales. */
#include <math.h>
#include <stddef.h>

#include "kernels/kv_block.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/internal.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS };

void reference_score_q8(const struct reference_kv_head *head, const float *q, float *score)
{
    int64_t width = head->kv->head_width;
    struct nj_kv_q8_head stored = kv_q8_head(head->block, width, head->index);
    for (int64_t j = 0; j < head->valid; j++)
        score[j] = 0.0f;
    for (int64_t first = 0; first < width; first += NJ_GROUP_COLS) {
        int64_t count = width - first < NJ_GROUP_COLS ? width - first : NJ_GROUP_COLS;
        const float *key_scale = stored.key_scales + first / NJ_GROUP_COLS * BLOCK;
        int32_t query[NJ_GROUP_COLS];
        float d = reference_quantize(q + first, count, 127.0f, query);
        int32_t dot[BLOCK] = {0};
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < head->valid; j++)
                dot[j] += query[i] * stored.keys[kv_q8_key_index(first + i, j)];
        for (int64_t j = 0; j < head->valid; j++)
            score[j] = fmaf(d * key_scale[j], (float)dot[j], score[j]);
    }
}

/* The sums stay below 2^31: 64 * 32,767 * 127. */
void reference_weigh_q8(const struct reference_kv_head *head, const float *p, float *out)
{
    int64_t width = head->kv->head_width;
    struct nj_kv_q8_head stored = kv_q8_head(head->block, width, head->index);
    float weight[BLOCK];
    int32_t quantised[BLOCK];
    for (int64_t j = 0; j < head->valid; j++)
        weight[j] = p[j] * stored.value_scales[j];
    float d = reference_quantize(weight, head->valid, 32767.0f, quantised);
    for (int64_t i = 0; i < width; i++) {
        int32_t dot = 0;
        for (int64_t j = 0; j < head->valid; j++)
            dot += quantised[j] * stored.values[kv_q8_value_index(width, i, j)];
        out[i] = d * (float)dot;
    }
}
