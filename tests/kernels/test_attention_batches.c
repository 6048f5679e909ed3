/* Attention over batches as a sweep has them: chunks of prompts of any length beside single tokens, at positions around
 * the borders of blocks, with a first block in common. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kv_block.h"
#include "tests/emulator/cuda_tables.h"
#include "tests/kernels/kernel_test.h"

enum { BLOCK = NJ_KV_BLOCK_TOKENS, BLOCKS_EACH = 4, MOST_THREADS = 5 };

/* Tokens at positions first .. first + tokens - 1 of one sequence. */
struct chunk {
    int32_t first, tokens;
};

struct scene {
    int32_t heads, kv_heads, width;
    enum nj_kv_type type;
    const struct chunk *chunks; /* one sequence each */
    int64_t sequences;
};

static struct nj_token_batch make_batch(const struct scene *scene)
{
    int64_t count = 0, all = 0;
    for (int64_t i = 0; i < scene->sequences; i++)
        count += scene->chunks[i].tokens;
    int32_t *position = test_allocate((size_t)count * sizeof *position);
    int32_t *sequence = test_allocate((size_t)count * sizeof *sequence);
    int32_t *blocks = test_allocate((size_t)(scene->sequences * BLOCKS_EACH) * sizeof *blocks);
    for (int64_t i = 0; i < scene->sequences; i++) {
        for (int32_t t = 0; t < scene->chunks[i].tokens; t++, all++) {
            position[all] = scene->chunks[i].first + t;
            sequence[all] = (int32_t)i;
        }
        for (int64_t b = 0; b < BLOCKS_EACH; b++)
            blocks[i * BLOCKS_EACH + b] = (int32_t)((scene->sequences - i) * BLOCKS_EACH - b);
        if (scene->chunks[i].first >= BLOCK)
            blocks[i * BLOCKS_EACH] = 0; /* shared */
    }
    return (struct nj_token_batch){
        .count = count, .position = position, .sequence = sequence, .blocks = blocks, .blocks_stride = BLOCKS_EACH};
}

static void free_batch(const struct nj_token_batch *batch)
{
    free((void *)batch->position);
    free((void *)batch->sequence);
    free((void *)batch->blocks);
}

static void poison_f16(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot)
{
    uint16_t *keys = (uint16_t *)(block + head * kv_head_bytes(NJ_KV_F16, kv->head_width));
    for (int64_t d = 0; d < kv->head_width; d++)
        keys[d * BLOCK + slot] = keys[(BLOCK + slot) * kv->head_width + d] = d % 2 != 0 ? 0xffff : 0x7c00;
}

static void poison_q8(const struct nj_kv_layer *kv, char *block, int64_t head, int64_t slot)
{
    struct nj_kv_q8_head stored = kv_q8_head(block, kv->head_width, head);
    for (int64_t d = 0; d < kv->head_width; d++) {
        stored.keys[kv_q8_key_index(d, slot)] = -128;
        stored.values[kv_q8_value_index(kv->head_width, d, slot)] = -128;
    }
    for (int64_t group = 0; group < kv_q8_groups(kv->head_width); group++)
        stored.key_scales[group * BLOCK + slot] = NAN;
    stored.value_scales[slot] = slot % 2 != 0 ? NAN : INFINITY;
}

/* NaN, infinities and bytes that no number becomes, from a chunk's last token on: that token alone sees any of it. */
static void poison(const struct scene *scene, const struct nj_kv_layer *kv, const struct nj_token_batch *batch)
{
    for (int64_t i = 0; i < scene->sequences; i++) {
        int64_t last = scene->chunks[i].first + scene->chunks[i].tokens - 1;
        for (int64_t position = last + (scene->chunks[i].tokens == 1); position < BLOCKS_EACH * BLOCK; position++) {
            int32_t number = batch->blocks[i * BLOCKS_EACH + position / BLOCK];
            char *block = kv->base + number * kv->block_stride_bytes;
            for (int64_t head = 0; head < kv->kv_heads; head++)
                (kv->type == NJ_KV_Q8 ? poison_q8 : poison_f16)(kv, block, head, position % BLOCK);
        }
    }
}

static void compare_table(const struct nj_cpu_kernels *kernels, int threads, const struct scene *scene,
                          const union nj_operation_args *args, const float *expected, int64_t floats)
{
    char what[128];
    snprintf(what, sizeof what, "%s, %d threads, KV type %d, %d/%d heads of %d, chunk of %d from %d", kernels->name,
             threads, (int)scene->type, scene->heads, scene->kv_heads, scene->width, scene->chunks[0].tokens,
             scene->chunks[0].first);
    union nj_operation_args own = *args;
    own.attention.out = test_allocate((size_t)floats * sizeof(float));
    memset(own.attention.out, 0xff, (size_t)floats * sizeof(float));
    test_run(kernels, NJ_OP_ATTENTION, &own, threads);
    assert_same_floats(own.attention.out, expected, floats, what);
    free(own.attention.out);
}

