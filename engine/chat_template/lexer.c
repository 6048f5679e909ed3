#include "engine/chat_template/lexer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat_template/ast.h"
#include "engine/chat_template/unicode.h"

/* Deepest nesting of brackets inside one tag. */
enum { BRACKET_LIMIT = TREE_DEPTH_LIMIT };

struct lexer {
    struct arena *arena;
    const char *source;
    size_t length, position;
    struct token *tokens;
    size_t count, capacity;
    char brackets[BRACKET_LIMIT]; /* the closing brackets that are due */
    size_t open_brackets;
    bool line_starts; /* the last match of the lexer ended with a line end (or nothing came before) */
};

void source_find_place(const char *source, size_t offset, size_t *line, size_t *column)
{
    size_t line_start = 0;
    *line = 1;
    for (size_t i = 0; i < offset; i++) {
        if (source[i] == '\n') {
            ++*line;
            line_start = i + 1;
        }
    }
    *column = 1 + unicode_count(source + line_start, offset - line_start);
}

static _Noreturn void fail_at(struct lexer *lexer, size_t offset, const char *what, const char *bytes, size_t length)
{
    size_t line, column;
    source_find_place(lexer->source, offset, &line, &column);
    int shown = length > 60 ? 60 : (int)length;
    arena_fail(lexer->arena, NJ_BAD_DATA, "chat template, line %zu, column %zu: %s%s%.*s%s", line, column, what,
               length > 0 ? " '" : "", shown, bytes, length > 0 ? "'" : "");
}

static struct token *add_token(struct lexer *lexer, enum token_kind kind, size_t offset, const char *bytes,
                               size_t length)
{
    if (lexer->count == lexer->capacity) {
        size_t capacity = lexer->capacity == 0 ? 64 : lexer->capacity * 2;
        lexer->tokens = arena_grow_array(lexer->arena, lexer->tokens, lexer->count, capacity, sizeof lexer->tokens[0]);
        lexer->capacity = capacity;
    }
    struct token *token = &lexer->tokens[lexer->count++];
    *token = (struct token){.kind = kind, .offset = (uint32_t)offset, .bytes = bytes, .length = length};
    return token;
}

/* \r\n and \r become \n; one line end at the very end is dropped. */
static void normalise_source(struct lexer *lexer, const char *source, size_t length)
{
    char *to = arena_allocate(lexer->arena, length + 1);
    size_t out = 0;
    for (size_t i = 0; i < length; i++) {
        if (source[i] == '\r') {
            to[out++] = '\n';
            i += i + 1 < length && source[i + 1] == '\n';
        } else {
            to[out++] = source[i];
        }
    }
    if (out > 0 && to[out - 1] == '\n')
        out--;
    to[out] = '\0';
    lexer->source = to;
    lexer->length = out;
}

static bool starts_with(const struct lexer *lexer, size_t at, const char *what)
{
    size_t length = strlen(what);
    return length <= lexer->length - at && memcmp(lexer->source + at, what, length) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    while (at < lexer->length) {
        uint32_t character;
        size_t more = unicode_decode(lexer->source + at, &character);
        if (!unicode_is_space(character))
            break;
        at += more;
    }
    return at;
}

/* The end of [start, end) without trailing whitespace. */
static size_t strip_space_before(const struct lexer *lexer, size_t start, size_t end)
{
    while (end > start) {
        size_t previous = end - 1;
        while (previous > start && ((unsigned char)lexer->source[previous] & 0xC0) == 0x80)
            previous--;
        uint32_t character;
        unicode_decode(lexer->source + previous, &character);
        if (!unicode_is_space(character))
            break;
        end = previous;
    }
    return end;
}

