/* Weights of a strip as the VNNI kernels read them: unsigned bytes without their zero point, and scales as floats.
 * Either packed, as they lie in the matrix, or unpacked, once for many tokens. */
#ifndef NJ_KERNELS_VNNI_MATMUL_WEIGHTS_H
#define NJ_KERNELS_VNNI_MATMUL_WEIGHTS_H

#include "kernels/avx2/matmul.h"

enum {
    PARTS = MATMUL_ROWS / LANES, /* vectors that the 16 rows take */
    SIGNED_OFFSET = 128,         /* what is added to signed weights to make them unsigned */
    GROUP_QUADS = MATMUL_COLS / 4,
    HALF_QUADS = GROUP_QUADS / 2
};

/* 16 rows x 32 columns. */
struct weight_group {
    uint8_t numbers[GROUP_QUADS][4 * MATMUL_ROWS]; /* [j][4 * row + c]: column 4 * j + c */
    float scale[MATMUL_ROWS];
    float minimum[MATMUL_ROWS];    /* kinds with minima */
    float factors[2][MATMUL_ROWS]; /* U6_SUPER: of each 16 columns */
};

/* A group that is being multiplied: unpacked, or packed in a block of the matrix. */
struct group_place {
    const struct weight_group *unpacked;
    const uint8_t *block;
    int in_block; /* the group's number there */
    size_t block_bytes;
};

/* Known to the compiler wherever the kind is. */
NJ_ALWAYS_INLINE int bits_of(enum nj_matrix_kind kind)
{
    switch (kind) {
    case NJ_KIND_U5_ZERO16:
    case NJ_KIND_U5_MIN:
    case NJ_KIND_U5_SUPER:
        return 5;
    case NJ_KIND_U6_SUPER:
        return 6;
    case NJ_KIND_S8:
        return 8;
    default:
        return 4;
    }
}

NJ_ALWAYS_INLINE int is_super(enum nj_matrix_kind kind)
{
    return kind == NJ_KIND_U4_SUPER || kind == NJ_KIND_U5_SUPER || kind == NJ_KIND_U6_SUPER;
}

NJ_ALWAYS_INLINE int has_minimum(enum nj_matrix_kind kind)
{
    return kind == NJ_KIND_U4_MIN || kind == NJ_KIND_U5_MIN || (is_super(kind) && kind != NJ_KIND_U6_SUPER);
}

/* Halves of a group have factors of their own. */
NJ_ALWAYS_INLINE int has_factors(enum nj_matrix_kind kind)
{
    return kind == NJ_KIND_U6_SUPER;
}

/* Columns 4 * j .. 4 * j + 3 of the rows of one part, as the matrix has them (kernels/matrix.h). */
NJ_ALWAYS_INLINE lanes_int unpack_numbers(enum nj_matrix_kind kind, const uint8_t *numbers, int j, int part)
{
    const int bits = bits_of(kind), quad_bytes = 4 * MATMUL_ROWS, low_bytes = HALF_QUADS * quad_bytes;
    numbers += 4 * LANES * part;
    if (bits == 8)
        return lanes_xor(lanes_load(numbers + quad_bytes * j), lanes_set_bytes(SIGNED_OFFSET));
    lanes_int pairs = lanes_load(numbers + quad_bytes * (j % HALF_QUADS));
    lanes_int n = lanes_and(lanes_shift_words(pairs, j < HALF_QUADS ? 0 : -4), lanes_set_bytes(15));
    if (bits == 5) /* the fifth bits are bit j of each byte */
        n = lanes_or(n, lanes_and(lanes_shift_words(lanes_load(numbers + low_bytes), 4 - j), lanes_set_bytes(16)));
    if (bits == 6) {
        lanes_int upper = lanes_load(numbers + low_bytes + quad_bytes * (j / HALF_QUADS));
        n = lanes_or(n, lanes_and(lanes_shift_words(upper, 4 - 2 * (j % HALF_QUADS)), lanes_set_bytes(0x30)));
    }
    return n;
}

