#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/cpu_kernels.h"
#include "kernels/matrix.h"

static void sizes_follow_the_layout(void **state)
{
    (void)state;
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U4_ZERO8, 64), 2 * (256 + 32));
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U4_MIN, 64), 2 * (256 + 64));
    assert_int_equal(matrix_strip_bytes(NJ_KIND_S8, 64), 2 * (512 + 32));
    assert_int_equal(matrix_strip_bytes(NJ_KIND_F32, 64), 64 * 16 * 4);
    assert_int_equal(matrix_strip_bytes(NJ_KIND_F16, 64), 64 * 16 * 2);
    assert_int_equal(matrix_strip_bytes(NJ_KIND_BF16, 64), 64 * 16 * 2);
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U5_ZERO16, 64), 2 * (320 + 32));
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U5_MIN, 64), 2 * (320 + 64));
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U4_SUPER, 512), 2 * 16 * 144);
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U5_SUPER, 512), 2 * 16 * 176);
    assert_int_equal(matrix_strip_bytes(NJ_KIND_U6_SUPER, 512), 2 * 16 * 210);
    assert_int_equal(matrix_bytes(NJ_KIND_S8, 1, 32), 544);
    assert_int_equal(matrix_bytes(NJ_KIND_S8, 16, 32), 544);
    assert_int_equal(matrix_bytes(NJ_KIND_S8, 17, 32), 2 * 544);
}

static void bad_shapes_have_no_size(void **state)
{
    (void)state;
    for (int kind = 0; kind < NJ_KIND_COUNT; kind++) {
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, 0, 32), 0);
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, -1, 32), 0);
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, 16, 0), 0);
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, 16, -32), 0);
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, 16, 33), 0);
        assert_int_equal(matrix_bytes((enum nj_matrix_kind)kind, INT64_MAX, 1 << 20), 0);
        assert_int_equal(matrix_strip_bytes((enum nj_matrix_kind)kind, INT64_MAX - 31), 0);
        assert_non_null(matrix_kind_info((enum nj_matrix_kind)kind)->name);
    }
    assert_int_equal(matrix_strip_bytes(NJ_KIND_COUNT, 32), 0);
    for (int kind = NJ_KIND_U4_SUPER; kind <= NJ_KIND_U6_SUPER; kind++) {
        assert_int_equal(matrix_strip_bytes((enum nj_matrix_kind)kind, 32), 0);
        assert_int_equal(matrix_strip_bytes((enum nj_matrix_kind)kind, 256 + 128), 0);
        assert_int_not_equal(matrix_strip_bytes((enum nj_matrix_kind)kind, 256), 0);
    }
}

static void tables_are_found_by_name(void **state)
{
    (void)state;
    const struct nj_cpu_kernels *fastest = cpu_kernels_find("auto");
    assert_non_null(fastest);
    assert_ptr_equal(cpu_kernels_find(NULL), fastest);
    assert_null(cpu_kernels_find("nonsense"));
    assert_string_equal(cpu_kernels_find("reference")->name, "reference");
    const struct nj_cpu_kernels *kernels;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++) {
        assert_ptr_equal(cpu_kernels_find(kernels->name), cpu_kernels_runnable(kernels) ? kernels : NULL);
        for (int operation = 0; operation < NJ_OP_COUNT; operation++)
            assert_true(kernels->run[operation] != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_the_layout),
        cmocka_unit_test(bad_shapes_have_no_size),
        cmocka_unit_test(tables_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