/* Emits the text before a tag, stripped as the tag's sign and lstrip_blocks say. */
static void add_text(struct lexer *lexer, size_t start, size_t end, char sign, bool strips_indentation)
{
    if (sign == '-') {
        end = strip_space_before(lexer, start, end);
    } else if (sign != '+' && strips_indentation) {
        size_t line_start = end;
        while (line_start > start && lexer->source[line_start - 1] != '\n')
            line_start--;
        if ((line_start > start || lexer->line_starts) && skip_space(lexer, line_start) >= end)
            end = line_start;
    }
    if (end > start)
        add_token(lexer, TOKEN_TEXT, start, lexer->source + start, end - start);
}

/* Is there, at `at`, the end of a tag or comment ("%}" or "#}") with its sign? Gives the place behind it,
 * including the whitespace it eats. */
static bool match_end(const struct lexer *lexer, size_t at, const char *mark, size_t *behind)
{
    if (at < lexer->length && (lexer->source[at] == '-' || lexer->source[at] == '+') &&
        starts_with(lexer, at + 1, mark)) {
        *behind = at + 1 + strlen(mark);
        if (lexer->source[at] == '-')
            *behind = skip_space(lexer, *behind);
        return true;
    }
    if (!starts_with(lexer, at, mark))
        return false;
    *behind = at + strlen(mark);
    if (*behind < lexer->length && lexer->source[*behind] == '\n')
        ++*behind;
    return true;
}

static void move_behind(struct lexer *lexer, size_t behind)
{
    lexer->position = behind;
    lexer->line_starts = behind > 0 && lexer->source[behind - 1] == '\n';
}

static char read_sign(const struct lexer *lexer, size_t at)
{
    return at < lexer->length && (lexer->source[at] == '-' || lexer->source[at] == '+') ? lexer->source[at] : '\0';
}

/* Matches "{%", sign, "raw" or "endraw"; gives the place behind the word and its spaces. */
static bool match_raw_word(const struct lexer *lexer, size_t at, const char *word, char *sign, size_t *behind)
{
    if (!starts_with(lexer, at, "{%"))
        return false;
    at += 2;
    *sign = read_sign(lexer, at);
    at = skip_space(lexer, at + (*sign != '\0'));
    if (!starts_with(lexer, at, word))
        return false;
    *behind = skip_space(lexer, at + strlen(word));
    return true;
}

/* {% raw %} ... {% endraw %} as a whole. `text_start` is where the text before it begins. */
static bool lex_raw(struct lexer *lexer, size_t text_start, size_t at)
{
    char sign;
    size_t body;
    if (!match_raw_word(lexer, at, "raw", &sign, &body))
        return false;
    /* Unlike other tags, {% raw %} does not eat the line end behind it. */
    if (starts_with(lexer, body, "-%}"))
        body = skip_space(lexer, body + 3);
    else if (starts_with(lexer, body, "%}"))
        body += 2;
    else
        return false;
    add_text(lexer, text_start, at, sign, true);
    move_behind(lexer, body);
    for (size_t end = body; end < lexer->length; end++) {
        size_t behind;
        if (!match_raw_word(lexer, end, "endraw", &sign, &behind) || !match_end(lexer, behind, "%}", &behind))
            continue;
        add_text(lexer, body, end, sign, true);
        move_behind(lexer, behind);
        return true;
    }
    fail_at(lexer, at, "missing {% endraw %}", "", 0);
}

static void lex_comment(struct lexer *lexer, size_t text_start, size_t at)
{
    char sign = read_sign(lexer, at + 2);
    add_text(lexer, text_start, at, sign, true);
    for (size_t end = at + 2 + (sign != '\0'); end < lexer->length; end++) {
        size_t behind;
        if (match_end(lexer, end, "#}", &behind)) {
            move_behind(lexer, behind);
            return;
        }
    }
    fail_at(lexer, at, "missing end of comment, #}", "", 0);
}

static bool is_word_character(uint32_t c)
{
    if (c < 0x80)
        return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    return unicode_is_alphabetic(c) || unicode_is_numeric(c);
}

