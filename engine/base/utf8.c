#include "engine/base/utf8.h"

static bool is_continuation(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

size_t utf8_character_bytes(const char *text, size_t length)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (length == 0)
        return 0;
    if (byte[0] < 0x80)
        return 1;
    size_t bytes = byte[0] >= 0xf0 ? 4 : byte[0] >= 0xe0 ? 3 : 2;
    if (byte[0] < 0xc2 || byte[0] > 0xf4 || length < bytes)
        return 0;
    /* The second byte's range is narrower after these four: overlong forms, surrogates, above U+10FFFF. */
    unsigned char least = byte[0] == 0xe0 ? 0xa0 : byte[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char most = byte[0] == 0xed ? 0x9f : byte[0] == 0xf4 ? 0x8f : 0xbf;
    if (byte[1] < least || byte[1] > most)
        return 0;
    for (size_t i = 2; i < bytes; i++)
        if (!is_continuation(byte[i]))
            return 0;
    return bytes;
}

bool utf8_is_valid(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t bytes = utf8_character_bytes(text + at, length - at);
        if (bytes == 0)
            return false;
        at += bytes;
    }
    return true;
}

size_t utf8_whole_bytes(const char *text, size_t length)
{
    size_t lead = length;
    while (lead > 0 && length - lead < 3 && is_continuation((unsigned char)text[lead - 1]))
        lead--;
    if (lead == 0 || (unsigned char)text[lead - 1] < 0xc0)
        return length;
    unsigned char byte = (unsigned char)text[lead - 1];
    size_t bytes = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length - (lead - 1) < bytes ? lead - 1 : length;
}
