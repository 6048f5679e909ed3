#include "engine/model/model.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/model/model_files.h"

static int fail_path(const char *path, const char *problem, struct nj_error *error)
{
    error_set(error, NJ_NO_INPUT, "%s", problem);
    return error_at(error, path, 0, -1);
}

/* The file's own name is kept where it is a link: the parts of a split model are found by it. */
static char *make_absolute(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    char *directory = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    char *resolved = directory == NULL ? NULL : realpath(directory, NULL), *absolute = NULL;
    if (resolved != NULL && asprintf(&absolute, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, name) < 0)
        absolute = NULL;
    free(resolved);
    free(directory);
    return absolute;
}

int model_resolve_path(const char *path, char **out, struct nj_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fail_path(path, errno == ENOENT ? "there is no such model file" : strerror(errno), error);
    if (S_ISDIR(info.st_mode))
        return fail_path(path, "this is a directory; name the model's .gguf file", error);
    if (!S_ISREG(info.st_mode))
        return fail_path(path, "this is not a regular file; name the model's .gguf file", error);
    *out = make_absolute(path);
    return *out != NULL ? 0 : fail_path(path, strerror(errno), error);
}

/* "CACHE/NAME" */
static int cache_subdirectory(const struct nj_model *model, const char *name, char out[PATH_MAX],
                              struct nj_error *error)
{
    int length = snprintf(out, PATH_MAX, "%s/%s", model->cache_directory, name);
    if (length > 0 && length < PATH_MAX)
        return 0;
    return error_set(error, NJ_CANT_CREATE, "the name of the cache directory is too long");
}

/* A template that cannot be used is not the end: raw prompts do not need it. */
static int open_chat_template(struct nj_model *model, struct nj_error *error)
{
    struct nj_text source;
    int found = gguf_get_text(model->gguf, "tokenizer.chat_template", &source, error);
    if (found < 0)
        return -1;
    if (found == 0)
        source = (struct nj_text){.bytes = "", .length = 0};
    digest_bytes(source.bytes, source.length, model->template_digest);
    if (found == 0)
        return 0;
    model->chat = chat_template_compile(source.bytes, source.length, &model->chat_error);
    if (model->chat == NULL)
        error_at(&model->chat_error, model->path, 0, -1);
    return 0;
}

static int take_digest(struct nj_model *model, struct nj_error *error)
{
    char directory[PATH_MAX];
    if (cache_subdirectory(model, "digests", directory, error) != 0)
        return -1;
    model->identities = calloc(gguf_part_count(model->gguf), sizeof *model->identities);
    if (model->identities == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory opening the model");
    return model_files_digest(model->gguf, directory, model->stop, model->identities, model->digest, error);
}

/* What is quick to check comes first: the digest of a large file takes a while. */
static int open_parts(struct nj_model *model, struct nj_error *error)
{
    model->gguf = gguf_open(model->path, error);
    if (model->gguf == NULL || hyperparameters_read(model->gguf, &model->shape, error) != 0 ||
        pack_check_tensors(model->gguf, &model->shape, error) != 0)
        return -1;
    model->tokenizer = tokenizer_create(model->gguf, error);
    if (model->tokenizer == NULL)
        return error_at(error, model->path, 0, -1);
    tokenizer_digest(model->tokenizer, model->tokenizer_digest);
    return open_chat_template(model, error) != 0 ? -1 : take_digest(model, error);
}

struct nj_model *model_open(const struct nj_model_options *options, struct nj_error *error)
{
    struct nj_model *model = calloc(1, sizeof *model);
    char *cache_directory = strdup(options->cache_directory);
    if (model == NULL || cache_directory == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening the model");
        free(cache_directory);
        free(model);
        return NULL;
    }
    model->cache_directory = cache_directory;
    model->notice = options->notice;
    model->notice_context = options->notice_context;
    model->stop = options->stop;
    if (model_resolve_path(options->path, &model->path, error) == 0 && open_parts(model, error) == 0)
        return model;
    model_close(model);
    return NULL;
}

int model_open_pack(struct nj_model *model, struct nj_error *error)
{
    char directory[PATH_MAX];
    /* The open reader and the digest must be about the same bytes when the pack is built from them. */
    if (cache_subdirectory(model, "packs", directory, error) != 0 ||
        model_files_refuse_changed(model->gguf, model->identities, "since it was opened", error) != 0)
        return -1;
    struct nj_pack_options options = {.directory = directory,
                                      .gguf = model->gguf,
                                      .shape = &model->shape,
                                      .model_digest = model->digest,
                                      .notice = model->notice,
                                      .notice_context = model->notice_context,
                                      .stop = model->stop};
    model->pack = pack_open(&options, error);
    return model->pack == NULL ? -1 : 0;
}

int model_load_weights(struct nj_model *model, struct nj_device *device, const struct nj_weights_options *options,
                       struct nj_error *error)
{
    const struct nj_weights_options in_ram = {.disk_layers = 0};
    if (model->pack == NULL && model_open_pack(model, error) != 0)
        return -1;
    model->weights = weights_load(model->pack, &model->shape, device, options != NULL ? options : &in_ram, error);
    return model->weights != NULL ? 0 : -1;
}

void model_close(struct nj_model *model)
{
    if (model == NULL)
        return;
    weights_destroy(model->weights);
    pack_close(model->pack);
    chat_template_destroy(model->chat);
    tokenizer_destroy(model->tokenizer);
    gguf_close(model->gguf);
    free(model->identities);
    free(model->cache_directory);
    free(model->path);
    free(model);
}
