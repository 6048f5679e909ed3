/* Matrix products of integer kinds with VNNI, for vectors of any width: lanes are rows.
 *
 * vpdpbusd adds products of four unsigned and four signed bytes to 32-bit integers. Weights are unsigned here and
 * tokens signed, for every kind: the sums of a group start at -zero_point * (the token's sum over the group), and
 * signed weights count as unsigned ones with a zero point of 128 (kinds with minima have none). Nothing can overflow:
 * 32 * 255 * 127 < 2^31.
 *
 * For many tokens a segment of a strip is unpacked once (first-level cache) and all tiles of tokens pass over it. A few
 * tokens read the weights as they are packed. */
#ifndef NJ_KERNELS_VNNI_MATMUL_H
#define NJ_KERNELS_VNNI_MATMUL_H

#include "kernels/vnni/matmul_weights.h"

/* 32 columns of the tokens of a tile. */
struct token_group {
    int8_t q[TILE_TOKENS][MATMUL_COLS];
    float d[TILE_TOKENS];
    float scaled_sum[TILE_TOKENS]; /* d * sum, for minima */
    int32_t start[2][TILE_TOKENS]; /* what sums start at: of the whole group, or of each half where it has factors */
};

/* What a thread unpacks to. */
enum { MOST_TILES = MATMUL_CHUNK_TOKENS / HALVES_TILE_TOKENS };
struct panels {
    _Alignas(64) struct weight_group weights[MATMUL_SEGMENT_GROUPS];
    _Alignas(64) struct token_group tiles[MOST_TILES][MATMUL_SEGMENT_GROUPS];
};

NJ_ALWAYS_INLINE void unpack_weights(enum nj_matrix_kind kind, struct group_place place, int64_t groups,
                                     struct weight_group *out)
{
    for (int64_t g = 0; g < groups; g++, out++) {
        const struct group_scales scales = place_load_scales(kind, 1, &place);
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++) {
            NJ_UNROLL
            for (int j = 0; j < GROUP_QUADS; j++)
                lanes_store(out->numbers[j] + 4 * LANES * part, place_load_numbers(kind, 1, &place, j, part));
            lanes_store_floats(out->scale + LANES * part, scales.scale[part]);
            lanes_store_floats(out->minimum + LANES * part, scales.minimum[part]);
            for (int half = 0; half < 2 && has_factors(kind); half++)
                lanes_store_floats(out->factors[half] + LANES * part, place_load_factors(kind, 1, &place, half, part));
        }
        place_advance(kind, 1, &place);
    }
}

static int32_t sum_half(const int8_t *q)
{
    int32_t sum = 0;
    for (int i = 0; i < MATMUL_COLS / 2; i++)
        sum += q[i];
    return sum;
}

static void unpack_tokens(enum nj_matrix_kind kind, const struct nj_q8 *x, int64_t cols, int64_t first_token,
                          int64_t tokens, int64_t first_group, int64_t groups, struct token_group *tile)
{
    const int zero_point = kind == NJ_KIND_S8 ? SIGNED_OFFSET : matrix_kind_info(kind)->zero_point;
    for (int64_t t = 0; t < tokens; t++) {
        int64_t index = (first_token + t) * (cols / MATMUL_COLS) + first_group;
        for (int64_t g = 0; g < groups; g++, index++) {
            struct token_group *out = &tile[g];
            const int8_t *q = x->q + index * MATMUL_COLS;
            memcpy(out->q[t], q, MATMUL_COLS);
            out->d[t] = x->d[index];
            out->scaled_sum[t] = x->d[index] * (float)x->sum[index];
            int32_t first = has_factors(kind) ? sum_half(q) : x->sum[index];
            out->start[0][t] = -zero_point * first;
            out->start[1][t] = -zero_point * (x->sum[index] - first);
        }
    }
}

/* The exact sums of products of a group's quads of columns [first, end), as floats: they stay below 2^24. */
NJ_ALWAYS_INLINE void multiply_quads(enum nj_matrix_kind kind, int is_packed, int n, const struct group_place *place,
                                     const struct token_group *x, int first, int end,
                                     lanes_float products[TILE_TOKENS][PARTS])
{
    lanes_int sum[TILE_TOKENS][PARTS];
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++)
            sum[t][part] = has_minimum(kind) ? lanes_zero_integers() : lanes_broadcast(&x->start[first != 0][t]);
    }
    NJ_UNROLL
    for (int j = first; j < end; j++) {
        lanes_int numbers[PARTS];
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++)
            numbers[part] = place_load_numbers(kind, is_packed, place, j, part);
        NJ_UNROLL
        for (int t = 0; t < n; t++) {
            lanes_int columns = lanes_broadcast(x->q[t] + 4 * j);
            NJ_UNROLL
            for (int part = 0; part < PARTS; part++)
                sum[t][part] = lanes_add_products(sum[t][part], numbers[part], columns);
        }
    }
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++)
            products[t][part] = lanes_from_integers(sum[t][part]);
    }
}

