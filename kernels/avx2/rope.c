/* Rotation of queries and keys, and the writing of a KV cache in float16 or int8. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/vector.h"
#include "kernels/kv_block.h"
#include "kernels/reference/reference.h"

/* Rotates a head of pairs (2i, 2i + 1), four pairs at a time. */
static void rotate_adjacent(const float *in, int64_t half, const float *cosines, const float *sines, float *out)
{
    const __m256 negate_even = _mm256_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f);
    for (int64_t i = 0; i < half; i += 4) {
        __m128 c = _mm_loadu_ps(cosines + i), s = _mm_loadu_ps(sines + i);
        __m256 cs = _mm256_set_m128(_mm_unpackhi_ps(c, s), _mm_unpacklo_ps(c, s)); /* c0 s0 c1 s1 ... */
        __m256 sc = _mm256_permute_ps(cs, 0xb1);
        __m256 x = _mm256_loadu_ps(in + 2 * i);
        __m256 first = _mm256_moveldup_ps(x), second = _mm256_movehdup_ps(x);
        __m256 addend = _mm256_xor_ps(_mm256_mul_ps(second, sc), negate_even); /* -(b s), b c */
        _mm256_storeu_ps(out + 2 * i, _mm256_fmadd_ps(first, cs, addend));
    }
}

/* Rotates a head of pairs (i, i + half), eight pairs at a time. */
static void rotate_halves(const float *in, int64_t half, const float *cosines, const float *sines, float *out)
{
    for (int64_t i = 0; i < half; i += VECTOR_FLOATS) {
        __m256 c = _mm256_loadu_ps(cosines + i), s = _mm256_loadu_ps(sines + i);
        __m256 first = _mm256_loadu_ps(in + i), second = _mm256_loadu_ps(in + half + i);
        __m256 minus = _mm256_xor_ps(_mm256_mul_ps(second, s), _mm256_set1_ps(-0.0f));
        _mm256_storeu_ps(out + i, _mm256_fmadd_ps(first, c, minus));
        _mm256_storeu_ps(out + half + i, _mm256_fmadd_ps(first, s, _mm256_mul_ps(second, c)));
    }
}

/* `out` may be `in`. */
static void rotate_head(const struct nj_rope_store_args *a, int64_t t, const float *in, float *out)
{
    const float *cosines = a->cos + t * a->half, *sines = a->sin + t * a->half;
    if (a->kind == NJ_ROPE_ADJACENT)
        rotate_adjacent(in, a->half, cosines, sines, out);
    else
        rotate_halves(in, a->half, cosines, sines, out);
    for (int64_t d = 2 * a->half; d < a->kv.head_width; d++)
        out[d] = in[d];
}

static void convert_to_halves(const float *in, int64_t count, uint16_t *out)
{
    for (int64_t i = 0; i < count; i += VECTOR_FLOATS)
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
}

/* One step of the transform inside a register: `swapped` is x with the partners exchanged, `second` has the sign bit
 * in the lanes of second partners. First ones become x + partner, second ones partner - x. */
NJ_ALWAYS_INLINE __m256 butterfly(__m256 x, __m256 swapped, __m256 second)
{
    return _mm256_add_ps(swapped, _mm256_xor_ps(x, second));
}

/* The Walsh-Hadamard transform of every block of 2^k elements, the largest that divides the width (at least 8). */
static void transform_head(float *head, int64_t width)
{
    const __m256 odd_lanes = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    const __m256 odd_pairs = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    const __m256 upper_half = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    int64_t block = width & -width, rest = block;
    float factor = 1.0f;
    for (; rest >= 4; rest /= 4)
        factor *= 0.5f;
    if (rest == 2)
        factor *= 0x1.6a09e6p-1f;
    for (int64_t i = 0; i < width; i += VECTOR_FLOATS) {
        __m256 x = _mm256_loadu_ps(head + i);
        x = butterfly(x, _mm256_permute_ps(x, 0xb1), odd_lanes);
        x = butterfly(x, _mm256_permute_ps(x, 0x4e), odd_pairs);
        x = butterfly(x, _mm256_permute2f128_ps(x, x, 0x01), upper_half);
        _mm256_storeu_ps(head + i, x);
    }
    for (int64_t stride = VECTOR_FLOATS; stride < block; stride *= 2) {
        for (int64_t i = 0; i < width; i += VECTOR_FLOATS) {
            if ((i & stride) != 0)
                continue;
            __m256 first = _mm256_loadu_ps(head + i), second = _mm256_loadu_ps(head + i + stride);
            _mm256_storeu_ps(head + i, _mm256_add_ps(first, second));
            _mm256_storeu_ps(head + i + stride, _mm256_sub_ps(first, second));
        }
    }
    for (int64_t i = 0; i < width; i += VECTOR_FLOATS)
        _mm256_storeu_ps(head + i, _mm256_mul_ps(_mm256_loadu_ps(head + i), _mm256_set1_ps(factor)));
}

