/* Models that are split into several files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "engine/model/model_files.h"
#include "tests/model/model_file.h"
#include "tests/model/pack_check.h"
#include "tests/support/temporary_directory.h"

enum { PARTS = 3 };

static char *directory, *first, *whole, *packs;

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    first = temporary_path(directory, "split-00001-of-00003.gguf");
    whole = temporary_path(directory, "whole.gguf");
    packs = temporary_path(directory, "cache");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(packs);
    free(whole);
    free(first);
    temporary_directory_remove(directory);
    return 0;
}

static void part_path(uint32_t number, char out[4096])
{
    model_file_part_path(first, number, PARTS, out, 4096);
}

static void write_split(void)
{
    struct model_recipe recipe = model_recipe_small();
    recipe.parts = PARTS;
    model_file_write(&recipe, first);
}

static void assert_refused(enum nj_code code, const char *file, const char *expected)
{
    struct nj_error error = {0};
    assert_null(gguf_open(first, &error));
    if (error.code != code || strstr(error.message, expected) == NULL || strcmp(error.file, file) != 0)
        fail_msg("expected '%s' of %s, got %d '%s' of %s", expected, file, error.code, error.message, error.file);
}

/* Tensor by tensor what one file with the same content has. */
static void test_parts_are_one_model(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, whole);
    write_split();
    struct test_source expected = test_source_open(whole), split = test_source_open(first);
    struct nj_error error;
    uint32_t part = 0;
    assert_int_equal(gguf_part_count(expected.gguf), 1);
    assert_int_equal(gguf_part_count(split.gguf), PARTS);
    assert_int_equal(gguf_tensor_count(split.gguf), gguf_tensor_count(expected.gguf));
    for (size_t i = 0; i < gguf_tensor_count(expected.gguf); i++) {
        const struct nj_gguf_tensor *a = gguf_tensor_at(expected.gguf, i);
        char name[64], got[8192], wanted[8192];
        snprintf(name, sizeof name, "%.*s", (int)a->name.length, a->name.bytes);
        const struct nj_gguf_tensor *b = gguf_tensor_find(split.gguf, name);
        assert_non_null(b);
        assert_true(b->part == part || b->part == part + 1);
        part = b->part;
        assert_true(a->bytes == b->bytes && a->bytes <= sizeof got);
        assert_int_equal(gguf_read(expected.gguf, a, 0, wanted, a->bytes, &error), 0);
        assert_int_equal(gguf_read(split.gguf, b, 0, got, b->bytes, &error), 0);
        assert_memory_equal(got, wanted, a->bytes);
        assert_int_equal(gguf_read(split.gguf, b, 1, got, b->bytes, &error), -1);
    }
    assert_int_equal(part, PARTS - 1);
    struct nj_pack_options options = test_pack_options(&split, packs);
    struct nj_pack *pack = pack_open(&options, &error);
    assert_non_null(pack);
    test_pack_equals_source(pack, &expected);
    pack_close(pack);
    test_source_close(&split);
    test_source_close(&expected);
}

static void test_parts_that_do_not_fit(void **state)
{
    (void)state;
    char second[4096], third[4096], spare[4096];
    part_path(1, second);
    part_path(2, third);
    snprintf(spare, sizeof spare, "%s/spare.gguf", directory);

    write_split();
    assert_int_equal(rename(third, spare), 0);
    assert_refused(NJ_NO_INPUT, third, "cannot open the model file");
    assert_int_equal(rename(second, third), 0);
    assert_int_equal(rename(spare, second), 0);
    assert_refused(NJ_BAD_DATA, second, "this file is part 3 of 3 of a split model, but part 2 of 3 is needed here");

    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, second);
    assert_refused(NJ_BAD_DATA, second, "part 1 of 1 of a split model");

    write_split();
    assert_int_equal(truncate(second, 100), 0);
    assert_refused(NJ_BAD_DATA, second, "");

    write_split();
    assert_int_equal(rename(second, first), 0);
    assert_refused(NJ_BAD_DATA, first, "part 2 of 3 of a split model; name its first part");
}

/* Parts of different models: a tensor that is there twice, one too few. */
static void test_parts_of_different_models(void **state)
{
    (void)state;
    char second[4096], spare[4096], other[4096];
    part_path(1, second);
    snprintf(spare, sizeof spare, "%s/spare.gguf", directory);
    snprintf(other, sizeof other, "%s/other-00001-of-00003.gguf", directory);
    struct model_recipe recipe = model_recipe_small();
    recipe.parts = PARTS;
    recipe.layers = 1;
    model_file_write(&recipe, other);
    model_file_part_path(other, 1, PARTS, spare, sizeof spare);
    write_split();
    assert_int_equal(rename(spare, second), 0);
    assert_refused(NJ_BAD_DATA, second, "is also in another part of the split model");

    recipe.layers = 2;
    recipe.without_tensor = "blk.0.ffn_up.weight";
    model_file_write(&recipe, other);
    write_split();
    assert_int_equal(rename(spare, second), 0);
    struct nj_error error = {0};
    struct nj_gguf *gguf = gguf_open(first, &error);
    assert_null(gguf);
    assert_int_equal(error.code, NJ_BAD_DATA);
}

static void test_every_part_is_in_the_digest(void **state)
{
    (void)state;
    struct nj_error error;
    char digest[PARTS + 1][NJ_DIGEST_TEXT_BYTES], part[4096];
    for (uint32_t changed = 0; changed <= PARTS; changed++) {
        write_split();
        if (changed > 0) {
            part_path(changed - 1, part);
            FILE *file = fopen(part, "ab");
            assert_non_null(file);
            fputc(7, file); /* behind the last tensor's padding */
            fclose(file);
        }
        struct nj_gguf *gguf = gguf_open(first, &error);
        struct nj_file_identity identities[PARTS];
        assert_non_null(gguf);
        assert_int_equal(model_files_digest(gguf, packs, NULL, identities, digest[changed], &error), 0);
        assert_int_equal(model_files_refuse_changed(gguf, identities, "meanwhile", &error), 0);
        for (uint32_t other = 0; other < changed; other++)
            assert_string_not_equal(digest[changed], digest[other]);
        gguf_close(gguf);
    }
}

static void test_a_part_that_changes_is_noticed(void **state)
{
    (void)state;
    struct nj_error error;
    for (uint32_t changed = 0; changed < PARTS; changed++) {
        write_split();
        struct nj_gguf *gguf = gguf_open(first, &error);
        struct nj_file_identity *before = model_files_identify(gguf, &error);
        assert_non_null(before);
        char part[4096];
        part_path(changed, part);
        assert_int_equal(truncate(part, 1), 0);
        assert_int_equal(model_files_refuse_changed(gguf, before, "meanwhile", &error), -1);
        assert_int_equal(error.code, NJ_BAD_DATA);
        assert_string_equal(error.file, part);
        assert_non_null(strstr(error.message, "the model file changed meanwhile; run again"));
        free(before);
        gguf_close(gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_parts_are_one_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_that_do_not_fit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parts_of_different_models, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_every_part_is_in_the_digest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_part_that_changes_is_noticed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
