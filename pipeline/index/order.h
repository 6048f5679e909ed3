/* The order of work. Requests whose prompts share whole blocks stay together, so that those blocks are computed once
 * and are still there; in such a group, those that share more blocks stay together again, and so on. Within that, and
 * between groups, which count by their longest member: longest first (prompt and new tokens), so that the memory peak
 * comes at once and estimates err high, then in input order. The first of all is the longest of all. */
#ifndef NJ_PIPELINE_INDEX_ORDER_H
#define NJ_PIPELINE_INDEX_ORDER_H

#include "pipeline/index/index.h"
#include "pipeline/index/prefix_keys.h"

struct nj_order {
    uint32_t *position; /* of entries that are requests and not done */
    uint32_t count;
};

/* The position behind the input's first `requests` valid requests, or the number of entries if there are fewer
 * (or 0 is asked for, which means all). */
uint32_t order_limit(struct nj_index *index, uint64_t requests);

/* Fills in key[index_count], the prefix key of this level for each entry. They are not kept in memory because there
 * is room for one level only: with it an entry takes 48 bytes while the order is made. */
struct nj_prefix_source {
    int (*load)(void *context, int level, uint32_t *key, struct nj_error *error);
    void *context;
};

/* The order of the entries before `limit`. `prefixes` is asked only for levels that can make a difference; NULL: no
 * prompt is taken to share anything. */
int order_make(struct nj_index *index, uint32_t limit, const struct nj_prefix_source *prefixes, struct nj_order *out,
               struct nj_error *error);
void order_free(struct nj_order *order);

#endif