/* The group's dot products. Where halves have factors (whole numbers) these join in floats: whole numbers all, and
 * below 2^24, so that nothing is rounded. */
NJ_ALWAYS_INLINE void multiply_group(enum nj_matrix_kind kind, int is_packed, int n, const struct group_place *place,
                                     const struct token_group *x, lanes_float dot[TILE_TOKENS][PARTS])
{
    if (!has_factors(kind)) {
        multiply_quads(kind, is_packed, n, place, x, 0, GROUP_QUADS, dot);
        return;
    }
    NJ_UNROLL
    for (int half = 0; half < 2; half++) {
        lanes_float products[TILE_TOKENS][PARTS];
        multiply_quads(kind, is_packed, n, place, x, half * HALF_QUADS, (half + 1) * HALF_QUADS, products);
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++) {
            lanes_float factors = place_load_factors(kind, is_packed, place, half, part);
            NJ_UNROLL
            for (int t = 0; t < n; t++)
                dot[t][part] = lanes_fma(factors, products[t][part], half == 0 ? lanes_zero() : dot[t][part]);
        }
    }
}

NJ_ALWAYS_INLINE void join_group(enum nj_matrix_kind kind, int n, const struct group_scales *scales,
                                 const struct token_group *x, lanes_float dot[TILE_TOKENS][PARTS],
                                 lanes_float acc[TILE_TOKENS][PARTS])
{
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++) {
            lanes_float factor = lanes_multiply(scales->scale[part], lanes_set_floats(x->d[t]));
            acc[t][part] = lanes_fma(factor, dot[t][part], acc[t][part]);
            if (has_minimum(kind))
                acc[t][part] = lanes_fma(scales->minimum[part], lanes_set_floats(x->scaled_sum[t]), acc[t][part]);
        }
    }
}

/* The sums of one segment of a strip for n tokens. */
NJ_ALWAYS_INLINE void multiply_tile(enum nj_matrix_kind kind, int is_packed, int n, struct group_place place,
                                    const struct token_group *x, int64_t groups, int is_first,
                                    float (*total)[MATMUL_ROWS])
{
    lanes_float acc[TILE_TOKENS][PARTS];
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++)
            acc[t][part] = lanes_zero();
    }
    for (const struct token_group *end = x + groups; x < end; x++) {
        lanes_float dot[TILE_TOKENS][PARTS];
        multiply_group(kind, is_packed, n, &place, x, dot);
        const struct group_scales scales = place_load_scales(kind, is_packed, &place);
        join_group(kind, n, &scales, x, dot, acc);
        place_advance(kind, is_packed, &place);
    }
    NJ_UNROLL
    for (int t = 0; t < n; t++) {
        NJ_UNROLL
        for (int part = 0; part < PARTS; part++) {
            float *to = total[t] + LANES * part;
            lanes_store_floats(to, is_first ? acc[t][part] : lanes_add(lanes_load_floats(to), acc[t][part]));
        }
    }
}

/* `n` tokens over `groups` groups of a strip from `place` on: the totals are assigned if the segment is the first, else
 * added to. */
typedef void (*tile_function)(int n, struct group_place place, const struct token_group *x, int64_t groups,
                              int is_first, float (*total)[MATMUL_ROWS]);

#define NJ_TILE(n_)                                                                                                    \
    case n_:                                                                                                           \
        multiply_tile(kind, is_packed, n_, place, x, groups, is_first, total);                                         \
        break;
#define NJ_TILES(name, each, kind_, is_packed_)                                                                        \
    static void name(int n, struct group_place place, const struct token_group *x, int64_t groups, int is_first,       \
                     float(*total)[MATMUL_ROWS])                                                                       \
    {                                                                                                                  \
        const enum nj_matrix_kind kind = kind_;                                                                        \
        const int is_packed = is_packed_;                                                                              \
        switch (n) {                                                                                                   \
            each(NJ_TILE)                                                                                              \
        }                                                                                                              \
    }

/* Unpacked weights differ by what is joined only. */
NJ_TILES(multiply_plain, NJ_EACH_TILE, NJ_KIND_U4_ZERO8, 0)
NJ_TILES(multiply_minimum, NJ_EACH_TILE, NJ_KIND_U4_MIN, 0)
NJ_TILES(multiply_halves, NJ_EACH_HALVES_TILE, NJ_KIND_U6_SUPER, 0)

static tile_function unpacked_tile(enum nj_matrix_kind kind)
{
    return has_factors(kind) ? multiply_halves : has_minimum(kind) ? multiply_minimum : multiply_plain;
}

/* What is compiled for each kind. */
struct kind_functions {
    tile_function packed_tile;
    void (*unpack)(struct group_place place, int64_t groups, struct weight_group *out);
};

