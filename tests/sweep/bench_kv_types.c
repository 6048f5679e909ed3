/* Paired comparison of the KV types f16 and q8 on a real model, which decides the default (docs/measurements.md).
 * Usage: bench_kv_types MODEL CACHE_DIRECTORY WINDOWS TEXT...
 *
 * Takes WINDOWS windows of 512 tokens of each text, evenly spread, scores each with both types (all but its first
 * quarter counts) and prints after every window how far the means have come: an interrupted run is of use too. */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/file.h"
#include "engine/sweep/score.h"

enum { WINDOW = 512, SCORED_FROM = 128, SCORED = WINDOW - 1 - SCORED_FROM, TOKEN_BUDGET = 256 };
enum { TEXT_BYTES_MOST = 256 << 20 };

struct pair {
    double f16, q8; /* sums of -log p over one window */
};

struct comparison {
    struct pair *window;
    int count;
    int64_t argmax_equal;
};

static void fail(const struct nj_error *error)
{
    char text[2048];
    error_format(error, text, sizeof text);
    fprintf(stderr, "bench_kv_types: %s\n", text);
    exit(1);
}

static void *check_memory(void *memory)
{
    const struct nj_error error = {.code = NJ_INTERNAL, .message = "out of memory", .byte = -1};
    if (memory == NULL)
        fail(&error);
    return memory;
}

static struct nj_ids read_tokens(const struct nj_model *model, const char *path)
{
    struct nj_error error = {0};
    struct nj_ids ids = {0};
    size_t length;
    char *text = file_read_whole(path, TEXT_BYTES_MOST, &length, &error);
    if (text == NULL || tokenizer_encode_text(model->tokenizer, text, length, &ids, &error) != 0)
        fail(&error);
    free(text);
    return ids;
}

static double sum_nll(const struct nj_model *model, struct nj_device *device, enum nj_kv_type type,
                      const int32_t *tokens, int32_t argmax[SCORED])
{
    struct nj_error error = {0};
    double logprob[SCORED], sum = 0;
    const struct nj_score_options options = {.kv_type = type, .token_budget = TOKEN_BUDGET};
    if (score_tokens(model, device, &options, tokens, WINDOW, SCORED_FROM, logprob, argmax, &error) != 0)
        fail(&error);
    for (int i = 0; i < SCORED; i++)
        sum -= logprob[i];
    return sum;
}

/* The relative difference of the pooled NLL, and 1.96 standard errors of that ratio over the windows. */
static void summarise(const struct comparison *comparison)
{
    double difference = 0, total = 0, squares = 0;
    const int count = comparison->count;
    for (int i = 0; i < count; i++) {
        difference += comparison->window[i].q8 - comparison->window[i].f16;
        total += comparison->window[i].f16;
    }
    const double ratio = difference / total;
    for (int i = 0; i < count; i++) {
        const struct pair *pair = &comparison->window[i];
        const double rest = pair->q8 - pair->f16 - ratio * pair->f16;
        squares += rest * rest;
    }
    const double bound = count < 2 ? INFINITY : 1.96 * sqrt(squares * count / (count - 1)) / total;
    const double tokens = (double)count * SCORED;
    printf("all: %d windows, %.0f tokens, NLL %.5f, q8 against f16 %+.4f %% +- %.4f %%, argmax equal in %.2f %%\n",
           count, tokens, total / tokens, 100 * ratio, 100 * bound, 100 * (double)comparison->argmax_equal / tokens);
    fflush(stdout);
}

static void compare_window(const struct nj_model *model, struct nj_device *device, const int32_t *tokens,
                           struct comparison *comparison)
{
    int32_t argmax_f16[SCORED], argmax_q8[SCORED];
    struct pair *pair = &comparison->window[comparison->count++];
    pair->f16 = sum_nll(model, device, NJ_KV_F16, tokens, argmax_f16);
    pair->q8 = sum_nll(model, device, NJ_KV_Q8, tokens, argmax_q8);
    for (int i = 0; i < SCORED; i++)
        comparison->argmax_equal += argmax_f16[i] == argmax_q8[i];
    printf("NLL f16 %.5f, q8 %.5f; ", pair->f16 / SCORED, pair->q8 / SCORED);
}

static void compare_texts(const struct nj_model *model, struct nj_device *device, int windows, char **paths, int count)
{
    struct nj_ids *ids = check_memory(calloc((size_t)count, sizeof *ids));
    struct comparison comparison = {0};
    comparison.window = check_memory(calloc((size_t)windows * (size_t)count, sizeof *comparison.window));
    for (int i = 0; i < count; i++)
        ids[i] = read_tokens(model, paths[i]);
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < count; i++) {
            const size_t whole = ids[i].count / WINDOW; /* windows do not overlap */
            if (whole < (size_t)windows && (size_t)w >= whole)
                continue;
            const size_t at = whole < (size_t)windows ? (size_t)w : (size_t)w * whole / (size_t)windows;
            printf("%s from token %zu: ", paths[i], at * WINDOW);
            compare_window(model, device, ids[i].id + at * WINDOW, &comparison);
            summarise(&comparison);
        }
    }
    for (int i = 0; i < count; i++)
        ids_free(&ids[i]);
    free(comparison.window);
    free(ids);
}

int main(int argc, char **argv)
{
    struct nj_error error = {0};
    const int windows = argc > 4 ? atoi(argv[3]) : 0;
    if (windows < 1) {
        fprintf(stderr, "usage: bench_kv_types MODEL CACHE_DIRECTORY WINDOWS TEXT...\n");
        return 64;
    }
    struct nj_device *device = device_open_cpu(cpu_kernels_find(NULL), omp_get_max_threads());
    struct nj_model *model =
        model_open(&(struct nj_model_options){.path = argv[1], .cache_directory = argv[2]}, &error);
    if (device == NULL || model == NULL || model_load_weights(model, device, NULL, &error) != 0)
        fail(&error);
    compare_texts(model, device, windows, argv + 4, argc - 4);
    model_close(model);
    device_close(device);
    return 0;
}
