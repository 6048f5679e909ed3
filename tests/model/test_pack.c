/* One process and its packs: content, size, refused models, damage, a disk that is too small. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/file.h"
#include "tests/model/model_file.h"
#include "tests/model/pack_check.h"
#include "tests/support/temporary_directory.h"

enum {
    ID_F32 = 0,
    ID_F16 = 1,
    ID_Q4_0 = 2,
    ID_Q4_1 = 3,
    ID_Q5_0 = 6,
    ID_Q5_1 = 7,
    ID_Q8_0 = 8,
    ID_Q2_K = 10,
    ID_Q4_K = 12,
    ID_Q5_K = 13,
    ID_Q6_K = 14,
    ID_BF16 = 30
};

static char *directory, *model, *packs, *pack_file;
static char notices[4][512];
static int notice_count;

static void note(void *context, const char *line)
{
    assert_ptr_equal(context, notices);
    if (notice_count < 4)
        snprintf(notices[notice_count], sizeof notices[0], "%s", line);
    notice_count++;
}

/* The build asks for the free space after it has looked at the model file and before it reads it. */
int __real_statvfs64(const char *path, struct statvfs *out);
int __wrap_statvfs64(const char *path, struct statvfs *out);

static uint64_t pretended_room_bytes = UINT64_MAX;
static void (*at_space_check)(void);

int __wrap_statvfs64(const char *path, struct statvfs *out)
{
    int result = __real_statvfs64(path, out);
    if (at_space_check != NULL)
        at_space_check();
    if (pretended_room_bytes != UINT64_MAX) {
        out->f_bavail = pretended_room_bytes;
        out->f_frsize = 1;
    }
    return result;
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    model = temporary_path(directory, "model.gguf");
    packs = temporary_path(directory, "cache/packs");
    pack_file = temporary_path(packs, TEST_DIGEST "-v1.pack");
    notice_count = 0;
    pretended_room_bytes = UINT64_MAX;
    at_space_check = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(pack_file);
    free(packs);
    free(model);
    temporary_directory_remove(directory);
    return 0;
}

static struct nj_pack *open_pack(const struct test_source *source, struct nj_error *error)
{
    struct nj_pack_options options = test_pack_options(source, packs);
    options.notice = note;
    options.notice_context = notices;
    return pack_open(&options, error);
}

static struct nj_pack *open_good_pack(const struct test_source *source)
{
    struct nj_error error;
    struct nj_pack *pack = open_pack(source, &error);
    if (pack == NULL)
        fail_msg("pack_open: %s", error.message);
    return pack;
}

/* Writes the model, builds its pack, and leaves both on disk. */
static struct test_source build_small(void)
{
    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    pack_close(open_good_pack(&source));
    return source;
}

static uint64_t file_bytes(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (uint64_t)info.st_size;
}

static void content_equals_the_model(const struct model_recipe *recipe)
{
    model_file_write(recipe, model);
    struct test_source source = test_source_open(model);
    unlink(pack_file);
    struct nj_pack *pack = open_good_pack(&source);
    test_pack_equals_source(pack, &source);
    pack_close(pack);
    test_source_close(&source);
}

static void every_type_is_converted_exactly(void **state)
{
    (void)state;
    static const uint32_t types[] = {ID_F32, ID_F16, ID_BF16, ID_Q4_0, ID_Q4_1, ID_Q5_0, ID_Q5_1, ID_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct model_recipe recipe = model_recipe_small();
        recipe.matrix_type = types[i];
        content_equals_the_model(&recipe);
        recipe.tied = false;
        recipe.embedding_type = types[i];
        recipe.matrix_type = ID_Q4_0;
        recipe.norm_type = types[i] == ID_F16 || types[i] == ID_BF16 ? types[i] : ID_F32;
        content_equals_the_model(&recipe);
    }
}

/* Super-blocks need rows of whole 256 columns. */
static void super_blocks_are_converted_exactly(void **state)
{
    (void)state;
    static const uint32_t types[] = {ID_Q4_K, ID_Q5_K, ID_Q6_K};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct model_recipe recipe = model_recipe_small();
        recipe.width = 256;
        recipe.head_width = 64;
        recipe.feed_forward = 512;
        recipe.matrix_type = recipe.embedding_type = types[i];
        content_equals_the_model(&recipe);
    }
}