#define NJ_KIND_FUNCTIONS(name, kind)                                                                                  \
    NJ_TILES(multiply_packed_##name, NJ_EACH_PACKED_TILE, kind, 1)                                                     \
    static void unpack_##name(struct group_place place, int64_t groups, struct weight_group *out)                      \
    {                                                                                                                  \
        unpack_weights(kind, place, groups, out);                                                                      \
    }

NJ_KIND_FUNCTIONS(u4_zero8, NJ_KIND_U4_ZERO8)
NJ_KIND_FUNCTIONS(u4_min, NJ_KIND_U4_MIN)
NJ_KIND_FUNCTIONS(u4_super, NJ_KIND_U4_SUPER)
NJ_KIND_FUNCTIONS(u5_zero16, NJ_KIND_U5_ZERO16)
NJ_KIND_FUNCTIONS(u5_min, NJ_KIND_U5_MIN)
NJ_KIND_FUNCTIONS(u5_super, NJ_KIND_U5_SUPER)
NJ_KIND_FUNCTIONS(u6_super, NJ_KIND_U6_SUPER)
NJ_KIND_FUNCTIONS(s8, NJ_KIND_S8)

static const struct kind_functions kind_functions[NJ_KIND_COUNT] = {
    [NJ_KIND_U4_ZERO8] = {multiply_packed_u4_zero8, unpack_u4_zero8},
    [NJ_KIND_U4_MIN] = {multiply_packed_u4_min, unpack_u4_min},
    [NJ_KIND_U4_SUPER] = {multiply_packed_u4_super, unpack_u4_super},
    [NJ_KIND_U5_ZERO16] = {multiply_packed_u5_zero16, unpack_u5_zero16},
    [NJ_KIND_U5_MIN] = {multiply_packed_u5_min, unpack_u5_min},
    [NJ_KIND_U5_SUPER] = {multiply_packed_u5_super, unpack_u5_super},
    [NJ_KIND_U6_SUPER] = {multiply_packed_u6_super, unpack_u6_super},
    [NJ_KIND_S8] = {multiply_packed_s8, unpack_s8},
};

/* Tokens are dealt to the fewest tiles that hold them, evenly: a tile of few tokens has few sums to go on with. */
struct tiling {
    int64_t tokens, tiles;
};

static int64_t tile_begin(struct tiling tiling, int64_t tile)
{
    return tiling.tokens * tile / tiling.tiles;
}

/* A strip's segment, from `place` on. */
static void multiply_strip(enum nj_matrix_kind kind, struct tiling tiling, struct group_place place, int64_t groups,
                           int is_first, struct panels *panels, float (*total)[MATMUL_ROWS])
{
    if (tiling.tokens <= PACKED_TILE_TOKENS) {
        kind_functions[kind].packed_tile((int)tiling.tokens, place, panels->tiles[0], groups, is_first, total);
        return;
    }
    kind_functions[kind].unpack(place, groups, panels->weights);
    place.unpacked = panels->weights;
    for (int64_t tile = 0; tile < tiling.tiles; tile++) {
        int64_t begin = tile_begin(tiling, tile), end = tile_begin(tiling, tile + 1);
        unpacked_tile(kind)((int)(end - begin), place, panels->tiles[tile], groups, is_first, total + begin);
    }
}

static void multiply_segment(const struct matmul_piece *piece, const struct nj_q8 *x, int64_t first_group,
                             int64_t groups, void *context)
{
    const struct nj_matrix *w = &piece->output->w;
    const int64_t most = has_factors(w->kind) ? HALVES_TILE_TOKENS : TILE_TOKENS;
    const struct tiling tiling = {.tokens = piece->tokens, .tiles = (piece->tokens + most - 1) / most};
    struct panels *panels = context;
    for (int64_t tile = 0; tile < tiling.tiles; tile++) {
        int64_t begin = tile_begin(tiling, tile), end = tile_begin(tiling, tile + 1);
        unpack_tokens(w->kind, x, w->cols, piece->first_token + begin, end - begin, first_group, groups,
                      panels->tiles[tile]);
    }
    const struct nj_matrix_kind_info *info = matrix_kind_info(w->kind);
    const size_t offset = (size_t)(first_group / info->block_groups) * info->block_bytes;
    for (int64_t i = 0; i < piece->strips; i++) {
        const uint8_t *strip = matmul_strip_data(w, piece->first_strip + i);
        const struct group_place place = {.block = strip + offset, .block_bytes = info->block_bytes};
        multiply_strip(w->kind, tiling, place, groups, first_group == 0, panels, matmul_strip_totals(piece, i));
    }
}

NJ_ALWAYS_INLINE void run_matmul(const struct nj_matmul_args *args, int thread, int threads)
{
    struct panels panels;
    const struct matmul_integers integers = {multiply_segment, &panels};
    avx2_cut_matmul(args, thread, threads, &integers);
}

#endif
