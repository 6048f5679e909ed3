/* Products of 4-bit kinds with many tokens, on tensor cores.
 *
 * A block makes 64 rows x 64 tokens, each of its four warps 32 x 32. Numbers and activations of two groups of columns
 * come into shared memory while the two before are multiplied. A lane's part of a strip in memory is its part of the
 * tensor core's operand: two words hold 16 numbers.
 *
 * A product's exact integer is never converted: the tensor core adds it to the bits of 3 * 2^22, of which the float's
 * last bit is one, and one subtraction of floats leaves it, as |dot| < 2^22. The zero point is in the same start value.
 */
#include "kernels/cuda/matmul_u4.h"

enum {
    ROWS = NJ_CUDA_MANY_ROWS,
    TOKENS = NJ_CUDA_MANY_TOKENS,
    THREADS = NJ_CUDA_MATMUL_THREADS,
    STRIPS = ROWS / NJ_STRIP_ROWS,
    STAGE_GROUPS = 2,
    CHUNK = 16,                                      /* bytes of one copy */
    X_CHUNKS = STAGE_GROUPS * NJ_GROUP_COLS / CHUNK, /* of a token */
    X_STRIDE = STAGE_GROUPS * NJ_GROUP_COLS + CHUNK, /* eight tokens lie in different banks */
    NUMBER_CHUNKS = U4_GROUP_BYTES / CHUNK,          /* of a group */
    WARP_STRIPS = 2,
    WARP_COLUMNS = 2, /* warps beside each other */
    TILES = 4         /* of 8 tokens, of a warp */
};

static_assert(SEGMENT_GROUPS % STAGE_GROUPS == 0, "segments begin with a stage");
static_assert(STRIPS / WARP_STRIPS * WARP_COLUMNS * NJ_CUDA_WARP == THREADS, "every warp has a tile");
static_assert(WARP_COLUMNS * TILES * 8 == TOKENS, "every token has a tile");

#define START_BITS 0x4b400000u /* 3 * 2^22 as a float */
#define START_VALUE 12582912.0f

struct stage {
    uint8_t x[TOKENS][X_STRIDE];
    uint8_t numbers[STRIPS][STAGE_GROUPS][U4_GROUP_BYTES];
    struct u4_scale w[STAGE_GROUPS][ROWS];
    float d_x[STAGE_GROUPS][TOKENS];
    float scaled_sum[STAGE_GROUPS][TOKENS];
    uint32_t start[STAGE_GROUPS][TOKENS]; /* of a token's integer sums */
};

struct many_shared {
    struct stage stage[2];
};

static_assert(sizeof(struct stage) % CHUNK == 0, "copies are aligned");

/* Sums of a lane: of each strip, tile of tokens and element of the tensor core's result. */
struct sums {
    float value[WARP_STRIPS][TILES][4];
};

NJ_DEVICE int64_t at_most(int64_t index, int64_t last)
{
    return index < last ? index : last;
}

NJ_DEVICE void fetch_bytes(const struct nj_cuda_matmul_args *a, int kind, int first_group, int groups,
                           struct stage *stage)
{
    const int64_t first_strip = (int64_t)block_x() * STRIPS, first_token = (int64_t)block_y() * TOKENS;
    NJ_UNROLL_NOT
    for (int i = thread_index(); i < TOKENS * X_CHUNKS; i += THREADS) {
        const int token = i / X_CHUNKS, chunk = i % X_CHUNKS;
        const int64_t row = at_most(first_token + token, a->count - 1);
        if (chunk * CHUNK < groups * NJ_GROUP_COLS)
            copy_16(&stage->x[token][chunk * CHUNK],
                    a->x.q + row * a->output.w.cols + first_group * NJ_GROUP_COLS + chunk * CHUNK);
    }
    NJ_UNROLL_NOT
    for (int i = thread_index(); i < STRIPS * STAGE_GROUPS * NUMBER_CHUNKS; i += THREADS) {
        const int number = i / NUMBER_CHUNKS % STAGE_GROUPS, chunk = i % NUMBER_CHUNKS;
        const int strip = i / (NUMBER_CHUNKS * STAGE_GROUPS);
        const uint8_t *data = u4_strip(kind, &a->output.w, at_most(first_strip + strip, u4_strips(&a->output.w) - 1));
        if (number < groups)
            copy_16(&stage->numbers[strip][number][chunk * CHUNK],
                    u4_numbers(kind, data, first_group + number) + chunk * CHUNK);
    }
    copy_commit();
}

