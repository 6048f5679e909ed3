#include "tests/sweep/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temporary_directory.h"

uint64_t trial_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fail_with(const struct nj_error *error)
{
    char text[2048];
    error_format(error, text, sizeof text);
    fail_msg("%s", text);
}

void trial_model_open(struct trial_model *opened, const struct nj_synthetic_shape *shape, trial_patch patch)
{
    struct nj_error error = {0};
    opened->directory = temporary_directory_create();
    char *path = temporary_path(opened->directory, "model.gguf");
    char *cache = temporary_path(opened->directory, "cache");
    if (synthetic_model_write(shape, NJ_TEST_DATA "/synthetic", NULL, path, &error) != 0)
        fail_with(&error);
    if (patch != NULL)
        patch(path);
    opened->device = device_open_cpu(cpu_kernels_find(NULL), 1);
    assert_non_null(opened->device);
    opened->model = model_open(&(struct nj_model_options){.path = path, .cache_directory = cache}, &error);
    if (opened->model == NULL || model_load_weights(opened->model, opened->device, NULL, &error) != 0)
        fail_with(&error);
    free(cache);
    free(path);
}

int trial_model_reload(struct trial_model *opened, const struct nj_weights_options *options, struct nj_error *error)
{
    weights_destroy(opened->model->weights);
    pack_close(opened->model->pack);
    opened->model->weights = NULL;
    opened->model->pack = NULL;
    return model_load_weights(opened->model, opened->device, options, error);
}

void trial_model_close(struct trial_model *opened)
{
    model_close(opened->model);
    device_close(opened->device);
    temporary_directory_remove(opened->directory);
}

/* Every second request is sampled; the ways are mixed. */
static struct nj_sampling sampling_for(int index)
{
    if (index % 2 == 0)
        return (struct nj_sampling){.temperature = 0.0f, .top_p = 1.0f};
    return (struct nj_sampling){.temperature = index % 4 == 1 ? 0.7f : 1.3f,
                                .top_p = index % 3 == 0 ? 0.9f : 1.0f,
                                .min_p = index % 5 == 0 ? 0.05f : 0.0f,
                                .top_k = index % 7 == 0 ? 20 : 0,
                                .seed = (uint64_t)index,
                                .request_hash = 1000u + (uint64_t)index,
                                .sample = (uint32_t)index % 3};
}

static void create_request(struct trial_request *request, int index, int32_t vocabulary, int32_t longest_prompt,
                           int32_t most_new, uint64_t *state)
{
    request->prompt_count = 1 + (int32_t)(trial_random(state) % (uint64_t)longest_prompt);
    request->max_new_tokens = 1 + (int32_t)(trial_random(state) % (uint64_t)most_new);
    request->prompt = malloc((size_t)request->prompt_count * sizeof *request->prompt);
    assert_non_null(request->prompt);
    for (int32_t i = 0; i < request->prompt_count; i++)
        request->prompt[i] = (int32_t)(trial_random(state) % (uint64_t)vocabulary);
    request->sampling = sampling_for(index);
    request->stop[0] = (struct nj_text){.bytes = "e", .length = 1};
    request->stop[1] = (struct nj_text){.bytes = " th", .length = 3};
    request->stop_count = index % 6 == 5 ? 2 : 0;
    request->bias[0] = (struct nj_logit_bias){.token = 5, .bias = -100};
    request->bias[1] = (struct nj_logit_bias){.token = 260 + index % 7, .bias = 1.5f};
    request->bias_count = index % 4 < 2 ? 0 : 2;
    request->wants_logprobs = index % 3 != 1;
    request->top_logprobs = request->wants_logprobs ? index % (NJ_TOP_LOGPROBS_MOST + 1) : 0;
}

void trial_create(struct trial *trial, const struct nj_model *model, int count, int32_t longest_prompt,
                  int32_t most_new, uint64_t seed)
{
    assert_true(count <= TRIAL_MOST_REQUESTS);
    memset(trial, 0, sizeof *trial);
    trial->count = count;
    for (int i = 0; i < count; i++) {
        create_request(&trial->request[i], i, model->shape.vocabulary, longest_prompt, most_new, &seed);
        trial->answer[i].generated = malloc((size_t)most_new * sizeof *trial->answer[i].generated);
        assert_non_null(trial->answer[i].generated);
    }
}

