/* How much work a job is, how much is done, and how long the rest will take. Work is counted in tokens: a prompt
 * token counts 1, a new token NJ_NEW_TOKEN_WORK, since a sweep computes prompt tokens in larger groups. Lengths of
 * answers to come are predicted by the ratio of actual to allowed new tokens seen so far. */
#ifndef NJ_PIPELINE_JOB_ESTIMATE_H
#define NJ_PIPELINE_JOB_ESTIMATE_H

#include <stddef.h>
#include <stdint.h>

enum { NJ_NEW_TOKEN_WORK = 3, NJ_ESTIMATE_SAMPLES = 64 };

struct nj_estimate {
    /* All requests, and those that have a record. */
    uint64_t prompt_tokens, most_new_tokens;
    uint64_t done_prompt_tokens, done_most_new_tokens, done_new_tokens;
    uint64_t done_count;
    /* Of those, what was finished in this run, and what this run has computed. */
    uint64_t run_prompt_tokens, run_new_tokens;
    uint64_t read_prompt_tokens /* computed or shared */, computed_new_tokens;
    uint64_t restored_new_tokens; /* from the checkpoint, of requests that had no record when the run began */
    double fraction;              /* the largest so far */
    struct {
        double seconds, work, tokens;
    } samples[NJ_ESTIMATE_SAMPLES]; /* a ring, a second or more apart */
    size_t sample_count, next_sample;
};

struct nj_prediction {
    double work_total, work_done, tokens_per_second;
    double least_left_seconds, most_left_seconds; /* negative: unknown yet */
};

/* A request that has a record (`in_this_run`: since the process began). */
void estimate_add_done(struct nj_estimate *estimate, uint32_t prompt_tokens, uint32_t most_new_tokens,
                       uint32_t new_tokens, int in_this_run);

/* A request that has a record and is to have another. How long its answer was is not known any more: as long, for
 * what was allowed, as those of the others. */
void estimate_take_back(struct nj_estimate *estimate, uint32_t prompt_tokens, uint32_t most_new_tokens);

/* A request in flight of an earlier run, which goes on behind these tokens. */
void estimate_add_restored(struct nj_estimate *estimate, uint32_t new_tokens);

/* What has been computed in this run at `seconds` since its start; then the prediction. Prompt tokens that are shared
 * instead of computed are work done, as those to come will be in part; the speed in tokens leaves them out. */
struct nj_prediction estimate_update(struct nj_estimate *estimate, double seconds, uint64_t computed_prompt_tokens,
                                     uint64_t shared_prompt_tokens, uint64_t computed_new_tokens);

#endif
