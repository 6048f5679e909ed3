/* The key/value half of a GGUF file's directory. */
#include "engine/formats/gguf_internal.h"

#include <inttypes.h>
#include <string.h>

enum { KEY_BYTES_MOST = 65535, STRING_BYTES_MOST = 16 * 1024 * 1024, ARRAY_COUNT_MOST = 16 * 1024 * 1024 };
enum { ENTRY_BYTES_LEAST = 8 + 1 + 4 + 1 }; /* key length, key, type, value */

static const struct nj_gguf_value_info VALUE_INFO[NJ_GGUF_VALUE_TYPES] = {
    [NJ_GGUF_UINT8] = {"uint8", NJ_GGUF_UNSIGNED, 1},   [NJ_GGUF_INT8] = {"int8", NJ_GGUF_SIGNED, 1},
    [NJ_GGUF_UINT16] = {"uint16", NJ_GGUF_UNSIGNED, 2}, [NJ_GGUF_INT16] = {"int16", NJ_GGUF_SIGNED, 2},
    [NJ_GGUF_UINT32] = {"uint32", NJ_GGUF_UNSIGNED, 4}, [NJ_GGUF_INT32] = {"int32", NJ_GGUF_SIGNED, 4},
    [NJ_GGUF_FLOAT32] = {"float32", NJ_GGUF_REAL, 4},   [NJ_GGUF_BOOL] = {"bool", NJ_GGUF_TRUTH, 1},
    [NJ_GGUF_STRING] = {"string", NJ_GGUF_TEXT, 8},     [NJ_GGUF_ARRAY] = {"array", NJ_GGUF_LIST, 12},
    [NJ_GGUF_UINT64] = {"uint64", NJ_GGUF_UNSIGNED, 8}, [NJ_GGUF_INT64] = {"int64", NJ_GGUF_SIGNED, 8},
    [NJ_GGUF_FLOAT64] = {"float64", NJ_GGUF_REAL, 8},
};

const struct nj_gguf_value_info *gguf_value_info(uint32_t type)
{
    return &VALUE_INFO[type];
}

static int64_t sign_extend(uint64_t raw, uint32_t bytes)
{
    switch (bytes) {
    case 1:
        return (int8_t)raw;
    case 2:
        return (int16_t)raw;
    case 4:
        return (int32_t)raw;
    default:
        return (int64_t)raw;
    }
}

static double real_from_bits(uint64_t raw, uint32_t bytes)
{
    if (bytes == 4) {
        float single;
        memcpy(&single, &raw, sizeof single);
        return single;
    }
    double value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

static int check_bool(struct nj_gguf_cursor *cursor, uint64_t position, uint64_t raw)
{
    if (raw <= 1)
        return 0;
    return gguf_cursor_fail(cursor, position, "%s: a bool is %" PRIu64 ", not 0 or 1", cursor->what, raw);
}

static int read_scalar(struct nj_gguf_cursor *cursor, struct nj_gguf_entry *entry)
{
    const struct nj_gguf_value_info *info = gguf_value_info(entry->type);
    uint64_t position = cursor->position;
    uint64_t raw = 0;
    if (gguf_cursor_read(cursor, &raw, info->bytes) != 0)
        return -1;
    switch (info->class) {
    case NJ_GGUF_SIGNED:
        entry->value.signed_number = sign_extend(raw, info->bytes);
        return 0;
    case NJ_GGUF_REAL:
        entry->value.real = real_from_bits(raw, info->bytes);
        return 0;
    case NJ_GGUF_TRUTH:
        entry->value.truth = raw != 0;
        return check_bool(cursor, position, raw);
    default:
        entry->value.unsigned_number = raw;
        return 0;
    }
}

static int read_texts(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, struct nj_gguf_entry *entry)
{
    entry->texts = gguf_memory_take(memory, (size_t)entry->count * sizeof *entry->texts);
    if (entry->texts == NULL)
        return gguf_cursor_no_memory(cursor);
    for (uint64_t i = 0; i < entry->count; i++)
        if (gguf_cursor_text(cursor, memory, STRING_BYTES_MOST, &entry->texts[i]) != 0)
            return -1;
    return 0;
}

static int read_integers(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, struct nj_gguf_entry *entry)
{
    const struct nj_gguf_value_info *info = gguf_value_info(entry->element_type);
    entry->integers = gguf_memory_take(memory, (size_t)entry->count * sizeof *entry->integers);
    if (entry->integers == NULL)
        return gguf_cursor_no_memory(cursor);
    for (uint64_t i = 0; i < entry->count; i++) {
        uint64_t raw = 0;
        if (gguf_cursor_read(cursor, &raw, info->bytes) != 0)
            return -1;
        if (info->class == NJ_GGUF_SIGNED)
            raw = (uint64_t)sign_extend(raw, info->bytes);
        else if (raw > INT64_MAX)
            entry->exceeds_int64 = true;
        entry->integers[i] = (int64_t)raw;
    }
    return 0;
}

static int check_bools(struct nj_gguf_cursor *cursor, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t position = cursor->position;
        uint8_t raw;
        if (gguf_cursor_read(cursor, &raw, sizeof raw) != 0 || check_bool(cursor, position, raw) != 0)
            return -1;
    }
    return 0;
}

