/* Scores and weighted values over keys and values in float16 or float32. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
#include "kernels/reference/attention.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, DIMENSIONS_AT_ONCE = 64 };

/* Elements [index, index + count) of the head's part as float32. */
static void read_stored(const struct reference_kv_head *head, int64_t index, int64_t count, float *out)
{
    enum nj_kv_type type = head->kv->type;
    const char *part = head->block + head->index * kv_head_bytes(type, head->kv->head_width);
    if (type == NJ_KV_F32) {
        memcpy(out, (const float *)part + index, (size_t)count * sizeof *out);
        return;
    }
    const uint16_t *halves = (const uint16_t *)part + index;
    for (int64_t i = 0; i < count; i++)
        out[i] = elementary_float_from_half(halves[i]);
}

void reference_score_float(const struct reference_kv_head *head, const float *q, float *score)
{
    for (int64_t j = 0; j < head->valid; j++)
        score[j] = 0.0f;
    for (int64_t d = 0; d < head->kv->head_width; d++) {
        float key[BLOCK];
        read_stored(head, d * BLOCK, head->valid, key);
        for (int64_t j = 0; j < head->valid; j++)
            score[j] = fmaf(q[d], key[j], score[j]);
    }
}

void reference_weigh_float(const struct reference_kv_head *head, const float *p, float *out)
{
    int64_t width = head->kv->head_width;
    for (int64_t first = 0; first < width; first += DIMENSIONS_AT_ONCE) {
        int64_t count = width - first < DIMENSIONS_AT_ONCE ? width - first : DIMENSIONS_AT_ONCE;
        float acc[DIMENSIONS_AT_ONCE] = {0};
        for (int64_t j = 0; j < head->valid; j++) {
            float value[DIMENSIONS_AT_ONCE];
            read_stored(head, (BLOCK + j) * width + first, count, value);
            for (int64_t d = 0; d < count; d++)
                acc[d] = fmaf(p[j], value[d], acc[d]);
        }
        memcpy(out + first, acc, (size_t)count * sizeof *out);
    }
}
