/* How fast a model runs on a device: the forward pass alone, on made-up tokens. */
#ifndef NJ_ENGINE_SWEEP_BENCH_H
#define NJ_ENGINE_SWEEP_BENCH_H

#include "engine/sweep/forward.h"

struct nj_bench_options {
    enum nj_kv_type kv_type;
    int32_t token_budget;   /* tokens of a sweep at most */
    double seconds;         /* sweeps are repeated until so much time has passed */
    const atomic_int *stop; /* non-zero: NJ_INTERRUPTED; may be NULL */
};

struct nj_bench_result {
    int64_t tokens, repeats;
    double seconds;               /* for these tokens */
    struct nj_device_times times; /* of these seconds */
};

/* Reads `sequences` prompts of `tokens` tokens each from their beginning, in sweeps up to the budget, each prompt's
 * last token with logits; as often as the time allows, once at least. */
int bench_prefill(const struct nj_model *model, struct nj_device *device, const struct nj_bench_options *options,
                  int32_t sequences, int32_t tokens, struct nj_bench_result *out, struct nj_error *error);

/* New tokens of `sequences` sequences, one each in a sweep, behind `context` tokens each; up to NJ_BENCH_STEPS sweeps,
 * two at least. sequences must be at most the budget. The keys and values before them are made up too. */
enum { NJ_BENCH_STEPS = 64 };
int bench_decode(const struct nj_model *model, struct nj_device *device, const struct nj_bench_options *options,
                 int32_t sequences, int32_t context, struct nj_bench_result *out, struct nj_error *error);

#endif
