/* One sweep through the model: queues the operations of every layer for a token batch, layer-major. */
#ifndef NJ_ENGINE_SWEEP_FORWARD_H
#define NJ_ENGINE_SWEEP_FORWARD_H

#include "engine/model/model.h"
#include "engine/sweep/kv_cache.h"

/* Rows of logits computed at once; a sweep that needs more does several head passes. */
enum { NJ_HEAD_ROWS = 64 };

struct nj_forward_options {
    int32_t token_budget; /* tokens of a sweep at most */
    int32_t sequences;    /* sequences in a sweep at most */
    int64_t blocks_per_sequence;
    int float_path; /* test-only: float32 activations everywhere */
};

struct nj_forward;

/* Bytes of the one buffer for activations and batch that forward_create takes for these options. */
uint64_t forward_bytes(const struct nj_hyperparameters *shape, const struct nj_forward_options *options);
struct nj_forward *forward_create(const struct nj_model *model, struct nj_device *device, struct nj_kv_cache *cache,
                                  const struct nj_forward_options *options, struct nj_error *error);
void forward_destroy(struct nj_forward *forward);

/* The batch to fill before forward_run. Arrays are owned by `forward` and sized by its options. Sequences may have
 * the same number in their rows of `blocks`, also where one of them fills that block in this very run: in every layer
 * the keys and values of all rows are stored before any row reads them. */
struct nj_forward_batch {
    int32_t *token, *position, *sequence; /* [token_budget] */
    int32_t *blocks;                      /* [sequences][blocks_per_sequence] */
    int32_t *logit_row;                   /* [token_budget] rows of the batch that need logits, ascending */
    int32_t count;                        /* tokens; set by the caller */
    int32_t logit_count;                  /* set by the caller */
    bool another_follows;                 /* set by the caller: another run certainly follows this one */
};
struct nj_forward_batch *forward_batch(struct nj_forward *forward);

/* Called for each row that needs logits, in the order of logit_row: logits[vocabulary] are valid only during
 * the call. */
typedef void (*nj_logits_visitor)(void *context, int32_t logit_index, const float *logits,
                                  const struct nj_logit_stats *stats);

/* Runs all layers and the head. On failure the KV of the batch is undefined and its positions must be computed again:
 * NJ_INTERRUPTED as *cancel (may be NULL) became non-zero, or a layer on disk cannot be read. Allocates nothing. */
int forward_run(struct nj_forward *forward, nj_logits_visitor visit, void *context, const atomic_int *cancel,
                struct nj_error *error);

#endif
