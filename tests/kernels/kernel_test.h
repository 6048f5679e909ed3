/* Support for the kernel tests: random inputs, runs of every table with several thread counts, and
 * comparison bit by bit. Memory comes from malloc in exact sizes, so that AddressSanitizer sees overruns. */
#ifndef NJ_TESTS_KERNELS_KERNEL_TEST_H
#define NJ_TESTS_KERNELS_KERNEL_TEST_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu_kernels.h"

enum { NJ_TEST_MOST_THREADS = 4, NJ_TEST_SLOW_THREADS = 3 };

/* A small generator, the same on every machine. */
struct nj_test_random {
    uint64_t state;
};

uint64_t random_next(struct nj_test_random *random);
int64_t random_below(struct nj_test_random *random, int64_t limit);
float random_uniform(struct nj_test_random *random, float low, float high);
float random_any_float(struct nj_test_random *random); /* any bit pattern, NaN and infinity included */

/* Never NULL: a failed allocation ends the test. Freed with free. */
void *test_allocate(size_t bytes);
float *test_random_floats(struct nj_test_random *random, int64_t count, float low, float high);

/* How the numbers of a matrix are drawn. */
enum nj_test_flavour {
    NJ_TEST_ORDINARY,  /* scales around 0.01 */
    NJ_TEST_EXTREME,   /* every element at its largest or smallest */
    NJ_TEST_SUBNORMAL, /* scales are subnormal halves or zero */
    NJ_TEST_ANY,       /* scales are any half, infinite and NaN included */
    NJ_TEST_FLAVOURS
};

/* A random matrix; free(data) ends it. Rows beyond `rows` are zero, as matrix.h demands. */
struct nj_matrix test_random_matrix(struct nj_test_random *random, enum nj_matrix_kind kind, int64_t rows, int64_t cols,
                                    enum nj_test_flavour flavour);

/* `cols`, or the next larger number of columns that the kind can have. */
int64_t test_fitting_cols(enum nj_matrix_kind kind, int64_t cols);

/* One element, decoded from the text of matrix.h, in double precision. */
double test_matrix_element(const struct nj_matrix *w, int64_t row, int64_t col);

/* The q8 form of [rows][cols] floats, made by the reference kernel. */
struct nj_q8 test_quantize(const float *x, int64_t rows, int64_t cols);
struct nj_q8 test_allocate_q8(int64_t rows, int64_t cols); /* filled with a pattern */
void test_free_q8(struct nj_q8 *q8);

/* Random keys and values in blocks 0 .. blocks - 1: any halves below 1 in magnitude, or any bytes with the scales of
 * such numbers. Not for F32. */
void test_fill_cache(struct nj_test_random *random, const struct nj_kv_layer *kv, int64_t blocks);

/* Runs every thread's share, one after the other, last thread first for odd counts. */
void test_run(const struct nj_cpu_kernels *kernels, enum nj_operation operation, const union nj_operation_args *args,
              int threads);

const struct nj_cpu_kernels *test_reference(void);

/* Calls `check` for every table that runs here (the reference too) with 1 to 4 threads, slow ones with
 * NJ_TEST_SLOW_THREADS. Prints the others as skipped, once. */
typedef void (*nj_test_variant)(const struct nj_cpu_kernels *kernels, int threads, void *context);
void test_each_variant(nj_test_variant check, void *context);

/* A table that is not one of the program's: test_each_variant takes it from now on. */
enum nj_test_table_use {
    NJ_TEST_TABLE_LACKS, /* instructions that this machine has not */
    NJ_TEST_TABLE_SLOW,
    NJ_TEST_TABLE_RUNS
};
void test_add_table(const struct nj_cpu_kernels *kernels, enum nj_test_table_use use);

/* From now on test_each_variant takes only the table of that name. 0, and printed as skipped, if it does not run here.
 */
int test_take_only(const char *name);

/* Equal bits, or both NaN. Fails the test with the first difference. */
void assert_same_floats(const float *got, const float *expected, int64_t count, const char *what);
void assert_same_q8(const struct nj_q8 *got, const struct nj_q8 *expected, int64_t rows, int64_t cols,
                    const char *what);

#endif
