/* A batch of requests run through the scheduler, and what came out. Shared by the tests of engine/sweep.
 * Failures end the test. */
#ifndef NJ_TESTS_SWEEP_TRIAL_H
#define NJ_TESTS_SWEEP_TRIAL_H

#include <stdbool.h>

#include "engine/sweep/scheduler.h"
#include "tests/synthetic/synthetic_model.h"

/* An open synthetic model with its weights, in a directory of its own. */
struct trial_model {
    char *directory;
    struct nj_device *device; /* holds the weights; trials run on devices of their own */
    struct nj_model *model;
};

/* Changes the file before it is opened; may be NULL. */
typedef void (*trial_patch)(const char *path);
void trial_model_open(struct trial_model *opened, const struct nj_synthetic_shape *shape, trial_patch patch);
/* Loads the weights anew in this way. */
int trial_model_reload(struct trial_model *opened, const struct nj_weights_options *options, struct nj_error *error);
void trial_model_close(struct trial_model *opened);

enum { TRIAL_MOST_REQUESTS = 256 };

struct trial_request {
    int32_t *prompt;
    int32_t prompt_count, max_new_tokens;
    struct nj_sampling sampling;
    struct nj_text stop[2];
    int stop_count;
    struct nj_logit_bias bias[2];
    int32_t bias_count;
    bool wants_logprobs;
    int32_t top_logprobs;
};

struct trial_answer {
    bool is_done;
    enum nj_finish finish;
    int32_t *generated; /* [max_new_tokens]; of an unfinished request: its tokens so far */
    int32_t generated_count;
    char *text;                  /* NUL-terminated */
    struct nj_logprob *logprobs; /* [generated_count][1 + top_logprobs]; NULL if not wanted, or not known */
    int deliveries;
};

struct trial {
    int count;
    struct trial_request request[TRIAL_MOST_REQUESTS];
    struct trial_answer answer[TRIAL_MOST_REQUESTS];
    bool is_reversed;      /* requests come in the opposite order */
    int stop_after_sweeps; /* 0: never */
    int next;
    int sweeps;
    uint64_t pulled; /* requests that `next` gave */
    struct nj_scheduler_counts counts;
};

/* Random requests: prompts of 1..longest_prompt tokens, 1..most_new new ones; every second one is sampled, in
 * various ways; some have stop strings, some logit_bias, some want log-probabilities. */
void trial_create(struct trial *trial, const struct nj_model *model, int count, int32_t longest_prompt,
                  int32_t most_new, uint64_t seed);
void trial_destroy(struct trial *trial);
void trial_forget_answers(struct trial *trial);

/* Options with plenty of everything. */
struct nj_scheduler_options trial_options(const struct trial *trial);
struct nj_scheduler_callbacks trial_callbacks(struct trial *trial);

/* Runs what is not done yet, unfinished requests from their tokens so far. Returns what scheduler_run did; after
 * an interruption the tokens so far have been noted. */
int trial_run(struct trial *trial, const struct nj_model *model, struct nj_device *device,
              const struct nj_scheduler_options *options, struct nj_error *error);
/* With kernels by name (NULL: the fastest) and this many threads; must finish. */
void trial_run_all(struct trial *trial, const struct nj_model *model, const char *kernels, int threads,
                   const struct nj_scheduler_options *options);
void trial_note_unfinished(struct trial *trial, const struct nj_scheduler *scheduler);

void trial_assert_same_answer(const struct trial *expected, const struct trial *actual, int index);
void trial_assert_same_answers(const struct trial *expected, const struct trial *actual);
/* What is unfinished in `actual` must be the beginning of what is expected. */
void trial_assert_prefixes(const struct trial *expected, const struct trial *actual);

/* A small deterministic generator. */
uint64_t trial_random(uint64_t *state);

#endif
