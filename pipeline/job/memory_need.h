/* What a job needs of memory, kind by kind, and whether that fits: told before the first token instead of by the
 * kernel's killer at night. */
#ifndef NJ_PIPELINE_JOB_MEMORY_NEED_H
#define NJ_PIPELINE_JOB_MEMORY_NEED_H

#include <stdint.h>

#include "engine/sweep/scheduler.h"
#include "pipeline/machine/process_memory.h"

enum { NJ_DEFAULT_TOKEN_BUDGET = 256 };

struct nj_memory_need {
    uint64_t program_bytes;            /* program, libraries, tokenizer, chat template, index and order: held already */
    uint64_t weights_bytes;            /* what of them is in memory; buffers for layers on disk included */
    uint64_t kv_bytes, least_kv_bytes; /* blocks as planned; those that the longest request alone takes */
    uint64_t other_bytes;              /* activations, tokens, logits, what is known of each block */
    uint64_t buffers_bytes;            /* what else comes while the job runs: memory_of_buffers */
    int32_t token_budget, longest_sequence;
};

uint64_t memory_need_sum(const struct nj_memory_need *need);

/* 0, or NJ_DOES_NOT_FIT naming what is needed, what is free, and the option to lower. */
int memory_need_check(const struct nj_memory_need *need, uint64_t available_bytes, struct nj_error *error);

/* What the process holds before weights and sequences come. `heap_bytes` is the heap's when the model had been opened
 * and nothing else: with the index's bytes it gives the same number in every run of a job, where what is resident now
 * gives another one each time, and counts only if it is more. */
uint64_t memory_of_program(const struct nj_process_memory *now, uint64_t heap_bytes, uint64_t index_bytes);

/* What comes later and is not counted one by one: the threads' stacks, a line of input while it is read and
 * understood, answers' texts and log-probabilities until they are written, the checkpoint, and what the heap loses
 * between its pieces. */
struct nj_buffer_facts {
    int threads;
    uint64_t longest_line_bytes; /* of the input */
    int64_t sequences, tokens;   /* in flight at most; of all of them */
    int logprobs;                /* kept of each of them at most */
    int64_t record_tokens;       /* new tokens of all answers to one request at most */
    uint64_t program_bytes;
};
uint64_t memory_of_buffers(const struct nj_buffer_facts *facts);

/* What so many sequences, each of at most so many tokens (prompt and answer, >= 2), take beside the weights. */
struct nj_sequences_memory {
    uint64_t kv_bytes, other_bytes; /* keys and values; activations, tokens, logits */
};
struct nj_sequences_memory memory_of_sequences(const struct nj_hyperparameters *shape, enum nj_kv_type kv_type,
                                               int32_t token_budget, int32_t sequences, int32_t tokens);

#endif
