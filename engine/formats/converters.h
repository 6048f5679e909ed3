/* The converters of the tensor type table, one file per family; nobody else includes it. What each does is
 * said at the fields of struct nj_tensor_type. */
#ifndef NJ_ENGINE_FORMATS_CONVERTERS_H
#define NJ_ENGINE_FORMATS_CONVERTERS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

int converter_f32_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                        struct nj_error *error);
int converter_f16_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                        struct nj_error *error);
int converter_bf16_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q4_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q4_1_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q5_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q5_1_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q8_0_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q4_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q5_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);
int converter_q6_k_strip(const void *rows, size_t row_bytes, int rows_present, int64_t cols, void *strip,
                         struct nj_error *error);

void converter_f32_row(const void *row, int64_t cols, float *out);
void converter_f16_row(const void *row, int64_t cols, float *out);
void converter_bf16_row(const void *row, int64_t cols, float *out);
void converter_q4_0_row(const void *row, int64_t cols, float *out);
void converter_q4_1_row(const void *row, int64_t cols, float *out);
void converter_q5_0_row(const void *row, int64_t cols, float *out);
void converter_q5_1_row(const void *row, int64_t cols, float *out);
void converter_q8_0_row(const void *row, int64_t cols, float *out);
void converter_q4_k_row(const void *row, int64_t cols, float *out);
void converter_q5_k_row(const void *row, int64_t cols, float *out);
void converter_q6_k_row(const void *row, int64_t cols, float *out);

#endif
