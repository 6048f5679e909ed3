#include "engine/tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"
#include "engine/tokenizer/digest.h"
#include "engine/tokenizer/metadata.h"
#include "engine/tokenizer/piece_cache.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/vocabulary.h"

/* The working memory of one running call. Calls take one from the pool and put it back, so that there are as
 * many as calls ever ran at once and a short text costs no allocation. */
struct scratch {
    struct scratch *next;
    struct nj_pretokenizer_scratch *split;
    struct nj_merge_scratch merge;
    struct nj_cached_piece *cache; /* NJ_CACHED_PIECES */
};

struct scratch_pool {
    pthread_mutex_t lock;
    struct scratch *free;
};

/* A piece of text longer than this is rare; the memory that it took is given back after the call. */
enum { KEPT_SYMBOLS_MOST = 1 << 16 };

struct nj_tokenizer {
    struct nj_vocabulary vocabulary;
    struct nj_pretokenizer *pretokenizer;
    struct scratch_pool *pool; /* the only part that changes, under its lock */
    int32_t bos, eos;
    bool adds_bos;
    char digest[33];
};

static void scratch_destroy(struct scratch *scratch)
{
    if (scratch == NULL)
        return;
    pretokenizer_destroy_scratch(scratch->split);
    merge_scratch_free(&scratch->merge);
    free(scratch->cache);
    free(scratch);
}

static struct scratch_pool *pool_create(void)
{
    struct scratch_pool *pool = calloc(1, sizeof *pool);
    if (pool != NULL && pthread_mutex_init(&pool->lock, NULL) != 0) {
        free(pool);
        return NULL;
    }
    return pool;
}