static size_t skip_word(const struct lexer *lexer, size_t at)
{
    while (at < lexer->length) {
        uint32_t character;
        size_t more = unicode_decode(lexer->source + at, &character);
        if (!is_word_character(character))
            break;
        at += more;
    }
    return at;
}

static bool is_digit(char c, int base)
{
    int value = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : 99;
    return value < base;
}

/* Digits with single underscores between them; the start itself if there is no digit. */
static size_t skip_digits(const struct lexer *lexer, size_t at, int base)
{
    size_t end = at;
    while (at < lexer->length && is_digit(lexer->source[at], base)) {
        end = ++at;
        if (at < lexer->length && lexer->source[at] == '_')
            at++;
    }
    return end;
}

/* A copy without underscores, for strtod and strtoll. */
static char *copy_number(struct lexer *lexer, size_t start, size_t end)
{
    char *copy = arena_allocate(lexer->arena, end - start + 1);
    size_t length = 0;
    for (size_t i = start; i < end; i++)
        if (lexer->source[i] != '_')
            copy[length++] = lexer->source[i];
    return copy;
}

/* The end of a float that begins at `start`, or `start` if it is none. */
static size_t match_float(const struct lexer *lexer, size_t start)
{
    const char *source = lexer->source;
    size_t end = skip_digits(lexer, start, 10);
    bool is_float = false;
    if (start > 0 && source[start - 1] == '.')
        return start;
    if (end < lexer->length && source[end] == '.' && skip_digits(lexer, end + 1, 10) > end + 1) {
        end = skip_digits(lexer, end + 1, 10);
        is_float = true;
    }
    if (end < lexer->length && (source[end] | 32) == 'e') {
        size_t exponent = end + 1;
        exponent += exponent < lexer->length && (source[exponent] == '+' || source[exponent] == '-');
        if (skip_digits(lexer, exponent, 10) > exponent) {
            end = skip_digits(lexer, exponent, 10);
            is_float = true;
        }
    }
    return is_float ? end : start;
}

/* The end of an integer; its base and the start of its digits. */
static size_t match_integer(const struct lexer *lexer, size_t start, int *base, size_t *digits)
{
    static const struct {
        char letter;
        int base;
    } prefixes[] = {{'b', 2}, {'o', 8}, {'x', 16}};
    *base = 10;
    *digits = start;
    if (lexer->source[start] != '0')
        return skip_digits(lexer, start, 10);
    for (size_t i = 0; i < 3; i++) {
        if (start + 1 >= lexer->length || (lexer->source[start + 1] | 32) != prefixes[i].letter)
            continue;
        size_t first = start + 2;
        first += first < lexer->length && lexer->source[first] == '_';
        if (skip_digits(lexer, first, prefixes[i].base) > first) {
            *base = prefixes[i].base;
            *digits = first;
            return skip_digits(lexer, first, *base);
        }
    }
    return skip_digits(lexer, start, 1); /* zeros only */
}

static void lex_number(struct lexer *lexer)
{
    size_t start = lexer->position;
    size_t end = match_float(lexer, start);
    if (end > start) {
        struct token *token = add_token(lexer, TOKEN_FLOAT, start, lexer->source + start, end - start);
        token->real = strtod(copy_number(lexer, start, end), NULL);
    } else {
        int base;
        size_t digits;
        end = match_integer(lexer, start, &base, &digits);
        struct token *token = add_token(lexer, TOKEN_INTEGER, start, lexer->source + start, end - start);
        errno = 0;
        token->integer = strtoll(copy_number(lexer, digits, end), NULL, base);
        if (errno == ERANGE)
            fail_at(lexer, start, "integer beyond 64 bits", lexer->source + start, end - start);
    }
    move_behind(lexer, end);
}

