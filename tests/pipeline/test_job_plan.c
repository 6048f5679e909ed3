/* What a job runs with under a limit: every kind of memory counts, and more memory never puts more layers on disk. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_plan.h"
#include "tests/pipeline/cmocka_headers.h"

enum { LAYERS = 32, RING_LAYERS = 2 };

static const uint64_t MIB = 1 << 20, LAYER_BYTES = 25 << 20, OUTSIDE_BYTES = 80 << 20;

static const struct nj_hyperparameters LARGE = {.layers = LAYERS,
                                                .width = 2048,
                                                .feed_forward = 5632,
                                                .heads = 16,
                                                .kv_heads = 4,
                                                .head_width = 128,
                                                .rotated = 128,
                                                .context = 4096,
                                                .vocabulary = 32000};
static const struct nj_hyperparameters TINY = {.layers = 1,
                                               .width = 64,
                                               .feed_forward = 64,
                                               .heads = 1,
                                               .kv_heads = 1,
                                               .head_width = 2,
                                               .rotated = 2,
                                               .context = 1 << 20,
                                               .vocabulary = 256};

struct fixture {
    struct nj_index *index;
    struct nj_order order;
    uint64_t memory_bytes[LAYERS + 1], read_bytes[LAYERS + 1];
    struct nj_plan_facts facts;
};

static void open_fixture(struct fixture *fixture, const struct nj_hyperparameters *shape, uint32_t requests,
                         uint32_t prompt_tokens, uint32_t new_tokens)
{
    struct nj_error error = {0};
    *fixture = (struct fixture){.index = index_create(64)};
    for (uint32_t i = 0; i < requests; i++) {
        const struct nj_index_entry entry = {.id_hash = i + 1,
                                             .kind = NJ_ENTRY_REQUEST,
                                             .length = 5 * prompt_tokens,
                                             .prompt_tokens = prompt_tokens + i % 7,
                                             .max_new_tokens = new_tokens};
        assert_int_equal(index_add(fixture->index, &entry, &error), 0);
    }
    assert_int_equal(order_make(fixture->index, requests, NULL, &fixture->order, &error), 0);
    for (int i = 0; i <= LAYERS; i++) {
        const int in_memory = LAYERS - i + (i > 0 ? RING_LAYERS : 0);
        fixture->memory_bytes[i] = OUTSIDE_BYTES + (uint64_t)in_memory * LAYER_BYTES;
        fixture->read_bytes[i] = (uint64_t)i * LAYER_BYTES;
    }
    fixture->facts = (struct nj_plan_facts){.shape = shape,
                                            .weights = {.most_disk_layers = LAYERS,
                                                        .memory_bytes = fixture->memory_bytes,
                                                        .read_bytes = fixture->read_bytes},
                                            .index = fixture->index,
                                            .order = &fixture->order,
                                            .limit_bytes = UINT64_MAX,
                                            .is_cap = true,
                                            .program_bytes = 20 * MIB,
                                            .threads = 2,
                                            .rates = plan_default_rates(2)};
}

static void close_fixture(struct fixture *fixture)
{
    order_free(&fixture->order);
    index_destroy(fixture->index);
}

static uint64_t named_cap(const struct nj_error *error)
{
    uint64_t mebibytes = 0;
    const char *named = strstr(error->message, "--max-memory cpu=");
    assert_non_null(named);
    assert_int_equal(sscanf(named, "--max-memory cpu=%" SCNu64 "MiB", &mebibytes), 1);
    return mebibytes * MIB;
}

/* The smallest limit, as a refusal names it. */
static uint64_t find_least(struct nj_plan_facts facts)
{
    struct nj_plan plan;
    struct nj_error error = {0};
    facts.limit_bytes = 1;
    assert_int_equal(plan_make(&facts, &plan, &error), -1);
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    return named_cap(&error);
}