static int read_array_head(struct nj_gguf_cursor *cursor, struct nj_gguf_entry *entry)
{
    uint64_t position = cursor->position;
    if (gguf_cursor_u32(cursor, &entry->element_type) != 0)
        return -1;
    if (entry->element_type >= NJ_GGUF_VALUE_TYPES)
        return gguf_cursor_fail(cursor, position, "%s: the array's element type %" PRIu32 " is unknown", cursor->what,
                                entry->element_type);
    if (entry->element_type == NJ_GGUF_ARRAY)
        return gguf_cursor_fail(cursor, position, "%s: arrays inside arrays are not read", cursor->what);
    position = cursor->position;
    if (gguf_cursor_u64(cursor, &entry->count) != 0)
        return -1;
    if (entry->count > ARRAY_COUNT_MOST)
        return gguf_cursor_fail(cursor, position, "%s: an array claims %" PRIu64 " elements; at most %d are read",
                                cursor->what, entry->count, ARRAY_COUNT_MOST);
    return gguf_cursor_check_count(cursor, entry->count, gguf_value_info(entry->element_type)->bytes);
}

static int read_array(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, struct nj_gguf_entry *entry)
{
    if (read_array_head(cursor, entry) != 0)
        return -1;
    const struct nj_gguf_value_info *info = gguf_value_info(entry->element_type);
    switch (info->class) {
    case NJ_GGUF_TEXT:
        return read_texts(cursor, memory, entry);
    case NJ_GGUF_UNSIGNED:
    case NJ_GGUF_SIGNED:
        return read_integers(cursor, memory, entry);
    case NJ_GGUF_TRUTH:
        return check_bools(cursor, entry->count);
    default:
        return gguf_cursor_skip(cursor, entry->count * info->bytes);
    }
}

static int read_entry(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, struct nj_gguf_entry *entry)
{
    entry->position = cursor->position;
    if (gguf_cursor_name_text(cursor, memory, KEY_BYTES_MOST, &entry->key) != 0)
        return -1;
    gguf_cursor_name(cursor, "the value of '%.*s'", (int)entry->key.length, entry->key.bytes);
    uint64_t position = cursor->position;
    if (gguf_cursor_u32(cursor, &entry->type) != 0)
        return -1;
    if (entry->type >= NJ_GGUF_VALUE_TYPES)
        return gguf_cursor_fail(cursor, position, "%s: the type %" PRIu32 " is unknown", cursor->what, entry->type);
    switch (gguf_value_info(entry->type)->class) {
    case NJ_GGUF_TEXT:
        return gguf_cursor_text(cursor, memory, STRING_BYTES_MOST, &entry->value.text);
    case NJ_GGUF_LIST:
        return read_array(cursor, memory, entry);
    default:
        return read_scalar(cursor, entry);
    }
}

static int index_entries(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor)
{
    gguf->entry_names = gguf_memory_take(&gguf->memory, gguf->entry_count * sizeof *gguf->entry_names);
    if (gguf->entry_names == NULL)
        return gguf_cursor_no_memory(cursor);
    for (size_t i = 0; i < gguf->entry_count; i++)
        gguf->entry_names[i] = (struct nj_gguf_name){gguf->entries[i].key, i, gguf->entries[i].position};
    const struct nj_gguf_name *twice = gguf_names_sort(gguf->entry_names, gguf->entry_count);
    if (twice == NULL)
        return 0;
    return gguf_cursor_fail(cursor, twice->position, "the key '%.*s' occurs twice", (int)twice->name.length,
                            twice->name.bytes);
}

int gguf_read_entries(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, uint64_t count)
{
    gguf_cursor_name(cursor, "the list of keys");
    if (gguf_cursor_check_count(cursor, count, ENTRY_BYTES_LEAST) != 0)
        return -1;
    gguf->entries = gguf_memory_take(&gguf->memory, (size_t)count * sizeof *gguf->entries);
    if (gguf->entries == NULL)
        return gguf_cursor_no_memory(cursor);
    memset(gguf->entries, 0, (size_t)count * sizeof *gguf->entries);
    gguf->entry_count = (size_t)count;
    for (size_t i = 0; i < gguf->entry_count; i++) {
        gguf_cursor_name(cursor, "key %zu of %zu", i + 1, gguf->entry_count);
        if (read_entry(cursor, &gguf->memory, &gguf->entries[i]) != 0)
            return -1;
    }
    return index_entries(gguf, cursor);
}
