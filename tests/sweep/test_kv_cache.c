#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/sweep/kv_cache.h"

enum { BLOCKS = 5 };

static const struct nj_hyperparameters shape = {.layers = 3, .kv_heads = 2, .head_width = 32};

static void test_sizes(void **state)
{
    (void)state;
    assert_int_equal(kv_block_bytes(&shape, NJ_KV_F16), 3 * 2 * 32 * 64 * 2 * 2);
    assert_int_equal(kv_block_bytes(&shape, NJ_KV_F32), 3 * 2 * 32 * 64 * 2 * 4);
    /* bytes of keys and values, a scale of each key's 32 dimensions and one of each value */
    assert_int_equal(kv_block_bytes(&shape, NJ_KV_Q8), 3 * 2 * 64 * (2 * 32 + 4 + 4));
    const struct nj_hyperparameters odd = {.layers = 1, .kv_heads = 1, .head_width = 70};
    assert_int_equal(kv_block_bytes(&odd, NJ_KV_Q8), 64 * (72 + 70 + 3 * 4 + 4));
    assert_int_equal(kv_blocks_for_tokens(0), 0);
    assert_int_equal(kv_blocks_for_tokens(1), 1);
    assert_int_equal(kv_blocks_for_tokens(64), 1);
    assert_int_equal(kv_blocks_for_tokens(65), 2);
}

static void test_types_have_names(void **state)
{
    (void)state;
    enum nj_kv_type type = NJ_KV_F32;
    assert_int_equal(kv_type_find("f32", &type), -1); /* test-only */
    assert_int_equal(kv_type_find("", &type), -1);
    assert_int_equal(type, NJ_KV_F32);
    assert_int_equal(kv_type_find("q8", &type), 0);
    assert_int_equal(type, NJ_KV_Q8);
    assert_string_equal(kv_type_name(type), "q8");
    assert_int_equal(kv_type_find("f16", &type), 0);
    assert_int_equal(type, NJ_KV_F16);
    assert_string_equal(kv_type_name(type), "f16");
    assert_int_equal(kv_type_find(NULL, &type), 0);
    assert_int_equal(type, NJ_KV_Q8);
}

/* Every layer's part of every block lies inside the pool, and no two overlap. */
static void check_layers(enum nj_kv_type type)
{
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    struct nj_kv_cache *cache = kv_cache_create(device, &shape, type, BLOCKS, NULL);
    const uint64_t part_bytes = kv_block_bytes(&shape, type) / (uint64_t)shape.layers;
    assert_int_equal(device_bytes(device), BLOCKS * kv_block_bytes(&shape, type));
    char *first = kv_cache_layer(cache, 0).base;
    uint8_t *owned = calloc(BLOCKS * (size_t)shape.layers, 1);
    for (int layer = 0; layer < shape.layers; layer++) {
        const struct nj_kv_layer kv = kv_cache_layer(cache, layer);
        assert_int_equal(kv.type, type);
        assert_int_equal(kv.kv_heads, shape.kv_heads);
        assert_int_equal(kv.head_width, shape.head_width);
        for (int block = 0; block < BLOCKS; block++) {
            const uint64_t at = (uint64_t)(kv.base - first) + (uint64_t)block * (uint64_t)kv.block_stride_bytes;
            assert_int_equal(at % part_bytes, 0);
            assert_true(at / part_bytes < BLOCKS * (uint64_t)shape.layers);
            assert_int_equal(owned[at / part_bytes]++, 0);
        }
    }
    free(owned);
    kv_cache_destroy(cache);
    device_close(device);
}

static void test_layers_do_not_overlap(void **state)
{
    (void)state;
    check_layers(NJ_KV_F16);
    check_layers(NJ_KV_Q8);
}

static void test_impossible_pools_are_refused(void **state)
{
    (void)state;
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    assert_null(kv_cache_create(device, &shape, NJ_KV_F16, 0, &error));
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    assert_null(kv_cache_create(device, &shape, NJ_KV_F16, (int64_t)INT32_MAX + 1, &error));
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_types_have_names),
        cmocka_unit_test(test_layers_do_not_overlap),
        cmocka_unit_test(test_impossible_pools_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
