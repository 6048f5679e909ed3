/* The scheduler: pulls requests through one callback, runs sweeps, hands results to another.
 *
 * Each sweep takes decode rows first, then prefill chunks, oldest sequence first, up to the token budget;
 * new sequences are admitted at the start of a sweep. KV blocks are allocated on demand; when none is left
 * the youngest sequence is preempted (its blocks are freed, its tokens kept, its KV recomputed later; it comes
 * back before new ones come in). The oldest sequence always fits, so there is no deadlock.
 *
 * Sequences whose prompts begin with the same whole blocks share them; what is computed of a prompt stays in the cache
 * for later ones until its blocks are needed.
 *
 * All memory is taken at creation, but for the answers' texts and log-probabilities and for logit_bias; one thread uses
 * a scheduler at a time, `cancel` may be set from anywhere. The model, the device and the options' cancel outlive the
 * scheduler. */
#ifndef NJ_ENGINE_SWEEP_SCHEDULER_H
#define NJ_ENGINE_SWEEP_SCHEDULER_H

#include "engine/sweep/forward.h"
#include "engine/sweep/logprobs.h"
#include "engine/sweep/sampler.h"
#include "engine/tokenizer/output_text.h"

/* A request as the scheduler takes it. Pointers are borrowed during the callback; the scheduler copies. */
struct nj_sequence_request {
    uint64_t tag; /* the caller's name for it */
    const int32_t *prompt;
    int32_t prompt_count;     /* >= 1 */
    const int32_t *generated; /* tokens so far, from a checkpoint */
    int32_t generated_count;  /* <= max_new_tokens; what is complete already is finished without computing */
    int32_t max_new_tokens;   /* >= 1; prompt_count + max_new_tokens <= longest_sequence */
    struct nj_sampling sampling;
    const struct nj_text *stop;
    int stop_count;
    bool wants_logprobs;
    int32_t top_logprobs; /* 0 .. NJ_TOP_LOGPROBS_MOST; 0 if no log-probabilities are wanted */
    /* Those of the generated tokens, [generated_count][1 + top_logprobs], if wanted; NULL: they are computed again,
     * also where the request is complete. */
    const struct nj_logprob *logprobs;
};

enum nj_finish { NJ_FINISH_STOP, NJ_FINISH_LENGTH, NJ_FINISH_NOT_FINITE };

struct nj_sequence_result {
    uint64_t tag;
    enum nj_finish finish;
    const int32_t *generated; /* all new tokens, an end token included */
    int32_t generated_count;
    int32_t prompt_count;
    struct nj_text text; /* empty for NJ_FINISH_NOT_FINITE */
    /* [generated_count][1 + top_logprobs] as logprobs_note fills them; NULL if not wanted, or NJ_FINISH_NOT_FINITE. */
    const struct nj_logprob *logprobs;
    int32_t top_logprobs;
};

/* Counted since scheduler_create. */
struct nj_scheduler_counts {
    uint64_t sweeps, mixed_sweeps /* prefill and decode in one */, abandoned_sweeps;
    uint64_t prefill_tokens;    /* positions computed for the first time in this process, prompt or checkpoint */
    uint64_t shared_tokens;     /* positions of prompts that another sequence had computed or computed just then */
    uint64_t decode_tokens;     /* new tokens chosen */
    uint64_t recomputed_tokens; /* positions computed again after a preemption */
    uint64_t preemptions;
    uint64_t finished;
    int32_t in_flight; /* sequences now admitted, preempted ones included */
};

struct nj_scheduler_callbacks {
    void *context;
    /* The next request in order: 1 filled, 0 no more, -1 error (ends the run). */
    int (*next)(void *context, struct nj_sequence_request *request, struct nj_error *error);
    /* A finished request. -1 ends the run. */
    int (*finished)(void *context, const struct nj_sequence_result *result, struct nj_error *error);
    /* After each sweep: progress, checkpoints. 0 goes on, 1 stops (NJ_INTERRUPTED), -1 error. May call
     * scheduler_counts and scheduler_visit. */
    int (*swept)(void *context, struct nj_error *error);
};

struct nj_scheduler_options {
    int32_t token_budget;     /* >= 1 */
    int64_t kv_blocks;        /* >= scheduler_least_blocks(longest_sequence) */
    int32_t longest_sequence; /* prompt + new tokens of the longest request of the job */
    int32_t most_sequences;   /* in flight at once; at most token_budget and at most kv_blocks are used */
    enum nj_kv_type kv_type;
    int float_path;           /* test-only */
    const atomic_int *cancel; /* abandons the running sweep when non-zero; may be NULL */
};

struct nj_scheduler;

int64_t scheduler_least_blocks(int32_t longest_sequence);
/* Bytes that scheduler_create takes, the KV pool included; a few KiB of handles and of launch queue come on top,
 * and the answers' texts and log-probabilities as they grow. */
uint64_t scheduler_bytes(const struct nj_hyperparameters *shape, const struct nj_scheduler_options *options);

struct nj_scheduler *scheduler_create(const struct nj_model *model, struct nj_device *device,
                                      const struct nj_scheduler_options *options,
                                      const struct nj_scheduler_callbacks *callbacks, struct nj_error *error);
void scheduler_destroy(struct nj_scheduler *scheduler);

/* Runs until no request is left (0), or stops with -1 and an error: NJ_INTERRUPTED after cancel or a stop
 * from `swept` (sequences in flight can then be visited), or what a callback reported. */
int scheduler_run(struct nj_scheduler *scheduler, struct nj_error *error);

struct nj_scheduler_counts scheduler_counts(const struct nj_scheduler *scheduler);

/* Every sequence in flight, oldest first: its tokens so far, for the checkpoint. Among them is the one that has
 * been taken from `next` and waits for room, with the tokens that it came with. Pointers are borrowed. */
struct nj_sequence_state {
    uint64_t tag;
    const int32_t *generated;
    int32_t generated_count;
    /* [generated_count][1 + top_logprobs], but only of a sequence that is complete and needs no computing any more:
     * the others must be computed again in any case. Else NULL. */
    const struct nj_logprob *logprobs;
    int32_t top_logprobs;
};
typedef int (*nj_sequence_visitor)(void *context, const struct nj_sequence_state *state, struct nj_error *error);
int scheduler_visit(const struct nj_scheduler *scheduler, nj_sequence_visitor visit, void *context,
                    struct nj_error *error);

#endif