/* The value of a run of up to `most` digits, for \ooo, \xhh, \uhhhh; `used` digits were read. */
static uint32_t read_code(const char *at, const char *end, int base, size_t most, size_t *used)
{
    uint32_t value = 0;
    *used = 0;
    while (*used < most && at + *used < end && is_digit(at[*used], base)) {
        char c = at[*used];
        value = value * (uint32_t)base + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        ++*used;
    }
    return value;
}

/* One escape, `at` being behind the backslash. Returns how much of the source it used. */
static size_t decode_escape(struct lexer *lexer, const char *at, const char *end, char *to, size_t *written)
{
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *letter = memchr(letters, *at, sizeof letters - 1);
    size_t offset = (size_t)(at - 1 - lexer->source), used, wanted = 0;
    *written = 0;
    if (*at == '\n')
        return 1;
    if (letter != NULL) {
        to[(*written)++] = values[letter - letters];
        return 1;
    }
    if (is_digit(*at, 8)) {
        *written = unicode_encode(read_code(at, end, 8, 3, &used), to);
        return used;
    }
    if (*at == 'N')
        fail_at(lexer, offset, "character names (\\N{...}) are not supported in", "strings", 7);
    wanted = *at == 'x' ? 2 : *at == 'u' ? 4 : *at == 'U' ? 8 : 0;
    if (wanted == 0) {
        to[(*written)++] = '\\';
        return 0;
    }
    uint32_t character = read_code(at + 1, end, 16, wanted, &used);
    if (used < wanted || character > 0x10FFFF)
        fail_at(lexer, offset, "bad escape in a string", at - 1, 2);
    if (character >= 0xD800 && character <= 0xDFFF)
        fail_at(lexer, offset, "surrogate in a string", at - 1, 2 + wanted);
    *written = unicode_encode(character, to);
    return 1 + wanted;
}

static void lex_string(struct lexer *lexer)
{
    const char *start = lexer->source + lexer->position, *limit = lexer->source + lexer->length;
    const char *end = start + 1;
    while (end < limit && *end != *start)
        end += *end == '\\' && end + 1 < limit ? 2 : 1;
    if (end >= limit)
        fail_at(lexer, lexer->position, "string without end", "", 0);
    /* An escape is never shorter than what it stands for. */
    char *value = arena_allocate(lexer->arena, (size_t)(end - start) + 4);
    size_t length = 0;
    for (const char *at = start + 1; at < end;) {
        if (*at != '\\') {
            value[length++] = *at++;
            continue;
        }
        size_t written;
        at += 1 + decode_escape(lexer, at + 1, end, value + length, &written);
        length += written;
    }
    add_token(lexer, TOKEN_STRING, lexer->position, value, length);
    move_behind(lexer, (size_t)(end + 1 - lexer->source));
}

static void track_bracket(struct lexer *lexer, char bracket)
{
    static const char openers[] = "([{", closers[] = ")]}";
    const char *opener = memchr(openers, bracket, 3);
    if (opener != NULL) {
        if (lexer->open_brackets == BRACKET_LIMIT)
            fail_at(lexer, lexer->position, "brackets are nested too deeply", "", 0);
        lexer->brackets[lexer->open_brackets++] = closers[opener - openers];
    } else if (memchr(closers, bracket, 3) != NULL) {
        if (lexer->open_brackets == 0 || lexer->brackets[--lexer->open_brackets] != bracket)
            fail_at(lexer, lexer->position, "unexpected", &bracket, 1);
    }
}

static void lex_operator(struct lexer *lexer)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!starts_with(lexer, lexer->position, operators[i]))
            continue;
        size_t length = strlen(operators[i]);
        if (length == 1)
            track_bracket(lexer, operators[i][0]);
        add_token(lexer, TOKEN_OPERATOR, lexer->position, lexer->source + lexer->position, length);
        move_behind(lexer, lexer->position + length);
        return;
    }
    const char *at = lexer->source + lexer->position;
    fail_at(lexer, lexer->position, "unexpected character", at, unicode_length_of(*at));
}

