#include "pipeline/order.h"

#include <stdlib.h>

static bool is_wanted(const struct nj_index_entry *entry)
{
    return entry->kind == NJ_ENTRY_REQUEST && !entry->done;
}

static uint32_t length_of(const struct nj_index_entry *entry)
{
    return entry->prompt_tokens + entry->max_new_tokens;
}

static int compare(uint32_t first, uint32_t second, struct nj_index *index)
{
    uint32_t first_length = length_of(index_at(index, first)), second_length = length_of(index_at(index, second));
    if (first_length != second_length)
        return first_length > second_length ? -1 : 1;
    return first < second ? -1 : first > second;
}

/* Heap sort: in place, whatever the number of requests, and its order is total, so that it need not be stable. */
static void sift_down(uint32_t *heap, size_t root, size_t count, struct nj_index *index)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count && compare(heap[child], heap[child + 1], index) < 0)
            child++;
        if (compare(heap[root], heap[child], index) >= 0)
            return;
        uint32_t kept = heap[root];
        heap[root] = heap[child];
        heap[child] = kept;
        root = child;
    }
}

static void sort(uint32_t *position, size_t count, struct nj_index *index)
{
    for (size_t root = count / 2; root-- > 0;)
        sift_down(position, root, count, index);
    for (size_t end = count; end-- > 1;) {
        uint32_t kept = position[0];
        position[0] = position[end];
        position[end] = kept;
        sift_down(position, 0, end, index);
    }
}

uint32_t order_limit(struct nj_index *index, uint64_t requests)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < index_count(index) && requests > 0; i++) {
        found += index_at(index, i)->kind == NJ_ENTRY_REQUEST;
        if (found == requests)
            return i + 1;
    }
    return index_count(index);
}

int order_make(struct nj_index *index, uint32_t limit, struct nj_order *out, struct nj_error *error)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < limit; i++)
        count += is_wanted(index_at(index, i));
    *out = (struct nj_order){.position = malloc((count + (size_t)1) * sizeof(uint32_t))};
    if (out->position == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the order of %u requests", count);
    for (uint32_t i = 0; i < limit; i++) {
        if (is_wanted(index_at(index, i)))
            out->position[out->count++] = i;
    }
    sort(out->position, out->count, index);
    return 0;
}

void order_free(struct nj_order *order)
{
    free(order->position);
    *order = (struct nj_order){0};
}