NJ_DEVICE void fetch_scales(const struct nj_cuda_matmul_args *a, int kind, int first_group, int groups,
                            struct stage *stage)
{
    const struct nj_matrix *w = &a->output.w;
    const int64_t first_row = (int64_t)block_x() * ROWS, first_token = (int64_t)block_y() * TOKENS;
    NJ_UNROLL_NOT
    for (int i = thread_index(); i < groups * ROWS; i += THREADS) {
        const int row = i % ROWS;
        const int64_t strip = at_most((first_row + row) / NJ_STRIP_ROWS, u4_strips(w) - 1);
        stage->w[i / ROWS][row] =
            u4_read_scale(kind, u4_strip(kind, w, strip), first_group + i / ROWS, row % NJ_STRIP_ROWS);
    }
    NJ_UNROLL_NOT
    for (int i = thread_index(); i < groups * TOKENS; i += THREADS) {
        const int token = i % TOKENS, number = i / TOKENS;
        const int64_t row = at_most(first_token + token, a->count - 1);
        const int64_t group = row * (w->cols / NJ_GROUP_COLS) + first_group + number;
        const float d = a->x.d[group];
        const int32_t sum = a->x.sum[group];
        stage->d_x[number][token] = d;
        stage->scaled_sum[number][token] = d * (float)sum;
        stage->start[number][token] = START_BITS - (uint32_t)(u4_zero_point(kind) * sum);
    }
}

/* A lane's numbers of one strip. */
NJ_DEVICE void load_numbers(const uint8_t *numbers, uint32_t a[4])
{
    const int lane = thread_index() % NJ_CUDA_WARP, row = lane / 4, quad = lane % 4;
    const uint32_t upper = load_word(numbers + 64 * quad + 4 * row);
    const uint32_t lower = load_word(numbers + 64 * quad + 4 * (row + 8));
    a[0] = upper & 0x0f0f0f0fu;
    a[1] = lower & 0x0f0f0f0fu;
    a[2] = upper >> 4 & 0x0f0f0f0fu;
    a[3] = lower >> 4 & 0x0f0f0f0fu;
}

NJ_DEVICE void multiply_group(int kind, const struct stage *stage, int group, int first_strip, int first_token,
                              struct sums *acc)
{
    const int lane = thread_index() % NJ_CUDA_WARP, row = lane / 4, quad = lane % 4;
    uint32_t a[WARP_STRIPS][4];
    struct u4_scale w[WARP_STRIPS][2];
    NJ_UNROLL
    for (int s = 0; s < WARP_STRIPS; s++) {
        load_numbers(stage->numbers[first_strip + s][group], a[s]);
        w[s][0] = stage->w[group][(first_strip + s) * NJ_STRIP_ROWS + row];
        w[s][1] = stage->w[group][(first_strip + s) * NJ_STRIP_ROWS + row + 8];
    }
    NJ_UNROLL
    for (int tile = 0; tile < TILES; tile++) {
        const uint8_t *x = &stage->x[first_token + 8 * tile + row][group * NJ_GROUP_COLS + 4 * quad];
        const uint32_t b[2] = {load_word(x), load_word(x + 16)};
        const int token = first_token + 8 * tile + 2 * quad;
        NJ_UNROLL
        for (int s = 0; s < WARP_STRIPS; s++) {
            const int32_t start[2] = {(int32_t)stage->start[group][token], (int32_t)stage->start[group][token + 1]};
            int32_t c[4] = {start[0], start[1], start[0], start[1]};
            multiply_s8(c, a[s], b);
            NJ_UNROLL
            for (int i = 0; i < 4; i++)
                acc->value[s][tile][i] =
                    u4_join_group(kind, acc->value[s][tile][i], w[s][i / 2], stage->d_x[group][token + i % 2],
                                  stage->scaled_sum[group][token + i % 2], float_of_bits((uint32_t)c[i]) - START_VALUE);
        }
    }
}

