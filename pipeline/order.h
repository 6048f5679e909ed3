/* The order of work: longest first (prompt and new tokens), so that the memory peak comes at once and estimates
 * err high; requests of equal length in input order. */
#ifndef NJ_PIPELINE_ORDER_H
#define NJ_PIPELINE_ORDER_H

#include "pipeline/index.h"

struct nj_order {
    uint32_t *position; /* of entries that are requests and not done */
    uint32_t count;
};

/* The position behind the input's first `requests` valid requests, or the number of entries if there are fewer
 * (or 0 is asked for, which means all). */
uint32_t order_limit(struct nj_index *index, uint64_t requests);

/* The order of the entries before `limit`. */
int order_make(struct nj_index *index, uint32_t limit, struct nj_order *out, struct nj_error *error);
void order_free(struct nj_order *order);

#endif
