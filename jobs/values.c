#include "jobs/values.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const int64_t LAST_SECOND_OF_9999 = 253402300799;

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int value_parse_count(const char *text, int64_t least, int64_t most, int64_t *out)
{
    int64_t value = 0;
    if (text[0] == '\0')
        return -1;
    for (; *text != '\0'; text++) {
        if (!is_digit(*text) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *text - '0', &value))
            return -1;
    }
    if (value < least || value > most)
        return -1;
    *out = value;
    return 0;
}

/* 0: unknown unit. */
static uint64_t value_unit_bytes(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {
        {"", 1},
        {"B", 1},
        {"K", UINT64_C(1) << 10},
        {"KiB", UINT64_C(1) << 10},
        {"KB", UINT64_C(1000)},
        {"M", UINT64_C(1) << 20},
        {"MiB", UINT64_C(1) << 20},
        {"MB", UINT64_C(1000000)},
        {"G", UINT64_C(1) << 30},
        {"GiB", UINT64_C(1) << 30},
        {"GB", UINT64_C(1000000000)},
        {"T", UINT64_C(1) << 40},
        {"TiB", UINT64_C(1) << 40},
        {"TB", UINT64_C(1000000000000)},
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcasecmp(unit, units[i].name) == 0)
            return units[i].bytes;
    }
    return 0;
}

int value_parse_size(const char *text, uint64_t *out)
{
    long double number = 0, digit_value = 1;
    int digits = 0, in_fraction = 0;
    for (; is_digit(*text) || (*text == '.' && !in_fraction); text++) {
        if (*text == '.') {
            in_fraction = 1;
            continue;
        }
        digits++;
        if (in_fraction)
            number += (*text - '0') * (digit_value /= 10);
        else
            number = number * 10 + (*text - '0');
    }
    uint64_t unit = value_unit_bytes(text);
    if (digits == 0 || digits > 40 || unit == 0)
        return -1;
    /* Half a byte more, so that 0.1 and its like do not fall one short of a whole number. */
    long double bytes = number * (long double)unit + (in_fraction ? 0.5L : 0.0L);
    if (!(bytes >= 1) || bytes >= 0x1p63L)
        return -1;
    *out = (uint64_t)bytes;
    return 0;
}

void value_format_size(uint64_t bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes / 1024;
    size_t unit = 0;
    if (bytes < 1024) {
        snprintf(out, out_bytes, "%u B", (unsigned)bytes);
        return;
    }
    for (; value >= 1023.5 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        value /= 1024;
    snprintf(out, out_bytes, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, units[unit]);
}

/* Reads exactly `digits` digits within [least, most] and moves *text behind them. */
static int value_take_digits(const char **text, int digits, int least, int most, int *out)
{
    int value = 0;
    for (int i = 0; i < digits; i++) {
        if (!is_digit((*text)[i]))
            return -1;
        value = value * 10 + ((*text)[i] - '0');
    }
    *text += digits;
    *out = value;
    return value < least || value > most ? -1 : 0;
}

static int value_take_char(const char **text, const char *accepted)
{
    if (**text == '\0' || strchr(accepted, **text) == NULL)
        return -1;
    (*text)++;
    return 0;
}

static int value_take_clock(const char **text, struct tm *time)
{
    if (value_take_digits(text, 2, 0, 23, &time->tm_hour) != 0 || value_take_char(text, ":") != 0 ||
        value_take_digits(text, 2, 0, 59, &time->tm_min) != 0)
        return -1;
    if (value_take_char(text, ":") == 0)
        return value_take_digits(text, 2, 0, 59, &time->tm_sec);
    return 0;
}

static int value_take_zone(const char **text, int64_t *offset_seconds)
{
    int hours = 0, minutes = 0;
    int sign = **text == '-' ? -1 : 1;
    *offset_seconds = 0;
    if (**text == '\0' || value_take_char(text, "Zz") == 0)
        return 0;
    if (value_take_char(text, "+-") != 0 || value_take_digits(text, 2, 0, 23, &hours) != 0 ||
        value_take_char(text, ":") != 0 || value_take_digits(text, 2, 0, 59, &minutes) != 0)
        return -1;
    *offset_seconds = sign * (hours * 3600 + minutes * 60);
    return 0;
}

int value_parse_time(const char *text, int64_t *out)
{
    if (value_parse_count(text, 0, LAST_SECOND_OF_9999, out) == 0)
        return 0;
    struct tm time = {0};
    int64_t offset_seconds = 0;
    if (value_take_digits(&text, 4, 1970, 9999, &time.tm_year) != 0 || value_take_char(&text, "-") != 0 ||
        value_take_digits(&text, 2, 1, 12, &time.tm_mon) != 0 || value_take_char(&text, "-") != 0 ||
        value_take_digits(&text, 2, 1, 31, &time.tm_mday) != 0)
        return -1;
    if (value_take_char(&text, "Tt ") == 0 &&
        (value_take_clock(&text, &time) != 0 || value_take_zone(&text, &offset_seconds) != 0))
        return -1;
    if (*text != '\0')
        return -1;
    time.tm_year -= 1900;
    time.tm_mon -= 1;
    int day = time.tm_mday;
    int64_t seconds = (int64_t)timegm(&time) - offset_seconds; /* turns 30 February into March: refused below */
    if (time.tm_mday != day || seconds < 0 || seconds > LAST_SECOND_OF_9999)
        return -1;
    *out = seconds;
    return 0;
}

int value_parse_words(const char *text, const char *const *words, unsigned *bits)
{
    unsigned found = 0;
    for (;;) {
        size_t length = strcspn(text, ","), i = 0;
        while (words[i] != NULL && (strlen(words[i]) != length || memcmp(words[i], text, length) != 0))
            i++;
        if (words[i] == NULL)
            return -1;
        found |= 1u << i;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *bits |= found;
    return 0;
}