static void test_everything_fits(void **state)
{
    (void)state;
    struct fixture fixture;
    struct nj_plan plan;
    struct nj_error error = {0};
    open_fixture(&fixture, &LARGE, 300, 200, 60);
    assert_int_equal(plan_make(&fixture.facts, &plan, &error), 0);
    assert_int_equal(plan.disk_layers, 0);
    assert_int_equal(plan.sweep_read_bytes, 0);
    assert_int_equal(plan.scheduler.token_budget, NJ_DEFAULT_TOKEN_BUDGET);
    assert_int_equal(plan.scheduler.most_sequences, 256);
    assert_int_equal(plan.scheduler.kv_blocks, 256 * scheduler_least_blocks(266));
    assert_int_equal(plan.need.weights_bytes, OUTSIDE_BYTES + LAYERS * LAYER_BYTES);
    close_fixture(&fixture);
}

static void check_plan(const struct nj_plan_facts *facts, const struct nj_plan *plan)
{
    const uint64_t sum = plan->need.program_bytes + plan->need.weights_bytes + plan->need.buffers_bytes +
                         scheduler_bytes(facts->shape, &plan->scheduler);
    assert_true(memory_need_sum(&plan->need) == sum);
    assert_true(sum <= facts->limit_bytes);
    assert_true(plan->need.kv_bytes == (uint64_t)plan->scheduler.kv_blocks * kv_block_bytes(facts->shape, NJ_KV_F16));
    assert_true(plan->need.weights_bytes == facts->weights.memory_bytes[plan->disk_layers]);
    assert_true(plan->sweep_read_bytes == facts->weights.read_bytes[plan->disk_layers]);
    assert_true(plan->scheduler.kv_blocks >= scheduler_least_blocks(plan->scheduler.longest_sequence));
}

/* From the smallest limit to plenty: it adds up and holds, and is monotone. */
static void check_all_limits(struct fixture *fixture)
{
    struct nj_plan_facts facts = fixture->facts;
    struct nj_plan plan;
    struct nj_error error = {0};
    const uint64_t least = find_least(facts);
    int32_t before = LAYERS, changes = 0;
    facts.limit_bytes = least - MIB;
    assert_int_equal(plan_make(&facts, &plan, &error), -1);
    assert_true(named_cap(&error) == least);
    for (uint64_t limit = least; limit < 4096 * MIB; limit += 3 * MIB) {
        facts.limit_bytes = limit;
        assert_int_equal(plan_make(&facts, &plan, &error), 0);
        check_plan(&facts, &plan);
        assert_true(plan.least_limit_bytes == least);
        assert_true(plan.disk_layers <= before);
        changes += plan.disk_layers < before;
        before = plan.disk_layers;
    }
    assert_int_equal(before, 0);
    assert_true(changes > 0);
}

static void test_more_memory_never_means_more_layers_on_disk(void **state)
{
    (void)state;
    static const struct {
        uint32_t requests, prompt_tokens, new_tokens;
    } jobs[] = {{1, 10, 1}, {300, 200, 60}, {64, 20, 500}, {1000, 3000, 8}, {40, 2000, 2000}};
    static const double disks[] = {1e8, 1.5e9, 2e10};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        for (size_t j = 0; j < sizeof disks / sizeof disks[0]; j++) {
            struct fixture fixture;
            open_fixture(&fixture, &LARGE, jobs[i].requests, jobs[i].prompt_tokens, jobs[i].new_tokens);
            fixture.facts.rates.disk_bytes = disks[j];
            check_all_limits(&fixture);
            fixture.facts.token_budget = 64;
            check_all_limits(&fixture);
            fixture.facts.kv_memory_bytes = 512 * MIB;
            check_all_limits(&fixture);
            close_fixture(&fixture);
        }
    }
}

/* Reading behind the computing costs nothing: a fast disk takes more of the layers, so that more sequences fit. */
static void test_the_disk_rate_decides(void **state)
{
    (void)state;
    struct fixture fixture;
    struct nj_plan fast, slow;
    struct nj_error error = {0};
    open_fixture(&fixture, &LARGE, 300, 1200, 800);
    fixture.facts.limit_bytes = 1000 * MIB;
    fixture.facts.rates.disk_bytes = 2e10;
    assert_int_equal(plan_make(&fixture.facts, &fast, &error), 0);
    fixture.facts.rates.disk_bytes = 1e7;
    assert_int_equal(plan_make(&fixture.facts, &slow, &error), 0);
    assert_true(fast.disk_layers > 0);
    assert_true(fast.disk_layers < slow.disk_layers || slow.disk_layers == 0);
    close_fixture(&fixture);
}

