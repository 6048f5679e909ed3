#include "pipeline/index/lengths.h"

/* Prompt lengths have 24 bits (struct nj_index_entry): ranks are found by the upper 12 first, then by the lower 12. */
enum { LOW_BITS = 12, HIGH_VALUES = 1 << 12, LOW_VALUES = 1 << LOW_BITS };
static_assert(NJ_ENTRY_TOKENS_MOST < HIGH_VALUES * LOW_VALUES, "every prompt length has its place in the counts");

/* Of the counted values, the one that `*rank` others precede; *rank becomes its rank among its equals. */
static uint32_t find_rank(const uint32_t *count, uint32_t *rank)
{
    uint32_t value = 0;
    while (*rank >= count[value])
        *rank -= count[value++];
    return value;
}

/* The prompt length that `rank` requests precede when they are sorted by it. */
static uint32_t prompt_of_rank(struct nj_index *index, const struct nj_order *order, uint32_t rank)
{
    uint32_t count[HIGH_VALUES] = {0};
    for (uint32_t i = 0; i < order->count; i++)
        count[index_at(index, order->position[i])->prompt_tokens >> LOW_BITS]++;
    const uint32_t high = find_rank(count, &rank);
    for (uint32_t i = 0; i < LOW_VALUES; i++)
        count[i] = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        const uint32_t prompt = index_at(index, order->position[i])->prompt_tokens;
        if (prompt >> LOW_BITS == high)
            count[prompt % LOW_VALUES]++;
    }
    return high << LOW_BITS | find_rank(count, &rank);
}

static void add_request(struct nj_lengths *lengths, const struct nj_index_entry *entry)
{
    const double prompt = entry->prompt_tokens, most_new = entry->max_new_tokens;
    const uint32_t samples = index_entry_samples(entry);
    lengths->sequences += samples;
    lengths->prompt_tokens += (uint64_t)samples * entry->prompt_tokens;
    lengths->most_new_tokens += (uint64_t)samples * entry->max_new_tokens;
    lengths->prompt_squares += samples * prompt * prompt;
    lengths->prompt_times_new += samples * prompt * most_new;
    lengths->new_squares += samples * most_new * most_new;
    if (entry->max_new_tokens > lengths->most_new)
        lengths->most_new = entry->max_new_tokens;
}

struct nj_lengths lengths_of(struct nj_index *index, const struct nj_order *order)
{
    const uint32_t last = order->count - 1;
    struct nj_lengths lengths = {.least_prompt = prompt_of_rank(index, order, 0),
                                 .median_prompt = prompt_of_rank(index, order, last / 2),
                                 .ninety_prompt = prompt_of_rank(index, order, (uint32_t)((uint64_t)last * 9 / 10)),
                                 .most_prompt = prompt_of_rank(index, order, last)};
    for (uint32_t i = 0; i < order->count; i++)
        add_request(&lengths, index_at(index, order->position[i]));
    return lengths;
}
