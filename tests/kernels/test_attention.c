/* Rotation angles, rotation with the KV cache, and attention over it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
#include "tests/emulator/cuda_tables.h"
#include "tests/kernels/kernel_test.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS };

/* A model's shape and a batch that holds every position of a few sequences, in mixed order. */
struct scene {
    int32_t heads, kv_heads, width;
    enum nj_rope_kind kind;
    enum nj_kv_type type;
    int64_t half, positions, sequences; /* positions per sequence */
    struct nj_token_batch batch;
    int64_t all_blocks;
    size_t cache_bytes;
    int64_t block_stride_bytes;
    float *q, *k, *v, *cos, *sin;
};

static struct nj_kv_layer cache_layer(const struct scene *scene, void *cache)
{
    return (struct nj_kv_layer){.type = scene->type,
                                .base = cache,
                                .block_stride_bytes = scene->block_stride_bytes,
                                .kv_heads = scene->kv_heads,
                                .head_width = scene->width};
}

/* Tokens in a shuffled order; block numbers scattered over a pool with gaps. */
static void make_batch(struct nj_test_random *random, struct scene *scene)
{
    int64_t count = scene->positions * scene->sequences;
    int64_t stride = (scene->positions + BLOCK - 1) / BLOCK;
    int32_t *order = test_allocate((size_t)count * sizeof *order);
    int32_t *position = test_allocate((size_t)count * sizeof *position);
    int32_t *sequence = test_allocate((size_t)count * sizeof *sequence);
    int32_t *blocks = test_allocate((size_t)(stride * scene->sequences) * sizeof *blocks);
    for (int64_t i = 0; i < count; i++) {
        int64_t j = random_below(random, i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    for (int64_t i = 0; i < count; i++) {
        position[i] = (int32_t)(order[i] % scene->positions);
        sequence[i] = (int32_t)(order[i] / scene->positions);
    }
    scene->all_blocks = stride * scene->sequences + 3;
    for (int64_t i = 0; i < stride * scene->sequences; i++)
        blocks[i] = (int32_t)(scene->all_blocks - 1 - (i * 2 < scene->all_blocks ? i * 2 : 2 * i - scene->all_blocks));
    scene->batch = (struct nj_token_batch){
        .count = count, .position = position, .sequence = sequence, .blocks = blocks, .blocks_stride = stride};
    free(order);
}

static void make_scene(struct nj_test_random *random, struct scene *scene)
{
    make_batch(random, scene);
    int64_t count = scene->batch.count;
    scene->block_stride_bytes = scene->kv_heads * kv_head_bytes(scene->type, scene->width) + 128;
    scene->cache_bytes = (size_t)scene->all_blocks * (size_t)scene->block_stride_bytes;
    scene->q = test_random_floats(random, count * scene->heads * scene->width, -2.0f, 2.0f);
    scene->k = test_random_floats(random, count * scene->kv_heads * scene->width, -2.0f, 2.0f);
    scene->v = test_random_floats(random, count * scene->kv_heads * scene->width, -2.0f, 2.0f);
    scene->cos = test_random_floats(random, count * scene->half, -1.0f, 1.0f);
    scene->sin = test_random_floats(random, count * scene->half, -1.0f, 1.0f);
}

static void free_scene(struct scene *scene)
{
    free((void *)scene->batch.position);
    free((void *)scene->batch.sequence);
    free((void *)scene->batch.blocks);
    free(scene->q);
    free(scene->k);
    free(scene->v);
    free(scene->cos);
    free(scene->sin);
}

/* A cache full of NaN (0xffff as half, 0xffffffff as float, also as a scale): what was never written must not matter.
 */
static void *make_cache(const struct scene *scene)
{
    void *cache = test_allocate(scene->cache_bytes);
    memset(cache, 0xff, scene->cache_bytes);
    return cache;
}

static void store(const struct scene *scene, const struct nj_cpu_kernels *kernels, int threads, float *q, void *cache)
{
    memcpy(q, scene->q, (size_t)(scene->batch.count * scene->heads * scene->width) * sizeof *q);
    union nj_operation_args args = {.rope_store = {.batch = scene->batch,
                                                   .kind = scene->kind,
                                                   .half = scene->half,
                                                   .cos = scene->cos,
                                                   .sin = scene->sin,
                                                   .heads = scene->heads,
                                                   .q = q,
                                                   .k = scene->k,
                                                   .v = scene->v,
                                                   .kv = cache_layer(scene, cache)}};
    test_run(kernels, NJ_OP_ROPE_STORE, &args, threads);
}

static void attend(const struct scene *scene, const struct nj_cpu_kernels *kernels, int threads, const float *q,
                   void *cache, float *out)
{
    union nj_operation_args args = {.attention = {.batch = scene->batch,
                                                  .heads = scene->heads,
                                                  .scale = 1.0f / sqrtf((float)scene->width),
                                                  .q = q,
                                                  .out = out,
                                                  .kv = cache_layer(scene, cache)}};
    test_run(kernels, NJ_OP_ATTENTION, &args, threads);
}

/* What the reference makes of a scene. */
struct outcome {
    const struct scene *scene;
    float *q, *out;
    void *cache;
};

static struct outcome make_outcome(const struct scene *scene, const struct nj_cpu_kernels *kernels, int threads)
{
    size_t bytes = (size_t)(scene->batch.count * scene->heads * scene->width) * sizeof(float);
    struct outcome outcome = {
        .scene = scene, .q = test_allocate(bytes), .out = test_allocate(bytes), .cache = make_cache(scene)};
    store(scene, kernels, threads, outcome.q, outcome.cache);
    attend(scene, kernels, threads, outcome.q, outcome.cache, outcome.out);
    return outcome;
}

static void free_outcome(struct outcome *outcome)
{
    free(outcome->q);
    free(outcome->out);
    free(outcome->cache);
}

static void assert_same_q8_cache(const struct scene *scene, char *got, char *expected, const char *what)
{
    int64_t keys = kv_q8_quads(scene->width) * NJ_KV_QUAD * BLOCK, values = scene->width * BLOCK;
    for (int64_t block = 0; block < scene->all_blocks; block++) {
        for (int64_t head = 0; head < scene->kv_heads; head++) {
            struct nj_kv_q8_head a = kv_q8_head(got + block * scene->block_stride_bytes, scene->width, head);
            struct nj_kv_q8_head b = kv_q8_head(expected + block * scene->block_stride_bytes, scene->width, head);
            if (memcmp(a.keys, b.keys, (size_t)keys) != 0 || memcmp(a.values, b.values, (size_t)values) != 0)
                fail_msg("%s: bytes of head %d in block %d differ", what, (int)head, (int)block);
            assert_same_floats(a.key_scales, b.key_scales, kv_q8_groups(scene->width) * BLOCK, what);
            assert_same_floats(a.value_scales, b.value_scales, BLOCK, what);
        }
    }
}

/* Equal bits, or both NaN (whose bits the contract leaves open). */
static void assert_same_cache(const struct scene *scene, void *got, void *expected, const char *what)
{
    if (scene->type == NJ_KV_Q8) {
        assert_same_q8_cache(scene, got, expected, what);
        return;
    }
    if (scene->type == NJ_KV_F32) {
        assert_same_floats(got, expected, (int64_t)(scene->cache_bytes / sizeof(float)), what);
        return;
    }
    const uint16_t *a = got, *b = expected;
    for (size_t i = 0; i < scene->cache_bytes / sizeof *a; i++)
        if (a[i] != b[i] && !((a[i] & 0x7fff) > 0x7c00 && (b[i] & 0x7fff) > 0x7c00))
            fail_msg("%s: half %zu of the KV cache is %04x, not %04x", what, i, a[i], b[i]);
}

static void check_variant(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    const struct outcome *expected = context;
    const struct scene *scene = expected->scene;
    struct outcome got = make_outcome(scene, kernels, threads);
    char what[128];
    snprintf(what, sizeof what, "%s, %d threads, KV type %d, %d/%d heads of %d", kernels->name, threads,
             (int)scene->type, scene->heads, scene->kv_heads, scene->width);
    int64_t floats = scene->batch.count * scene->heads * scene->width;
    assert_same_floats(got.q, expected->q, floats, what);
    assert_same_cache(scene, got.cache, expected->cache, what);
    assert_same_floats(got.out, expected->out, floats, what);
    free_outcome(&got);
}

static void compare_scene(struct nj_test_random *random, struct scene scene)
{
    make_scene(random, &scene);
    struct outcome expected = make_outcome(&scene, test_reference(), 1);
    for (int64_t i = 0; i < scene.batch.count * scene.heads * scene.width; i++)
        assert_true(isfinite(expected.out[i]));
    test_each_variant(check_variant, &expected);
    free_outcome(&expected);
    free_scene(&scene);
}

static void every_shape(void **state)
{
    (void)state;
    static const int32_t widths[] = {32, 64, 80, 96, 128, 24, 104, 20, 2};
    static const int32_t ratios[][2] = {{4, 4}, {6, 2}, {8, 2}, {7, 1}, {5, 1}, {1, 1}};
    struct nj_test_random random = {1};
    for (size_t w = 0; w < sizeof widths / sizeof widths[0]; w++)
        for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++)
            for (int type = NJ_KV_F16; type <= NJ_KV_Q8; type++)
                compare_scene(&random, (struct scene){.heads = ratios[r][0],
                                                      .kv_heads = ratios[r][1],
                                                      .width = widths[w],
                                                      .half = widths[w] / 2,
                                                      .kind = r % 2 != 0 ? NJ_ROPE_HALVES : NJ_ROPE_ADJACENT,
                                                      .type = (enum nj_kv_type)type,
                                                      .positions = 70,
                                                      .sequences = 1});
}

static void every_position(void **state)
{
    (void)state;
    struct nj_test_random random = {2};
    struct scene scene = {.heads = 9, .kv_heads = 3, .width = 64, .half = 32, .positions = 201, .sequences = 2};
    compare_scene(&random, scene);
    scene.type = NJ_KV_Q8;
    compare_scene(&random, scene);
}

static void partial_rotation(void **state)
{
    (void)state;
    static const int64_t halves[] = {0, 3, 4, 8, 15, 16, 32};
    struct nj_test_random random = {3};
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        for (int kind = NJ_ROPE_ADJACENT; kind <= NJ_ROPE_HALVES; kind++)
            compare_scene(&random, (struct scene){.heads = 2,
                                                  .kv_heads = 1,
                                                  .width = 64,
                                                  .half = halves[i],
                                                  .kind = (enum nj_rope_kind)kind,
                                                  .type = i % 2 != 0 ? NJ_KV_Q8 : NJ_KV_F16,
                                                  .positions = 5,
                                                  .sequences = 3});
}

static void float_cache(void **state)
{
    (void)state;
    struct nj_test_random random = {4};
    compare_scene(
        &random,
        (struct scene){
            .heads = 4, .kv_heads = 2, .width = 32, .half = 16, .type = NJ_KV_F32, .positions = 130, .sequences = 2});
}

/* The token of a position in sequence 0. */
static int64_t find_token(const struct scene *scene, int32_t position)
{
    for (int64_t t = 0; t < scene->batch.count; t++)
        if (scene->batch.position[t] == position && scene->batch.sequence[t] == 0)
            return t;
    return -1;
}

/* One element of the cache: `is_value` chooses between the two layouts. */
static double cached(const struct scene *scene, const void *cache, int64_t position, int64_t kv_head, int64_t d,
                     int is_value)
{
    int32_t block = scene->batch.blocks[position / BLOCK]; /* sequence 0 */
    int64_t slot = position % BLOCK;
    char *base = (char *)cache + block * scene->block_stride_bytes;
    if (scene->type == NJ_KV_Q8) {
        struct nj_kv_q8_head head = kv_q8_head(base, scene->width, kv_head);
        if (is_value)
            return (double)head.value_scales[slot] * head.values[kv_q8_value_index(scene->width, d, slot)];
        return (double)head.key_scales[d / NJ_GROUP_COLS * BLOCK + slot] * head.keys[kv_q8_key_index(d, slot)];
    }
    int64_t index = (kv_head * 2 + is_value) * scene->width * BLOCK;
    index += is_value ? slot * scene->width + d : d * BLOCK + slot;
    if (scene->type == NJ_KV_F32)
        return (double)((const float *)base)[index];
    return (double)elementary_float_from_half(((const uint16_t *)base)[index]);
}

/* The Walsh-Hadamard transform from its definition: element i is the sum of +-x[j], minus where i and j, counted
 * from the block's start, have an odd number of ones in common, over the root of the block's width. */
static void transform_exactly(double *x, int64_t width)
{
    int64_t block = 1;
    while (width % (2 * block) == 0)
        block *= 2;
    double transformed[512];
    for (int64_t i = 0; i < width; i++) {
        transformed[i] = 0;
        for (int64_t j = i / block * block; j < i / block * block + block; j++)
            transformed[i] += __builtin_parity((unsigned)(i & j & (block - 1))) ? -x[j] : x[j];
        transformed[i] /= sqrt((double)block);
    }
    memcpy(x, transformed, (size_t)width * sizeof *x);
}

/* What a key or query head of token t is after rotation and, for q8, the transform. */
static void rotate_exactly(const struct scene *scene, int64_t t, const float *head, double *out)
{
    for (int64_t d = 0; d < scene->width; d++)
        out[d] = (double)head[d];
    for (int64_t i = 0; i < scene->half; i++) {
        int64_t a = scene->kind == NJ_ROPE_ADJACENT ? 2 * i : i;
        int64_t b = scene->kind == NJ_ROPE_ADJACENT ? 2 * i + 1 : i + scene->half;
        double c = (double)scene->cos[t * scene->half + i], s = (double)scene->sin[t * scene->half + i];
        out[a] = (double)head[a] * c - (double)head[b] * s;
        out[b] = (double)head[a] * s + (double)head[b] * c;
    }
    if (scene->type == NJ_KV_Q8)
        transform_exactly(out, scene->width);
}

/* The largest magnitude among 32 elements, over 254: half of what int8 can tell apart. */
static double half_step(const double *head, int64_t width, int64_t d)
{
    int64_t first = d / NJ_GROUP_COLS * NJ_GROUP_COLS;
    double largest = 0;
    for (int64_t i = first; i < width && i < first + NJ_GROUP_COLS; i++)
        largest = fmax(largest, fabs(head[i]));
    return largest / 254;
}

static void check_rotated_heads(const struct scene *scene, const struct outcome *outcome)
{
    double exact[512];
    for (int32_t position = 0; position < scene->positions; position++) {
        int64_t t = find_token(scene, position);
        rotate_exactly(scene, t, scene->q + t * scene->heads * scene->width, exact); /* query head 0 */
        for (int64_t d = 0; d < scene->width; d++)
            assert_true(fabs((double)outcome->q[t * scene->heads * scene->width + d] - exact[d]) <= 3e-6);
        rotate_exactly(scene, t, scene->k + t * scene->kv_heads * scene->width, exact); /* KV head 0 */
        for (int64_t d = 0; d < scene->width; d++) {
            double bound = scene->type == NJ_KV_F32   ? 1e-6
                           : scene->type == NJ_KV_F16 ? 2e-3
                                                      : half_step(exact, scene->width, d) + 1e-5;
            assert_true(fabs(cached(scene, outcome->cache, position, 0, d, 0) - exact[d]) <= bound);
        }
    }
}

/* The query as attention reads it: in int8 for q8. */
static void read_query(const struct scene *scene, const float *q, double *out)
{
    for (int64_t d = 0; d < scene->width; d++)
        out[d] = (double)q[d];
    if (scene->type != NJ_KV_Q8)
        return;
    double step[512];
    for (int64_t d = 0; d < scene->width; d++)
        step[d] = 2 * half_step(out, scene->width, d);
    for (int64_t d = 0; d < scene->width; d++)
        out[d] = step[d] * rint(out[d] / step[d]);
}

static void check_attention(const struct scene *scene, const struct outcome *outcome, int32_t position, int32_t head)
{
    int64_t kv_head = head / (scene->heads / scene->kv_heads);
    int64_t row = (find_token(scene, position) * scene->heads + head) * scene->width;
    double query[512], weight[512], largest = -1e300, total = 0;
    read_query(scene, outcome->q + row, query);
    for (int64_t j = 0; j <= position; j++) {
        weight[j] = 0;
        for (int64_t d = 0; d < scene->width; d++)
            weight[j] += query[d] * cached(scene, outcome->cache, j, kv_head, d, 0);
        weight[j] /= sqrt(scene->width);
        largest = weight[j] > largest ? weight[j] : largest;
    }
    for (int64_t j = 0; j <= position; j++)
        total += weight[j] = exp(weight[j] - largest);
    for (int64_t d = 0; d < scene->width; d++) {
        double exact = 0;
        for (int64_t j = 0; j <= position; j++)
            exact += weight[j] / total * cached(scene, outcome->cache, j, kv_head, d, 1);
        double bound = scene->type == NJ_KV_Q8 ? 2e-4 : 1e-5; /* weights of 15 bits */
        assert_true(fabs((double)outcome->out[row + d] - exact) <= bound);
    }
}

static void reference_is_accurate(void **state)
{
    (void)state;
    static const int32_t widths[] = {[NJ_KV_F16] = 32, [NJ_KV_Q8] = 80, [NJ_KV_F32] = 32};
    struct nj_test_random random = {5};
    for (int type = NJ_KV_F16; type <= NJ_KV_F32; type++) {
        struct scene scene = {.heads = 6,
                              .kv_heads = 2,
                              .width = widths[type],
                              .half = 16,
                              .kind = type == NJ_KV_F16 ? NJ_ROPE_ADJACENT : NJ_ROPE_HALVES,
                              .type = (enum nj_kv_type)type,
                              .positions = 201,
                              .sequences = 2};
        make_scene(&random, &scene);
        struct outcome outcome = make_outcome(&scene, test_reference(), 1);
        check_rotated_heads(&scene, &outcome);
        for (int32_t position = 0; position <= 200; position += position < 5 || position > 60 ? 7 : 1)
            for (int32_t head = 0; head < scene.heads; head++)
                check_attention(&scene, &outcome, position, head);
        free_outcome(&outcome);
        free_scene(&scene);
    }
}

/* A NaN or an infinity spoils its own head and the tokens that see it, nothing else, in every table. One value has a
 * dimension of its own in f16 and a scale in common with its head in q8. */
static void check_poison(enum nj_kv_type type)
{
    enum { WIDTH = 32, HEADS = 4, KV_HEADS = 2, POSITIONS = 140, BAD = 70 };
    struct nj_test_random random = {6};
    struct scene scene = {.heads = HEADS,
                          .kv_heads = KV_HEADS,
                          .width = WIDTH,
                          .type = type,
                          .half = WIDTH / 2,
                          .positions = POSITIONS,
                          .sequences = 1};
    make_scene(&random, &scene);
    scene.v[find_token(&scene, BAD) * KV_HEADS * WIDTH + 3] = NAN;         /* value of KV head 0, dimension 3 */
    scene.q[(find_token(&scene, 100) * HEADS + 3) * WIDTH + 5] = INFINITY; /* query head 3 */
    scene.q[(find_token(&scene, 101) * HEADS + 2) * WIDTH + 5] = NAN;      /* query head 2 */
    scene.k[(find_token(&scene, 120) * KV_HEADS + 1) * WIDTH + 9] = NAN;   /* key of KV head 1 */
    struct outcome expected = make_outcome(&scene, test_reference(), 1);
    for (int32_t position = 0; position < POSITIONS; position++) {
        int64_t t = find_token(&scene, position);
        for (int head = 0; head < HEADS; head++) {
            for (int d = 0; d < WIDTH; d++) {
                float got = expected.out[(t * HEADS + head) * WIDTH + d];
                int sees_value = head < 2 && (d == 3 || type == NJ_KV_Q8) && position >= BAD;
                int own_query = (position == 100 && head == 3) || (position == 101 && head == 2);
                int sees_key = head >= 2 && position >= 120;
                if (isfinite(got) == (sees_value || own_query || sees_key))
                    fail_msg("position %d head %d dimension %d: %g", position, head, d, (double)got);
                if (own_query || sees_key || sees_value)
                    assert_true(isnan(got));
            }
        }
    }
    test_each_variant(check_variant, &expected);
    free_outcome(&expected);
    free_scene(&scene);
}

static void poisoned_inputs(void **state)
{
    (void)state;
    check_poison(NJ_KV_F16);
    check_poison(NJ_KV_Q8);
}

/* Huge scores: the softmax saturates without overflow, also across blocks. Most values are zero, so that a
 * probability that should be exactly zero shows if it is not. */
static void check_large_scores(enum nj_kv_type type)
{
    struct nj_test_random random = {7};
    struct scene scene = {
        .heads = 2, .kv_heads = 1, .width = 32, .type = type, .half = 16, .positions = 150, .sequences = 1};
    make_scene(&random, &scene);
    for (int64_t i = 0; i < scene.batch.count * scene.heads * scene.width; i++)
        scene.q[i] *= 1000.0f;
    for (int64_t t = 0; t < scene.batch.count; t++)
        if (scene.batch.position[t] % 7 != 0)
            memset(scene.v + t * scene.width, 0, (size_t)scene.width * sizeof *scene.v);
    struct outcome expected = make_outcome(&scene, test_reference(), 1);
    for (int64_t i = 0; i < scene.batch.count * scene.heads * scene.width; i++)
        assert_true(fabsf(expected.out[i]) <= 2.001f);
    test_each_variant(check_variant, &expected);
    free_outcome(&expected);
    free_scene(&scene);
}

static void large_scores(void **state)
{
    (void)state;
    check_large_scores(NJ_KV_F16);
    check_large_scores(NJ_KV_Q8);
}

/* Floats of any bits in one head in five, numbers of very different size in the others. */
static void make_wild(struct nj_test_random *random, float *heads, int64_t count, int64_t width)
{
    for (int64_t head = 0; head < count; head++) {
        int any = random_below(random, 5) == 0;
        float size = ldexpf(1.0f, (int)random_below(random, 40) - 35);
        for (int64_t d = 0; d < width; d++)
            heads[head * width + d] = any ? random_any_float(random) : size * random_uniform(random, -1.0f, 1.0f);
        if (random_below(random, 10) == 0)
            memset(heads + head * width, 0, (size_t)width * sizeof *heads);
    }
}

static void wild_numbers(void **state)
{
    (void)state;
    struct nj_test_random random = {8};
    for (int i = 0; i < 40; i++) {
        struct scene scene = {.heads = 6,
                              .kv_heads = 2,
                              .width = i % 4 < 2 ? 64 : 48,
                              .type = i % 2 != 0 ? NJ_KV_Q8 : NJ_KV_F16,
                              .positions = 1 + random_below(&random, i < 30 ? 6 : 140),
                              .sequences = 3};
        scene.half = scene.width / 2;
        make_scene(&random, &scene);
        make_wild(&random, scene.q, scene.batch.count * scene.heads, scene.width);
        make_wild(&random, scene.k, scene.batch.count * scene.kv_heads, scene.width);
        make_wild(&random, scene.v, scene.batch.count * scene.kv_heads, scene.width);
        struct outcome expected = make_outcome(&scene, test_reference(), 1);
        test_each_variant(check_variant, &expected);
        free_outcome(&expected);
        free_scene(&scene);
    }
}

/* Groups whose largest magnitude is around 2^-100, where they become zero; huge keys make that visible. */
static void groups_around_the_threshold(void **state)
{
    (void)state;
    struct nj_test_random random = {10};
    struct scene scene = {
        .heads = 6, .kv_heads = 2, .width = 64, .type = NJ_KV_Q8, .half = 32, .positions = 70, .sequences = 2};
    make_scene(&random, &scene);
    for (int64_t head = 0; head < scene.batch.count * scene.heads; head++) {
        float size = ldexpf(1.0f, (int)random_below(&random, 4) - 103);
        for (int64_t d = 0; d < scene.width; d++)
            scene.q[head * scene.width + d] *= size;
    }
    for (int64_t i = 0; i < scene.batch.count * scene.kv_heads * scene.width; i++) {
        scene.k[i] *= 0x1p100f;
        scene.v[i] *= 0x1p-94f;
    }
    struct outcome expected = make_outcome(&scene, test_reference(), 1);
    test_each_variant(check_variant, &expected);
    free_outcome(&expected);
    free_scene(&scene);
}

/* Every value and every weight at its largest: sums of 64 * 32,767 * 127 fit their integers. */
static void largest_sums(void **state)
{
    (void)state;
    struct nj_test_random random = {9};
    struct scene scene = {
        .heads = 4, .kv_heads = 1, .width = 64, .type = NJ_KV_Q8, .half = 32, .positions = 130, .sequences = 1};
    make_scene(&random, &scene);
    memset(scene.q, 0, (size_t)(scene.batch.count * scene.heads * scene.width) * sizeof *scene.q);
    for (int64_t i = 0; i < scene.batch.count * scene.kv_heads * scene.width; i++)
        scene.v[i] = i % 2 != 0 ? 1.5f : -1.5f;
    struct outcome expected = make_outcome(&scene, test_reference(), 1);
    for (int64_t i = 0; i < scene.batch.count * scene.heads * scene.width; i++)
        assert_true(fabsf(expected.out[i] - (i % 2 != 0 ? 1.5f : -1.5f)) <= 1e-6f);
    test_each_variant(check_variant, &expected);
    free_outcome(&expected);
    free_scene(&scene);
}

struct angles {
    union nj_operation_args args;
    const float *cos, *sin;
};

static void check_angles(const struct nj_cpu_kernels *kernels, int threads, void *context)
{
    const struct angles *angles = context;
    union nj_operation_args args = angles->args;
    int64_t floats = args.rope_angles.count * args.rope_angles.half;
    args.rope_angles.cos = test_allocate((size_t)floats * sizeof(float));
    args.rope_angles.sin = test_allocate((size_t)floats * sizeof(float));
    test_run(kernels, NJ_OP_ROPE_ANGLES, &args, threads);
    assert_same_floats(args.rope_angles.cos, angles->cos, floats, kernels->name);
    assert_same_floats(args.rope_angles.sin, angles->sin, floats, kernels->name);
    free(args.rope_angles.cos);
    free(args.rope_angles.sin);
}

/* Against the C library in double: rounded to float, the two may differ by one unit in the last place. */
static void rotation_angles(void **state)
{
    (void)state;
    enum { COUNT = 7, HALF = 32 };
    static const int32_t position[COUNT] = {0, 1, 2, 63, 64, 8191, 1048575};
    double frequency[HALF];
    for (int i = 0; i < HALF; i++)
        frequency[i] = elementary_exp64(-2.0 * i / (2.0 * HALF) * elementary_log64(100000.0));
    float cosines[COUNT * HALF], sines[COUNT * HALF];
    struct angles angles = {.cos = cosines, .sin = sines};
    angles.args.rope_angles = (struct nj_rope_angles_args){.position = position,
                                                           .inverse_frequency = frequency,
                                                           .count = COUNT,
                                                           .half = HALF,
                                                           .cos = cosines,
                                                           .sin = sines};
    test_run(test_reference(), NJ_OP_ROPE_ANGLES, &angles.args, 1);
    for (int i = 0; i < COUNT * HALF; i++) {
        double angle = position[i / HALF] * frequency[i % HALF];
        assert_true(fabs((double)cosines[i] - cos(angle)) <= 0x1p-24);
        assert_true(fabs((double)sines[i] - sin(angle)) <= 0x1p-24);
    }
    test_each_variant(check_angles, &angles);
}

/* The emulated table comes to the tests with adversarial numbers alone: shapes and positions are in
 * test_attention_batches, where it costs less. */
int main(void)
{
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(every_shape), cmocka_unit_test(every_position),        cmocka_unit_test(partial_rotation),
        cmocka_unit_test(float_cache), cmocka_unit_test(reference_is_accurate), cmocka_unit_test(rotation_angles),
    };
    const struct CMUnitTest adversarial[] = {
        cmocka_unit_test(poisoned_inputs),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(wild_numbers),
        cmocka_unit_test(largest_sums),
        cmocka_unit_test(groups_around_the_threshold),
    };
    int failed = cmocka_run_group_tests(plain, NULL, NULL);
    test_add_table(cuda_table_attention(), NJ_TEST_TABLE_SLOW);
    return failed + cmocka_run_group_tests(adversarial, NULL, NULL);
}