static void compare(const struct scene *scene, const union nj_operation_args *args, const float *expected,
                    int64_t floats)
{
    const struct nj_cpu_kernels *kernels;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++)
        for (int threads = 1; threads <= MOST_THREADS && cpu_kernels_runnable(kernels); threads++)
            compare_table(kernels, threads, scene, args, expected, floats);
    compare_table(cuda_table_attention(), 1, scene, args, expected, floats);
}

/* Every token but the last of a chunk has a result that is a number. */
static void check_finite(const struct nj_token_batch *batch, const float *out, int64_t width)
{
    for (int64_t t = 0; t < batch->count; t++) {
        int has_next = t + 1 < batch->count && batch->sequence[t + 1] == batch->sequence[t];
        int is_single = !has_next && (t == 0 || batch->sequence[t - 1] != batch->sequence[t]);
        for (int64_t i = 0; i < width && (has_next || is_single); i++)
            assert_true(isfinite(out[t * width + i]));
    }
}

static void check_scene(struct nj_test_random *random, const struct scene *scene)
{
    struct nj_token_batch batch = make_batch(scene);
    const int64_t blocks = scene->sequences * BLOCKS_EACH + 1, row = (int64_t)scene->heads * scene->width;
    struct nj_kv_layer kv = {.type = scene->type,
                             .block_stride_bytes = scene->kv_heads * kv_head_bytes(scene->type, scene->width),
                             .kv_heads = scene->kv_heads,
                             .head_width = scene->width};
    kv.base = test_allocate((size_t)(blocks * kv.block_stride_bytes));
    test_fill_cache(random, &kv, blocks);
    poison(scene, &kv, &batch);
    float *q = test_random_floats(random, batch.count * row, -3.0f, 3.0f);
    float *expected = test_allocate((size_t)(batch.count * row) * sizeof *expected);
    union nj_operation_args args = {
        .attention = {.batch = batch, .heads = scene->heads, .scale = 0.125f, .q = q, .out = expected, .kv = kv}};
    test_run(test_reference(), NJ_OP_ATTENTION, &args, 1);
    check_finite(&batch, expected, row);
    compare(scene, &args, expected, batch.count * row);
    free(expected);
    free(q);
    free(kv.base);
    free_batch(&batch);
}

static void check_types(struct nj_test_random *random, struct scene scene)
{
    for (int type = NJ_KV_F16; type <= NJ_KV_Q8; type++) {
        scene.type = (enum nj_kv_type)type;
        check_scene(random, &scene);
    }
}

/* Query heads of a KV head from one to more than go through a block together. */
static void every_group_of_heads(void **state)
{
    (void)state;
    static const int32_t heads[][2] = {{3, 3}, {4, 2}, {9, 3}, {8, 2}, {5, 1}, {12, 2}, {8, 1}, {30, 1}};
    static const struct chunk chunks[] = {{60, 9}, {0, 1}, {127, 1}, {64, 2}, {128, 1}, {0, 3}};
    struct nj_test_random random = {1};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        check_types(&random, (struct scene){.heads = heads[i][0],
                                            .kv_heads = heads[i][1],
                                            .width = 64,
                                            .chunks = chunks,
                                            .sequences = sizeof chunks / sizeof chunks[0]});
}

static void every_width(void **state)
{
    (void)state;
    static const int32_t widths[] = {8, 20, 24, 64, 80, 96, 128, 256, 512};
    static const int32_t heads[][2] = {{2, 2}, {6, 2}, {6, 1}};
    static const struct chunk chunks[] = {{63, 5}, {65, 1}, {0, 2}};
    struct nj_test_random random = {2};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (size_t h = 0; h < sizeof heads / sizeof heads[0]; h++)
            check_types(&random, (struct scene){.heads = heads[h][0],
                                                .kv_heads = heads[h][1],
                                                .width = widths[i],
                                                .chunks = chunks,
                                                .sequences = sizeof chunks / sizeof chunks[0]});
}

/* Chunks of 1 to 40 tokens that begin or end at the border of a block. */
static void every_length(void **state)
{
    (void)state;
    struct nj_test_random random = {3};
    for (int32_t tokens = 1; tokens <= 40; tokens++) {
        const struct chunk chunks[] = {{tokens % 2 != 0 ? 64 - tokens / 2 : 128 - tokens, tokens}, {tokens, 1}};
        check_types(&random, (struct scene){.heads = 3, .kv_heads = 1, .width = 32, .chunks = chunks, .sequences = 2});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_group_of_heads),
        cmocka_unit_test(every_width),
        cmocka_unit_test(every_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
