#include "engine/tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/base/utf8.h"
#include "engine/tokenizer/byte_level.h"
#include "engine/tokenizer/tokenizer.h"

/* Control tokens that end an answer in the chat formats of published models. Files name one end token, often
 * the one of the base model, while the chat template ends its messages with another. */
static const char *const end_texts[] = {"<|im_end|>",    "<|eot_id|>", "<|endoftext|>", "<|end|>",
                                        "<end_of_turn>", "<|eom_id|>", "</s>"};

static int fail_memory(struct nj_error *error)
{
    return error_set(error, NJ_INTERNAL, "out of memory for the tokenizer");
}

/* Writes what a byte-level text stands for; returns the number of bytes, never more than the text has. A
 * character that stands for no byte means that the text was added as it is, and it is copied. */
static size_t decode_text(const struct nj_text *text, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < text->length;) {
        struct nj_utf8_part part = utf8_next(text->bytes + at, text->length - at);
        int byte = byte_level_to_byte(utf8_code_point(text->bytes + at, part.length));
        if (byte < 0) {
            memcpy(out, text->bytes, text->length);
            return text->length;
        }
        out[written++] = (char)byte;
        at += part.length;
    }
    return written;
}

static size_t write_bytes(const struct nj_text *text, enum nj_token_type type, char *out)
{
    if (type == NJ_TOKEN_NORMAL)
        return decode_text(text, out);
    if (type == NJ_TOKEN_UNUSED)
        return 0;
    if (text->length > 0)
        memcpy(out, text->bytes, text->length);
    return text->length;
}

static bool is_end_text(const struct nj_text *text)
{
    for (size_t i = 0; i < sizeof end_texts / sizeof end_texts[0]; i++)
        if (text->length == strlen(end_texts[i]) && memcmp(text->bytes, end_texts[i], text->length) == 0)
            return true;
    return false;
}

static int build_tokens(struct nj_vocabulary *vocabulary, const struct nj_tokenizer_metadata *metadata,
                        struct nj_error *error)
{
    uint64_t total = 1;
    for (int32_t id = 0; id < metadata->count; id++)
        if (!checked_add(total, metadata->token[id].length, &total))
            return fail_memory(error);
    size_t count = (uint32_t)metadata->count;
    vocabulary->count = metadata->count;
    vocabulary->bytes = calloc(count, sizeof *vocabulary->bytes);
    vocabulary->type = calloc(count, sizeof *vocabulary->type);
    vocabulary->ends_generation = calloc(count, sizeof *vocabulary->ends_generation);
    vocabulary->arena = malloc(total);
    if (vocabulary->bytes == NULL || vocabulary->type == NULL || vocabulary->ends_generation == NULL ||
        vocabulary->arena == NULL)
        return fail_memory(error);
    char *to = vocabulary->arena;
    for (int32_t id = 0; id < metadata->count; id++) {
        enum nj_token_type type = (enum nj_token_type)metadata->type[id];
        size_t length = write_bytes(&metadata->token[id], type, to);
        vocabulary->bytes[id] = (struct nj_text){to, length};
        vocabulary->type[id] = (uint8_t)type;
        vocabulary->ends_generation[id] = type == NJ_TOKEN_CONTROL && is_end_text(&metadata->token[id]);
        if (length > vocabulary->longest_bytes)
            vocabulary->longest_bytes = length;
        to += length;
    }
    const int32_t named[] = {metadata->eos, metadata->eot, metadata->eom};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        if (named[i] >= 0)
            vocabulary->ends_generation[named[i]] = true;
    return 0;
}

static bool can_be_merged(int64_t type)
{
    return type == NJ_TOKEN_NORMAL || type == NJ_TOKEN_USER_DEFINED;
}

/* The tokens that stand for one byte: those whose text is its byte-level character. */
static void build_byte_ids(struct nj_merges *merges, const struct nj_tokenizer_metadata *metadata)
{
    for (int32_t id = 0; id < metadata->count; id++) {
        const struct nj_text *text = &metadata->token[id];
        if (!can_be_merged(metadata->type[id]) || text->length == 0 ||
            utf8_next(text->bytes, text->length).length != text->length)
            continue;
        int byte = byte_level_to_byte(utf8_code_point(text->bytes, text->length));
        if (byte >= 0)
            merges->byte_id[byte] = id;
    }
}

static int refuse_merge(size_t rank, const struct nj_text *text, const char *reason, struct nj_error *error)
{
    return error_set(error, NJ_BAD_DATA, "tokenizer.ggml.merges, entry %zu \"%.*s\": %s", rank,
                     (int)(text->length < 200 ? text->length : 200), text->bytes, reason);
}

/* Joins the two halves in `joined` (room for the merge's text) to look up what they make. */
static int add_merge(struct nj_merges *merges, const struct nj_tokenizer_metadata *metadata,
                     const struct nj_text_table *by_text, size_t rank, char *joined, struct nj_error *error)
{
    const struct nj_text *text = &metadata->merge[rank];
    /* A half is never empty, so a space at the very start is part of the left one. */
    const char *space = text->length < 3 ? NULL : memchr(text->bytes + 1, ' ', text->length - 2);
    if (space == NULL)
        return refuse_merge(rank, text, "is not two tokens with a space between", error);
    size_t left_length = (size_t)(space - text->bytes), right_length = text->length - left_length - 1;
    int32_t left = text_table_find(by_text, text->bytes, left_length);
    int32_t right = text_table_find(by_text, space + 1, right_length);
    if (left < 0 || right < 0)
        return refuse_merge(rank, text, left < 0 ? "the left half is not a token" : "the right half is not a token",
                            error);
    memcpy(joined, text->bytes, left_length);
    memcpy(joined + left_length, space + 1, right_length);
    int32_t merged = text_table_find(by_text, joined, left_length + right_length);
    if (merged < 0)
        return refuse_merge(rank, text, "what it makes is not a token", error);
    if (!can_be_merged(metadata->type[merged]))
        return refuse_merge(rank, text, "makes a control token, which plain text must never become", error);
    merges_add(merges, left, right, (int32_t)rank, merged);
    return 0;
}

