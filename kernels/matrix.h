/* Weight matrices as every kernel and every device sees them.
 *
 * A matrix W has `rows` outputs and `cols` inputs (y = W x). It is cut into strips of 16 rows; strips
 * are stored one after another, ascending. Rows beyond `rows` in the last strip are zero. A strip of an
 * integer kind is `cols / 32` blocks, one per group of 32 columns, ascending:
 *
 *   u4 (256 bytes of nibbles): byte 64*j + 4*r + c, j = 0..3, r = 0..15, c = 0..3, holds column 4*j + c
 *       of row r in its low nibble and column 16 + 4*j + c in its high nibble
 *   u5 (320 bytes):            256 bytes of the low four bits as above, then byte 4*r + c, c = 0..3, whose bit j,
 *       j = 0..7, is the fifth bit of column 4*j + c of row r
 *   s8 (512 bytes):            byte 64*j + 4*r + c, j = 0..7, holds column 4*j + c of row r
 *
 * followed by 16 IEEE half scales (row 0..15) and, for NJ_KIND_U4_MIN and NJ_KIND_U5_MIN, 16 half minima.
 *
 * Kinds with super-blocks (u4_super, u5_super, u6_super) have blocks of 16 rows x 256 columns instead: the numbers
 * of eight groups of 32 columns, ascending, each as above, u6 as u4 plus two bits:
 *
 *   u6 (384 bytes): 256 bytes of the low four bits as in u4, then byte 64*k + 4*r + c, k = 0..1, whose bits 2*i and
 *       2*i + 1, i = 0..3, are the upper two bits of column 16*k + 4*i + c of row r
 *
 * followed by the scales, compressed as in the file. u4_super and u5_super: 96 bytes of 6-bit group scales, 96 bytes
 * of 6-bit group minima, 16 half scales, 16 half scales of the minima. In each 96 bytes, byte 16*k + r, k = 0..3,
 * holds the low four bits of group k of row r in its low nibble and of group k + 4 in its high one; byte
 * 64 + 16*k + r, k = 0..1, holds at bits 2*i and 2*i + 1 the upper two bits of group 4*k + i. u6_super: 256 bytes
 * of signed scales, byte 16*h + r for columns 16*h .. 16*h + 15 of the block, h = 0..15, then 16 half scales.
 *
 * A strip of a float kind is `cols` vectors of 16 elements: element [col][row].
 *
 * The 16 x 32 block is at once two AVX2 halves (8 rows each), one AVX-512 register per j, and the A
 * fragment of the int8 tensor-core instruction m16n8k32.
 *
 * Matrix data is 64-byte aligned. cols is a multiple of 32, and of 256 for kinds with super-blocks. */
#ifndef NJ_KERNELS_MATRIX_H
#define NJ_KERNELS_MATRIX_H

#include <stddef.h>
#include <stdint.h>

enum { NJ_STRIP_ROWS = 16, NJ_GROUP_COLS = 32, NJ_SUPER_COLS = 256, NJ_SEGMENT_COLS = 1024 };

/* The value of element q in a row with scale d and minimum m (all exact in float32 but for one rounding):
 *   U4_ZERO8   d * (q - 8)     U4_MIN, U5_MIN  fmaf(d, q, m)      S8  d * q, |q| <= 127
 *   U5_ZERO16  d * (q - 16)    F32, F16, BF16  the stored number
 *   U4_SUPER, U5_SUPER  as U4_MIN, with d = super scale * group scale, m = -(super scale of minima * group minimum)
 *   U6_SUPER            (d * s) * (q - 32), s the signed scale of the 16 columns
 * Packs store these numbers (docs/pack.md): new kinds come last. */
enum nj_matrix_kind {
    NJ_KIND_U4_ZERO8,
    NJ_KIND_U4_MIN,
    NJ_KIND_S8,
    NJ_KIND_F32,
    NJ_KIND_F16,
    NJ_KIND_BF16,
    NJ_KIND_U5_ZERO16,
    NJ_KIND_U4_SUPER,
    NJ_KIND_U5_SUPER,
    NJ_KIND_U6_SUPER,
    NJ_KIND_U5_MIN,
    NJ_KIND_COUNT
};

struct nj_matrix {
    enum nj_matrix_kind kind;
    int64_t rows;
    int64_t cols;
    const void *data; /* matrix_bytes(kind, rows, cols) bytes, owned by the weight store */
};

