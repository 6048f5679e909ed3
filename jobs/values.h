/* Values as they are written on the command line. Each function returns 0, or -1 for anything it does not
 * accept, leaving *out as it was. */
#ifndef NJ_JOBS_VALUES_H
#define NJ_JOBS_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* Decimal digits, nothing else, within [least, most]. */
int value_parse_count(const char *text, int64_t least, int64_t most, int64_t *out);

/* Bytes: a decimal number, with or without fraction, and a unit: none or B; K, KiB, M, MiB, G, GiB, T, TiB
 * (powers of 1,024); KB, MB, GB, TB (powers of 1,000). Case does not matter. At least 1, below 2^63. */
int value_parse_size(const char *text, uint64_t *out);

/* "712 B", "93.2 MiB", "1.50 GiB": what value_parse_size reads, to three digits. */
void value_format_size(uint64_t bytes, char *out, size_t out_bytes);

/* A moment in seconds since the epoch: that number itself, or ISO 8601: YYYY-MM-DD, then optionally T or a
 * space and HH:MM or HH:MM:SS, then optionally Z, +HH:MM or -HH:MM (UTC if absent). Years 1970 to 9999. */
int value_parse_time(const char *text, int64_t *out);

/* A list of words, separated by commas, each of the NULL-terminated `words` (32 at most): bit i of *bits is set for
 * words[i]; others stay. */
int value_parse_words(const char *text, const char *const *words, unsigned *bits);

#endif