/* Returns the scale. */
static float convert_to_bytes(const float *in, int64_t count, int8_t *out)
{
    struct vector_scale scale = vector_scale_for(vector_magnitude_bits(in, count), 127.0f);
    for (int64_t i = 0; i < count; i += VECTOR_FLOATS) {
        __m256i n = vector_quantize(_mm256_loadu_ps(in + i), scale);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
        _mm_storel_epi64((__m128i *)(out + i), _mm_packs_epi16(words, words));
    }
    return scale.scale;
}

static void store_f16(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot, const float *k,
                      const float *v)
{
    int64_t width = kv->head_width;
    uint16_t *keys = (uint16_t *)(block + head * kv_head_bytes(NJ_KV_F16, width));
    uint16_t *values = keys + width * NJ_KV_BLOCK_TOKENS;
    uint16_t key[NJ_MOST_HEAD_WIDTH];
    convert_to_halves(k, width, key);
    for (int64_t d = 0; d < width; d++)
        keys[d * NJ_KV_BLOCK_TOKENS + slot] = key[d];
    convert_to_halves(v, width, values + slot * width);
}

/* Values are written byte by byte: other threads may be writing the neighbouring positions of a quad. */
static void store_q8(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot, const float *k,
                     const float *v)
{
    int64_t width = kv->head_width;
    struct nj_kv_q8_head stored = kv_q8_head(block, width, head);
    int8_t q[NJ_MOST_HEAD_WIDTH];
    for (int64_t first = 0; first < width; first += NJ_GROUP_COLS) {
        int64_t count = width - first < NJ_GROUP_COLS ? width - first : NJ_GROUP_COLS;
        float *scales = stored.key_scales + first / NJ_GROUP_COLS * NJ_KV_BLOCK_TOKENS;
        scales[slot] = convert_to_bytes(k + first, count, q + first);
    }
    for (int64_t d = 0; d < width; d += NJ_KV_QUAD)
        memcpy(stored.keys + kv_q8_key_index(d, slot), q + d, NJ_KV_QUAD);
    stored.value_scales[slot] = convert_to_bytes(v, width, q);
    int8_t *values = stored.values + kv_q8_value_index(width, 0, slot);
    for (int64_t d = 0; d < width; d++)
        values[d * NJ_KV_QUAD] = q[d];
}

static void store_token(const struct nj_rope_store_args *a, int64_t t)
{
    int64_t width = a->kv.head_width;
    int64_t position = a->batch.position[t];
    int64_t slot = position % NJ_KV_BLOCK_TOKENS;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    char *block = a->kv.base + blocks[position / NJ_KV_BLOCK_TOKENS] * a->kv.block_stride_bytes;
    for (int64_t head = 0; head < a->kv.kv_heads; head++) {
        int64_t row = (t * a->kv.kv_heads + head) * width;
        float rotated[NJ_MOST_HEAD_WIDTH];
        rotate_head(a, t, a->k + row, rotated);
        if (a->kv.type == NJ_KV_Q8) {
            transform_head(rotated, width);
            store_q8(&a->kv, block, head, slot, rotated, a->v + row);
        } else {
            store_f16(&a->kv, block, head, slot, rotated, a->v + row);
        }
    }
}

void avx2_run_rope_store(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rope_store_args *a = &args->rope_store;
    int64_t width = a->kv.head_width;
    int64_t pairs_at_once = a->kind == NJ_ROPE_ADJACENT ? 4 : VECTOR_FLOATS;
    if (a->kv.type == NJ_KV_F32 || width % VECTOR_FLOATS != 0 || a->half % pairs_at_once != 0) {
        reference_run_rope_store(args, thread, threads);
        return;
    }
    int64_t end = vector_share_begin(a->batch.count, thread + 1, threads);
    for (int64_t t = vector_share_begin(a->batch.count, thread, threads); t < end; t++) {
        for (int64_t head = 0; head < a->heads; head++) {
            float *q = a->q + (t * a->heads + head) * width;
            rotate_head(a, t, q, q);
            if (a->kv.type == NJ_KV_Q8)
                transform_head(q, width);
        }
        store_token(a, t);
    }
}