static void lex_expression_token(struct lexer *lexer)
{
    char c = lexer->source[lexer->position];
    uint32_t character;
    unicode_decode(lexer->source + lexer->position, &character);
    if (c >= '0' && c <= '9') {
        lex_number(lexer);
    } else if (c == '\'' || c == '"') {
        lex_string(lexer);
    } else if (is_word_character(character)) {
        size_t start = lexer->position, end = skip_word(lexer, start);
        if (!unicode_is_alphabetic(character) && c != '_')
            fail_at(lexer, start, "invalid character in the name", lexer->source + start, end - start);
        add_token(lexer, TOKEN_NAME, start, lexer->source + start, end - start);
        move_behind(lexer, end);
    } else {
        lex_operator(lexer);
    }
}

static bool match_output_end(const struct lexer *lexer, size_t at, size_t *behind)
{
    if (starts_with(lexer, at, "-}}")) {
        *behind = skip_space(lexer, at + 3);
        return true;
    }
    *behind = at + 2;
    return starts_with(lexer, at, "}}");
}

/* {{ ... }} or {% ... %}. */
static void lex_tag(struct lexer *lexer, size_t text_start, size_t at, bool is_output)
{
    char sign = read_sign(lexer, at + 2);
    add_text(lexer, text_start, at, sign, !is_output);
    add_token(lexer, is_output ? TOKEN_OUTPUT_BEGIN : TOKEN_TAG_BEGIN, at, lexer->source + at, 2);
    move_behind(lexer, at + 2 + (sign != '\0'));
    lexer->open_brackets = 0;
    for (;;) {
        size_t behind = skip_space(lexer, lexer->position), start = behind;
        if (start > lexer->position)
            move_behind(lexer, start);
        if (start >= lexer->length)
            fail_at(lexer, at, is_output ? "missing }}" : "missing %}", "", 0);
        if (lexer->open_brackets == 0 &&
            (is_output ? match_output_end(lexer, start, &behind) : match_end(lexer, start, "%}", &behind))) {
            add_token(lexer, is_output ? TOKEN_OUTPUT_END : TOKEN_TAG_END, start, lexer->source + start, 2);
            move_behind(lexer, behind);
            return;
        }
        lex_expression_token(lexer);
    }
}

static size_t find_tag(const struct lexer *lexer, size_t at)
{
    for (; at + 1 < lexer->length; at++) {
        char next = lexer->source[at + 1];
        if (lexer->source[at] == '{' && (next == '{' || next == '%' || next == '#'))
            return at;
    }
    return lexer->length;
}

void lexer_split(struct arena *arena, const char *source, size_t length, struct token_list *out)
{
    struct lexer lexer = {.arena = arena, .line_starts = true};
    if (length > UINT32_MAX / 2)
        arena_fail(arena, NJ_BAD_DATA, "the chat template is too long (%zu bytes)", length);
    size_t invalid = unicode_find_invalid(source, length);
    if (invalid < length)
        arena_fail(arena, NJ_BAD_DATA, "the chat template is not valid UTF-8 (byte %zu)", invalid);
    normalise_source(&lexer, source, length);
    while (lexer.position < lexer.length) {
        size_t start = lexer.position, at = find_tag(&lexer, start);
        if (at == lexer.length) {
            add_token(&lexer, TOKEN_TEXT, start, lexer.source + start, at - start);
            lexer.position = at;
        } else if (lexer.source[at + 1] == '#') {
            lex_comment(&lexer, start, at);
        } else if (lexer.source[at + 1] == '{') {
            lex_tag(&lexer, start, at, true);
        } else if (!lex_raw(&lexer, start, at)) {
            lex_tag(&lexer, start, at, false);
        }
    }
    add_token(&lexer, TOKEN_END, lexer.length, "", 0);
    *out = (struct token_list){lexer.tokens, lexer.count, lexer.source, lexer.length};
}
