/* Rows to the tensor types with super-blocks of 256; arguments as in struct nj_quantizer. */
#ifndef NJ_TESTS_SYNTHETIC_QUANTIZE_SUPER_H
#define NJ_TESTS_SYNTHETIC_QUANTIZE_SUPER_H

#include <stdint.h>

void quantize_q4_k(const float *row, int64_t cols, unsigned char *out);
void quantize_q5_k(const float *row, int64_t cols, unsigned char *out);
void quantize_q6_k(const float *row, int64_t cols, unsigned char *out);

#endif
