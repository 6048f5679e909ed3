#include "engine/chat_template/text_operations.h"

#include <string.h>

#include "engine/chat_template/unicode.h"

/* ---- case ---- */

enum { GREEK_CAPITAL_SIGMA = 0x3A3, GREEK_FINAL_SIGMA = 0x3C2 };

size_t text_step_back(const struct text *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text->bytes[at] & 0xC0) == 0x80);
    return at;
}

/* A capital sigma at the end of a word has its own small letter. */
static bool is_final_sigma(const struct text *text, size_t at)
{
    uint32_t character = 0;
    bool has_cased_before = false;
    for (size_t before = at; before > 0 && !has_cased_before;) {
        before = text_step_back(text, before);
        unicode_decode(text->bytes + before, &character);
        if (!unicode_is_case_ignorable(character)) {
            has_cased_before = unicode_is_cased(character);
            break;
        }
    }
    if (!has_cased_before)
        return false;
    for (size_t after = at + 2; after < text->length;) {
        after += unicode_decode(text->bytes + after, &character);
        if (!unicode_is_case_ignorable(character))
            return !unicode_is_cased(character);
    }
    return true;
}

static void append_mapped(struct render *render, struct builder *builder, const struct text *text, size_t at,
                          enum unicode_case to)
{
    uint32_t character, mapped[3];
    unicode_decode(text->bytes + at, &character);
    if (character == GREEK_CAPITAL_SIGMA && to == UNICODE_LOWER && is_final_sigma(text, at)) {
        builder_append_character(render, builder, GREEK_FINAL_SIGMA, text->marks[at] != 0);
        return;
    }
    size_t count = unicode_map_case(character, to, mapped);
    for (size_t i = 0; i < count; i++)
        builder_append_character(render, builder, mapped[i], text->marks[at] != 0);
}

static enum unicode_case choose_case(enum case_change change, uint32_t character, bool is_first, bool follows_cased)
{
    switch (change) {
    case CASE_LOWER:
        return UNICODE_LOWER;
    case CASE_UPPER:
        return UNICODE_UPPER;
    case CASE_TITLE:
        return follows_cased ? UNICODE_LOWER : UNICODE_TITLE;
    case CASE_CAPITALIZE:
        return is_first ? UNICODE_TITLE : UNICODE_LOWER;
    default:
        return unicode_is_uppercase(character) ? UNICODE_LOWER : UNICODE_UPPER;
    }
}

struct value text_change_case(struct render *render, const struct text *text, enum case_change change)
{
    struct builder builder = {0};
    bool follows_cased = false;
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        size_t length = unicode_decode(text->bytes + at, &character);
        bool is_cased = unicode_is_cased(character);
        bool swaps_nothing =
            change == CASE_SWAP && !unicode_is_uppercase(character) && !unicode_is_lowercase(character);
        if (swaps_nothing)
            builder_append(render, &builder, text->bytes + at, text->marks + at, length);
        else
            append_mapped(render, &builder, text, at, choose_case(change, character, at == 0, follows_cased));
        follows_cased = is_cased;
        at += length;
    }
    return text_mark_safe(render, builder_finish(render, &builder), text->is_safe);
}

bool text_is_case(struct render *render, const struct text *text, bool upper)
{
    bool has_cased = false;
    render_count_steps(render, text->length / 8);
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        at += unicode_decode(text->bytes + at, &character);
        bool is_upper = unicode_is_uppercase(character), is_lower = unicode_is_lowercase(character);
        if (unicode_is_titlecase(character) || (upper ? is_lower : is_upper))
            return false;
        has_cased |= is_upper || is_lower;
    }
    return has_cased;
}

/* ---- strip, replace, pad ---- */

static bool is_stripped(const struct text *text, size_t at, const struct text *characters)
{
    uint32_t character, other;
    unicode_decode(text->bytes + at, &character);
    if (characters == NULL)
        return unicode_is_space(character);
    for (size_t i = 0; i < characters->length;) {
        i += unicode_decode(characters->bytes + i, &other);
        if (other == character)
            return true;
    }
    return false;
}

struct value text_strip(struct render *render, const struct text *text, const struct text *characters, int sides)
{
    size_t start = 0, end = text->length;
    size_t cost = 1 + (characters == NULL ? 0 : characters->length / 8);
    while ((sides & STRIP_LEFT) && start < end && is_stripped(text, start, characters)) {
        start += unicode_length_of(text->bytes[start]);
        render_count_steps(render, cost);
    }
    while ((sides & STRIP_RIGHT) && end > start && is_stripped(text, text_step_back(text, end), characters)) {
        end = text_step_back(text, end);
        render_count_steps(render, cost);
    }
    return value_part(render, text, start, end - start);
}

