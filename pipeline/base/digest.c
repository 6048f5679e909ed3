#include "pipeline/base/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

struct nj_digest digest_of(const void *bytes, size_t length)
{
    XXH128_hash_t hash = XXH3_128bits(bytes, length);
    return (struct nj_digest){.low = hash.low64, .high = hash.high64};
}

bool digest_equal(struct nj_digest a, struct nj_digest b)
{
    return a.low == b.low && a.high == b.high;
}

void digest_to_hex(struct nj_digest digest, char out[33])
{
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, digest.high, digest.low);
}

static bool read_half(const char *hex, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < 16; i++) {
        char c = hex[i];
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return false;
    }
    *out = value;
    return true;
}

bool digest_from_hex(const char *hex, size_t length, struct nj_digest *out)
{
    return length == 32 && read_half(hex, &out->high) && read_half(hex + 16, &out->low);
}

/* The library's state under a name of our own. */
struct nj_digester;

static XXH3_state_t *state_of(struct nj_digester *digester)
{
    return (XXH3_state_t *)(void *)digester;
}

struct nj_digester *digester_create(void)
{
    return (struct nj_digester *)(void *)XXH3_createState();
}
void digester_destroy(struct nj_digester *digester)
{
    XXH3_freeState(state_of(digester));
}
void digester_begin(struct nj_digester *digester)
{
    XXH3_128bits_reset(state_of(digester));
}

void digester_add(struct nj_digester *digester, const void *bytes, size_t length)
{
    if (length > 0)
        XXH3_128bits_update(state_of(digester), bytes, length);
}

void digester_add_u64(struct nj_digester *digester, uint64_t value)
{
    digester_add(digester, &value, sizeof value);
}

void digester_add_text(struct nj_digester *digester, const char *text, size_t length)
{
    digester_add_u64(digester, length);
    digester_add(digester, text, length);
}

struct nj_digest digester_end(struct nj_digester *digester)
{
    XXH128_hash_t hash = XXH3_128bits_digest(state_of(digester));
    return (struct nj_digest){.low = hash.low64, .high = hash.high64};
}
