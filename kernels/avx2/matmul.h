/* The parts of the AVX2 matrix product: weights and activations are first unpacked to what the inner loops read,
 * one segment of columns at a time, so that every weight is unpacked once for many tokens. */
#ifndef NJ_KERNELS_AVX2_MATMUL_H
#define NJ_KERNELS_AVX2_MATMUL_H

#include <stddef.h>

#include "kernels/avx2/vector.h"
#include "kernels/operations.h"

enum {
    MATMUL_ROWS = NJ_STRIP_ROWS,
    MATMUL_HALF_ROWS = VECTOR_FLOATS, /* lanes of a register are rows of half a strip */
    MATMUL_COLS = NJ_GROUP_COLS,
    MATMUL_SEGMENT_GROUPS = NJ_SEGMENT_COLS / NJ_GROUP_COLS,
    MATMUL_TILE_TOKENS = 6,   /* tokens whose sums are in registers at once */
    MATMUL_FEW_TOKENS = 4,    /* up to so many, weights are not unpacked: matmul_few.c */
    MATMUL_CHUNK_TOKENS = 96, /* most tokens of a piece of an integer kind */
    MATMUL_LEAD_GROUPS = 2    /* groups of zeros in front of a segment: see matmul_integer.c */
};

/* Strips first_strip .. first_strip + strips - 1 of one output for tokens first_token .. first_token + tokens - 1. */
struct matmul_piece {
    const struct nj_matmul_output *output;
    int64_t first_strip, strips;
    int64_t first_token, tokens;
    float (*total)[MATMUL_ROWS]; /* [strips * tokens] */
};

/* How a table of kernels multiplies integers. multiply_segment does `groups` groups of columns from group
 * `first_group` of a piece of at most MATMUL_CHUNK_TOKENS tokens; group 0 assigns the piece's totals, others add to
 * them. `panels` is what it unpacks to, the thread's own. */
struct matmul_integers {
    void (*multiply_segment)(const struct matmul_piece *piece, const struct nj_q8 *x, int64_t first_group,
                             int64_t groups, void *panels);
    void *panels;
};

/* A thread's share of a matrix product: cuts it into pieces. Float kinds are multiplied with AVX2. */
void avx2_cut_matmul(const struct nj_matmul_args *args, int thread, int threads,
                     const struct matmul_integers *integers);

/* [tokens]: of the piece's i-th strip. */
NJ_ALWAYS_INLINE float (*matmul_strip_totals(const struct matmul_piece *piece, int64_t i))[MATMUL_ROWS]
{
    return piece->total + i * piece->tokens;
}

NJ_ALWAYS_INLINE const uint8_t *matmul_strip_data(const struct nj_matrix *w, int64_t strip)
{
    return (const uint8_t *)w->data + (size_t)strip * matrix_strip_bytes(w->kind, w->cols);
}

/* How the exact dot product over a group is summed; matmul_integer.c says why each fits its integers. */
enum matmul_form {
    MATMUL_WHOLE,  /* all 32 columns in int16, then widened */
    MATMUL_HALVES, /* 16 columns in int16, then widened by a factor for each half */
    MATMUL_SIGNED  /* two columns at a time */
};

NJ_ALWAYS_INLINE enum matmul_form matmul_form_of(enum nj_matrix_kind kind)
{
    if (kind == NJ_KIND_S8)
        return MATMUL_SIGNED;
    const int is_wide = kind == NJ_KIND_U5_MIN || kind == NJ_KIND_U5_SUPER || kind == NJ_KIND_U6_SUPER;
    return is_wide ? MATMUL_HALVES : MATMUL_WHOLE;
}

/* 8 rows x 32 columns. */
struct matmul_weight_group {
    int8_t numbers[8][32];  /* [j][4 * row + c]: column 4 * j + c, without the zero point */
    int16_t bias[2][16];    /* [half]: -128 * the numbers' sums, as the products are summed */
    int16_t factors[2][16]; /* MATMUL_HALVES: [half][2 * row], [half][2 * row + 1] */
    float scale[MATMUL_HALF_ROWS], minimum[MATMUL_HALF_ROWS];
};

/* One segment of half a strip, from group[MATMUL_LEAD_GROUPS] on. The groups before are all zero. */
struct matmul_weights {
    _Alignas(64) struct matmul_weight_group group[MATMUL_LEAD_GROUPS + MATMUL_SEGMENT_GROUPS];
};

/* 32 columns of the tokens of a tile. */
struct matmul_token_group {
    uint8_t q[MATMUL_TILE_TOKENS][MATMUL_COLS]; /* plus 128; MATMUL_SIGNED: as they are */
    float d[MATMUL_TILE_TOKENS];
    float scaled_sum[MATMUL_TILE_TOKENS]; /* d * sum, for minima */
};

struct matmul_tokens {
    _Alignas(64) struct matmul_token_group group[MATMUL_LEAD_GROUPS + MATMUL_SEGMENT_GROUPS];
};

/* Unpacks `groups` groups from group `first_group` of a strip of an integer kind into its two halves. */
void avx2_unpack_weights(enum nj_matrix_kind kind, const uint8_t *strip, int64_t first_group, int64_t groups,
                         struct matmul_weights halves[2]);

/* Up to MATMUL_TILE_TOKENS tokens from token `first_token`; rows of x are `cols` wide. */
void avx2_unpack_tokens(enum nj_matrix_kind kind, const struct nj_q8 *x, int64_t cols, int64_t first_token,
                        int64_t tokens, int64_t first_group, int64_t groups, struct matmul_tokens *tile);

/* The sums of one segment of half a strip: token t's are stored to total[t * MATMUL_ROWS + 0..7] if the segment is the
 * first, else added to what is there. */
typedef void (*matmul_tile_function)(const struct matmul_weights *weights, const struct matmul_tokens *tile,
                                     int64_t groups, int is_first, float *total);

/* For an integer kind and 1..MATMUL_TILE_TOKENS tokens. */
matmul_tile_function avx2_integer_tile(enum nj_matrix_kind kind, int64_t tokens);

/* A piece of at most MATMUL_FEW_TOKENS tokens, as struct matmul_integers says. */
void avx2_multiply_few(const struct matmul_piece *piece, const struct nj_q8 *x, int64_t first_group, int64_t groups);

/* Adds a segment's sum to the total; the first one is assigned. */
NJ_ALWAYS_INLINE void matmul_add_segment(__m256 sum, int is_first, float *total)
{
    _mm256_storeu_ps(total, is_first ? sum : _mm256_add_ps(_mm256_loadu_ps(total), sum));
}

#endif
