#include "pipeline/index/order.h"

#include <assert.h>
#include <stdlib.h>

/* Set in the first position of each group while the order is made; entries' positions are below it. */
static const uint32_t BEGINS_GROUP = UINT32_C(1) << 31;
static_assert(NJ_INDEX_ENTRIES_MOST <= INT32_MAX, "a position must leave its highest bit free");

struct sorter {
    struct nj_index *index;
    uint32_t *key; /* of each entry: its prefix's, then the position of its group's leader, the longest member */
};

/* Below 0: the first comes first. Never 0 for two different entries. */
typedef int (*comparison)(const struct sorter *sorter, uint32_t first, uint32_t second);

static bool is_wanted(const struct nj_index_entry *entry)
{
    return entry->kind == NJ_ENTRY_REQUEST && !entry->done;
}

static uint32_t length_of(const struct nj_index_entry *entry)
{
    return entry->prompt_tokens + entry->max_new_tokens;
}

static int compare_lengths(const struct sorter *sorter, uint32_t first, uint32_t second)
{
    uint32_t first_length = length_of(index_at(sorter->index, first));
    uint32_t second_length = length_of(index_at(sorter->index, second));
    if (first_length != second_length)
        return first_length > second_length ? -1 : 1;
    return first < second ? -1 : first > second;
}

static int compare_keys(const struct sorter *sorter, uint32_t first, uint32_t second)
{
    if (sorter->key[first] != sorter->key[second])
        return sorter->key[first] < sorter->key[second] ? -1 : 1;
    return compare_lengths(sorter, first, second);
}

static int compare_leaders(const struct sorter *sorter, uint32_t first, uint32_t second)
{
    if (sorter->key[first] != sorter->key[second])
        return compare_lengths(sorter, sorter->key[first], sorter->key[second]);
    return compare_lengths(sorter, first, second);
}

static void swap(uint32_t *a, uint32_t *b)
{
    uint32_t kept = *a;
    *a = *b;
    *b = kept;
}

/* Heap sort: in place, whatever the number of requests, and its order is total, so that it need not be stable. */
static void sift_down(const struct sorter *sorter, comparison compare, uint32_t *heap, size_t root, size_t count)
{
    for (;;) {
        size_t child = 2 * root + 1;
        if (child >= count)
            return;
        if (child + 1 < count && compare(sorter, heap[child], heap[child + 1]) < 0)
            child++;
        if (compare(sorter, heap[root], heap[child]) >= 0)
            return;
        swap(&heap[root], &heap[child]);
        root = child;
    }
}

static void sort(const struct sorter *sorter, comparison compare, uint32_t *position, size_t count)
{
    for (size_t root = count / 2; root-- > 0;)
        sift_down(sorter, compare, position, root, count);
    for (size_t end = count; end-- > 1;) {
        swap(&position[0], &position[end]);
        sift_down(sorter, compare, position, 0, end);
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

/* Replaces the keys of these entries by leaders. What shares a key gets the longest of its kind, everything else
 * itself. */
static void find_leaders(const struct sorter *sorter, uint32_t *position, size_t count)
{
    size_t with_key = 0;
    for (size_t i = 0; i < count; i++) {
        if (sorter->key[position[i]] != 0)
            swap(&position[with_key++], &position[i]);
        else
            sorter->key[position[i]] = position[i];
    }
    sort(sorter, compare_keys, position, with_key);
    for (size_t i = 0, end; i < with_key; i = end) {
        const uint32_t key = sorter->key[position[i]];
        for (end = i; end < with_key && sorter->key[position[end]] == key; end++)
            sorter->key[position[end]] = position[i];
    }
}

/* Orders a group by what its members share on this level, and marks the groups that it consists of. */
static void refine_group(const struct sorter *sorter, uint32_t *position, size_t count)
{
    position[0] &= ~BEGINS_GROUP;
    find_leaders(sorter, position, count);
    sort(sorter, compare_leaders, position, count);
    uint32_t leader = sorter->key[position[0]];
    position[0] |= BEGINS_GROUP;
    for (size_t i = 1; i < count; i++) {
        if (sorter->key[position[i]] == leader)
            continue;
        leader = sorter->key[position[i]];
        position[i] |= BEGINS_GROUP;
    }
}

static size_t group_end(const struct nj_order *order, size_t begin)
{
    size_t end = begin + 1;
    while (end < order->count && (order->position[end] & BEGINS_GROUP) == 0)
        end++;
    return end;
}

/* Whether members of this group can differ in what they share on this level. */
static bool can_refine(const struct nj_order *order, struct nj_index *index, size_t begin, size_t end, int level)
{
    size_t with_key = 0;
    for (size_t i = begin; i < end && with_key < 2; i++)
        with_key += prefix_has_level(index_at(index, order->position[i] & ~BEGINS_GROUP)->prompt_tokens, level);
    return with_key >= 2;
}

/* 1 if a group was refined, 0 if there is none for which the level matters, -1 error. */
static int refine_level(struct sorter *sorter, const struct nj_prefix_source *prefixes, int level,
                        const struct nj_order *order, struct nj_error *error)
{
    bool is_loaded = false;
    for (size_t begin = 0, end; begin < order->count; begin = end) {
        end = group_end(order, begin);
        if (!can_refine(order, sorter->index, begin, end, level))
            continue;
        if (!is_loaded && prefixes->load(prefixes->context, level, sorter->key, error) != 0)
            return -1;
        is_loaded = true;
        refine_group(sorter, order->position + begin, end - begin);
    }
    return is_loaded;
}

static int refine(struct nj_index *index, const struct nj_prefix_source *prefixes, const struct nj_order *order,
                  struct nj_error *error)
{
    struct sorter sorter = {.index = index, .key = malloc((index_count(index) + (size_t)1) * sizeof(uint32_t))};
    if (sorter.key == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the order of %u requests", order->count);
    int refined = 1;
    for (int level = 0; level < NJ_PREFIX_LEVELS && refined > 0; level++)
        refined = refine_level(&sorter, prefixes, level, order, error);
    for (uint32_t i = 0; i < order->count; i++)
        order->position[i] &= ~BEGINS_GROUP;
    free(sorter.key);
    return refined < 0 ? -1 : 0;
}

static int list_wanted(struct nj_index *index, uint32_t limit, struct nj_order *out, struct nj_error *error)
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
    return 0;
}

int order_make(struct nj_index *index, uint32_t limit, const struct nj_prefix_source *prefixes, struct nj_order *out,
               struct nj_error *error)
{
    if (list_wanted(index, limit, out, error) != 0)
        return -1;
    if (prefixes != NULL && can_refine(out, index, 0, out->count, 0)) {
        if (refine(index, prefixes, out, error) == 0)
            return 0;
        order_free(out);
        return -1;
    }
    const struct sorter sorter = {.index = index};
    sort(&sorter, compare_lengths, out->position, out->count);
    return 0;
}

void order_free(struct nj_order *order)
{
    free(order->position);
    *order = (struct nj_order){0};
}
