/* Products of 4-bit kinds with few tokens: every weight is read once for up to eight of them.
 *
 * A block makes one strip of 16 rows, each of its warps one segment of columns at a time. Of a group, lanes 0 to 15
 * take one half of each row's numbers and lanes 16 to 31 the other; then the halves exchange parts, and each joins four
 * of the tokens. */
#include "kernels/cuda/matmul_u4.h"

enum {
    WARPS = NJ_CUDA_MATMUL_THREADS / NJ_CUDA_WARP,
    TOKENS = NJ_CUDA_FEW_TOKENS,
    OWN_TOKENS = TOKENS / 2 /* of a lane */
};

static_assert(TOKENS * NJ_STRIP_ROWS == NJ_CUDA_MATMUL_THREADS, "every thread has one output");

struct few_shared {
    float acc[WARPS][TOKENS][NJ_STRIP_ROWS];
};

/* What a lane reads: its row, its half of the row's numbers and, of these, tokens OWN_TOKENS * half onwards to join. */
struct few_lane {
    int row, half;
    int64_t token[TOKENS]; /* the last one again, past the end */
};

NJ_DEVICE struct few_lane find_lane(const struct nj_cuda_matmul_args *a)
{
    struct few_lane lane;
    lane.row = thread_index() % NJ_STRIP_ROWS;
    lane.half = thread_index() % NJ_CUDA_WARP / NJ_STRIP_ROWS;
    NJ_UNROLL
    for (int i = 0; i < TOKENS; i++) {
        const int64_t token = (int64_t)block_y() * TOKENS + i;
        lane.token[i] = token < a->count ? token : a->count - 1;
    }
    return lane;
}

/* The lane's part of the products with one group: 16 of its row's 32 numbers. */
NJ_DEVICE void multiply_half(const struct nj_cuda_matmul_args *a, const struct few_lane *lane, const uint8_t *numbers,
                             int group, int32_t dot[TOKENS])
{
    const uint8_t *own = numbers + 128 * lane->half + 4 * lane->row;
    const uint32_t first = load_word(own), second = load_word(own + 64);
    NJ_UNROLL
    for (int i = 0; i < TOKENS; i++) {
        const int8_t *x = a->x.q + lane->token[i] * a->output.w.cols + group * NJ_GROUP_COLS + 8 * lane->half;
        dot[i] = dot4(first & 0x0f0f0f0fu, load_word(x), 0);
        dot[i] = dot4(second & 0x0f0f0f0fu, load_word(x + 4), dot[i]);
        dot[i] = dot4(first >> 4 & 0x0f0f0f0fu, load_word(x + 16), dot[i]);
        dot[i] = dot4(second >> 4 & 0x0f0f0f0fu, load_word(x + 20), dot[i]);
    }
}

NJ_DEVICE void multiply_segment(const struct nj_cuda_matmul_args *a, int kind, const struct few_lane *lane,
                                const uint8_t *strip, int first, int end, float acc[OWN_TOKENS])
{
    const int64_t all = a->output.w.cols / NJ_GROUP_COLS;
    for (int group = first; group < end; group++) {
        const struct u4_scale w = u4_read_scale(kind, strip, group, lane->row);
        int32_t dot[TOKENS];
        multiply_half(a, lane, u4_numbers(kind, strip, group), group, dot);
        NJ_UNROLL
        for (int i = 0; i < OWN_TOKENS; i++) {
            const int32_t given = lane->half ? dot[i] : dot[OWN_TOKENS + i];
            const int32_t kept = lane->half ? dot[OWN_TOKENS + i] : dot[i];
            const int64_t token = lane->half ? lane->token[OWN_TOKENS + i] : lane->token[i];
            const int32_t sum = a->x.sum[token * all + group];
            const int32_t whole = kept + (int32_t)warp_xor((uint32_t)given, NJ_STRIP_ROWS) - u4_zero_point(kind) * sum;
            const float d = a->x.d[token * all + group];
            acc[i] = u4_join_group(kind, acc[i], w, d, d * (float)sum, (float)whole);
        }
    }
}

NJ_DEVICE void multiply_few(const struct nj_cuda_matmul_args *a, int kind, struct few_shared *shared)
{
    const int warp = thread_index() / NJ_CUDA_WARP, row = thread_index() % NJ_STRIP_ROWS;
    const int token = thread_index() / NJ_STRIP_ROWS;
    const int groups = (int)(a->output.w.cols / NJ_GROUP_COLS);
    const int segments = (groups + SEGMENT_GROUPS - 1) / SEGMENT_GROUPS;
    const uint8_t *strip = u4_strip(kind, &a->output.w, block_x());
    const struct few_lane lane = find_lane(a);
    float total = 0.0f;
    for (int first = 0; first < segments; first += WARPS) {
        const int begin = (first + warp) * SEGMENT_GROUPS;
        float acc[OWN_TOKENS] = {0.0f, 0.0f, 0.0f, 0.0f};
        multiply_segment(a, kind, &lane, strip, begin,
                         begin + SEGMENT_GROUPS < groups ? begin + SEGMENT_GROUPS : groups, acc);
        NJ_UNROLL
        for (int i = 0; i < OWN_TOKENS; i++)
            shared->acc[warp][OWN_TOKENS * lane.half + i][lane.row] = acc[i];
        block_barrier();
        for (int other = 0; other < WARPS && first + other < segments; other++)
            total = join_segment(first + other == 0, total, shared->acc[other][token][row]);
        block_barrier(); /* the sums have been read */
    }
    store_total(a, (int64_t)block_x() * NJ_STRIP_ROWS + row, (int64_t)block_y() * TOKENS + token, total);
}

NJ_KERNEL(cuda_matmul_few_u4_zero8, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct few_shared, shared);
    multiply_few(&a, NJ_KIND_U4_ZERO8, shared);
}

NJ_KERNEL(cuda_matmul_few_u4_min, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct few_shared, shared);
    multiply_few(&a, NJ_KIND_U4_MIN, shared);
}

NJ_KERNEL(cuda_matmul_few_u4_super, NJ_CUDA_MATMUL_THREADS, struct nj_cuda_matmul_args, a)
{
    NJ_SHARED(struct few_shared, shared);
    multiply_few(&a, NJ_KIND_U4_SUPER, shared);
}
