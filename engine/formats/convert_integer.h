/* What the converters of block-quantised types share; nobody else includes it. A block of the file has 32
 * or 256 consecutive elements of one row; a block of the strip has the same columns of 16 rows. */
#ifndef NJ_ENGINE_FORMATS_CONVERT_INTEGER_H
#define NJ_ENGINE_FORMATS_CONVERT_INTEGER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "kernels/matrix.h"

/* Puts one block of the file into row `row` of a block of the strip (which is zero there). Returns NULL, or
 * the reason why the contract cannot hold it. */
typedef const char *(*convert_block)(const unsigned char *from, int row, unsigned char *to);

/* Converts a strip block by block; arguments and result as in struct nj_tensor_type. */
int convert_integer_strip(const void *rows, size_t row_bytes, size_t from_block_bytes, int rows_present, int64_t cols,
                          enum nj_matrix_kind kind, convert_block convert, void *strip, struct nj_error *error);

/* Puts 32 numbers of 4 to 6 bits into row `row` of a group of the strip: their low four bits, their fifth bit, their
 * fifth and sixth bits. */
void convert_store_nibbles(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS]);
void convert_store_fifth_bits(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS]);
void convert_store_upper_pairs(unsigned char *to, int row, const uint8_t q[NJ_GROUP_COLS]);

/* The half stored at `from`; `convert_half_is_finite` tells whether it is neither infinite nor NaN. */
uint16_t convert_read_half(const unsigned char *from);
int convert_half_is_finite(uint16_t half);

/* Stores a scale or minimum at place `row` of the 16 halves at `to`. */
void convert_store_half(unsigned char *to, int row, uint16_t half);

#endif
