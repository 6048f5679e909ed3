#include "engine/tokenizer/pretokenizer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Unicode's White_Space, for use inside a class. PCRE2's own \s also takes U+180E, which Unicode has
 * counted as a format character since version 6.3 and the tokenizers' reference implementations do not. */
#define WHITE_SPACE                                                                                                    \
    "\\x{09}-\\x{0D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* GPT-2's pattern (Hugging Face: ByteLevel with use_regex). */
#define GPT2_PATTERN                                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d"                                                                                          \
    "| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE_SPACE "\\p{L}\\p{N}]+"                                                           \
    "|[" WHITE_SPACE "]+(?![^" WHITE_SPACE "])|[" WHITE_SPACE "]+"

/* The pattern that came with cl100k_base; what differs is how digits are grouped. Caseless letters fold as in
 * Unicode (U+017F is an s), and a contraction is no word of its own: it may follow anything. */
#define CL100K_PATTERN(digits)                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WHITE_SPACE                           \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WHITE_SPACE "]*[\\r\\n]+"                                                              \
    "|[" WHITE_SPACE "]+(?![^" WHITE_SPACE "])|[" WHITE_SPACE "]+"

/* Hugging Face: Digits (individual_digits; a digit is any Unicode number), then ByteLevel. */
#define DIGITS_THEN_GPT2                                                                                               \
    {                                                                                                                  \
        "\\p{N}", GPT2_PATTERN                                                                                         \
    }

static const struct nj_pretokenizer_row rows[] = {
    {"gpt-2", {GPT2_PATTERN}, false},
    {"phi-2", {GPT2_PATTERN}, false},
    {"smollm", DIGITS_THEN_GPT2, false},
    {"starcoder", DIGITS_THEN_GPT2, false},
    {"refact", DIGITS_THEN_GPT2, false},
    {"qwen2", {CL100K_PATTERN("\\p{N}")}, false},
    {"llama-bpe", {CL100K_PATTERN("\\p{N}{1,3}")}, true},
};

enum { ROW_COUNT = sizeof rows / sizeof rows[0] };

struct nj_pretokenizer {
    const struct nj_pretokenizer_row *row;
    int pattern_count;
    pcre2_code *code[NJ_PRETOKENIZER_PATTERNS_MOST];
    pcre2_match_context *limits;
};

/* One match block per pattern: the patterns are nested, so several matches are open at once. */
struct nj_pretokenizer_scratch {
    pcre2_match_data *match[NJ_PRETOKENIZER_PATTERNS_MOST];
};

static const struct nj_pretokenizer_row *find_row(struct nj_text name)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (strlen(rows[i].name) == name.length && memcmp(rows[i].name, name.bytes, name.length) == 0)
            return &rows[i];
    return NULL;
}

static void refuse_name(struct nj_text name, struct nj_error *error)
{
    char known[256] = "";
    size_t used = 0;
    for (int i = 0; i < ROW_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", rows[i].name);
    error_set(error, NJ_BAD_DATA, "unknown pre-tokenizer tokenizer.ggml.pre = \"%.*s\"; nightjar knows: %s",
              (int)(name.length < 100 ? name.length : 100), name.bytes, known);
}

static pcre2_code *compile_pattern(const char *pattern, struct nj_error *error)
{
    int number;
    PCRE2_SIZE offset;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &number, &offset, NULL);
    if (code == NULL) {
        char reason[128];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
        error_set(error, NJ_INTERNAL, "pre-tokenizer pattern does not compile at %zu: %s", (size_t)offset, reason);
        return NULL;
    }
    /* Where the system forbids run-time code, pcre2_match interprets the pattern: slower, same result. */
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    return code;
}

