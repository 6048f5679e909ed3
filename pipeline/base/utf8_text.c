#include "pipeline/base/utf8_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/utf8.h"

char *utf8_escape_invalid(const char *text, size_t length)
{
    char *out = malloc(3 * length + 1);
    if (out == NULL)
        return NULL;
    size_t put = 0;
    for (size_t i = 0; i < length;) {
        size_t bytes = utf8_character_bytes(text + i, length - i);
        if (bytes == 0) {
            put += (size_t)snprintf(out + put, 4, "%%%02X", (unsigned)(unsigned char)text[i]);
            i++;
            continue;
        }
        memcpy(out + put, text + i, bytes);
        put += bytes;
        i += bytes;
    }
    out[put] = '\0';
    return out;
}

void utf8_copy_printable(char *out, size_t out_bytes, const char *text, size_t length)
{
    size_t put = 0;
    for (size_t i = 0; i < length;) {
        size_t bytes = utf8_character_bytes(text + i, length - i);
        /* C0 controls, DEL, and the C1 controls U+0080..U+009F, which some terminals obey too. */
        int strange = bytes == 0 || (unsigned char)text[i] < 0x20 || text[i] == 0x7F ||
                      (bytes == 2 && (unsigned char)text[i] == 0xC2 && (unsigned char)text[i + 1] < 0xA0);
        size_t width = strange ? 1 : bytes;
        if (put + width >= out_bytes)
            break;
        if (strange)
            out[put] = '?';
        else
            memcpy(out + put, text + i, bytes);
        put += width;
        i += bytes == 0 ? 1 : bytes;
    }
    out[put] = '\0';
}

json_t *utf8_json_message(const char *message)
{
    size_t length = strlen(message);
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return NULL;
    utf8_copy_printable(copy, length + 1, message, length);
    json_t *value = json_string(copy);
    free(copy);
    return value;
}
