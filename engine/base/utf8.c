#include "engine/base/utf8.h"

#include <string.h>

/* How a character that starts with a given byte goes on. Only the second byte's range depends on the first
 * (Unicode, table 3-7); later ones are 80..BF. */
struct lead {
    size_t length; /* 0: no character starts so */
    unsigned char second_least, second_most;
};

static struct lead lead_of(unsigned char first)
{
    if (first < 0x80)
        return (struct lead){1, 0, 0};
    if (first < 0xC2)
        return (struct lead){0, 0, 0};
    if (first < 0xE0)
        return (struct lead){2, 0x80, 0xBF};
    if (first < 0xF0)
        return (struct lead){3, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF};
    if (first < 0xF5)
        return (struct lead){4, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF};
    return (struct lead){0, 0, 0};
}

struct nj_utf8_part utf8_next(const char *bytes, size_t length)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    struct lead lead = lead_of(byte[0]);
    if (lead.length == 0)
        return (struct nj_utf8_part){NJ_UTF8_INVALID, 1};
    for (size_t i = 1; i < lead.length; i++) {
        if (i == length)
            return (struct nj_utf8_part){NJ_UTF8_INCOMPLETE, i};
        unsigned char least = i == 1 ? lead.second_least : 0x80;
        unsigned char most = i == 1 ? lead.second_most : 0xBF;
        if (byte[i] < least || byte[i] > most)
            return (struct nj_utf8_part){NJ_UTF8_INVALID, i};
    }
    return (struct nj_utf8_part){NJ_UTF8_VALID, lead.length};
}

uint32_t utf8_code_point(const char *bytes, size_t length)
{
    const unsigned char *byte = (const unsigned char *)bytes;
    if (length == 1)
        return byte[0];
    uint32_t point = byte[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++)
        point = point << 6 | (byte[i] & 0x3Fu);
    return point;
}

static int eight_are_ascii(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return (word & UINT64_C(0x8080808080808080)) == 0;
}

size_t utf8_valid_length(const char *bytes, size_t length)
{
    size_t at = 0;
    while (at < length) {
        if (length - at >= 8 && eight_are_ascii(bytes + at)) {
            at += 8;
            continue;
        }
        struct nj_utf8_part part = utf8_next(bytes + at, length - at);
        if (part.kind != NJ_UTF8_VALID)
            return at;
        at += part.length;
    }
    return length;
}

size_t utf8_character_bytes(const char *text, size_t length)
{
    if (length == 0)
        return 0;
    struct nj_utf8_part part = utf8_next(text, length);
    return part.kind == NJ_UTF8_VALID ? part.length : 0;
}

bool utf8_is_valid(const char *text, size_t length)
{
    return utf8_valid_length(text, length) == length;
}

size_t utf8_whole_bytes(const char *text, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        if (utf8_next(text + length - back, back).kind == NJ_UTF8_INCOMPLETE)
            return length - back;
    }
    return length;
}