static void pool_destroy(struct scratch_pool *pool)
{
    if (pool == NULL)
        return;
    while (pool->free != NULL) {
        struct scratch *scratch = pool->free;
        pool->free = scratch->next;
        scratch_destroy(scratch);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

static struct scratch *scratch_create(const struct nj_tokenizer *tokenizer, struct nj_error *error)
{
    struct scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL || (scratch->split = pretokenizer_create_scratch(tokenizer->pretokenizer)) == NULL ||
        (scratch->cache = calloc(NJ_CACHED_PIECES, sizeof *scratch->cache)) == NULL) {
        scratch_destroy(scratch);
        error_set(error, NJ_INTERNAL, "out of memory for the tokenizer");
        return NULL;
    }
    return scratch;
}

static struct scratch *scratch_take(const struct nj_tokenizer *tokenizer, struct nj_error *error)
{
    struct scratch_pool *pool = tokenizer->pool;
    pthread_mutex_lock(&pool->lock);
    struct scratch *scratch = pool->free;
    if (scratch != NULL)
        pool->free = scratch->next;
    pthread_mutex_unlock(&pool->lock);
    return scratch != NULL ? scratch : scratch_create(tokenizer, error);
}

static void scratch_give_back(const struct nj_tokenizer *tokenizer, struct scratch *scratch)
{
    struct scratch_pool *pool = tokenizer->pool;
    if (scratch->merge.capacity > KEPT_SYMBOLS_MOST)
        merge_scratch_free(&scratch->merge);
    pthread_mutex_lock(&pool->lock);
    scratch->next = pool->free;
    pool->free = scratch;
    pthread_mutex_unlock(&pool->lock);
}

static int build(struct nj_tokenizer *tokenizer, const struct nj_gguf *gguf, struct nj_error *error)
{
    struct nj_tokenizer_metadata metadata;
    if (tokenizer_metadata_read(gguf, &metadata, error) != 0)
        return -1;
    tokenizer->pretokenizer = pretokenizer_create(metadata.pretokenizer, error);
    if (tokenizer->pretokenizer == NULL)
        return -1;
    const struct nj_pretokenizer_row *row = pretokenizer_get_row(tokenizer->pretokenizer);
    if (vocabulary_build(&tokenizer->vocabulary, &metadata, row->takes_whole_pieces, error) != 0)
        return -1;
    tokenizer->pool = pool_create();
    if (tokenizer->pool == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory for the tokenizer");
    tokenizer->bos = metadata.bos;
    tokenizer->eos = metadata.eos;
    tokenizer->adds_bos = metadata.adds_bos;
    return tokenizer_digest_compute(&metadata, row, tokenizer->digest, error);
}

struct nj_tokenizer *tokenizer_create(const struct nj_gguf *gguf, struct nj_error *error)
{
    struct nj_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory for the tokenizer");
        return NULL;
    }
    if (build(tokenizer, gguf, error) != 0) {
        error_at(error, gguf_path(gguf), 0, -1);
        tokenizer_destroy(tokenizer);
        return NULL;
    }
    return tokenizer;
}

void tokenizer_destroy(struct nj_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    pool_destroy(tokenizer->pool);
    vocabulary_destroy(&tokenizer->vocabulary);
    pretokenizer_destroy(tokenizer->pretokenizer);
    free(tokenizer);
}

int32_t tokenizer_vocabulary(const struct nj_tokenizer *tokenizer)
{
    return tokenizer->vocabulary.count;
}

int32_t tokenizer_bos(const struct nj_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct nj_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

bool tokenizer_adds_bos(const struct nj_tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

static bool is_token(const struct nj_tokenizer *tokenizer, int32_t token)
{
    return token >= 0 && token < tokenizer->vocabulary.count;
}

bool tokenizer_ends_generation(const struct nj_tokenizer *tokenizer, int32_t token)
{
    return is_token(tokenizer, token) && tokenizer->vocabulary.ends_generation[token];
}

bool tokenizer_is_control(const struct nj_tokenizer *tokenizer, int32_t token)
{
    return is_token(tokenizer, token) && (tokenizer->vocabulary.type[token] == NJ_TOKEN_CONTROL ||
                                          tokenizer->vocabulary.type[token] == NJ_TOKEN_UNKNOWN);
}

void tokenizer_digest(const struct nj_tokenizer *tokenizer, char out[33])
{
    memcpy(out, tokenizer->digest, sizeof tokenizer->digest);
}

struct nj_text tokenizer_token_bytes(const struct nj_tokenizer *tokenizer, int32_t token)
{
    return is_token(tokenizer, token) ? tokenizer->vocabulary.bytes[token] : (struct nj_text){"", 0};
}

/* A running call. */
struct encoding {
    const struct nj_tokenizer *tokenizer;
    struct scratch *scratch;
    struct nj_ids *ids;
    struct nj_error *error;
};

static int encode_new_piece(const struct encoding *encoding, const char *piece, size_t length, struct nj_error *error)
{
    const struct nj_vocabulary *vocabulary = &encoding->tokenizer->vocabulary;
    if (length <= vocabulary->longest_bytes) {
        int32_t id = text_table_find(&vocabulary->whole, piece, length);
        if (id >= 0)
            return ids_append(encoding->ids, id, error);
    }
    return merges_apply(&vocabulary->merges, &encoding->scratch->merge, piece, length, encoding->ids, error);
}

static int encode_piece(void *context, const char *piece, size_t length, struct nj_error *error)
{
    const struct encoding *encoding = context;
    struct nj_ids *ids = encoding->ids;
    struct nj_cached_piece *slot = piece_cache_slot(encoding->scratch->cache, piece, length);
    if (slot != NULL && piece_cache_holds(slot, piece, length)) {
        for (int i = 0; i < slot->count; i++) {
            if (ids_append(ids, slot->id[i], error) != 0)
                return -1;
        }
        return 0;
    }
    size_t before = ids->count;
    if (encode_new_piece(encoding, piece, length, error) != 0)
        return -1;
    if (slot != NULL)
        piece_cache_put(slot, piece, length, ids->id + before, ids->count - before);
    return 0;
}

static int encode_plain(struct encoding *encoding, const char *text, size_t length)
{
    return pretokenizer_split(encoding->tokenizer->pretokenizer, encoding->scratch->split, text, length, encode_piece,
                              encoding, encoding->error);
}

static int check_text(const char *text, size_t length, struct nj_error *error)
{
    size_t valid = utf8_valid_length(text, length);
    if (valid == length)
        return 0;
    error_set(error, NJ_BAD_DATA, "the text is not valid UTF-8 at its byte %zu", valid);
    return error_at(error, NULL, 0, (int64_t)valid);
}

int tokenizer_encode_text(const struct nj_tokenizer *tokenizer, const char *text, size_t length, struct nj_ids *ids,
                          struct nj_error *error)
{
    if (check_text(text, length, error) != 0)
        return -1;
    struct encoding encoding = {tokenizer, scratch_take(tokenizer, error), ids, error};
    if (encoding.scratch == NULL)
        return -1;
    size_t count_before = ids->count;
    int status = encode_plain(&encoding, text, length);
    scratch_give_back(tokenizer, encoding.scratch);
    if (status != 0)
        ids->count = count_before;
    return status;
}

/* The special token that starts here and whose every byte is the template's; NULL if none. A longer token that
 * reaches into content gives way to a shorter one that does not. */
static const struct nj_special *match_special(const struct nj_tokenizer *tokenizer, const char *text,
                                              const uint8_t *is_template, size_t length)
{
    const struct nj_specials *specials = &tokenizer->vocabulary.specials;
    const struct nj_special *special = specials_match(specials, text, length, false);
    if (special == NULL)
        return NULL;
    size_t own = 0;
    while (own < special->text.length && is_template[own] != 0)
        own++;
    return own == special->text.length ? special : specials_match(specials, text, own, false);
}

static int encode_marked(struct encoding *encoding, const char *text, const uint8_t *is_template, size_t length)
{
    size_t plain = 0; /* where the stretch of plain text before `at` begins */
    for (size_t at = 0; at < length;) {
        const struct nj_special *special =
            is_template[at] == 0 ? NULL : match_special(encoding->tokenizer, text + at, is_template + at, length - at);
        if (special == NULL) {
            at++;
            continue;
        }
        if (encode_plain(encoding, text + plain, at - plain) != 0 ||
            ids_append(encoding->ids, special->id, encoding->error) != 0)
            return -1;
        at += special->text.length;
        plain = at;
    }
    return encode_plain(encoding, text + plain, length - plain);
}

/* BOS goes in front first and out again if the text brought its own, so that it is there exactly once. */
static int encode_with_bos(struct encoding *encoding, const char *text, const uint8_t *is_template, size_t length)
{
    struct nj_ids *ids = encoding->ids;
    size_t begin = ids->count;
    bool adds_bos = encoding->tokenizer->adds_bos;
    int32_t bos = encoding->tokenizer->bos;
    if ((adds_bos && ids_append(ids, bos, encoding->error) != 0) ||
        encode_marked(encoding, text, is_template, length) != 0)
        return -1;
    if (adds_bos && ids->count > begin + 1 && ids->id[begin + 1] == bos) {
        ids->count--;
        memmove(ids->id + begin, ids->id + begin + 1, (ids->count - begin) * sizeof *ids->id);
    }
    return 0;
}

int tokenizer_encode_rendered(const struct nj_tokenizer *tokenizer, const char *text, const uint8_t *is_template,
                              size_t length, struct nj_ids *ids, struct nj_error *error)
{
    if (check_text(text, length, error) != 0)
        return -1;
    struct encoding encoding = {tokenizer, scratch_take(tokenizer, error), ids, error};
    if (encoding.scratch == NULL)
        return -1;
    size_t count_before = ids->count;
    int status = encode_with_bos(&encoding, text, is_template, length);
    scratch_give_back(tokenizer, encoding.scratch);
    if (status != 0)
        ids->count = count_before;
    return status;
}

bool tokenizer_text_has_control(const struct nj_tokenizer *tokenizer, const char *text, size_t length)
{
    for (size_t at = 0; at < length; at++)
        if (specials_match(&tokenizer->vocabulary.specials, text + at, length - at, true) != NULL)
            return true;
    return false;
}

size_t tokenizer_least_tokens(const struct nj_tokenizer *tokenizer, const char *text, size_t length)
{
    size_t known = 0, longest = tokenizer->vocabulary.longest_bytes;
    if (length <= longest)
        return 0;
    for (size_t i = 0; i < length; i++)
        known += tokenizer->vocabulary.merges.byte_id[(unsigned char)text[i]] >= 0;
    return (known + longest - 1) / longest;
}
