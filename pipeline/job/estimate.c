#include "pipeline/job/estimate.h"

#include <math.h>

/* Before any answer is known: half of what is allowed, worth as much as a few answers. */
static const double PRIOR_RATIO = 0.5, PRIOR_TOKENS = 512;
/* The range for what remains: this much for the rate, and for the ratio more while few answers are known. */
static const double RATE_SPREAD = 0.1, RATIO_SPREAD = 0.5, WINDOW_SECONDS = 60;

void estimate_add_done(struct nj_estimate *estimate, uint32_t prompt_tokens, uint32_t most_new_tokens,
                       uint32_t new_tokens, int in_this_run)
{
    estimate->done_prompt_tokens += prompt_tokens;
    estimate->done_most_new_tokens += most_new_tokens;
    estimate->done_new_tokens += new_tokens;
    estimate->done_count++;
    if (in_this_run) {
        estimate->run_prompt_tokens += prompt_tokens;
        estimate->run_new_tokens += new_tokens;
    }
}

void estimate_take_back(struct nj_estimate *estimate, uint32_t prompt_tokens, uint32_t most_new_tokens)
{
    double share = estimate->done_most_new_tokens == 0
                       ? 0
                       : (double)estimate->done_new_tokens / (double)estimate->done_most_new_tokens;
    uint64_t new_tokens = (uint64_t)(share * most_new_tokens);
    estimate->done_new_tokens -= new_tokens < estimate->done_new_tokens ? new_tokens : estimate->done_new_tokens;
    estimate->done_prompt_tokens -= prompt_tokens;
    estimate->done_most_new_tokens -= most_new_tokens;
    estimate->done_count--;
}

void estimate_add_restored(struct nj_estimate *estimate, uint32_t new_tokens)
{
    estimate->restored_new_tokens += new_tokens;
}

static double ratio_of(const struct nj_estimate *estimate)
{
    double ratio = ((double)estimate->done_new_tokens + PRIOR_RATIO * PRIOR_TOKENS) /
                   ((double)estimate->done_most_new_tokens + PRIOR_TOKENS);
    return fmin(ratio, 1);
}

static double work_of(double prompt_tokens, double new_tokens)
{
    return prompt_tokens + NJ_NEW_TOKEN_WORK * new_tokens;
}

/* Work that is left if answers take this share of what they are allowed, the begun part not deducted. */
static double left_at(const struct nj_estimate *estimate, double ratio)
{
    return work_of((double)(estimate->prompt_tokens - estimate->done_prompt_tokens),
                   ratio * (double)(estimate->most_new_tokens - estimate->done_most_new_tokens));
}

static void add_sample(struct nj_estimate *estimate, double seconds, double work, double tokens)
{
    size_t last = (estimate->next_sample + NJ_ESTIMATE_SAMPLES - 1) % NJ_ESTIMATE_SAMPLES;
    if (estimate->sample_count > 0 && seconds - estimate->samples[last].seconds < 1)
        return;
    estimate->samples[estimate->next_sample].seconds = seconds;
    estimate->samples[estimate->next_sample].work = work;
    estimate->samples[estimate->next_sample].tokens = tokens;
    estimate->next_sample = (estimate->next_sample + 1) % NJ_ESTIMATE_SAMPLES;
    if (estimate->sample_count < NJ_ESTIMATE_SAMPLES)
        estimate->sample_count++;
}

/* Rates since the oldest sample of the window. */
static void rates_of(const struct nj_estimate *estimate, double seconds, double work, double tokens, double *work_rate,
                     double *token_rate)
{
    *work_rate = *token_rate = 0;
    for (size_t i = 0; i < estimate->sample_count; i++) {
        size_t at = (estimate->next_sample + NJ_ESTIMATE_SAMPLES - estimate->sample_count + i) % NJ_ESTIMATE_SAMPLES;
        double span = seconds - estimate->samples[at].seconds;
        if (span > WINDOW_SECONDS && i + 1 < estimate->sample_count)
            continue;
        if (span > 0) {
            *work_rate = (work - estimate->samples[at].work) / span;
            *token_rate = (tokens - estimate->samples[at].tokens) / span;
        }
        return;
    }
}

/* Work on requests that have no record yet. */
static double begun_work(const struct nj_estimate *estimate)
{
    double new_tokens = (double)estimate->computed_new_tokens + (double)estimate->restored_new_tokens;
    double begun = work_of((double)estimate->read_prompt_tokens, new_tokens) -
                   work_of((double)estimate->run_prompt_tokens, (double)estimate->run_new_tokens);
    return fmax(begun, 0);
}

struct nj_prediction estimate_update(struct nj_estimate *estimate, double seconds, uint64_t computed_prompt_tokens,
                                     uint64_t shared_prompt_tokens, uint64_t computed_new_tokens)
{
    struct nj_prediction out = {.least_left_seconds = -1, .most_left_seconds = -1};
    estimate->read_prompt_tokens = computed_prompt_tokens + shared_prompt_tokens;
    estimate->computed_new_tokens = computed_new_tokens;
    double done = work_of((double)estimate->done_prompt_tokens, (double)estimate->done_new_tokens);
    double ratio = ratio_of(estimate), begun = begun_work(estimate), left = left_at(estimate, ratio);
    begun = fmin(begun, left);
    out.work_total = done + left;
    double fraction = out.work_total > 0 ? (done + begun) / out.work_total : 1;
    estimate->fraction = fmax(estimate->fraction, fraction);
    out.work_done = estimate->fraction * out.work_total;

    double work = work_of((double)estimate->read_prompt_tokens, (double)computed_new_tokens);
    double tokens = (double)computed_prompt_tokens + (double)computed_new_tokens, rate;
    rates_of(estimate, seconds, work, tokens, &rate, &out.tokens_per_second);
    add_sample(estimate, seconds, work, tokens);
    if (rate > 0) {
        double spread = RATIO_SPREAD / sqrt((double)estimate->done_count + 1);
        double least = left_at(estimate, ratio * (1 - spread)) - begun;
        double most = left_at(estimate, fmin(ratio * (1 + spread), 1)) - begun;
        out.least_left_seconds = fmax(least, 0) / rate * (1 - RATE_SPREAD);
        out.most_left_seconds = fmax(most, 0) / rate * (1 + RATE_SPREAD);
    }
    return out;
}
