/* What the attention kernels share: rows, and one block's step of the online softmax.
 *
 * A row is one query head of one token. Rows that see the same KV head of the same sequence share every load of keys
 * and values: the query heads of a group, and the tokens of a chunk. */
#ifndef NJ_KERNELS_AVX2_ATTENTION_H
#define NJ_KERNELS_AVX2_ATTENTION_H

#include "kernels/avx2/vector.h"
#include "kernels/kv_block.h"
#include "kernels/operations.h"

/* As many rows as go through a block before the next one: their state stays in the first-level cache with it. */
enum { SOFTMAX_STEP = 2 * VECTOR_FLOATS, MOST_ROWS = 24 };

/* At most MOST_ROWS rows of one KV head: row r is query head r % group of token `token` + r / group, where a group is
 * the query heads of the KV head. The tokens follow each other in the batch and belong to one sequence. */
struct attention_rows {
    const struct nj_attention_args *args;
    int64_t token, kv_head;
    int64_t begin, end;
    const char *ahead; /* the head of a block that is read after these rows: worth fetching early */
};

void avx2_attend_f16(const struct attention_rows *rows);
void avx2_attend_q8(const struct attention_rows *rows);

struct softmax_row {
    const float *q;              /* [head_width] */
    float *out;                  /* [head_width] */
    int64_t positions;           /* that it sees */
    int64_t valid;               /* of the block at hand; 0 or less: none of it */
    float max, sum;              /* so far */
    float correction;            /* for what was summed before the block at hand */
    float p[NJ_KV_BLOCK_TOKENS]; /* scores, then their exponentials */
};

/* The KV head's part of the block that holds position `first` of the token's sequence. */
NJ_ALWAYS_INLINE char *attention_block(const struct nj_attention_args *a, int64_t token, int64_t kv_head, int64_t first)
{
    const int32_t *blocks = a->batch.blocks + a->batch.sequence[token] * a->batch.blocks_stride;
    return a->kv.base + blocks[first / NJ_KV_BLOCK_TOKENS] * a->kv.block_stride_bytes +
           kv_head * kv_head_bytes(a->kv.type, a->kv.head_width);
}

/* The KV head's part of the next of the rows' blocks, which see `positions` in all; or else what comes after. */
NJ_ALWAYS_INLINE const char *attention_ahead(const struct attention_rows *rows, int64_t first, int64_t positions)
{
    int64_t next = first + NJ_KV_BLOCK_TOKENS;
    return next < positions ? attention_block(rows->args, rows->token, rows->kv_head, next) : rows->ahead;
}

NJ_ALWAYS_INLINE void softmax_begin(const struct attention_rows *rows, int64_t r, struct softmax_row *row)
{
    const struct nj_attention_args *a = rows->args;
    int64_t group = a->heads / a->kv.kv_heads, t = rows->token + r / group;
    int64_t index = (t * a->heads + rows->kv_head * group + r % group) * a->kv.head_width;
    row->q = a->q + index;
    row->out = a->out + index;
    row->positions = (int64_t)a->batch.position[t] + 1;
}

/* Goes to the block whose first position is `first`. */
NJ_ALWAYS_INLINE void softmax_enter(struct softmax_row *row, int64_t first)
{
    int64_t rest = row->positions - first;
    row->valid = rest < NJ_KV_BLOCK_TOKENS ? rest : NJ_KV_BLOCK_TOKENS;
}

/* How many of `count` rows to take at a time, at most `most`, so that the last ones are not few. */
NJ_ALWAYS_INLINE int rows_at_once(int count, int most)
{
    int times = (count + most - 1) / most;
    return (count + times - 1) / times;
}

/* Turns the valid scores into their exponentials and joins them to the row's maximum and sum. Masked keys become
 * exactly 0 up to the next multiple of 16. */
NJ_ALWAYS_INLINE void softmax_join(struct softmax_row *row, int is_first)
{
    float *p = row->p;
    int64_t padded = (row->valid + SOFTMAX_STEP - 1) / SOFTMAX_STEP * SOFTMAX_STEP;
    for (int64_t j = row->valid; j < padded; j++)
        p[j] = -INFINITY;
    /* maxps returns its second operand for a NaN score: NaNs are passed over */
    __m256 largest = _mm256_set1_ps(is_first ? -INFINITY : row->max);
    for (int64_t j = 0; j < padded; j += VECTOR_FLOATS)
        largest = _mm256_max_ps(_mm256_loadu_ps(p + j), largest);
    float max = vector_max_lane(largest);
    __m256 partial[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t j = 0; j < padded; j += SOFTMAX_STEP) {
        for (int i = 0; i < 2; i++) {
            float *place = p + j + i * VECTOR_FLOATS;
            __m256 y = vector_exp(_mm256_sub_ps(_mm256_loadu_ps(place), _mm256_set1_ps(max)));
            partial[i] = _mm256_add_ps(partial[i], y);
            _mm256_storeu_ps(place, y);
        }
    }
    float block_sum = vector_sum_partials(partial[0], partial[1]);
    row->correction = is_first ? 0.0f : _mm256_cvtss_f32(vector_exp(_mm256_set1_ps(row->max - max)));
    row->sum = is_first ? block_sum : fmaf(row->sum, row->correction, block_sum);
    row->max = max;
}

/* A row's output: its weighted values over the sum of the weights. */
NJ_ALWAYS_INLINE void softmax_end(const struct softmax_row *row, int64_t width)
{
    for (int64_t d = 0; d < width; d += VECTOR_FLOATS)
        _mm256_storeu_ps(row->out + d, _mm256_div_ps(_mm256_loadu_ps(row->out + d), _mm256_set1_ps(row->sum)));
}

#endif
