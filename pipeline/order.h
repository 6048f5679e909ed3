/* The order of work: longest first (prompt and new tokens), so that the memory peak comes at once and estimates
 * err high; requests of equal length in input order. */
#ifndef NJ_PIPELINE_ORDER_H
#define NJ_PIPELINE_ORDER_H

#include "pipeline/index.h"

struct nj_order {
    uint32_t *position; /* of entries that are requests and not done */
    uint32_t count;
};

int order_make(struct nj_index *index, struct nj_order *out, struct nj_error *error);
void order_free(struct nj_order *order);

#endif
