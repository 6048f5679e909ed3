/* Rotary position embedding and the writing of the KV cache. */
#include <math.h>
#include <stddef.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
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

/* The orthonormal Walsh-Hadamard transform of every block of 2^k elements, the largest that divides the width. */
static void transform_head(float *head, int64_t width)
{
    int64_t block = width & -width, rest = block;
    float factor = 1.0f; /* 1 / sqrt(block) */
    for (; rest >= 4; rest /= 4)
        factor *= 0.5f;
    if (rest == 2)
        factor *= 0x1.6a09e6p-1f;
    for (int64_t stride = 1; stride < block; stride *= 2) {
        for (int64_t i = 0; i < width; i++) {
            if ((i & stride) != 0)
                continue;
            float first = head[i], second = head[i + stride];
            head[i] = first + second;
            head[i + stride] = first - second;
        }
    }
    for (int64_t i = 0; i < width; i++)
        head[i] *= factor;
}

static void store_float(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot, const float *k,
                        const float *v)
{
    int64_t width = kv->head_width;
    char *part = block + head * kv_head_bytes(kv->type, width);
    for (int64_t d = 0; d < width; d++) {
        int64_t key = d * NJ_KV_BLOCK_TOKENS + slot;
        int64_t value = (NJ_KV_BLOCK_TOKENS + slot) * width + d;
        if (kv->type == NJ_KV_F32) {
            ((float *)part)[key] = k[d];
            ((float *)part)[value] = v[d];
        } else {
            ((uint16_t *)part)[key] = elementary_half_from_float(k[d]);
            ((uint16_t *)part)[value] = elementary_half_from_float(v[d]);
        }
    }
}

static void store_q8(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot, const float *k,
                     const float *v)
{
    int64_t width = kv->head_width;
    struct nj_kv_q8_head stored = kv_q8_head(block, width, head);
    int32_t q[NJ_MOST_HEAD_WIDTH];
    for (int64_t first = 0; first < width; first += NJ_GROUP_COLS) {
        int64_t count = width - first < NJ_GROUP_COLS ? width - first : NJ_GROUP_COLS;
        float *scales = stored.key_scales + first / NJ_GROUP_COLS * NJ_KV_BLOCK_TOKENS;
        scales[slot] = reference_quantize(k + first, count, 127.0f, q + first);
    }
    for (int64_t d = 0; d < width; d++)
        stored.keys[kv_q8_key_index(d, slot)] = (int8_t)q[d];
    stored.value_scales[slot] = reference_quantize(v, width, 127.0f, q);
    for (int64_t d = 0; d < width; d++)
        stored.values[kv_q8_value_index(width, d, slot)] = (int8_t)q[d];
}

static void store_token(const struct nj_rope_store_args *a, int64_t t)
{
    int64_t width = a->kv.head_width;
    int64_t position = a->batch.position[t];
    int64_t slot = position % NJ_KV_BLOCK_TOKENS;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    char *block = a->kv.base + blocks[position / NJ_KV_BLOCK_TOKENS] * a->kv.block_stride_bytes;
    for (int64_t head = 0; head < a->kv.kv_heads; head++) {
        const float *k = a->k + (t * a->kv.kv_heads + head) * width;
        const float *v = a->v + (t * a->kv.kv_heads + head) * width;
        float key[NJ_MOST_HEAD_WIDTH];
        for (int64_t d = 0; d < width; d++)
            key[d] = rotated_element(k, a->kind, a->half, a->cos + t * a->half, a->sin + t * a->half, d);
        if (a->kv.type == NJ_KV_Q8) {
            transform_head(key, width);
            store_q8(&a->kv, block, head, slot, key, v);
        } else {
            store_float(&a->kv, block, head, slot, key, v);
        }
    }
}

void reference_run_rope_store(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rope_store_args *a = &args->rope_store;
    int64_t width = a->kv.head_width;
    int64_t end = share_begin(a->batch.count, thread + 1, threads);
    for (int64_t t = share_begin(a->batch.count, thread, threads); t < end; t++) {
        for (int64_t head = 0; head < a->heads; head++) {
            float *q = a->q + (t * a->heads + head) * width;
            rotate_query(q, a->kind, a->half, a->cos + t * a->half, a->sin + t * a->half);
            if (a->kv.type == NJ_KV_Q8)
                transform_head(q, width);
        }
        store_token(a, t);
    }
}