void trial_forget_answers(struct trial *trial)
{
    for (int i = 0; i < trial->count; i++) {
        struct trial_answer *answer = &trial->answer[i];
        free(answer->text);
        free(answer->logprobs);
        *answer = (struct trial_answer){.generated = answer->generated};
    }
    trial->pulled = 0;
}

void trial_destroy(struct trial *trial)
{
    trial_forget_answers(trial);
    for (int i = 0; i < trial->count; i++) {
        free(trial->request[i].prompt);
        free(trial->answer[i].generated);
    }
}

static int32_t longest_sequence(const struct trial *trial)
{
    int32_t longest = 2;
    for (int i = 0; i < trial->count; i++) {
        int32_t length = trial->request[i].prompt_count + trial->request[i].max_new_tokens;
        longest = length > longest ? length : longest;
    }
    return longest;
}

struct nj_scheduler_options trial_options(const struct trial *trial)
{
    const int32_t longest = longest_sequence(trial);
    return (struct nj_scheduler_options){.token_budget = 64,
                                         .kv_blocks = trial->count * scheduler_least_blocks(longest),
                                         .longest_sequence = longest,
                                         .most_sequences = trial->count,
                                         .kv_type = NJ_KV_F16};
}

static int give_next(void *context, struct nj_sequence_request *out, struct nj_error *error)
{
    (void)error;
    struct trial *trial = context;
    while (trial->next < trial->count) {
        const int index = trial->is_reversed ? trial->count - 1 - trial->next : trial->next;
        const struct trial_request *request = &trial->request[index];
        const struct trial_answer *answer = &trial->answer[index];
        trial->next++;
        if (answer->is_done)
            continue;
        *out = (struct nj_sequence_request){.tag = (uint64_t)index,
                                            .prompt = request->prompt,
                                            .prompt_count = request->prompt_count,
                                            .generated = answer->generated,
                                            .generated_count = answer->generated_count,
                                            .max_new_tokens = request->max_new_tokens,
                                            .sampling = request->sampling,
                                            .stop = request->stop,
                                            .stop_count = request->stop_count,
                                            .wants_logprobs = request->wants_logprobs,
                                            .top_logprobs = request->top_logprobs,
                                            .logprobs = answer->logprobs};
        out->sampling.bias = request->bias;
        out->sampling.bias_count = request->bias_count;
        trial->pulled++;
        return 1;
    }
    return 0;
}

static void note_tokens(struct trial_answer *answer, const int32_t *generated, int32_t generated_count)
{
    memcpy(answer->generated, generated, (size_t)generated_count * sizeof *generated);
    answer->generated_count = generated_count;
}

static size_t logprob_bytes(const struct trial_request *request, const struct trial_answer *answer)
{
    return (size_t)answer->generated_count * (size_t)(1 + request->top_logprobs) * sizeof *answer->logprobs;
}

static void note_logprobs(const struct trial_request *request, struct trial_answer *answer,
                          const struct nj_logprob *logprobs)
{
    free(answer->logprobs);
    answer->logprobs = NULL;
    if (logprobs == NULL)
        return;
    answer->logprobs = malloc(logprob_bytes(request, answer));
    assert_non_null(answer->logprobs);
    memcpy(answer->logprobs, logprobs, logprob_bytes(request, answer));
}

static int take_finished(void *context, const struct nj_sequence_result *result, struct nj_error *error)
{
    (void)error;
    struct trial *trial = context;
    struct trial_answer *answer = &trial->answer[result->tag];
    assert_int_equal(result->prompt_count, trial->request[result->tag].prompt_count);
    assert_true(result->generated_count <= trial->request[result->tag].max_new_tokens);
    note_tokens(answer, result->generated, result->generated_count);
    assert_int_equal(result->logprobs != NULL,
                     trial->request[result->tag].wants_logprobs && result->finish != NJ_FINISH_NOT_FINITE);
    assert_int_equal(result->top_logprobs, result->logprobs != NULL ? trial->request[result->tag].top_logprobs : 0);
    note_logprobs(&trial->request[result->tag], answer, result->logprobs);
    answer->finish = result->finish;
    answer->is_done = true;
    answer->deliveries++;
    free(answer->text);
    answer->text = strndup(result->text.bytes, result->text.length);
    return answer->text == NULL ? -1 : 0;
}

