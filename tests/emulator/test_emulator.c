/* The emulator catches what it is there to catch: each planted mistake is seen, and the same kernel without it is not.
 */
#include "tests/emulator/primitives.h"

#include "kernels/cuda/device.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS = 64, ROUNDS = 3 };

struct fault_args {
    const uint32_t *in; /* [THREADS] */
    uint32_t *out;      /* [ROUNDS][THREADS] */
    int is_planted;
};

struct words {
    uint32_t word[THREADS];
};

/* Threads read what others have written. */
NJ_KERNEL(kernel_write_barrier, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    const int i = thread_index();
    shared->word[i] = a.in[i];
    if (!a.is_planted)
        block_barrier();
    a.out[i] = shared->word[(i + 33) % THREADS];
}

/* The same between lanes of a warp. */
NJ_KERNEL(kernel_warp_barrier, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    const int i = thread_index();
    shared->word[i] = a.in[i];
    if (!a.is_planted)
        warp_barrier();
    a.out[i] = shared->word[i ^ 5];
}

/* Memory is written again when others have read it. */
NJ_KERNEL(kernel_reuse_barrier, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    const int i = thread_index();
    for (int round = 0; round < ROUNDS; round++) {
        shared->word[i] = a.in[i] + (uint32_t)round;
        block_barrier();
        a.out[round * THREADS + i] = shared->word[(i + 33) % THREADS];
        if (!a.is_planted)
            block_barrier();
    }
}

/* The last copy but one is waited for, and only a planted mistake reads the last one. */
NJ_KERNEL(kernel_copy_wait, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    const int i = thread_index();
    if (i % 4 == 0)
        copy_16(&shared->word[i], &a.in[i]);
    copy_commit();
    if (!a.is_planted)
        copy_commit();
    NJ_COPY_WAIT(1);
    block_barrier();
    a.out[i] = shared->word[i];
}

/* A thread's wait is for its own copies: those of others need a barrier. */
NJ_KERNEL(kernel_copy_barrier, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    const int i = thread_index();
    if (i % 4 == 0)
        copy_16(&shared->word[i], &a.in[i]);
    copy_commit();
    NJ_COPY_WAIT(0);
    if (!a.is_planted)
        block_barrier();
    a.out[i] = shared->word[THREADS - 1 - i];
}

NJ_KERNEL(kernel_copy_alignment, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    copy_16(shared->word, a.in + (a.is_planted ? 1 : 0));
    copy_commit();
    NJ_COPY_WAIT(0);
    a.out[thread_index()] = shared->word[0];
}

NJ_KERNEL(kernel_divergent_barrier, THREADS, struct fault_args, a)
{
    if (!a.is_planted || thread_index() < 48)
        block_barrier();
    a.out[thread_index()] = 1;
}

NJ_KERNEL(kernel_divergent_exchange, THREADS, struct fault_args, a)
{
    uint32_t value = a.in[thread_index()];
    if (!a.is_planted || thread_index() % 2 == 0)
        value = warp_xor(value, 2);
    a.out[thread_index()] = value;
}

NJ_KERNEL(kernel_mixed_operations, THREADS, struct fault_args, a)
{
    if (a.is_planted && thread_index() % 32 == 7)
        warp_barrier();
    else
        a.out[thread_index()] = warp_xor(a.in[thread_index()], 1);
}

NJ_KERNEL(kernel_shared_past_end, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    volatile uint32_t *word = shared->word;
    word[thread_index() + a.is_planted] = 1;
    a.out[thread_index()] = 0;
}

NJ_KERNEL(kernel_shared_before_begin, THREADS, struct fault_args, a)
{
    NJ_SHARED(struct words, shared);
    volatile uint32_t *word = shared->word;
    word[thread_index() - a.is_planted] = 1;
    a.out[thread_index()] = 0;
}

NJ_KERNEL(kernel_global_read_past_end, THREADS, struct fault_args, a)
{
    const volatile uint32_t *in = a.in;
    a.out[thread_index()] = in[thread_index() + a.is_planted];
}

NJ_KERNEL(kernel_global_write_past_end, THREADS, struct fault_args, a)
{
    volatile uint32_t *out = a.out + (ROUNDS - 1) * THREADS;
    out[thread_index() + a.is_planted] = 1;
}

/* What a launch left behind in one order of threads. */
struct outcome {
    const char *fault;
    uint32_t out[ROUNDS * THREADS];
};

