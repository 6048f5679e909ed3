#include "engine/chat_template/unicode.h"

size_t unicode_length_of(char first)
{
    unsigned char byte = (unsigned char)first;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

size_t unicode_decode(const char *bytes, uint32_t *character)
{
    const unsigned char *b = (const unsigned char *)bytes;
    size_t length = unicode_length_of(bytes[0]);
    if (length == 1)
        *character = b[0];
    else if (length == 2)
        *character = (b[0] & 0x1Fu) << 6 | (b[1] & 0x3Fu);
    else if (length == 3)
        *character = (b[0] & 0x0Fu) << 12 | (b[1] & 0x3Fu) << 6 | (b[2] & 0x3Fu);
    else
        *character = (b[0] & 0x07u) << 18 | (b[1] & 0x3Fu) << 12 | (b[2] & 0x3Fu) << 6 | (b[3] & 0x3Fu);
    return length;
}

size_t unicode_encode(uint32_t character, char *bytes)
{
    if (character < 0x80) {
        bytes[0] = (char)character;
        return 1;
    }
    size_t length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (character & 0x3F));
        character >>= 6;
    }
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    bytes[0] = (char)(lead[length] | character);
    return length;
}

size_t unicode_count(const char *bytes, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

size_t unicode_find_invalid(const char *bytes, size_t length)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)bytes;
    for (size_t i = 0; i < length;) {
        if (b[i] < 0x80) {
            i++;
            continue;
        }
        size_t more = unicode_length_of(bytes[i]);
        if (b[i] < 0xC2 || b[i] > 0xF4 || more > length - i)
            return i;
        for (size_t k = 1; k < more; k++)
            if ((b[i + k] & 0xC0) != 0x80)
                return i;
        uint32_t character;
        unicode_decode(bytes + i, &character);
        if (character < smallest[more] || character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF))
            return i;
        i += more;
    }
    return length;
}

bool unicode_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool unicode_is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

static bool is_in(const struct unicode_range *ranges, size_t count, uint32_t character)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].last < character)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && ranges[low].first <= character && (character - ranges[low].first) % ranges[low].step == 0;
}

bool unicode_is_alphabetic(uint32_t character)
{
    return is_in(unicode_alphabetic, unicode_alphabetic_count, character);
}

bool unicode_is_numeric(uint32_t character)
{
    return is_in(unicode_numeric, unicode_numeric_count, character);
}

bool unicode_is_digit(uint32_t character)
{
    return is_in(unicode_digit, unicode_digit_count, character);
}

bool unicode_is_printable(uint32_t character)
{
    return is_in(unicode_printable, unicode_printable_count, character);
}

bool unicode_is_lowercase(uint32_t character)
{
    return is_in(unicode_lowercase, unicode_lowercase_count, character);
}

bool unicode_is_uppercase(uint32_t character)
{
    return is_in(unicode_uppercase, unicode_uppercase_count, character);
}

bool unicode_is_titlecase(uint32_t character)
{
    return is_in(unicode_titlecase, unicode_titlecase_count, character);
}

bool unicode_is_cased(uint32_t character)
{
    return unicode_is_lowercase(character) || unicode_is_uppercase(character) || unicode_is_titlecase(character);
}

bool unicode_is_case_ignorable(uint32_t character)
{
    return is_in(unicode_case_ignorable, unicode_case_ignorable_count, character);
}

struct case_table {
    const struct unicode_mapping *mappings;
    const size_t *mapping_count;
    const struct unicode_expansion *expansions;
    const size_t *expansion_count;
};

static const struct case_table case_tables[] = {
    [UNICODE_LOWER] = {unicode_to_lower, &unicode_to_lower_count, unicode_to_lower_expanded,
                       &unicode_to_lower_expanded_count},
    [UNICODE_UPPER] = {unicode_to_upper, &unicode_to_upper_count, unicode_to_upper_expanded,
                       &unicode_to_upper_expanded_count},
    [UNICODE_TITLE] = {unicode_to_title, &unicode_to_title_count, unicode_to_title_expanded,
                       &unicode_to_title_expanded_count},
};

static uint32_t map_one(const struct case_table *table, uint32_t character)
{
    size_t low = 0, high = *table->mapping_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->mappings[middle].last < character)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == *table->mapping_count)
        return character;
    const struct unicode_mapping *mapping = &table->mappings[low];
    if (character < mapping->first || (character - mapping->first) % mapping->step != 0)
        return character;
    return (uint32_t)((int32_t)character + mapping->delta);
}

size_t unicode_map_case(uint32_t character, enum unicode_case to, uint32_t mapped[3])
{
    const struct case_table *table = &case_tables[to];
    if (character >= 0x80) {
        for (size_t i = 0; i < *table->expansion_count; i++) {
            if (table->expansions[i].character != character)
                continue;
            size_t count = 0;
            while (count < 3 && table->expansions[i].to[count] != 0) {
                mapped[count] = table->expansions[i].to[count];
                count++;
            }
            return count;
        }
    }
    mapped[0] = map_one(table, character);
    return 1;
}
