/* Matrix products: how the work is cut so that what the inner loops read stays in the caches (all tables that have
 * their own inner loops share it), and what AVX2 does with a piece.
 *
 * For each chunk of tokens, a run of strips at a time: a segment of the tokens is unpacked for all of them
 * (second-level cache), then each strip's segment of weights is unpacked (first level) and all tokens pass over it. */
#include <stddef.h>
#include <string.h>

#include "kernels/avx2/avx2.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/matmul_float.h"

enum {
    CHUNK_TOKENS = MATMUL_CHUNK_TOKENS,
    CHUNK_TILES = CHUNK_TOKENS / MATMUL_TILE_TOKENS,
    FLOAT_PATH_CHUNK_TOKENS = 256, /* more where each chunk has to dequantise the weights */
    TOTALS = 16 * CHUNK_TOKENS     /* strips x tokens whose totals are kept */
};

/* What a thread unpacks to; about 160 KB. The lead groups are zero. */
struct panels {
    struct matmul_weights weights[2];
    struct matmul_tokens tiles[CHUNK_TILES];
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void clear_lead_groups(struct panels *panels)
{
    for (int half = 0; half < 2; half++)
        memset(panels->weights[half].group, 0, MATMUL_LEAD_GROUPS * sizeof panels->weights[half].group[0]);
    for (int i = 0; i < CHUNK_TILES; i++)
        memset(panels->tiles[i].group, 0, MATMUL_LEAD_GROUPS * sizeof panels->tiles[i].group[0]);
}

static void multiply_segment(const struct matmul_piece *piece, const struct nj_q8 *x, int64_t first_group,
                             int64_t groups, void *context)
{
    const struct nj_matrix *w = &piece->output->w;
    struct panels *panels = context;
    if (piece->tokens <= MATMUL_FEW_TOKENS) {
        avx2_multiply_few(piece, x, first_group, groups);
        return;
    }
    for (int64_t t = 0; t < piece->tokens; t += MATMUL_TILE_TOKENS)
        avx2_unpack_tokens(w->kind, x, w->cols, piece->first_token + t, smaller(piece->tokens - t, MATMUL_TILE_TOKENS),
                           first_group, groups, &panels->tiles[t / MATMUL_TILE_TOKENS]);
    for (int64_t i = 0; i < piece->strips; i++) {
        avx2_unpack_weights(w->kind, matmul_strip_data(w, piece->first_strip + i), first_group, groups,
                            panels->weights);
        for (int half = 0; half < 2; half++) {
            for (int64_t t = 0; t < piece->tokens; t += MATMUL_TILE_TOKENS) {
                matmul_tile_function multiply =
                    avx2_integer_tile(w->kind, smaller(piece->tokens - t, MATMUL_TILE_TOKENS));
                multiply(&panels->weights[half], &panels->tiles[t / MATMUL_TILE_TOKENS], groups, first_group == 0,
                         matmul_strip_totals(piece, i)[t] + MATMUL_HALF_ROWS * half);
            }
        }
    }
}

static int is_float(const struct nj_matrix *w)
{
    return matrix_kind_info(w->kind)->is_float;
}

/* Integer weights are dequantised where there are only float activations. */
static void multiply_piece(const struct matmul_piece *piece, const struct nj_activation *x,
                           const struct matmul_integers *integers)
{
    const struct nj_matrix *w = &piece->output->w;
    const int64_t all_groups = w->cols / MATMUL_COLS;
    if (!is_float(w) && x->q8.q != NULL) {
        for (int64_t group = 0; group < all_groups; group += MATMUL_SEGMENT_GROUPS)
            integers->multiply_segment(piece, &x->q8, group, smaller(all_groups - group, MATMUL_SEGMENT_GROUPS),
                                       integers->panels);
        return;
    }
    const float *rows = x->f32 + piece->first_token * w->cols;
    for (int64_t i = 0; i < piece->strips; i++)
        (is_float(w) ? avx2_multiply_floats : avx2_multiply_dequantized)(w, piece->first_strip + i, rows, piece->tokens,
                                                                         matmul_strip_totals(piece, i));
}

static void store_strip(const struct matmul_piece *piece, int64_t strip, float (*total)[MATMUL_ROWS])
{
    const struct nj_matmul_output *output = piece->output;
    const int64_t first_row = strip * MATMUL_ROWS;
    const int64_t rows = smaller(output->w.rows - first_row, MATMUL_ROWS);
    for (int64_t t = 0; t < piece->tokens; t++) {
        float *y = output->y + (piece->first_token + t) * output->y_stride + first_row;
        for (int64_t row = 0; row < rows && output->bias != NULL; row++)
            total[t][row] += output->bias[first_row + row];
        for (int64_t row = 0; row < rows; row++)
            y[row] = output->accumulate ? y[row] + total[t][row] : total[t][row];
    }
}

/* Strips [begin, end) of one output, for all tokens. */
static void multiply_strips(const struct nj_matmul_args *a, const struct nj_matmul_output *output, int64_t begin,
                            int64_t end, const struct matmul_integers *integers)
{
    float total[TOTALS][MATMUL_ROWS];
    const int64_t chunk = !is_float(&output->w) && a->x.q8.q == NULL ? FLOAT_PATH_CHUNK_TOKENS : CHUNK_TOKENS;
    struct matmul_piece piece = {.output = output, .total = total};
    for (piece.first_token = 0; piece.first_token < a->count; piece.first_token += chunk) {
        piece.tokens = smaller(a->count - piece.first_token, chunk);
        for (piece.first_strip = begin; piece.first_strip < end; piece.first_strip += TOTALS / chunk) {
            piece.strips = smaller(end - piece.first_strip, TOTALS / chunk);
            multiply_piece(&piece, &a->x, integers);
            for (int64_t i = 0; i < piece.strips; i++)
                store_strip(&piece, piece.first_strip + i, matmul_strip_totals(&piece, i));
        }
    }
}

void avx2_cut_matmul(const struct nj_matmul_args *a, int thread, int threads, const struct matmul_integers *integers)
{
    int64_t all_strips = 0;
    for (int i = 0; i < a->outputs; i++)
        all_strips += (a->output[i].w.rows + MATMUL_ROWS - 1) / MATMUL_ROWS;
    /* This thread's share, numbered through all outputs. */
    int64_t begin = vector_share_begin(all_strips, thread, threads);
    int64_t end = vector_share_begin(all_strips, thread + 1, threads);
    for (int i = 0; i < a->outputs; i++) {
        int64_t strips = (a->output[i].w.rows + MATMUL_ROWS - 1) / MATMUL_ROWS;
        multiply_strips(a, &a->output[i], begin < 0 ? 0 : begin, smaller(end, strips), integers);
        begin -= strips;
        end -= strips;
    }
}

void avx2_run_matmul(const union nj_operation_args *args, int thread, int threads)
{
    struct panels panels;
    clear_lead_groups(&panels);
    const struct matmul_integers integers = {multiply_segment, &panels};
    avx2_cut_matmul(&args->matmul, thread, threads, &integers);
}
