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
    assert_int_equal(kv_blocks_for_tokens(0), 0);
    assert_int_equal(kv_blocks_for_tokens(1), 1);
    assert_int_equal(kv_blocks_for_tokens(64), 1);
    assert_int_equal(kv_blocks_for_tokens(65), 2);
}

/* Every layer's part of every block lies inside the pool, and no two overlap. */
static void test_layers_do_not_overlap(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), 1);
    struct nj_kv_cache *cache = kv_cache_create(device, &shape, NJ_KV_F16, BLOCKS, NULL);
    const uint64_t part_bytes = kv_block_bytes(&shape, NJ_KV_F16) / (uint64_t)shape.layers;
    assert_int_equal(device_bytes(device), BLOCKS * kv_block_bytes(&shape, NJ_KV_F16));
    char *first = kv_cache_layer(cache, 0).base;
    uint8_t *owned = calloc(BLOCKS * (size_t)shape.layers, 1);
    for (int layer = 0; layer < shape.layers; layer++) {
        const struct nj_kv_layer kv = kv_cache_layer(cache, layer);
        assert_int_equal(kv.type, NJ_KV_F16);
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
        cmocka_unit_test(test_layers_do_not_overlap),
        cmocka_unit_test(test_impossible_pools_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