struct nj_pretokenizer *pretokenizer_create(struct nj_text name, struct nj_error *error)
{
    const struct nj_pretokenizer_row *row = find_row(name);
    if (row == NULL) {
        refuse_name(name, error);
        return NULL;
    }
    struct nj_pretokenizer *pretokenizer = calloc(1, sizeof *pretokenizer);
    if (pretokenizer == NULL || (pretokenizer->limits = pcre2_match_context_create(NULL)) == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        goto fail;
    }
    /* The patterns are our own and linear; a limit meant for foreign patterns must not cut a long text. */
    pcre2_set_match_limit(pretokenizer->limits, UINT32_MAX);
    pcre2_set_depth_limit(pretokenizer->limits, UINT32_MAX);
    pcre2_set_heap_limit(pretokenizer->limits, UINT32_MAX);
    pretokenizer->row = row;
    for (; row->patterns[pretokenizer->pattern_count] != NULL; pretokenizer->pattern_count++) {
        pcre2_code *code = compile_pattern(row->patterns[pretokenizer->pattern_count], error);
        if (code == NULL)
            goto fail;
        pretokenizer->code[pretokenizer->pattern_count] = code;
    }
    return pretokenizer;
fail:
    pretokenizer_destroy(pretokenizer);
    return NULL;
}

void pretokenizer_destroy(struct nj_pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    for (int i = 0; i < pretokenizer->pattern_count; i++)
        pcre2_code_free(pretokenizer->code[i]);
    pcre2_match_context_free(pretokenizer->limits);
    free(pretokenizer);
}

const struct nj_pretokenizer_row *pretokenizer_get_row(const struct nj_pretokenizer *pretokenizer)
{
    return pretokenizer->row;
}

struct nj_pretokenizer_scratch *pretokenizer_create_scratch(const struct nj_pretokenizer *pretokenizer)
{
    struct nj_pretokenizer_scratch *scratch = calloc(1, sizeof *scratch);
    for (int i = 0; scratch != NULL && i < pretokenizer->pattern_count; i++) {
        scratch->match[i] = pcre2_match_data_create(1, NULL); /* only the whole match is asked for */
        if (scratch->match[i] == NULL) {
            pretokenizer_destroy_scratch(scratch);
            return NULL;
        }
    }
    return scratch;
}

void pretokenizer_destroy_scratch(struct nj_pretokenizer_scratch *scratch)
{
    if (scratch == NULL)
        return;
    for (int i = 0; i < NJ_PRETOKENIZER_PATTERNS_MOST; i++)
        pcre2_match_data_free(scratch->match[i]);
    free(scratch);
}

/* A running split. */
struct split {
    const struct nj_pretokenizer *pretokenizer;
    struct nj_pretokenizer_scratch *scratch;
    nj_piece_visitor visit;
    void *context;
    struct nj_error *error;
};

/* Finds the first match at or after `from`. Returns 1 and its place, 0 if there is none, -1 on an error. */
static int find_match(const struct split *split, int pattern, const char *text, size_t length, size_t from,
                      size_t *begin, size_t *end)
{
    const pcre2_code *code = split->pretokenizer->code[pattern];
    pcre2_match_data *match = split->scratch->match[pattern];
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int found = pcre2_match(code, (PCRE2_SPTR)text, length, from, options, match, split->pretokenizer->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(code, (PCRE2_SPTR)text, length, from, options | PCRE2_NO_JIT, match,
                            split->pretokenizer->limits);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        char reason[128];
        pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
        return error_set(split->error, NJ_INTERNAL, "pre-tokenizer %s, pattern %d, failed on a text of %zu bytes: %s",
                         split->pretokenizer->row->name, pattern + 1, length, reason);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(match);
    *begin = place[0];
    *end = place[1];
    return 1;
}

/* Cuts a piece by this pattern and the ones after it. Calls itself once per pattern deep. */
static int split_piece(const struct split *split, int pattern, const char *text, size_t length)
{
    if (length == 0)
        return 0;
    if (pattern == split->pretokenizer->pattern_count)
        return split->visit(split->context, text, length, split->error);
    size_t at = 0;
    while (at < length) {
        size_t begin = length, end = length; /* no further match: the rest is one piece */
        if (find_match(split, pattern, text, length, at, &begin, &end) < 0 ||
            split_piece(split, pattern + 1, text + at, begin - at) != 0 ||
            split_piece(split, pattern + 1, text + begin, end - begin) != 0)
            return -1;
        at = end;
    }
    return 0;
}

int pretokenizer_split(const struct nj_pretokenizer *pretokenizer, struct nj_pretokenizer_scratch *scratch,
                       const char *text, size_t length, nj_piece_visitor visit, void *context, struct nj_error *error)
{
    struct split split = {pretokenizer, scratch, visit, context, error};
    return split_piece(&split, 0, text, length);
}
