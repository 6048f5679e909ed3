/* Pins the arithmetic itself: the reference's bits for fixed inputs. If this fails, answers change: either the
 * change is a mistake, or docs/arithmetic.md, NJ_ARITHMETIC_VERSION and the constants here change with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/elementary.h"
#include "kernels/kv_block.h"
#include "tests/kernels/kernel_test.h"

static uint64_t hash_bytes(const void *bytes, size_t count)
{
    const uint8_t *p = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static void assert_hash(const char *what, const void *bytes, size_t count, uint64_t expected)
{
    uint64_t hash = hash_bytes(bytes, count);
    if (hash != expected)
        fail_msg("%s: fingerprint 0x%016llx, expected 0x%016llx", what, (unsigned long long)hash,
                 (unsigned long long)expected);
}

static void version_is_pinned(void **state)
{
    (void)state;
    assert_int_equal(NJ_ARITHMETIC_VERSION, 1);
}

static void matmul_bits(void **state)
{
    (void)state;
    enum { COUNT = 3, ROWS = 35 };
    static const uint64_t integer[NJ_KIND_COUNT] = {0x35477396c60537d7u, 0xf5122699bc5adfa8u, 0x74c1cd515d62a9b7u,
                                                    0x8b65192c49f4b96au, 0x8b65192c49f4b96au, 0xd727766bf9beed5cu,
                                                    0x60775f90441ab736u, 0x00192dd07b53412au, 0x9ada774ec07e2cc1u,
                                                    0xf23c37f1d9078e8cu, 0xd07f8ff6286011d4u};
    static const uint64_t floating[NJ_KIND_COUNT] = {0xdb9ccee28b40754eu, 0x2fbc759318dbb977u, 0x84e0eb705535d1feu,
                                                     0x8b65192c49f4b96au, 0x8b65192c49f4b96au, 0xd727766bf9beed5cu,
                                                     0x6784b6003f3c03a4u, 0x5f6edacd22d6184fu, 0x9643a54894ba0497u,
                                                     0xb8f4bf2e17866a8fu, 0x3de8747ec38013e6u};
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        struct nj_test_random random = {1};
        int64_t cols = test_fitting_cols((enum nj_matrix_kind)kind, 2080);
        float *x = test_random_floats(&random, COUNT * cols, -3.0f, 3.0f);
        struct nj_q8 q8 = test_quantize(x, COUNT, cols);
        struct nj_matrix w = test_random_matrix(&random, (enum nj_matrix_kind)kind, ROWS, cols, NJ_TEST_ORDINARY);
        float y[COUNT * ROWS];
        for (int is_float = 0; is_float <= 1; is_float++) {
            struct nj_activation in = {.f32 = x};
            if (!is_float)
                in.q8 = q8;
            union nj_operation_args args = {
                .matmul = {.x = in, .count = COUNT, .outputs = 1, .output[0] = {.w = w, .y = y, .y_stride = ROWS}}};
            test_run(test_reference(), NJ_OP_MATMUL, &args, 1);
            assert_hash(matrix_kind_info(w.kind)->name, y, sizeof y, (is_float ? floating : integer)[kind]);
        }
        free((void *)w.data);
        test_free_q8(&q8);
        free(x);
    }
}

static void activation_bits(void **state)
{
    (void)state;
    enum { WIDTH = 576 };
    struct nj_test_random random = {2};
    float *x = test_random_floats(&random, WIDTH, -5.0f, 5.0f);
    float *w = test_random_floats(&random, WIDTH, -2.0f, 2.0f);
    float y[WIDTH];
    union nj_operation_args norm = {
        .rms_norm = {.x = x, .count = 1, .width = WIDTH, .weight = w, .epsilon = 1e-5f, .out.f32 = y}};
    test_run(test_reference(), NJ_OP_RMS_NORM, &norm, 1);
    assert_hash("rms_norm", y, sizeof y, 0x0834ddd92334a681u);
    union nj_operation_args silu = {.silu_mul = {.gate = x, .up = w, .count = 1, .width = WIDTH, .out.f32 = y}};
    test_run(test_reference(), NJ_OP_SILU_MUL, &silu, 1);
    assert_hash("silu_mul", y, sizeof y, 0xd91870cf18cc53c9u);
    struct nj_q8 q8 = test_quantize(x, 1, WIDTH);
    assert_hash("quantize", q8.q, WIDTH, 0x06a2ccb9908e2647u);
    assert_hash("scales", q8.d, WIDTH / 32 * sizeof *q8.d, 0x59813b61f818e09eu);
    test_free_q8(&q8);
    free(w);
    free(x);
}

static void logit_bits(void **state)
{
    (void)state;
    enum { VOCABULARY = 9001 };
    struct nj_test_random random = {3};
    float *logits = test_random_floats(&random, VOCABULARY, -9.0f, 9.0f);
    struct nj_logit_stats stats;
    union nj_operation_args args = {
        .logit_stats = {.logits = logits, .count = 1, .vocabulary = VOCABULARY, .out = &stats}};
    test_run(test_reference(), NJ_OP_LOGIT_STATS, &args, 1);
    assert_hash("logit_stats", &stats, sizeof stats, 0x6c5c08d8ee3931bdu);
    free(logits);
}

/* One sequence of 150 positions through angles, rotation, cache and attention. */
static void check_attention(enum nj_kv_type type, uint64_t cache_hash, uint64_t out_hash)
{
    enum { POSITIONS = 150, BLOCKS = 3, WIDTH = 32, HEADS = 4, KV_HEADS = 2, HALF = WIDTH / 2 };
    const int64_t block_bytes = KV_HEADS * kv_head_bytes(type, WIDTH);
    const size_t cache_bytes = BLOCKS * (size_t)block_bytes;
    struct nj_test_random random = {4};
    static int32_t position[POSITIONS], sequence[POSITIONS];
    static const int32_t blocks[BLOCKS] = {2, 0, 1};
    static double frequency[HALF];
    static float cosines[POSITIONS * HALF], sines[POSITIONS * HALF], out[POSITIONS * HEADS * WIDTH];
    char *cache = test_allocate(cache_bytes);
    memset(cache, 0, cache_bytes);
    for (int i = 0; i < POSITIONS; i++)
        position[i] = i;
    for (int i = 0; i < HALF; i++)
        frequency[i] = elementary_exp64(-(double)i / HALF * elementary_log64(10000.0));
    float *q = test_random_floats(&random, POSITIONS * HEADS * WIDTH, -2.0f, 2.0f);
    float *k = test_random_floats(&random, POSITIONS * KV_HEADS * WIDTH, -2.0f, 2.0f);
    float *v = test_random_floats(&random, POSITIONS * KV_HEADS * WIDTH, -2.0f, 2.0f);
    struct nj_token_batch batch = {
        .count = POSITIONS, .position = position, .sequence = sequence, .blocks = blocks, .blocks_stride = BLOCKS};
    struct nj_kv_layer kv = {
        .type = type, .base = cache, .block_stride_bytes = block_bytes, .kv_heads = KV_HEADS, .head_width = WIDTH};
    union nj_operation_args angles = {.rope_angles = {.position = position,
                                                      .inverse_frequency = frequency,
                                                      .count = POSITIONS,
                                                      .half = HALF,
                                                      .cos = cosines,
                                                      .sin = sines}};
    union nj_operation_args store = {.rope_store = {.batch = batch,
                                                    .half = HALF,
                                                    .cos = cosines,
                                                    .sin = sines,
                                                    .heads = HEADS,
                                                    .q = q,
                                                    .k = k,
                                                    .v = v,
                                                    .kv = kv}};
    union nj_operation_args attention = {
        .attention = {.batch = batch, .heads = HEADS, .scale = 0.1767767f, .q = q, .out = out, .kv = kv}};
    test_run(test_reference(), NJ_OP_ROPE_ANGLES, &angles, 1);
    assert_hash("cosines", cosines, sizeof cosines, 0x26d39a04fb911650u);
    assert_hash("sines", sines, sizeof sines, 0x5bda0914db5a5efau);
    test_run(test_reference(), NJ_OP_ROPE_STORE, &store, 1);
    assert_hash("cache", cache, cache_bytes, cache_hash);
    test_run(test_reference(), NJ_OP_ATTENTION, &attention, 1);
    assert_hash("attention", out, sizeof out, out_hash);
    free(v);
    free(k);
    free(q);
    free(cache);
}

static void attention_bits(void **state)
{
    (void)state;
    check_attention(NJ_KV_F16, 0x72fb56b1d0102236u, 0x2d226350d00f1cd1u);
    check_attention(NJ_KV_Q8, 0xaf4563cc8416111cu, 0xe1eef9d9d3fdf3f1u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_is_pinned), cmocka_unit_test(matmul_bits),    cmocka_unit_test(activation_bits),
        cmocka_unit_test(logit_bits),        cmocka_unit_test(attention_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
