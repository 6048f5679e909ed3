#include "engine/tokenizer/digest.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Numbers go in as eight bytes, strings behind their length, so that no two tokenizers give the same bytes.
 * XXH3 updates fail only for a NULL state. */
static void hash_number(XXH3_state_t *state, int64_t number)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)number >> (8 * i));
    (void)XXH3_128bits_update(state, bytes, sizeof bytes);
}

static void hash_bytes(XXH3_state_t *state, const char *bytes, size_t length)
{
    hash_number(state, (int64_t)length);
    (void)XXH3_128bits_update(state, bytes, length);
}

static void hash_row(XXH3_state_t *state, const struct nj_pretokenizer_row *row)
{
    char unicode[64] = "";
    (void)pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    hash_bytes(state, unicode, strlen(unicode));
    for (int i = 0; row->patterns[i] != NULL; i++)
        hash_bytes(state, row->patterns[i], strlen(row->patterns[i]));
    hash_number(state, row->takes_whole_pieces);
}

static void hash_metadata(XXH3_state_t *state, const struct nj_tokenizer_metadata *metadata)
{
    const int64_t numbers[] = {metadata->bos,
                               metadata->eos,
                               metadata->eot,
                               metadata->eom,
                               metadata->adds_bos,
                               metadata->count,
                               (int64_t)metadata->merge_count};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        hash_number(state, numbers[i]);
    for (int32_t id = 0; id < metadata->count; id++) {
        hash_number(state, metadata->type[id]);
        hash_bytes(state, metadata->token[id].bytes, metadata->token[id].length);
    }
    for (size_t i = 0; i < metadata->merge_count; i++)
        hash_bytes(state, metadata->merge[i].bytes, metadata->merge[i].length);
}

int tokenizer_digest_compute(const struct nj_tokenizer_metadata *metadata, const struct nj_pretokenizer_row *row,
                             char out[33], struct nj_error *error)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the tokenizer's digest");
    (void)XXH3_128bits_reset(state);
    static const char version[] = "nightjar byte-level BPE 1"; /* changes with the rules of the code */
    hash_bytes(state, version, sizeof version);
    hash_row(state, row);
    hash_metadata(state, metadata);
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    return 0;
}
