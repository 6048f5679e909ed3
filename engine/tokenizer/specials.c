#include "engine/tokenizer/specials.h"

#include <stdlib.h>
#include <string.h>

static int compare_text(const struct nj_text *a, const struct nj_text *b)
{
    int order = memcmp(a->bytes, b->bytes, a->length < b->length ? a->length : b->length);
    return order != 0 ? order : (a->length > b->length) - (a->length < b->length);
}

static int compare_special(const void *a, const void *b)
{
    const struct nj_special *left = a, *right = b;
    int order = compare_text(&left->text, &right->text);
    return order != 0 ? order : (left->id > right->id) - (left->id < right->id);
}

void specials_build(struct nj_specials *specials, struct nj_special *item, size_t count)
{
    *specials = (struct nj_specials){.item = item};
    if (count > 0)
        qsort(item, count, sizeof *item, compare_special);
    for (size_t i = 0; i < count; i++)
        if (i + 1 == count || compare_text(&item[i].text, &item[i + 1].text) != 0)
            item[specials->count++] = item[i];
    for (size_t i = 0; i < specials->count; i++)
        specials->first[(unsigned char)item[i].text.bytes[0] + 1] = i + 1;
    for (int byte = 1; byte <= 256; byte++) /* bytes that begin nothing: an empty range */
        if (specials->first[byte] < specials->first[byte - 1])
            specials->first[byte] = specials->first[byte - 1];
}

void specials_destroy(struct nj_specials *specials)
{
    free(specials->item);
    *specials = (struct nj_specials){0};
}

/* In items [begin, end), which agree in their first `depth` bytes and are longer: the first whose next byte
 * is at least `byte`. */
static size_t lower_bound(const struct nj_special *item, size_t begin, size_t end, size_t depth, int byte)
{
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if ((unsigned char)item[middle].text.bytes[depth] < byte)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

const struct nj_special *specials_match(const struct nj_specials *specials, const char *text, size_t length,
                                        bool only_control)
{
    if (length == 0)
        return NULL;
    const struct nj_special *longest = NULL, *item = specials->item;
    size_t begin = specials->first[(unsigned char)text[0]], end = specials->first[(unsigned char)text[0] + 1];
    for (size_t depth = 1; begin < end; depth++) {
        if (item[begin].text.length == depth) { /* the shortest of the range comes first */
            if (item[begin].is_control || !only_control)
                longest = &item[begin];
            begin++;
        }
        if (depth == length)
            break;
        int byte = (unsigned char)text[depth];
        begin = lower_bound(item, begin, end, depth, byte);
        end = lower_bound(item, begin, end, depth, byte + 1);
    }
    return longest;
}
