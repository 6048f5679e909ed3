/* The getters of a GGUF file's metadata. */
#include "engine/formats/gguf_internal.h"

#include <inttypes.h>
#include <math.h>

static int fail_value(const struct nj_gguf *gguf, const struct nj_gguf_entry *entry, struct nj_error *error)
{
    return error_at(error, gguf->path, 0, (int64_t)entry->position);
}

static int fail_type(const struct nj_gguf *gguf, const struct nj_gguf_entry *entry, const char *needed,
                     struct nj_error *error)
{
    bool is_array = entry->type == NJ_GGUF_ARRAY;
    error_set(error, NJ_BAD_DATA, "the value of '%.*s' is %s %s; %s is needed", (int)entry->key.length,
              entry->key.bytes, is_array ? "an array of" : "of the type",
              gguf_value_info(is_array ? entry->element_type : entry->type)->name, needed);
    return fail_value(gguf, entry, error);
}

int gguf_get_u64(const struct nj_gguf *gguf, const char *key, uint64_t most, uint64_t *out, struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    enum nj_gguf_value_class class = gguf_value_info(entry->type)->class;
    if (class != NJ_GGUF_UNSIGNED && class != NJ_GGUF_SIGNED)
        return fail_type(gguf, entry, "an integer", error);
    if (class == NJ_GGUF_SIGNED && entry->value.signed_number < 0) {
        error_set(error, NJ_BAD_DATA, "'%s' is %" PRId64 ", which is negative", key, entry->value.signed_number);
        return fail_value(gguf, entry, error);
    }
    uint64_t value = class == NJ_GGUF_SIGNED ? (uint64_t)entry->value.signed_number : entry->value.unsigned_number;
    if (value > most) {
        error_set(error, NJ_BAD_DATA, "'%s' is %" PRIu64 "; at most %" PRIu64 " is possible", key, value, most);
        return fail_value(gguf, entry, error);
    }
    *out = value;
    return 1;
}

int gguf_get_f64(const struct nj_gguf *gguf, const char *key, double *out, struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    if (gguf_value_info(entry->type)->class != NJ_GGUF_REAL)
        return fail_type(gguf, entry, "a floating-point number", error);
    if (!isfinite(entry->value.real)) {
        error_set(error, NJ_BAD_DATA, "'%s' is not a finite number", key);
        return fail_value(gguf, entry, error);
    }
    *out = entry->value.real;
    return 1;
}

int gguf_get_bool(const struct nj_gguf *gguf, const char *key, bool *out, struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    if (entry->type != NJ_GGUF_BOOL)
        return fail_type(gguf, entry, "a bool", error);
    *out = entry->value.truth;
    return 1;
}

int gguf_get_text(const struct nj_gguf *gguf, const char *key, struct nj_text *out, struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    if (entry->type != NJ_GGUF_STRING)
        return fail_type(gguf, entry, "a string", error);
    *out = entry->value.text;
    return 1;
}

int gguf_get_texts(const struct nj_gguf *gguf, const char *key, const struct nj_text **out, size_t *count,
                   struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    if (entry->texts == NULL)
        return fail_type(gguf, entry, "an array of strings", error);
    *out = entry->texts;
    *count = (size_t)entry->count;
    return 1;
}

int gguf_get_integers(const struct nj_gguf *gguf, const char *key, const int64_t **out, size_t *count,
                      struct nj_error *error)
{
    const struct nj_gguf_entry *entry = gguf_find_entry(gguf, key);
    if (entry == NULL)
        return 0;
    if (entry->integers == NULL)
        return fail_type(gguf, entry, "an array of integers", error);
    if (entry->exceeds_int64) {
        error_set(error, NJ_BAD_DATA, "'%s' has an element above %" PRId64, key, INT64_MAX);
        return fail_value(gguf, entry, error);
    }
    *out = entry->integers;
    *count = (size_t)entry->count;
    return 1;
}