static int count_sweep(void *context, struct nj_error *error)
{
    (void)error;
    struct trial *trial = context;
    return ++trial->sweeps == trial->stop_after_sweeps;
}

struct nj_scheduler_callbacks trial_callbacks(struct trial *trial)
{
    return (struct nj_scheduler_callbacks){
        .context = trial, .next = give_next, .finished = take_finished, .swept = count_sweep};
}

static int note_unfinished(void *context, const struct nj_sequence_state *state, struct nj_error *error)
{
    (void)error;
    struct trial *trial = context;
    struct trial_answer *answer = &trial->answer[state->tag];
    assert_false(answer->is_done);
    note_tokens(answer, state->generated, state->generated_count);
    note_logprobs(&trial->request[state->tag], answer, state->logprobs);
    return 0;
}

void trial_note_unfinished(struct trial *trial, const struct nj_scheduler *scheduler)
{
    assert_int_equal(scheduler_visit(scheduler, note_unfinished, trial, NULL), 0);
}

int trial_run(struct trial *trial, const struct nj_model *model, struct nj_device *device,
              const struct nj_scheduler_options *options, struct nj_error *error)
{
    const struct nj_scheduler_callbacks callbacks = trial_callbacks(trial);
    trial->next = 0;
    trial->sweeps = 0;
    struct nj_scheduler *scheduler = scheduler_create(model, device, options, &callbacks, error);
    if (scheduler == NULL)
        fail_with(error);
    const int result = scheduler_run(scheduler, error);
    if (result != 0)
        trial_note_unfinished(trial, scheduler);
    trial->counts = scheduler_counts(scheduler);
    scheduler_destroy(scheduler);
    return result;
}

void trial_run_all(struct trial *trial, const struct nj_model *model, const char *kernels, int threads,
                   const struct nj_scheduler_options *options)
{
    struct nj_error error = {0};
    struct nj_device *device = device_open_cpu(cpu_kernels_find(kernels), threads);
    assert_non_null(device);
    if (trial_run(trial, model, device, options, &error) != 0)
        fail_with(&error);
    assert_int_equal(device_bytes(device), 0);
    device_close(device);
    assert_int_equal(trial->counts.in_flight, 0);
    for (int i = 0; i < trial->count; i++) {
        assert_true(trial->answer[i].is_done);
        assert_int_equal(trial->answer[i].deliveries, 1);
    }
}

void trial_assert_same_answer(const struct trial *expected_trial, const struct trial *actual_trial, int index)
{
    const struct trial_answer *expected = &expected_trial->answer[index], *actual = &actual_trial->answer[index];
    assert_true(expected->is_done && actual->is_done);
    assert_int_equal(expected->finish, actual->finish);
    assert_int_equal(expected->generated_count, actual->generated_count);
    assert_memory_equal(expected->generated, actual->generated,
                        (size_t)expected->generated_count * sizeof *expected->generated);
    assert_string_equal(expected->text, actual->text);
    assert_int_equal(expected->logprobs == NULL, actual->logprobs == NULL);
    if (expected->logprobs != NULL)
        assert_memory_equal(expected->logprobs, actual->logprobs,
                            logprob_bytes(&expected_trial->request[index], expected));
}

void trial_assert_same_answers(const struct trial *expected, const struct trial *actual)
{
    for (int i = 0; i < expected->count; i++)
        trial_assert_same_answer(expected, actual, i);
}

void trial_assert_prefixes(const struct trial *expected, const struct trial *actual)
{
    for (int i = 0; i < expected->count; i++) {
        const struct trial_answer *whole = &expected->answer[i], *part = &actual->answer[i];
        assert_true(part->generated_count <= whole->generated_count);
        assert_memory_equal(whole->generated, part->generated, (size_t)part->generated_count * sizeof *part->generated);
        if (part->is_done)
            trial_assert_same_answer(expected, actual, i);
    }
}
