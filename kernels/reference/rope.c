/* Rotary position embedding and the writing of the KV cache. */
#include <math.h>
#include <stddef.h>

#include "kernels/elementary.h"
#include "kernels/reference/internal.h"
#include "kernels/reference/reference.h"

void reference_run_rope_angles(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rope_angles_args *a = &args->rope_angles;
    int64_t end = share_begin(a->count, thread + 1, threads);
    for (int64_t t = share_begin(a->count, thread, threads); t < end; t++) {
        for (int64_t i = 0; i < a->half; i++) {
            double sine, cosine;
            elementary_sincos64((double)a->position[t] * a->inverse_frequency[i], &sine, &cosine);
            a->sin[t * a->half + i] = (float)sine;
            a->cos[t * a->half + i] = (float)cosine;
        }
    }
}

/* Element `index` of a head after rotation. Elements from 2 * half on stay as they are. */
static float rotated_element(const float *head, enum nj_rope_kind kind, int64_t half, const float *cosines,
                             const float *sines, int64_t index)
{
    if (index >= 2 * half)
        return head[index];
    int64_t pair = kind == NJ_ROPE_ADJACENT ? index / 2 : index % half;
    int is_second = kind == NJ_ROPE_ADJACENT ? index % 2 != 0 : index >= half;
    float first = head[kind == NJ_ROPE_ADJACENT ? 2 * pair : pair];
    float second = head[kind == NJ_ROPE_ADJACENT ? 2 * pair + 1 : pair + half];
    float c = cosines[pair], s = sines[pair];
    return is_second ? fmaf(first, s, second * c) : fmaf(first, c, -(second * s));
}

static void rotate_query(float *head, enum nj_rope_kind kind, int64_t half, const float *cosines, const float *sines)
{
    int64_t stride = kind == NJ_ROPE_ADJACENT ? 1 : half;
    for (int64_t pair = 0; pair < half; pair++) {
        int64_t index = kind == NJ_ROPE_ADJACENT ? 2 * pair : pair;
        float first = rotated_element(head, kind, half, cosines, sines, index);
        float second = rotated_element(head, kind, half, cosines, sines, index + stride);
        head[index] = first;
        head[index + stride] = second;
    }
}

static void store_element(enum nj_kv_type type, char *base, int64_t index, float value)
{
    if (type == NJ_KV_F32)
        ((float *)base)[index] = value;
    else
        ((uint16_t *)base)[index] = elementary_half_from_float(value);
}

static void store_token(const struct nj_rope_store_args *a, int64_t t)
{
    int64_t width = a->kv.head_width;
    int64_t row = t * a->kv.kv_heads * width;
    int64_t position = a->batch.position[t];
    int64_t slot = position % NJ_KV_BLOCK_TOKENS;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    char *block = a->kv.base + blocks[position / NJ_KV_BLOCK_TOKENS] * a->kv.block_stride_bytes;
    for (int64_t head = 0; head < a->kv.kv_heads; head++) {
        const float *k = a->k + row + head * width;
        const float *v = a->v + row + head * width;
        int64_t keys = head * 2 * width * NJ_KV_BLOCK_TOKENS;
        int64_t values = keys + width * NJ_KV_BLOCK_TOKENS;
        for (int64_t d = 0; d < width; d++) {
            float key = rotated_element(k, a->kind, a->half, a->cos + t * a->half, a->sin + t * a->half, d);
            store_element(a->kv.type, block, keys + d * NJ_KV_BLOCK_TOKENS + slot, key);
            store_element(a->kv.type, block, values + slot * width + d, v[d]);
        }
    }
}

void reference_run_rope_store(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rope_store_args *a = &args->rope_store;
    int64_t width = a->kv.head_width;
    int64_t end = share_begin(a->batch.count, thread + 1, threads);
    for (int64_t t = share_begin(a->batch.count, thread, threads); t < end; t++) {
        for (int64_t head = 0; head < a->heads; head++)
            rotate_query(a->q + (t * a->heads + head) * width, a->kind, a->half, a->cos + t * a->half,
                         a->sin + t * a->half);
        store_token(a, t);
    }
}