static void biases_are_converted_exactly(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.architecture = "qwen2";
    recipe.with_biases = true;
    content_equals_the_model(&recipe);
    recipe.norm_type = ID_BF16;
    recipe.tied = false;
    content_equals_the_model(&recipe);
}

/* A tensor of several conversion steps, the last one not full. */
static void large_tensors_are_converted_in_steps(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.layers = 1;
    recipe.vocabulary = 20011;
    recipe.embedding_type = ID_F16;
    content_equals_the_model(&recipe);
}

static void rows_longer_than_a_step_are_converted(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.layers = 1;
    recipe.feed_forward = 32768; /* 16 rows of float32 are 2 MiB */
    recipe.matrix_type = ID_F32;
    recipe.width = 32;
    content_equals_the_model(&recipe);
}

static void layout_is_aligned_and_in_order(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.tied = false;
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    struct nj_pack *pack = open_good_pack(&source);
    assert_string_equal(pack_path(pack), pack_file);
    assert_int_equal(pack_section_count(pack), 4);
    assert_int_equal(pack_bytes(pack), file_bytes(pack_file));
    uint64_t section_end = pack_section_at(pack, 0)->offset;
    for (int i = 0; i < 4; i++) {
        const struct nj_pack_section *section = pack_section_at(pack, i);
        assert_int_equal(section->offset, section_end);
        assert_int_equal(section->offset % NJ_PACK_ALIGNMENT, 0);
        assert_int_equal(section->bytes % NJ_PACK_ALIGNMENT, 0);
        assert_int_equal(section->tensors, i == 0 ? 1 : i == 3 ? 2 : 9);
        section_end += section->bytes;
        uint64_t end = section->offset;
        for (int t = 0; t < section->tensors; t++) {
            const struct nj_pack_tensor *tensor = pack_tensor_at(pack, section->first_tensor + t);
            assert_int_equal(tensor->offset % 64, 0);
            assert_true(tensor->offset >= end);
            assert_int_equal(tensor->layer, i == 0 || i == 3 ? -1 : i - 1);
            end = tensor->offset + tensor->bytes;
        }
        assert_true(end <= section_end);
    }
    assert_int_equal(section_end, pack_bytes(pack));
    pack_close(pack);
    test_source_close(&source);
}

static void pack_is_hardly_larger_than_the_model(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.width = 512;
    recipe.heads = 8;
    recipe.kv_heads = 2;
    recipe.head_width = 64;
    recipe.feed_forward = 1536;
    recipe.vocabulary = 4096;
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    struct nj_pack *pack = open_good_pack(&source);
    assert_true((double)pack_bytes(pack) <= 1.03 * (double)file_bytes(model));
    pack_close(pack);
    test_source_close(&source);
}

