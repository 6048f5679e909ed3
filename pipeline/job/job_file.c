#include "pipeline/job/job_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/output/output.h"

enum { JOB_FILE_BYTES_MOST = 64 << 20 };

static int fail_damaged(const char *path, const char *what, struct nj_error *error)
{
    error_set(error, NJ_BAD_DATA, "the job file cannot be used: %s", what);
    return error_at(error, path, 0, -1);
}

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static int64_t number_at(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static int read_inputs(struct nj_job_file *out, const char *path, struct nj_error *error)
{
    const json_t *inputs = json_object_get(out->root, "inputs");
    size_t count = json_array_size(inputs);
    if (count == 0)
        return fail_damaged(path, "it names no input", error);
    out->inputs = malloc(count * sizeof *out->inputs);
    if (out->inputs == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    for (size_t i = 0; i < count; i++) {
        out->inputs[i] = json_string_value(json_array_get(inputs, i));
        if (out->inputs[i] == NULL)
            return fail_damaged(path, "an input is no string", error);
    }
    out->options.inputs = out->inputs;
    out->options.input_count = count;
    return 0;
}

static int read_fields(struct nj_job_file *out, const char *path, struct nj_error *error)
{
    const json_t *root = out->root, *model = json_object_get(root, "model");
    const char *digest = text_at(root, "job_digest");
    if (number_at(root, "schema") != NJ_JOB_FILE_SCHEMA)
        return fail_damaged(path, "another version of nightjar wrote it", error);
    out->options = (struct nj_job_options){
        .model_path = text_at(model, "path"),
        .output_directory = text_at(root, "output"),
        .kv_type = text_at(root, "kv_type"),
        .as_chat = json_is_true(json_object_get(root, "as_chat")),
        .strict = json_is_true(json_object_get(root, "strict")),
        .job_time = number_at(root, "job_time"),
        .threads = (int)number_at(root, "threads"),
        .token_budget = (int32_t)number_at(root, "token_budget"),
        .kv_memory_bytes = (uint64_t)number_at(root, "kv_memory_bytes"),
        .max_memory_bytes = (uint64_t)number_at(root, "max_memory_bytes"),
        .kernels = text_at(root, "kernels"),
        .cache_directory = text_at(root, "cache_directory"),
    };
    out->model_name = text_at(model, "name");
    out->model_digest = text_at(model, "digest");
    out->tokenizer_digest = text_at(model, "tokenizer_digest");
    out->template_digest = text_at(model, "template_digest");
    out->arithmetic_version = (int)number_at(root, "arithmetic");
    if (out->options.model_path == NULL || out->options.output_directory == NULL || out->model_name == NULL ||
        out->model_digest == NULL || out->tokenizer_digest == NULL || out->template_digest == NULL ||
        out->options.kv_type == NULL || digest == NULL || !digest_from_hex(digest, strlen(digest), &out->job_digest))
        return fail_damaged(path, "a field is missing", error);
    return read_inputs(out, path, error);
}

int job_file_read(const char *directory, struct nj_job_file *out, struct nj_error *error)
{
    *out = (struct nj_job_file){0};
    char *path = output_path(directory, "job.json", error);
    if (path == NULL)
        return -1;
    int result = 0;
    size_t length;
    char *content = NULL;
    if (access(path, F_OK) != 0)
        goto done;
    result = -1;
    content = file_read_whole(path, JOB_FILE_BYTES_MOST, &length, error);
    if (content == NULL)
        goto done;
    out->root = json_loadb(content, length, JSON_REJECT_DUPLICATES, NULL);
    if (out->root == NULL)
        fail_damaged(path, "it is not valid JSON", error);
    else if (read_fields(out, path, error) == 0)
        result = 1;
    if (result < 0)
        job_file_free(out);
done:
    free(content);
    free(path);
    return result;
}

void job_file_free(struct nj_job_file *file)
{
    json_decref(file->root);
    free(file->inputs);
    *file = (struct nj_job_file){0};
}

static json_t *inputs_as_json(const struct nj_job_options *options)
{
    json_t *inputs = json_array();
    for (size_t i = 0; i < options->input_count; i++) {
        if (json_array_append_new(inputs, json_string(options->inputs[i])) != 0) {
            json_decref(inputs);
            return NULL;
        }
    }
    return inputs;
}

static char *as_text(const struct nj_job_file *file)
{
    const struct nj_job_options *options = &file->options;
    char digest[33];
    digest_to_hex(file->job_digest, digest);
    json_t *root = json_pack(
        "{s:i, s:s, s:{s:s, s:s, s:s, s:s, s:s}, s:s, s:i, s:o, s:s, s:b, s:b, s:I, s:i, s:i, s:I, s:I, s:s?, s:s?}",
        "schema", NJ_JOB_FILE_SCHEMA, "job_digest", digest, "model", "path", options->model_path, "name",
        file->model_name, "digest", file->model_digest, "tokenizer_digest", file->tokenizer_digest, "template_digest",
        file->template_digest, "kv_type", options->kv_type, "arithmetic", file->arithmetic_version, "inputs",
        inputs_as_json(options), "output", options->output_directory, "as_chat", (int)options->as_chat, "strict",
        (int)options->strict, "job_time", (json_int_t)options->job_time, "threads", options->threads, "token_budget",
        (int)options->token_budget, "kv_memory_bytes", (json_int_t)options->kv_memory_bytes, "max_memory_bytes",
        (json_int_t)options->max_memory_bytes, "kernels", options->kernels, "cache_directory",
        options->cache_directory);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return text;
}

static bool is_written(const char *path, const char *text)
{
    size_t length;
    if (access(path, F_OK) != 0)
        return false;
    char *content = file_read_whole(path, JOB_FILE_BYTES_MOST, &length, NULL);
    bool same = content != NULL && length == strlen(text) && memcmp(content, text, length) == 0;
    free(content);
    return same;
}

int job_file_write(const char *directory, const struct nj_job_file *file, struct nj_error *error)
{
    char *path = output_path(directory, "job.json", error);
    char *text = as_text(file);
    int result = -1;
    if (path != NULL && text == NULL)
        error_set(error, NJ_BAD_USAGE, "a path is not valid UTF-8, which job.json cannot hold: rename it");
    else if (path != NULL)
        result = is_written(path, text) ? 0 : file_replace(path, text, strlen(text), error);
    free(text);
    free(path);
    return result;
}

static int fail_different(const char *directory, const char *what, const char *stored, const char *wanted,
                          struct nj_error *error)
{
    error_set(
        error, NJ_BAD_DATA,
        "the output directory holds another job: %s was %s, now %s; use the same one, or another output directory",
        what, stored, wanted);
    return error_at(error, directory, 0, -1);
}

static int compare_number(const char *directory, const char *what, int64_t stored, int64_t wanted,
                          struct nj_error *error)
{
    char first[24], second[24];
    if (stored == wanted)
        return 0;
    snprintf(first, sizeof first, "%" PRId64, stored);
    snprintf(second, sizeof second, "%" PRId64, wanted);
    return fail_different(directory, what, first, second, error);
}

int job_file_compare(const char *directory, const struct nj_job_file *stored, const struct nj_job_file *wanted,
                     struct nj_error *error)
{
    const struct {
        const char *what, *stored, *wanted;
    } texts[] = {
        {"the model's digest", stored->model_digest, wanted->model_digest},
        {"the KV type", stored->options.kv_type, wanted->options.kv_type},
        {"the tokenizer's digest", stored->tokenizer_digest, wanted->tokenizer_digest},
        {"the chat template's digest", stored->template_digest, wanted->template_digest},
        {"--as-chat", stored->options.as_chat ? "given" : "not given", wanted->options.as_chat ? "given" : "not given"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (strcmp(texts[i].stored, texts[i].wanted) != 0)
            return fail_different(directory, texts[i].what, texts[i].stored, texts[i].wanted, error);
    }
    if (compare_number(directory, "the arithmetic version", stored->arithmetic_version, wanted->arithmetic_version,
                       error) != 0)
        return -1;
    return wanted->options.job_time < 0
               ? 0
               : compare_number(directory, "the job's time", stored->options.job_time, wanted->options.job_time, error);
}
