/* Weights in memory: every matrix in its place, nothing mapped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <unistd.h>

#include "engine/model/weights.h"
#include "tests/model/model_file.h"
#include "tests/model/pack_check.h"
#include "tests/support/temporary_directory.h"

static char *directory, *model, *packs;
static struct test_source source;
static struct nj_pack *pack;
static struct nj_device *device;

static void open_recipe(const struct model_recipe *recipe)
{
    struct nj_error error;
    model_file_write(recipe, model);
    source = test_source_open(model);
    struct nj_pack_options options = test_pack_options(&source, packs);
    pack = pack_open(&options, &error);
    if (pack == NULL)
        fail_msg("%s", error.message);
}

static void open_model(bool tied)
{
    struct model_recipe recipe = model_recipe_small();
    recipe.tied = tied;
    open_recipe(&recipe);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    model = temporary_path(directory, "model.gguf");
    packs = temporary_path(directory, "packs");
    device = device_open_cpu(cpu_kernels_find("reference"), 1);
    assert_non_null(device);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(device_bytes(device), 0);
    device_close(device);
    pack_close(pack);
    test_source_close(&source);
    free(packs);
    free(model);
    temporary_directory_remove(directory);
    return 0;
}

static const struct nj_weights_options in_ram = {.disk_layers = 0};

static struct nj_weights *load(void)
{
    struct nj_error error;
    struct nj_weights *weights = weights_load(pack, &source.shape, device, &in_ram, &error);
    if (weights == NULL)
        fail_msg("%s", error.message);
    return weights;
}

/* Where the loaded weights say that a tensor is. Vectors have only an address. */
static struct nj_matrix loaded_tensor(struct nj_weights *weights, const struct nj_pack_tensor *tensor)
{
    const struct nj_layer_weights *layer =
        tensor->layer < 0 ? NULL : weights_take_layer(weights, tensor->layer, NULL, NULL);
    switch (tensor->slot) {
    case NJ_SLOT_EMBEDDING:
        return *weights_embedding(weights);
    case NJ_SLOT_HEAD:
        return *weights_head(weights);
    case NJ_SLOT_OUTPUT_NORM:
        return (struct nj_matrix){.data = weights_output_norm(weights)};
    case NJ_SLOT_ATTENTION_NORM:
        return (struct nj_matrix){.data = layer->attention_norm};
    case NJ_SLOT_FEED_FORWARD_NORM:
        return (struct nj_matrix){.data = layer->feed_forward_norm};
    case NJ_SLOT_QUERY:
        return layer->query;
    case NJ_SLOT_KEY:
        return layer->key;
    case NJ_SLOT_VALUE:
        return layer->value;
    case NJ_SLOT_ATTENTION_OUTPUT:
        return layer->attention_output;
    case NJ_SLOT_GATE:
        return layer->gate;
    case NJ_SLOT_UP:
        return layer->up;
    case NJ_SLOT_DOWN:
        return layer->down;
    case NJ_SLOT_QUERY_BIAS:
        return (struct nj_matrix){.data = layer->query_bias};
    case NJ_SLOT_KEY_BIAS:
        return (struct nj_matrix){.data = layer->key_bias};
    case NJ_SLOT_VALUE_BIAS:
        return (struct nj_matrix){.data = layer->value_bias};
    case NJ_SLOT_COUNT:
        break;
    }
    fail();
    return (struct nj_matrix){0};
}

static void every_tensor_is_in_its_place(bool tied)
{
    struct nj_weights *weights = load();
    uint64_t bytes = 0;
    for (int i = 0; i < pack_section_count(pack); i++) {
        const struct nj_pack_section *section = pack_section_at(pack, i);
        struct nj_error error;
        unsigned char *expected = test_section_read(pack, i, &error);
        assert_non_null(expected);
        bytes += section->bytes;
        for (int t = section->first_tensor; t < section->first_tensor + section->tensors; t++) {
            const struct nj_pack_tensor *tensor = pack_tensor_at(pack, t);
            struct nj_matrix found = loaded_tensor(weights, tensor);
            assert_non_null(found.data);
            assert_int_equal((uintptr_t)found.data % 64, 0);
            assert_memory_equal(found.data, expected + (tensor->offset - section->offset), tensor->bytes);
            if (!tensor->is_vector) {
                assert_int_equal(found.kind, tensor->kind);
                assert_int_equal(found.rows, tensor->rows);
                assert_int_equal(found.cols, tensor->cols);
            }
        }
        free(expected);
    }
    assert_int_equal(device_bytes(device), bytes);
    assert_int_equal(weights_head(weights)->data == weights_embedding(weights)->data, tied);
    weights_destroy(weights);
}

static void tied_weights_are_loaded(void **state)
{
    (void)state;
    open_model(true);
    every_tensor_is_in_its_place(true);
}

static void biases_are_loaded(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.architecture = "qwen2";
    recipe.with_biases = true;
    open_recipe(&recipe);
    every_tensor_is_in_its_place(true);
}

static void untied_weights_are_loaded(void **state)
{
    (void)state;
    open_model(false);
    every_tensor_is_in_its_place(false);
}

static bool is_mapped(const char *path)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        found = found || strstr(line, path) != NULL;
    fclose(file);
    return found;
}

static void no_file_is_mapped(void **state)
{
    (void)state;
    char *self = realpath("/proc/self/exe", NULL);
    assert_non_null(self);
    open_model(true);
    struct nj_weights *weights = load();
    assert_true(is_mapped(self)); /* the check sees what is mapped */
    assert_false(is_mapped(directory));
    weights_destroy(weights);
    free(self);
}

static void damage_leaves_nothing_behind(void **state)
{
    (void)state;
    open_model(true);
    int fd = open(pack_path(pack), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "damaged!", 8, (off_t)pack_tensor_at(pack, 12)->offset), 8);
    close(fd);
    struct nj_error error;
    assert_null(weights_load(pack, &source.shape, device, &in_ram, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "blk.1.attn_k.weight"));
}

#define WEIGHTS_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WEIGHTS_TEST(tied_weights_are_loaded),
        WEIGHTS_TEST(untied_weights_are_loaded),
        WEIGHTS_TEST(biases_are_loaded),
        WEIGHTS_TEST(no_file_is_mapped),
        WEIGHTS_TEST(damage_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