/* Replacing nothing: `new` goes before every character and at the end. */
static void replace_nothing(struct render *render, struct builder *builder, const struct text *text,
                            const struct text *new, int64_t limit)
{
    size_t at = 0;
    for (int64_t done = 0; limit < 0 || done < limit; done++) {
        builder_append_text(render, builder, new);
        render_count_steps(render, 1);
        if (at == text->length)
            break;
        size_t length = unicode_length_of(text->bytes[at]);
        builder_append(render, builder, text->bytes + at, text->marks + at, length);
        at += length;
    }
    builder_append(render, builder, text->bytes + at, text->marks + at, text->length - at);
}

struct value text_replace(struct render *render, const struct text *text, const struct text *old,
                          const struct text *new, int64_t limit)
{
    struct builder builder = {0};
    if (old->length == 0) {
        replace_nothing(render, &builder, text, new, limit);
        return builder_finish(render, &builder);
    }
    size_t from = 0;
    for (int64_t done = 0; limit < 0 || done < limit; done++) {
        size_t found = text_find(render, text, old, from);
        if (found == SIZE_MAX)
            break;
        render_count_steps(render, 1);
        builder_append(render, &builder, text->bytes + from, text->marks + from, found - from);
        builder_append_text(render, &builder, new);
        from = found + old->length;
    }
    builder_append(render, &builder, text->bytes + from, text->marks + from, text->length - from);
    return builder_finish(render, &builder);
}

struct value text_pad(struct render *render, const struct text *text, int64_t width, const struct text *fill,
                      int left_share)
{
    int64_t length = (int64_t)unicode_count(text->bytes, text->length);
    int64_t missing = width > length ? width - length : 0;
    int64_t left = left_share == 0 ? 0 : left_share == 2 ? missing : missing / 2 + (missing & width & 1);
    struct builder builder = {0};
    render_count_steps(render, missing > RENDER_STEP_LIMIT ? (size_t)RENDER_STEP_LIMIT + 1 : (size_t)missing);
    for (int64_t i = 0; i < left; i++)
        builder_append_text(render, &builder, fill);
    builder_append_text(render, &builder, text);
    for (int64_t i = left; i < missing; i++)
        builder_append_text(render, &builder, fill);
    return text_mark_safe(render, builder_finish(render, &builder), text->is_safe);
}

/* ---- HTML ---- */

static const char *find_entity(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

void text_append_escaped(struct render *render, struct builder *builder, const struct text *text, bool escapes)
{
    size_t from = 0;
    for (size_t at = 0; escapes && at < text->length; at++) {
        const char *entity = find_entity(text->bytes[at]);
        if (entity == NULL)
            continue;
        builder_append(render, builder, text->bytes + from, text->marks + from, at - from);
        builder_append_marked(render, builder, entity, strlen(entity), text->marks[at] != 0);
        from = at + 1;
    }
    if (from < text->length)
        builder_append(render, builder, text->bytes + from, text->marks + from, text->length - from);
}

struct value text_mark_safe(struct render *render, struct value text, bool is_safe)
{
    if (text.text->is_safe == is_safe)
        return text;
    struct text *copy = arena_allocate(&render->arena, sizeof *copy);
    *copy = *text.text;
    copy->is_safe = is_safe;
    return value_of_text(copy);
}

void text_refuse_safe(struct render *render, const struct text *text, const char *operation)
{
    if (text->is_safe)
        render_fail(render, "'%s' on a string marked by 'safe' or 'escape' is not supported", operation);
}

/* ---- lines ---- */

struct value text_split_lines(struct render *render, const struct text *text, bool keeps_ends)
{
    struct value lines = value_sequence(render, SEQUENCE_LIST, 0);
    size_t start = 0;
    for (size_t at = 0; at < text->length;) {
        uint32_t character;
        size_t end = at;
        at += unicode_decode(text->bytes + at, &character);
        if (!unicode_is_line_end(character))
            continue;
        if (character == '\r' && at < text->length && text->bytes[at] == '\n')
            at++;
        render_count_steps(render, 1);
        sequence_append(render, lines.sequence, value_part(render, text, start, (keeps_ends ? at : end) - start));
        start = at;
    }
    if (start < text->length)
        sequence_append(render, lines.sequence, value_part(render, text, start, text->length - start));
    return lines;
}
