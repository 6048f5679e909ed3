/* A model from its path to its weights. */
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
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/model/model.h"
#include "tests/model/model_file.h"
#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"

static char *directory, *path, *cache;
static int notice_count;

static void note(void *context, const char *line)
{
    (void)line;
    assert_ptr_equal(context, &notice_count);
    notice_count++;
}

static void write_model(uint64_t seed, const char *template_path)
{
    struct nj_synthetic_shape shape = synthetic_shape_small();
    struct nj_error error;
    shape.seed = seed;
    if (synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", template_path, path, &error) != 0)
        fail_msg("%s", error.message);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "model.gguf");
    cache = temporary_path(directory, "cache");
    notice_count = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(cache);
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

static struct nj_model *open_model(const char *from, struct nj_error *error)
{
    return model_open(
        &(struct nj_model_options){
            .path = from, .cache_directory = cache, .notice = note, .notice_context = &notice_count},
        error);
}

static struct nj_model *open_good_model(const char *from)
{
    struct nj_error error;
    struct nj_model *model = open_model(from, &error);
    if (model == NULL)
        fail_msg("%s: %s", error.file, error.message);
    return model;
}

static void digest_of_file(const char *file, char out[NJ_DIGEST_TEXT_BYTES])
{
    struct nj_error error;
    size_t bytes;
    char *content = file_read_whole(file, 1 << 30, &bytes, &error);
    assert_non_null(content);
    digest_bytes(content, bytes, out);
    free(content);
}

static void a_model_is_opened_and_loaded(void **state)
{
    (void)state;
    write_model(1, NULL);
    struct nj_model *model = open_good_model(path);
    char digest[NJ_DIGEST_TEXT_BYTES];
    assert_string_equal(model->path, path);
    assert_int_equal(model->shape.layers, 2);
    assert_int_equal(model->shape.vocabulary, tokenizer_vocabulary(model->tokenizer));
    assert_non_null(model->chat);
    assert_int_equal(model->chat_error.code, NJ_OK);
    digest_of_file(path, digest);
    assert_string_equal(model->digest, digest);
    tokenizer_digest(model->tokenizer, digest);
    assert_string_equal(model->tokenizer_digest, digest);
    digest_of_file(NJ_TEST_DATA "/synthetic/chat_template.jinja", digest);
    assert_string_equal(model->template_digest, digest);
    assert_null(model->weights);
    assert_int_equal(notice_count, 0);

    struct nj_device *device = device_open_cpu(cpu_kernels_find("reference"), 1);
    struct nj_error error;
    assert_non_null(device);
    if (model_load_weights(model, device, NULL, &error) != 0)
        fail_msg("%s", error.message);
    assert_int_equal(notice_count, 1); /* the pack was built */
    assert_int_equal(weights_embedding(model->weights)->rows, model->shape.vocabulary);
    model_close(model);

    model = open_good_model(path);
    assert_int_equal(model_load_weights(model, device, NULL, &error), 0);
    assert_int_equal(notice_count, 1); /* and used again */
    model_close(model);
    device_close(device);
}

static void the_path_is_made_absolute(void **state)
{
    (void)state;
    write_model(1, NULL);
    char *link = temporary_path(directory, "link.gguf"), *folder = temporary_path(directory, "folder");
    char *through_folder = temporary_path(directory, "folder/link.gguf");
    assert_int_equal(symlink("model.gguf", link), 0);
    assert_int_equal(symlink(".", folder), 0);
    struct nj_model *model = open_good_model(through_folder);
    assert_string_equal(model->path, link); /* the file's own name stays */
    model_close(model);
    assert_int_equal(chdir(directory), 0);
    model = open_good_model("model.gguf");
    assert_string_equal(model->path, path);
    model_close(model);
    assert_int_equal(chdir("/"), 0);
    free(through_folder);
    free(folder);
    free(link);
}

static void other_weights_have_another_digest_and_pack(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(cpu_kernels_find("reference"), 1);
    char first[NJ_DIGEST_TEXT_BYTES];
    struct nj_error error;
    assert_non_null(device);
    for (uint64_t seed = 1; seed <= 2; seed++) {
        write_model(seed, NULL);
        struct nj_model *model = open_good_model(path);
        assert_int_equal(model_load_weights(model, device, NULL, &error), 0);
        assert_int_equal(notice_count, seed);
        if (seed == 1)
            memcpy(first, model->digest, sizeof first);
        else
            assert_string_not_equal(model->digest, first);
        model_close(model);
    }
    device_close(device);
}

static void a_file_replaced_after_opening_is_refused(void **state)
{
    (void)state;
    write_model(1, NULL);
    struct nj_model *model = open_good_model(path);
    assert_int_equal(unlink(path), 0);
    write_model(2, NULL);
    struct nj_device *device = device_open_cpu(cpu_kernels_find("reference"), 1);
    struct nj_error error;
    assert_int_equal(model_load_weights(model, device, NULL, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "changed since it was opened"));
    assert_null(model->weights);
    model_close(model);
    device_close(device);
}

static void expect_no_input(const char *from, const char *message)
{
    struct nj_error error;
    assert_null(open_model(from, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_string_equal(error.file, from);
    if (strstr(error.message, message) == NULL)
        fail_msg("\"%s\" is not in: %s", message, error.message);
}

static void what_is_not_a_file_is_told(void **state)
{
    (void)state;
    expect_no_input(path, "there is no such model file");
    expect_no_input(directory, "this is a directory");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_no_input(path, "not a regular file");
}

static void bad_models_are_refused_at_once(void **state)
{
    (void)state;
    struct nj_error error;
    temporary_write_file(path, "not a model at all, but long enough for one", 43);
    assert_null(open_model(path, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, path);
    struct model_recipe recipe = model_recipe_small();
    recipe.without_tensor = "blk.0.attn_k.weight";
    model_file_write(&recipe, path);
    assert_null(open_model(path, &error));
    assert_non_null(strstr(error.message, "blk.0.attn_k.weight"));
    recipe = model_recipe_small();
    model_file_write(&recipe, path); /* all but the tokenizer is good */
    assert_null(open_model(path, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "tokenizer.ggml.model"));
}

static void a_template_that_cannot_be_used_is_kept_for_later(void **state)
{
    (void)state;
    char *template = temporary_path(directory, "bad.jinja");
    const char source[] = "{% for message in messages %}{{ message.content }}";
    temporary_write_file(template, source, sizeof source - 1);
    write_model(1, template);
    struct nj_model *model = open_good_model(path);
    assert_null(model->chat);
    assert_int_equal(model->chat_error.code, NJ_BAD_DATA);
    assert_string_equal(model->chat_error.file, path);
    assert_true(model->chat_error.message[0] != '\0');
    char digest[NJ_DIGEST_TEXT_BYTES];
    digest_of_file(template, digest);
    assert_string_equal(model->template_digest, digest);
    model_close(model);
    free(template);
}

static void stop_ends_opening(void **state)
{
    (void)state;
    atomic_int stop = 1;
    struct nj_error error;
    write_model(1, NULL);
    struct nj_model_options options = {.path = path, .cache_directory = cache, .stop = &stop};
    assert_null(model_open(&options, &error));
    assert_int_equal(error.code, NJ_INTERRUPTED);
}

#define MODEL_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(a_model_is_opened_and_loaded),
        MODEL_TEST(the_path_is_made_absolute),
        MODEL_TEST(other_weights_have_another_digest_and_pack),
        MODEL_TEST(a_file_replaced_after_opening_is_refused),
        MODEL_TEST(what_is_not_a_file_is_told),
        MODEL_TEST(bad_models_are_refused_at_once),
        MODEL_TEST(a_template_that_cannot_be_used_is_kept_for_later),
        MODEL_TEST(stop_ends_opening),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