static void test_what_was_held_before_counts(void **state)
{
    (void)state;
    struct fixture fixture;
    struct nj_plan plan;
    struct nj_error error = {0};
    open_fixture(&fixture, &LARGE, 3, 20, 20);
    fixture.facts.peak_bytes = 3000 * MIB + 1;
    fixture.facts.limit_bytes = 3000 * MIB;
    assert_int_equal(plan_make(&fixture.facts, &plan, &error), -1);
    assert_true(named_cap(&error) == 3001 * MIB);
    fixture.facts.is_cap = false; /* nobody has promised to stay below it */
    assert_int_equal(plan_make(&fixture.facts, &plan, &error), 0);
    close_fixture(&fixture);
}

/* Half of what is free and not needed is left alone. */
static void test_no_cap(void **state)
{
    (void)state;
    struct fixture fixture;
    struct nj_plan plan;
    struct nj_error error = {0};
    open_fixture(&fixture, &LARGE, 300, 2000, 2000);
    const uint64_t weights = OUTSIDE_BYTES + LAYERS * LAYER_BYTES;
    fixture.facts.is_cap = false;
    fixture.facts.limit_bytes = weights + 20 * MIB + 8192 * MIB;
    assert_int_equal(plan_make(&fixture.facts, &plan, &error), 0);
    assert_in_range(plan.need.kv_bytes, 4096 * MIB - kv_block_bytes(&LARGE, NJ_KV_F16), 4096 * MIB);
    fixture.facts.limit_bytes = 1;
    assert_int_equal(plan_make(&fixture.facts, &plan, &error), -1);
    assert_non_null(strstr(error.message, "free memory"));
    close_fixture(&fixture);
}

/* With so many blocks that what is known of each of them counts, too. */
static void test_the_named_kv_memory_fits(void **state)
{
    (void)state;
    struct fixture fixture;
    struct nj_plan plan;
    struct nj_error error = {0};
    open_fixture(&fixture, &TINY, 256, 50000, 49000);
    struct nj_plan_facts *facts = &fixture.facts;
    facts->weights = (struct nj_weights_sizes){.memory_bytes = fixture.read_bytes, .read_bytes = fixture.read_bytes};
    facts->is_cap = false;
    facts->token_budget = 256;
    facts->kv_memory_bytes = UINT64_MAX;
    assert_int_equal(plan_make(facts, &plan, &error), 0);
    facts->limit_bytes = memory_need_sum(&plan.need) - plan.need.kv_bytes / 2;
    assert_int_equal(plan_make(facts, &plan, &error), -1);
    assert_int_equal(error.code, NJ_DOES_NOT_FIT);
    const char *named = strstr(error.message, "--kv-memory ");
    assert_non_null(named);
    assert_int_equal(sscanf(named, "--kv-memory %" SCNu64 "KiB", &facts->kv_memory_bytes), 1);
    facts->kv_memory_bytes <<= 10;
    assert_int_equal(plan_make(facts, &plan, &error), 0);
    close_fixture(&fixture);
}

static void test_limits(void **state)
{
    (void)state;
    const struct nj_machine machine = {.memory_bytes = 800 * MIB, .memory_available_bytes = 600 * MIB};
    const struct nj_machine busy = {.memory_bytes = 800 * MIB, .memory_available_bytes = 300 * MIB};
    const struct nj_machine unknown = {.memory_bytes = UINT64_MAX, .memory_available_bytes = UINT64_MAX};
    const struct nj_process_memory process = {.resident_bytes = 150 * MIB};
    assert_true(plan_limit(5, &machine, &process) == 5);
    assert_true(plan_limit(0, &machine, &process) == 700 * MIB);
    assert_true(plan_limit(0, &busy, &process) == 450 * MIB);
    assert_true(plan_limit(0, &unknown, &process) > UINT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_fits),
        cmocka_unit_test(test_more_memory_never_means_more_layers_on_disk),
        cmocka_unit_test(test_the_disk_rate_decides),
        cmocka_unit_test(test_what_was_held_before_counts),
        cmocka_unit_test(test_no_cap),
        cmocka_unit_test(test_the_named_kv_memory_fits),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