/* 6-bit numbers of the rows from `data` on, of one group of a super-block. */
NJ_ALWAYS_INLINE lanes_float unpack_six_bits(const uint8_t *data, int group)
{
    lanes_int low = lanes_widen_unsigned(data + MATMUL_ROWS * (group % 4));
    lanes_int high = lanes_widen_unsigned(data + 4 * MATMUL_ROWS + MATMUL_ROWS * (group / 4));
    low = lanes_and(lanes_shift_right(low, 4 * (group / 4)), lanes_set_bytes(15));
    high = lanes_and(lanes_shift_right(high, 2 * (group % 4)), lanes_set_bytes(3));
    return lanes_from_integers(lanes_or(low, lanes_shift_left(high, 4)));
}

struct group_scales {
    lanes_float scale[PARTS], minimum[PARTS];
};

NJ_ALWAYS_INLINE struct group_scales unpack_scales(enum nj_matrix_kind kind, const uint8_t *scales, int in_block)
{
    const int table_bytes = !is_super(kind) ? 0 : has_minimum(kind) ? 2 * NJ_SIX_BIT_BYTES : NJ_SIGNED_BYTES;
    struct group_scales out;
    NJ_UNROLL
    for (int part = 0; part < PARTS; part++) {
        const uint8_t *bytes = scales + LANES * part, *halves = scales + table_bytes + 2 * LANES * part;
        lanes_float scale = lanes_load_halves(halves), minimum = lanes_zero();
        if (has_minimum(kind))
            minimum = lanes_load_halves(halves + 2 * MATMUL_ROWS);
        if (has_minimum(kind) && is_super(kind)) {
            scale = lanes_multiply(scale, unpack_six_bits(bytes, in_block));
            minimum = lanes_negate(lanes_multiply(minimum, unpack_six_bits(bytes + NJ_SIX_BIT_BYTES, in_block)));
        }
        out.scale[part] = scale;
        out.minimum[part] = minimum;
    }
    return out;
}

/* Factors of the rows of one part for columns 16 * half .. 16 * half + 15. */
NJ_ALWAYS_INLINE lanes_float unpack_factors(const uint8_t *scales, int in_block, int half, int part)
{
    return lanes_from_integers(lanes_widen_signed(scales + MATMUL_ROWS * (2 * in_block + half) + LANES * part));
}

NJ_ALWAYS_INLINE const uint8_t *place_numbers(enum nj_matrix_kind kind, const struct group_place *place)
{
    return place->block + place->in_block * (4 * MATMUL_ROWS * bits_of(kind));
}

NJ_ALWAYS_INLINE const uint8_t *place_scales(enum nj_matrix_kind kind, const struct group_place *place)
{
    const int groups = is_super(kind) ? NJ_SUPER_COLS / NJ_GROUP_COLS : 1;
    return place->block + groups * (4 * MATMUL_ROWS * bits_of(kind));
}

/* The next group of the strip. */
NJ_ALWAYS_INLINE void place_advance(enum nj_matrix_kind kind, int is_packed, struct group_place *place)
{
    if (!is_packed) {
        place->unpacked++;
    } else if (!is_super(kind) || ++place->in_block == NJ_SUPER_COLS / NJ_GROUP_COLS) {
        place->in_block = 0;
        place->block += place->block_bytes;
    }
}

NJ_ALWAYS_INLINE lanes_int place_load_numbers(enum nj_matrix_kind kind, int is_packed, const struct group_place *place,
                                              int j, int part)
{
    if (!is_packed)
        return lanes_load(place->unpacked->numbers[j] + 4 * LANES * part);
    return unpack_numbers(kind, place_numbers(kind, place), j, part);
}

NJ_ALWAYS_INLINE lanes_float place_load_factors(enum nj_matrix_kind kind, int is_packed,
                                                const struct group_place *place, int half, int part)
{
    if (!is_packed)
        return lanes_load_floats(place->unpacked->factors[half] + LANES * part);
    return unpack_factors(place_scales(kind, place), place->in_block, half, part);
}

NJ_ALWAYS_INLINE struct group_scales place_load_scales(enum nj_matrix_kind kind, int is_packed,
                                                       const struct group_place *place)
{
    struct group_scales out;
    if (is_packed)
        return unpack_scales(kind, place_scales(kind, place), place->in_block);
    NJ_UNROLL
    for (int part = 0; part < PARTS; part++) {
        out.scale[part] = lanes_load_floats(place->unpacked->scale + LANES * part);
        out.minimum[part] = lanes_load_floats(place->unpacked->minimum + LANES * part);
    }
    return out;
}

#endif