static struct outcome run(void (*kernel)(const void *), int is_planted, enum emulator_order order)
{
    struct outcome outcome = {0};
    uint32_t *in = emulator_allocate(THREADS * sizeof *in), *out = emulator_allocate(sizeof outcome.out);
    assert_true(in != NULL && out != NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        in[i] = 1000 + i * i;
    struct fault_args args = {.in = in, .out = out, .is_planted = is_planted};
    outcome.fault = emulator_run(&(struct emulator_launch){
        .kernel = kernel, .args = &args, .grid_x = 2, .grid_y = 1, .threads = THREADS, .order = order});
    memcpy(outcome.out, out, sizeof outcome.out);
    emulator_free(in, THREADS * sizeof *in);
    emulator_free(out, sizeof outcome.out);
    return outcome;
}

/* Without the mistake all orders agree. */
static struct outcome run_rightly(void (*kernel)(const void *))
{
    struct outcome first = run(kernel, 0, EMULATOR_ASCENDING);
    assert_null(first.fault);
    for (int order = 1; order < EMULATOR_ORDERS; order++) {
        struct outcome other = run(kernel, 0, (enum emulator_order)order);
        assert_null(other.fault);
        assert_memory_equal(first.out, other.out, sizeof first.out);
    }
    return first;
}

static void wrong_results(void **state)
{
    (void)state;
    void (*const kernels[])(const void *) = {kernel_write_barrier, kernel_warp_barrier, kernel_reuse_barrier,
                                             kernel_copy_wait, kernel_copy_barrier};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        struct outcome right = run_rightly(kernels[i]);
        int seen = 0;
        for (int order = 0; order < EMULATOR_ORDERS; order++) {
            struct outcome wrong = run(kernels[i], 1, (enum emulator_order)order);
            seen += memcmp(wrong.out, right.out, sizeof right.out) != 0;
        }
        if (seen == 0)
            fail_msg("kernel %zu: nothing was seen", i);
    }
}

static void reported_faults(void **state)
{
    (void)state;
    void (*const kernels[])(const void *) = {kernel_copy_alignment, kernel_divergent_barrier, kernel_divergent_exchange,
                                             kernel_mixed_operations, kernel_shared_before_begin};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        run_rightly(kernels[i]);
        for (int order = 0; order < EMULATOR_ORDERS; order++)
            if (run(kernels[i], 1, (enum emulator_order)order).fault == NULL)
                fail_msg("kernel %zu, order %d: nothing was reported", i, order);
    }
}

/* 1 if a process of its own, silent, does not survive the kernel. */
static int is_deadly(void (*kernel)(const void *))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        signal(SIGSEGV, SIG_DFL); /* cmocka's handler would go on; a sanitizer's exits as well */
        run(kernel, 1, EMULATOR_ASCENDING);
        _exit(0);
    }
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void memory_past_the_end(void **state)
{
    (void)state;
    void (*const kernels[])(const void *) = {kernel_shared_past_end, kernel_global_read_past_end,
                                             kernel_global_write_past_end};
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        run_rightly(kernels[i]);
        if (!is_deadly(kernels[i]))
            fail_msg("kernel %zu: nothing was seen", i);
    }
}

struct product_args {
    const int8_t *a;  /* [16][32] */
    const uint8_t *b; /* [8][32]: columns */
    int32_t *c;       /* [2][16][8]: b signed, unsigned */
};

NJ_KERNEL(kernel_product, NJ_CUDA_WARP, struct product_args, args)
{
    const int row = thread_index() / 4, quad = thread_index() % 4;
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = load_word(args.a + (row + 8 * (i % 2)) * 32 + 16 * (i / 2) + 4 * quad);
    for (int i = 0; i < 2; i++)
        b[i] = load_word(args.b + row * 32 + 16 * i + 4 * quad);
    for (int is_unsigned = 0; is_unsigned < 2; is_unsigned++) {
        int32_t c[4] = {7, 7, 7, 7};
        if (is_unsigned)
            multiply_u8(c, a, b);
        else
            multiply_s8(c, a, b);
        for (int i = 0; i < 4; i++)
            args.c[is_unsigned * 128 + (row + 8 * (i / 2)) * 8 + 2 * quad + i % 2] = c[i];
    }
}

/* Against the product of whole matrices, and four bytes of it against dot4. */
static void products(void **state)
{
    (void)state;
    _Alignas(16) int8_t a[16][32];
    _Alignas(16) uint8_t b[8][32];
    int32_t c[2][16][8];
    uint32_t random = 1;
    for (int i = 0; i < 16 * 32; i++)
        a[i / 32][i % 32] = (int8_t)((random = random * 1664525u + 1013904223u) >> 24);
    for (int i = 0; i < 8 * 32; i++)
        b[i / 32][i % 32] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
    struct product_args args = {.a = a[0], .b = b[0], .c = c[0][0]};
    assert_null(emulator_run(&(struct emulator_launch){
        .kernel = kernel_product, .args = &args, .grid_x = 1, .grid_y = 1, .threads = NJ_CUDA_WARP}));
    for (int row = 0; row < 16; row++) {
        for (int col = 0; col < 8; col++) {
            int32_t with_signed = 7, with_unsigned = 7, dots = 7;
            for (int k = 0; k < 32; k++) {
                with_signed += a[row][k] * (int8_t)b[col][k];
                with_unsigned += a[row][k] * b[col][k];
            }
            for (int k = 0; k < 32; k += 4)
                dots = dot4(load_word(&a[row][k]), load_word(&b[col][k]), dots);
            assert_true(c[0][row][col] == with_signed && c[1][row][col] == with_unsigned && dots == with_signed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_results),
        cmocka_unit_test(reported_faults),
        cmocka_unit_test(memory_past_the_end),
        cmocka_unit_test(products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