struct nj_matrix_kind_info {
    const char *name;
    int is_float;         /* 1: a strip is [col][16] elements of element_bytes */
    size_t element_bytes; /* float kinds */
    int bits;             /* integer kinds: of a stored number; 4, 5, 6 or 8 */
    int zero_point;       /* integer kinds: what is subtracted from a stored number */
    int has_minimum;      /* integer kinds: every group has a minimum */
    int block_groups;     /* integer kinds: groups of 32 columns in a block; 1, or 8 for super-blocks */
    size_t quant_bytes;   /* integer kinds: bytes of the numbers of one group of 16 rows, without scales */
    size_t block_bytes;   /* integer kinds: bytes of one block, scales included */
};

/* Bytes of the parts of a block of 16 rows. */
enum {
    NJ_HALVES_BYTES = NJ_STRIP_ROWS * 2,                        /* a half for each row */
    NJ_BIT_BYTES = NJ_STRIP_ROWS * NJ_GROUP_COLS / 8,           /* a bit for each number of a group */
    NJ_SUPER_GROUPS = NJ_SUPER_COLS / NJ_GROUP_COLS,            /* of a super-block: */
    NJ_SIX_BIT_BYTES = NJ_STRIP_ROWS * NJ_SUPER_GROUPS * 6 / 8, /* 6 bits for each row and group */
    NJ_SIGNED_BYTES = NJ_STRIP_ROWS * NJ_SUPER_GROUPS * 2       /* a byte for each row and 16 columns */
};

/* Integer kinds whose scales stand behind every group of 32 columns. */
#define NJ_GROUP_KIND(bits_, zero_point_, has_minimum_)                                                                \
    .bits = (bits_), .zero_point = (zero_point_), .has_minimum = (has_minimum_), .block_groups = 1,                    \
    .quant_bytes = (bits_)*NJ_BIT_BYTES, .block_bytes = (bits_)*NJ_BIT_BYTES + (1 + (has_minimum_)) * NJ_HALVES_BYTES

/* Super-blocks: eight groups, then their scales. */
#define NJ_SUPER_KIND(bits_, zero_point_, has_minimum_, scale_bytes_)                                                  \
    .bits = (bits_), .zero_point = (zero_point_), .has_minimum = (has_minimum_), .block_groups = NJ_SUPER_GROUPS,      \
    .quant_bytes = (bits_)*NJ_BIT_BYTES, .block_bytes = NJ_SUPER_GROUPS * (bits_)*NJ_BIT_BYTES + (scale_bytes_)

static const struct nj_matrix_kind_info matrix_kind_infos[NJ_KIND_COUNT] = {
    [NJ_KIND_U4_ZERO8] = {.name = "u4_zero8", NJ_GROUP_KIND(4, 8, 0)},
    [NJ_KIND_U4_MIN] = {.name = "u4_min", NJ_GROUP_KIND(4, 0, 1)},
    [NJ_KIND_S8] = {.name = "s8", NJ_GROUP_KIND(8, 0, 0)},
    [NJ_KIND_F32] = {.name = "f32", .is_float = 1, .element_bytes = 4},
    [NJ_KIND_F16] = {.name = "f16", .is_float = 1, .element_bytes = 2},
    [NJ_KIND_BF16] = {.name = "bf16", .is_float = 1, .element_bytes = 2},
    [NJ_KIND_U5_ZERO16] = {.name = "u5_zero16", NJ_GROUP_KIND(5, 16, 0)},
    [NJ_KIND_U4_SUPER] = {.name = "u4_super", NJ_SUPER_KIND(4, 0, 1, 2 * NJ_SIX_BIT_BYTES + 2 * NJ_HALVES_BYTES)},
    [NJ_KIND_U5_SUPER] = {.name = "u5_super", NJ_SUPER_KIND(5, 0, 1, 2 * NJ_SIX_BIT_BYTES + 2 * NJ_HALVES_BYTES)},
    [NJ_KIND_U6_SUPER] = {.name = "u6_super", NJ_SUPER_KIND(6, 32, 0, NJ_SIGNED_BYTES + NJ_HALVES_BYTES)},
    [NJ_KIND_U5_MIN] = {.name = "u5_min", NJ_GROUP_KIND(5, 0, 1)},
};

/* Never NULL for a kind below NJ_KIND_COUNT. Here, so that a function that is compiled for one kind is compiled for its
 * numbers: a call in its inner loop would also put every vector register into memory. */
static inline const struct nj_matrix_kind_info *matrix_kind_info(enum nj_matrix_kind kind)
{
    return &matrix_kind_infos[kind];
}

/* Bytes of one 16-row strip, and of the whole matrix. 0 if the shape is invalid or overflows 64 bits. */
size_t matrix_strip_bytes(enum nj_matrix_kind kind, int64_t cols);
size_t matrix_bytes(enum nj_matrix_kind kind, int64_t rows, int64_t cols);

#endif