static int add_all_merges(struct nj_merges *merges, const struct nj_tokenizer_metadata *metadata,
                          const struct nj_text_table *by_text, struct nj_error *error)
{
    size_t longest = 1;
    for (size_t i = 0; i < metadata->merge_count; i++)
        if (metadata->merge[i].length > longest)
            longest = metadata->merge[i].length;
    char *joined = malloc(longest);
    if (joined == NULL)
        return fail_memory(error);
    int status = 0;
    for (size_t rank = 0; rank < metadata->merge_count && status == 0; rank++)
        status = add_merge(merges, metadata, by_text, rank, joined, error);
    free(joined);
    return status;
}

static int build_merges(struct nj_vocabulary *vocabulary, const struct nj_tokenizer_metadata *metadata,
                        struct nj_error *error)
{
    if (merges_create(&vocabulary->merges, metadata->merge_count) != 0)
        return fail_memory(error);
    struct nj_text_table by_text;
    if (text_table_create(&by_text, metadata->token, (size_t)metadata->count) != 0)
        return fail_memory(error);
    for (int32_t id = 0; id < metadata->count; id++)
        if (metadata->type[id] != NJ_TOKEN_UNUSED)
            text_table_add(&by_text, id);
    build_byte_ids(&vocabulary->merges, metadata);
    int status = add_all_merges(&vocabulary->merges, metadata, &by_text, error);
    text_table_destroy(&by_text);
    return status;
}

/* True for a text that plain text can become: every character of it stands for a byte. */
static bool is_byte_level(const struct nj_text *text)
{
    for (size_t at = 0; at < text->length;) {
        struct nj_utf8_part part = utf8_next(text->bytes + at, text->length - at);
        if (byte_level_to_byte(utf8_code_point(text->bytes + at, part.length)) < 0)
            return false;
        at += part.length;
    }
    return text->length > 0;
}

/* Most pieces of ordinary text are one token. Which tokens their own bytes lead to is found out here, so that
 * such a piece takes one look-up instead of its merges. */
static int add_reached_tokens(struct nj_vocabulary *vocabulary, struct nj_error *error)
{
    struct nj_merge_scratch scratch = {0};
    struct nj_ids ids = {0};
    int status = 0;
    for (int32_t id = 0; id < vocabulary->count && status == 0; id++) {
        const struct nj_text *bytes = &vocabulary->bytes[id];
        ids.count = 0;
        status = merges_apply(&vocabulary->merges, &scratch, bytes->bytes, bytes->length, &ids, error);
        if (ids.count == 1 && ids.id[0] == id)
            text_table_add(&vocabulary->whole, id);
    }
    ids_free(&ids);
    merge_scratch_free(&scratch);
    return status;
}

static int build_whole(struct nj_vocabulary *vocabulary, const struct nj_tokenizer_metadata *metadata,
                       bool takes_whole_pieces, struct nj_error *error)
{
    if (text_table_create(&vocabulary->whole, vocabulary->bytes, (size_t)vocabulary->count) != 0)
        return fail_memory(error);
    if (!takes_whole_pieces)
        return add_reached_tokens(vocabulary, error);
    for (int32_t id = 0; id < vocabulary->count; id++)
        if (vocabulary->type[id] == NJ_TOKEN_NORMAL && is_byte_level(&metadata->token[id]))
            text_table_add(&vocabulary->whole, id);
    return 0;
}

static int build_specials(struct nj_vocabulary *vocabulary, struct nj_error *error)
{
    size_t most = 0;
    for (int32_t id = 0; id < vocabulary->count; id++)
        most += vocabulary->type[id] != NJ_TOKEN_NORMAL;
    struct nj_special *item = malloc((most + 1) * sizeof *item);
    if (item == NULL)
        return fail_memory(error);
    size_t count = 0;
    for (int32_t id = 0; id < vocabulary->count; id++) {
        if (vocabulary->type[id] == NJ_TOKEN_NORMAL || vocabulary->bytes[id].length == 0)
            continue;
        bool is_control = vocabulary->type[id] != NJ_TOKEN_USER_DEFINED;
        item[count++] = (struct nj_special){vocabulary->bytes[id], id, is_control};
    }
    specials_build(&vocabulary->specials, item, count);
    return 0;
}

int vocabulary_build(struct nj_vocabulary *vocabulary, const struct nj_tokenizer_metadata *metadata,
                     bool takes_whole_pieces, struct nj_error *error)
{
    *vocabulary = (struct nj_vocabulary){0};
    if (build_tokens(vocabulary, metadata, error) != 0 || build_merges(vocabulary, metadata, error) != 0 ||
        build_whole(vocabulary, metadata, takes_whole_pieces, error) != 0 || build_specials(vocabulary, error) != 0)
        return -1;
    return 0;
}

void vocabulary_destroy(struct nj_vocabulary *vocabulary)
{
    free(vocabulary->bytes);
    free(vocabulary->type);
    free(vocabulary->ends_generation);
    free(vocabulary->arena);
    merges_destroy(&vocabulary->merges);
    text_table_destroy(&vocabulary->whole);
    specials_destroy(&vocabulary->specials);
    *vocabulary = (struct nj_vocabulary){0};
}
