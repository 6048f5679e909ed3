/* Attention by KV type, and its shares; shapes that no model has go to the plain kernels. */
#include "kernels/avx2/attention.h"

#include "kernels/avx2/avx2.h"
#include "kernels/reference/reference.h"

typedef void (*attend_function)(const struct attention_rows *rows);

/* Neighbouring tokens of one sequence, with all their heads. */
struct run {
    int64_t token, tokens;
    int64_t row_cost; /* of each of its rows, in positions */
};

/* What a row costs beside its positions, roughly. */
enum { ROW_COST = 16 };

static int64_t row_cost(const struct nj_token_batch *batch, int64_t t)
{
    return batch->position[t] + ROW_COST;
}

/* The run that begins with token t: as many tokens as fill MOST_ROWS rows of a KV head. */
static struct run find_run(const struct nj_attention_args *a, int64_t t)
{
    const struct nj_token_batch *batch = &a->batch;
    int64_t most = MOST_ROWS * a->kv.kv_heads / a->heads;
    struct run run = {.token = t, .tokens = 1, .row_cost = row_cost(batch, t)};
    while (run.tokens < most && t + run.tokens < batch->count &&
           batch->sequence[t + run.tokens] == batch->sequence[t]) {
        int64_t cost = row_cost(batch, t + run.tokens++);
        run.row_cost = cost > run.row_cost ? cost : run.row_cost;
    }
    return run;
}

static int64_t total_cost(const struct nj_attention_args *a)
{
    int64_t total = 0;
    for (int64_t t = 0; t < a->batch.count;) {
        struct run run = find_run(a, t);
        total += run.tokens * a->heads * run.row_cost;
        t += run.tokens;
    }
    return total;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Where the rows behind row `row` of a run begin to read. */
static const char *find_ahead(const struct nj_attention_args *a, const struct run *run, int64_t row)
{
    int64_t token = run->token, kv_head = row / (run->tokens * a->heads / a->kv.kv_heads);
    if (kv_head == a->kv.kv_heads) {
        token += run->tokens;
        kv_head = 0;
    }
    return attention_block(a, token < a->batch.count ? token : run->token, kv_head, 0);
}

/* Rows [begin, end) of a run, counted over all its KV heads. */
static void attend_run(const struct nj_attention_args *a, const struct run *run, int64_t begin, int64_t end,
                       attend_function attend)
{
    int64_t rows = run->tokens * a->heads / a->kv.kv_heads;
    while (begin < end) {
        int64_t kv_head = begin / rows, row = begin % rows;
        int64_t count = clamp(end - begin, 1, clamp(rows - row, 1, MOST_ROWS));
        const char *ahead = find_ahead(a, run, begin + count);
        attend(&(struct attention_rows){
            .args = a, .token = run->token, .kv_head = kv_head, .begin = row, .end = row + count, .ahead = ahead});
        begin += count;
    }
}

/* Rows in their order are cut into shares of equal cost, in the middle of a group of heads if need be: contexts may
 * differ in length, and rows may be few. A row belongs to the share in which its cost begins. */
static void attend_share(const struct nj_attention_args *a, int thread, int threads, attend_function attend)
{
    int64_t total = total_cost(a);
    int64_t begin = vector_share_begin(total, thread, threads), end = vector_share_begin(total, thread + 1, threads);
    int64_t before = 0;
    for (int64_t t = 0; t < a->batch.count && before < end;) {
        struct run run = find_run(a, t);
        int64_t rows = run.tokens * a->heads, cost = run.row_cost;
        attend_run(a, &run, clamp((begin - before + cost - 1) / cost, 0, rows),
                   clamp((end - before + cost - 1) / cost, 0, rows), attend);
        before += rows * cost;
        t += run.tokens;
    }
}

void avx2_run_attention(const union nj_operation_args *args, int thread, int threads)
{
    const struct nj_kv_layer *kv = &args->attention.kv;
    if (kv->head_width % VECTOR_FLOATS != 0 || kv->type == NJ_KV_F32)
        reference_run_attention(args, thread, threads);
    else
        attend_share(&args->attention, thread, threads, kv->type == NJ_KV_F16 ? avx2_attend_f16 : avx2_attend_q8);
}
