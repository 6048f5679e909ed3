#include "engine/tokenizer/metadata.h"

#include <inttypes.h>
#include <string.h>

#include "engine/base/utf8.h"

#define KEY(name) "tokenizer.ggml." name

static int refuse_missing(const char *key, struct nj_error *error)
{
    return error_set(error, NJ_BAD_DATA, "%s is missing; convert the model again with its tokenizer", key);
}

static int read_names(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    struct nj_text model;
    int found = gguf_get_text(gguf, KEY("model"), &model, error);
    if (found <= 0)
        return found < 0 ? -1 : refuse_missing(KEY("model"), error);
    if (model.length != 4 || memcmp(model.bytes, "gpt2", 4) != 0)
        return error_set(error, NJ_BAD_DATA, "unknown tokenizer " KEY("model") " = \"%.*s\"; nightjar knows: gpt2",
                         (int)(model.length < 100 ? model.length : 100), model.bytes);
    found = gguf_get_text(gguf, KEY("pre"), &out->pretokenizer, error);
    if (found <= 0)
        return found < 0 ? -1 : refuse_missing(KEY("pre"), error);
    return 0;
}

static int check_token(size_t id, const struct nj_text *text, int64_t type, struct nj_error *error)
{
    if (text->length > NJ_TOKEN_BYTES_MOST)
        return error_set(error, NJ_BAD_DATA, "token %zu has %zu bytes; at most %d are possible", id, text->length,
                         (int)NJ_TOKEN_BYTES_MOST);
    size_t valid = utf8_valid_length(text->bytes, text->length);
    if (valid != text->length)
        return error_set(error, NJ_BAD_DATA, "token %zu is not valid UTF-8 at its byte %zu", id, valid);
    if (type < NJ_TOKEN_NORMAL || type > NJ_TOKEN_UNUSED)
        return error_set(error, NJ_BAD_DATA,
                         KEY("token_type") " of token %zu is %" PRId64 "; a gpt2 tokenizer has types 1 to 5", id, type);
    return 0;
}

static int read_tokens(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    size_t count, type_count;
    int found = gguf_get_texts(gguf, KEY("tokens"), &out->token, &count, error);
    if (found <= 0)
        return found < 0 ? -1 : refuse_missing(KEY("tokens"), error);
    if (count == 0 || count > NJ_VOCABULARY_MOST)
        return error_set(error, NJ_BAD_DATA, KEY("tokens") " has %zu tokens; 1 to %d are possible", count,
                         (int)NJ_VOCABULARY_MOST);
    found = gguf_get_integers(gguf, KEY("token_type"), &out->type, &type_count, error);
    if (found <= 0)
        return found < 0 ? -1 : refuse_missing(KEY("token_type"), error);
    if (type_count != count)
        return error_set(error, NJ_BAD_DATA, KEY("token_type") " has %zu entries for %zu tokens", type_count, count);
    for (size_t id = 0; id < count; id++)
        if (check_token(id, &out->token[id], out->type[id], error) != 0)
            return -1;
    out->count = (int32_t)count;
    return 0;
}

static int read_merges(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    int found = gguf_get_texts(gguf, KEY("merges"), &out->merge, &out->merge_count, error);
    if (found <= 0)
        return found < 0 ? -1 : refuse_missing(KEY("merges"), error);
    if (out->merge_count > NJ_MERGES_MOST)
        return error_set(error, NJ_BAD_DATA, KEY("merges") " has %zu merges; at most %d are possible", out->merge_count,
                         (int)NJ_MERGES_MOST);
    return 0;
}

static int read_id(const struct nj_gguf *gguf, const char *key, int32_t count, int32_t *out, struct nj_error *error)
{
    uint64_t id;
    int found = gguf_get_u64(gguf, key, (uint64_t)count - 1, &id, error);
    *out = found > 0 ? (int32_t)id : -1;
    return found < 0 ? -1 : 0;
}

static int read_ids(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {KEY("bos_token_id"), &out->bos},
        {KEY("eos_token_id"), &out->eos},
        {KEY("eot_token_id"), &out->eot},
        {KEY("eom_token_id"), &out->eom},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (read_id(gguf, ids[i].key, out->count, ids[i].id, error) != 0)
            return -1;
    return 0;
}

static int read_switches(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    bool adds_space = false;
    out->adds_bos = false;
    if (gguf_get_bool(gguf, KEY("add_bos_token"), &out->adds_bos, error) < 0 ||
        gguf_get_bool(gguf, KEY("add_space_prefix"), &adds_space, error) < 0)
        return -1;
    if (out->adds_bos && out->bos < 0)
        return error_set(error, NJ_BAD_DATA,
                         KEY("add_bos_token") " is true but " KEY("bos_token_id") " is missing; set one of them right");
    if (adds_space)
        return error_set(error, NJ_BAD_DATA,
                         KEY("add_space_prefix") " is true; nightjar does not know gpt2 "
                                                 "tokenizers that put a space before the text");
    return 0;
}

int tokenizer_metadata_read(const struct nj_gguf *gguf, struct nj_tokenizer_metadata *out, struct nj_error *error)
{
    if (read_names(gguf, out, error) != 0 || read_tokens(gguf, out, error) != 0 || read_merges(gguf, out, error) != 0 ||
        read_ids(gguf, out, error) != 0 || read_switches(gguf, out, error) != 0)
        return -1;
    return 0;
}