static void a_pack_is_built_once(void **state)
{
    (void)state;
    struct test_source source = build_small();
    assert_int_equal(notice_count, 1);
    assert_non_null(strstr(notices[0], "building the pack"));
    assert_non_null(strstr(notices[0], pack_file));
    struct stat before, after;
    assert_int_equal(stat(pack_file, &before), 0);
    assert_int_equal(before.st_mode & 0777, 0600);
    pack_close(open_good_pack(&source));
    assert_int_equal(notice_count, 1);
    assert_int_equal(stat(pack_file, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    test_source_close(&source);
}

/* The model is refused, by both ways in, with both texts in the message, and nothing is left in the cache. */
static void expect_refused(const struct model_recipe *recipe, const char *text, const char *another)
{
    model_file_write(recipe, model);
    struct test_source source = test_source_open(model);
    struct nj_error error;
    assert_null(open_pack(&source, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, model);
    if (strstr(error.message, text) == NULL || strstr(error.message, another) == NULL)
        fail_msg("\"%s\" and \"%s\" are not both in: %s", text, another, error.message);
    assert_int_equal(access(pack_file, F_OK), -1);
    if (recipe->poisoned_tensor == NULL) {
        struct nj_error checked;
        assert_int_equal(pack_check_tensors(source.gguf, &source.shape, &checked), -1);
        assert_string_equal(checked.message, error.message);
    }
    test_source_close(&source);
}

static void wrong_tensors_are_named(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.without_tensor = "blk.1.ffn_up.weight";
    expect_refused(&recipe, "has no tensor", "blk.1.ffn_up.weight");
    recipe.without_tensor = "output_norm.weight";
    expect_refused(&recipe, "has no tensor", "output_norm.weight");
    recipe = model_recipe_small();
    recipe.extra_tensor = "blk.0.attn_q.bias";
    expect_refused(&recipe, "blk.0.attn_q.bias", "does not know");
    recipe = model_recipe_small();
    recipe.architecture = "qwen2"; /* whose biases are missing, then of a wrong shape or type */
    expect_refused(&recipe, "has no tensor", "blk.0.attn_q.bias");
    recipe.with_biases = true;
    recipe.without_tensor = "blk.1.attn_v.bias";
    expect_refused(&recipe, "has no tensor", "blk.1.attn_v.bias");
    recipe.without_tensor = NULL;
    recipe.changed_tensor = "blk.1.attn_k.bias";
    recipe.changed_shape[0] = 96;
    expect_refused(&recipe, "tensor blk.1.attn_k.bias is 96", "expected 24");
    recipe.changed_shape[0] = 32;
    recipe.changed_type = ID_Q8_0;
    recipe.kv_heads = 4;
    recipe.changed_shape[0] = 96;
    expect_refused(&recipe, "tensor blk.1.attn_k.bias is Q8_0", "must be one of: F32, F16, BF16");
    recipe = model_recipe_small();
    recipe.changed_tensor = "blk.1.attn_q.weight";
    recipe.changed_type = ID_Q4_1;
    recipe.changed_shape[1] = 48;
    expect_refused(&recipe, "tensor blk.1.attn_q.weight is 64 x 48", "expected 64 x 96");
    recipe.changed_shape[1] = 0;
    recipe.changed_shape[0] = 32;
    expect_refused(&recipe, "tensor blk.1.attn_q.weight is 32 x 96", "expected 64 x 96");
    recipe.changed_tensor = "blk.0.ffn_norm.weight";
    expect_refused(&recipe, "tensor blk.0.ffn_norm.weight is 32", "expected 64");
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.changed_tensor = "blk.0.attn_v.weight";
    recipe.changed_type = ID_Q2_K;
    expect_refused(&recipe, "tensor blk.0.attn_v.weight",
                   "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K");
    recipe.changed_tensor = "blk.1.attn_norm.weight";
    recipe.changed_type = ID_Q4_0;
    expect_refused(&recipe, "tensor blk.1.attn_norm.weight is Q4_0", "F32, F16, BF16");
}

static void values_that_cannot_be_converted_are_named(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.poisoned_tensor = "token_embd.weight"; /* 37 rows: the last strip is rows 32 to 36 */
    expect_refused(&recipe, "tensor token_embd.weight, rows 32 to 36: ", "");
    recipe.poisoned_tensor = "blk.1.ffn_norm.weight";
    expect_refused(&recipe, "tensor blk.1.ffn_norm.weight", "not a finite number");
    char *temporary = temporary_path(packs, TEST_DIGEST "-v1.pack.tmp");
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
}

static void flip_byte(uint64_t offset)
{
    unsigned char byte;
    int fd = open(pack_file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
    close(fd);
}

/* Opening gives two notices, why and what, and the pack is good again. */
static void expect_rebuilt(const struct test_source *source, const char *reason)
{
    notice_count = 0;
    struct nj_pack *pack = open_good_pack(source);
    assert_int_equal(notice_count, 2);
    if (strstr(notices[0], reason) == NULL || strstr(notices[0], pack_file) == NULL)
        fail_msg("\"%s\" is not in: %s", reason, notices[0]);
    assert_non_null(strstr(notices[1], "building the pack"));
    test_pack_equals_source(pack, source);
    pack_close(pack);
}

static void a_damaged_header_is_rebuilt(void **state)
{
    (void)state;
    struct test_source source = build_small();
    flip_byte(0);
    expect_rebuilt(&source, "does not begin as a pack");
    uint64_t header_bytes = 0;
    struct nj_pack *pack = open_good_pack(&source);
    header_bytes = pack_section_at(pack, 0)->offset;
    pack_close(pack);
    for (uint64_t offset = 8; offset < header_bytes; offset = offset < 160 ? offset + 4 : offset * 2) {
        flip_byte(offset);
        expect_rebuilt(&source, "checksum of its header");
    }
    flip_byte(header_bytes - 1);
    expect_rebuilt(&source, "checksum of its header");
    test_source_close(&source);
}

static void a_truncated_or_extended_pack_is_rebuilt(void **state)
{
    (void)state;
    struct test_source source = build_small();
    uint64_t bytes = file_bytes(pack_file);
    const uint64_t lengths[] = {0, 1, 4095, 4096, bytes - 4096, bytes - 1, bytes + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(truncate(pack_file, (off_t)lengths[i]), 0);
        expect_rebuilt(&source, "bytes, expected");
    }
    test_source_close(&source);
}

/* Changes 4 bytes of the header and makes its checksum right again: another writer, not damage. */
static void patch_header(const struct test_source *source, uint64_t offset, const char *bytes)
{
    struct nj_pack *pack = open_good_pack(source);
    size_t header_bytes = (size_t)pack_section_at(pack, 0)->offset;
    pack_close(pack);
    unsigned char *header = malloc(header_bytes);
    int fd = open(pack_file, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && header != NULL);
    assert_int_equal(pread(fd, header, header_bytes, 0), (ssize_t)header_bytes);
    memcpy(header + offset, bytes, 4);
    uint64_t checksum = XXH3_64bits(header, header_bytes - 8);
    memcpy(header + header_bytes - 8, &checksum, 8);
    assert_int_equal(pwrite(fd, header, header_bytes, 0), (ssize_t)header_bytes);
    close(fd);
    free(header);
}

static void a_pack_of_another_writer_is_rebuilt(void **state)
{
    (void)state;
    struct test_source source = build_small();
    patch_header(&source, 8, "\2\0\0"); /* the version */
    expect_rebuilt(&source, "another version");
    patch_header(&source, 40, "ffff"); /* the digest */
    expect_rebuilt(&source, "another model");
    patch_header(&source, 128, "\0\0\0\x40"); /* the first section's offset: bounds are not believed */
    expect_rebuilt(&source, "another version");
    test_source_close(&source);
}

/* Opens, and reads sections until one fails. */
static void expect_damaged_tensor(const struct test_source *source, const char *name, uint64_t offset)
{
    flip_byte(offset);
    struct nj_pack *pack = open_good_pack(source);
    struct nj_error error = {.code = NJ_OK};
    for (int i = 0; i < pack_section_count(pack) && error.code == NJ_OK; i++)
        free(test_section_read(pack, i, &error));
    pack_close(pack);
    flip_byte(offset);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, pack_file);
    if (strstr(error.message, name) == NULL || strstr(error.message, "delete the pack and run again") == NULL)
        fail_msg("not named, or no remedy: %s", error.message);
}

static void a_damaged_tensor_is_named(void **state)
{
    (void)state;
    struct test_source source = build_small();
    struct nj_pack *pack = open_good_pack(&source);
    struct nj_pack_tensor embedding = *pack_tensor_at(pack, 0), down = *pack_tensor_at(pack, 9);
    struct nj_pack_tensor norm = *pack_tensor_at(pack, 19);
    pack_close(pack);
    expect_damaged_tensor(&source, "token_embd.weight", embedding.offset);
    expect_damaged_tensor(&source, "blk.0.ffn_down.weight", down.offset + down.bytes - 1);
    expect_damaged_tensor(&source, "output_norm.weight", norm.offset + 7);
    flip_byte(embedding.offset);
    unlink(pack_file); /* the remedy */
    pack = open_good_pack(&source);
    test_pack_equals_source(pack, &source);
    pack_close(pack);
    test_source_close(&source);
}

static void a_pack_that_shrinks_while_open_is_an_error(void **state)
{
    (void)state;
    struct test_source source = build_small();
    struct nj_pack *pack = open_good_pack(&source);
    assert_int_equal(truncate(pack_file, 4096), 0);
    struct nj_error error;
    assert_null(test_section_read(pack, 3, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, pack_file);
    pack_close(pack);
    test_source_close(&source);
}

static void a_disk_too_small_is_said_first(void **state)
{
    (void)state;
    struct test_source source = build_small();
    struct nj_pack *pack = open_good_pack(&source);
    uint64_t needed = pack_bytes(pack);
    pack_close(pack);
    unlink(pack_file);
    pretended_room_bytes = needed - 1;
    struct nj_error error;
    assert_null(open_pack(&source, &error));
    assert_int_equal(error.code, NJ_CANT_CREATE);
    char numbers[128];
    snprintf(numbers, sizeof numbers, "%llu bytes needed, %llu available", (unsigned long long)needed,
             (unsigned long long)needed - 1);
    if (strstr(error.message, numbers) == NULL)
        fail_msg("\"%s\" is not in: %s", numbers, error.message);
    pretended_room_bytes = needed;
    pack_close(open_good_pack(&source));
    test_source_close(&source);
}

static void touch_model(void)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, model, times, 0), 0);
}

static void a_model_that_changes_meanwhile_is_refused(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    at_space_check = touch_model;
    struct nj_error error;
    assert_null(open_pack(&source, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "changed while its pack was being built"));
    assert_string_equal(error.file, model);
    assert_int_equal(access(pack_file, F_OK), -1);
    test_source_close(&source);
}

static void stop_ends_building_and_reading(void **state)
{
    (void)state;
    struct test_source source = build_small();
    atomic_int stop = 0;
    struct nj_pack_options options = test_pack_options(&source, packs);
    options.stop = &stop;
    struct nj_error error;
    struct nj_pack *pack = pack_open(&options, &error);
    assert_non_null(pack);
    stop = 1;
    assert_null(test_section_read(pack, 0, &error));
    assert_int_equal(error.code, NJ_INTERRUPTED);
    pack_close(pack);
    unlink(pack_file);
    assert_null(pack_open(&options, &error));
    assert_int_equal(error.code, NJ_INTERRUPTED);
    char *temporary = temporary_path(packs, TEST_DIGEST "-v1.pack.tmp");
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
    stop = 0;
    pack_close(open_good_pack(&source));
    test_source_close(&source);
}

static void a_directory_that_cannot_be_made_is_an_error(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    struct nj_pack_options options = test_pack_options(&source, model); /* a file */
    struct nj_error error;
    assert_null(pack_open(&options, &error));
    assert_int_equal(error.code, NJ_CANT_CREATE);
    options.directory = packs;
    options.model_digest = "../../../../etc/passwd0123456789";
    assert_null(pack_open(&options, &error));
    assert_int_equal(error.code, NJ_INTERNAL);
    test_source_close(&source);
}

#define PACK_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PACK_TEST(every_type_is_converted_exactly),
        PACK_TEST(super_blocks_are_converted_exactly),
        PACK_TEST(biases_are_converted_exactly),
        PACK_TEST(large_tensors_are_converted_in_steps),
        PACK_TEST(rows_longer_than_a_step_are_converted),
        PACK_TEST(layout_is_aligned_and_in_order),
        PACK_TEST(pack_is_hardly_larger_than_the_model),
        PACK_TEST(a_pack_is_built_once),
        PACK_TEST(wrong_tensors_are_named),
        PACK_TEST(wrong_types_are_named),
        PACK_TEST(values_that_cannot_be_converted_are_named),
        PACK_TEST(a_damaged_header_is_rebuilt),
        PACK_TEST(a_truncated_or_extended_pack_is_rebuilt),
        PACK_TEST(a_pack_of_another_writer_is_rebuilt),
        PACK_TEST(a_damaged_tensor_is_named),
        PACK_TEST(a_pack_that_shrinks_while_open_is_an_error),
        PACK_TEST(a_disk_too_small_is_said_first),
        PACK_TEST(a_model_that_changes_meanwhile_is_refused),
        PACK_TEST(stop_ends_building_and_reading),
        PACK_TEST(a_directory_that_cannot_be_made_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
