/* Rotation of queries and keys, and the writing of a float16 KV cache. */
#include <stddef.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/vector.h"
#include "kernels/reference/reference.h"

enum { WIDEST_HEAD = 512 };

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

static void store_token(const struct nj_rope_store_args *a, int64_t t)
{
    int64_t width = a->kv.head_width;
    int64_t position = a->batch.position[t];
    int64_t slot = position % NJ_KV_BLOCK_TOKENS;
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[t] * a->batch.blocks_stride;
    char *block = a->kv.base + blocks[position / NJ_KV_BLOCK_TOKENS] * a->kv.block_stride_bytes;
    for (int64_t head = 0; head < a->kv.kv_heads; head++) {
        int64_t row = (t * a->kv.kv_heads + head) * width;
        uint16_t *keys = (uint16_t *)block + head * 2 * width * NJ_KV_BLOCK_TOKENS;
        uint16_t *values = keys + width * NJ_KV_BLOCK_TOKENS;
        float rotated[WIDEST_HEAD];
        uint16_t key[WIDEST_HEAD];
        rotate_head(a, t, a->k + row, rotated);
        convert_to_halves(rotated, width, key);
        for (int64_t d = 0; d < width; d++)
            keys[d * NJ_KV_BLOCK_TOKENS + slot] = key[d];
        convert_to_halves(a->v + row, width, values + slot * width);
    }
}

void avx2_run_rope_store(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_rope_store_args *a = &args->rope_store;
    int64_t width = a->kv.head_width;
    int64_t pairs_at_once = a->kind == NJ_ROPE_ADJACENT ? 4 : VECTOR_FLOATS;
    if (a->kv.type != NJ_KV_F16 || width % VECTOR_FLOATS != 0 || width > WIDEST_HEAD || a->half % pairs_at_once != 0) {
        reference_run_rope_store(args, thread, threads);
        return;
    }
    int64_t end = vector_share_begin(a->batch.count, thread + 1, threads);
    for (int64_t t = vector_share_begin(a->batch.count, thread, threads); t < end; t++) {
        for (int64_t head = 0; head < a->heads; head++) {
            float *q = a->q + (t * a->heads + head) * width;
            rotate_head(a, t, q, q);
        }
        store_token(a, t);
    }
}