/* Adds a segment's sums to the totals and begins anew. */
NJ_DEVICE void end_segment(int is_first, struct sums *total, struct sums *acc)
{
    NJ_UNROLL
    for (int s = 0; s < WARP_STRIPS; s++) {
        NJ_UNROLL
        for (int tile = 0; tile < TILES; tile++) {
            NJ_UNROLL
            for (int i = 0; i < 4; i++) {
                total->value[s][tile][i] = join_segment(is_first, total->value[s][tile][i], acc->value[s][tile][i]);
                acc->value[s][tile][i] = 0.0f;
            }
        }
    }
}

NJ_DEVICE void store_sums(const struct nj_cuda_matmul_args *a, int first_strip, int first_token,
                          const struct sums *total)
{
    const int lane = thread_index() % NJ_CUDA_WARP;
    const int64_t first_row = (int64_t)block_x() * ROWS + first_strip * NJ_STRIP_ROWS + lane / 4;
    const int64_t token = (int64_t)block_y() * TOKENS + first_token + 2 * (lane % 4);
    NJ_UNROLL
    for (int s = 0; s < WARP_STRIPS; s++) {
        NJ_UNROLL
        for (int tile = 0; tile < TILES; tile++) {
            NJ_UNROLL
            for (int i = 0; i < 4; i++)
                store_total(a, first_row + s * NJ_STRIP_ROWS + 8 * (i / 2), token + 8 * tile + i % 2,
                            total->value[s][tile][i]);
        }
    }
}

NJ_DEVICE void multiply_many(const struct nj_cuda_matmul_args *a, int kind, struct stage *stages)
{
    const int warp = thread_index() / NJ_CUDA_WARP;
    const int first_strip = warp / WARP_COLUMNS * WARP_STRIPS, first_token = warp % WARP_COLUMNS * TILES * 8;
    const int all = (int)(a->output.w.cols / NJ_GROUP_COLS);
    struct sums acc = {{{{0.0f}}}}, total = acc;
    fetch_bytes(a, kind, 0, (int)at_most(all, STAGE_GROUPS), &stages[0]);
    fetch_scales(a, kind, 0, (int)at_most(all, STAGE_GROUPS), &stages[0]);
    NJ_UNROLL_NOT
    for (int first = 0; first < all; first += STAGE_GROUPS) {
        const int next = first + STAGE_GROUPS, current = first / STAGE_GROUPS % 2;
        const int next_groups = next < all ? (int)at_most(all - next, STAGE_GROUPS) : 0;
        fetch_bytes(a, kind, next, next_groups, &stages[1 - current]);
        fetch_scales(a, kind, next, next_groups, &stages[1 - current]);
        NJ_COPY_WAIT(1);
        block_barrier();
        NJ_UNROLL_NOT
        for (int group = 0; group < STAGE_GROUPS && first + group < all; group++)
            multiply_group(kind, &stages[current], group, first_strip, first_token, &acc);
        if (next % SEGMENT_GROUPS == 0 || next >= all)
            end_segment(first < SEGMENT_GROUPS, &total, &acc);
        block_barrier(); /* the stage may be filled again */
    }
    store_sums(a, first_strip, first_token, &total);
}

NJ_KERNEL(cuda_matmul_many_u4_zero8, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct many_shared, shared);
    multiply_many(&a, NJ_KIND_U4_ZERO8, shared->stage);
}

NJ_KERNEL(cuda_matmul_many_u4_min, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct many_shared, shared);
    multiply_many(&a, NJ_KIND_U4_MIN, shared->stage);
}

NJ_KERNEL(cuda_matmul_many_u4_super, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct many_shared, shared);
    multiply_many(&a, NJ_KIND_U4_SUPER, shared->stage);
}
