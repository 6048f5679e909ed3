/* Runs CUDA kernels that were compiled for the host (kernels/cuda/device.h): every CUDA thread of a block is a fiber,
 * blocks run one after another, and each thread runs until it has to wait for others.
 *
 * What a GPU leaves open is chosen against the kernel: which thread runs next is the launch's order, shared memory is
 * filled with nonsense before each block and ends where the next access is a fault, and asynchronous copies land as
 * late as they may, their targets filled with nonsense until then. One launch at a time in a process. */
#ifndef NJ_TESTS_EMULATOR_EMULATOR_H
#define NJ_TESTS_EMULATOR_EMULATOR_H

#include <stddef.h>
#include <stdint.h>

enum { EMULATOR_MOST_THREADS = 256, EMULATOR_MOST_SHARED_BYTES = 48 * 1024 };

/* Which of the threads that can run does so, after one has come to a wait. A warp that can run goes on first but for
 * SHUFFLED, which takes any thread. */
enum emulator_order { EMULATOR_ASCENDING, EMULATOR_DESCENDING, EMULATOR_SHUFFLED, EMULATOR_ORDERS };

struct emulator_launch {
    void (*kernel)(const void *args);
    const void *args; /* borrowed during the launch */
    int64_t grid_x, grid_y;
    int threads; /* of a block: a multiple of 32 */
    enum emulator_order order;
};

/* NULL, or what the kernel did that no kernel may; the rest of the launch is then left out. */
const char *emulator_run(const struct emulator_launch *launch);

/* Memory whose end, rounded up to 16 bytes, is followed by a page that faults. Freed with emulator_free. NULL: no
 * memory. */
void *emulator_allocate(size_t bytes);
void emulator_free(void *memory, size_t bytes);

/* For the emulated primitives: */

enum emulator_operation {
    EMULATOR_BARRIER, /* of the warp */
    EMULATOR_XOR,
    EMULATOR_MULTIPLY_S8,
    EMULATOR_MULTIPLY_U8
};

/* A lane's part of an operation of its whole warp. */
struct emulator_operands {
    uint32_t value;    /* XOR: in and out */
    int mask;          /* XOR */
    int32_t *c;        /* MULTIPLY: [4] */
    const uint32_t *a; /* [4] */
    const uint32_t *b; /* [2] */
};

int emulator_thread_index(void);
int64_t emulator_block_x(void);
int64_t emulator_block_y(void);
void *emulator_shared_memory(size_t bytes);
void emulator_block_barrier(void);
void emulator_warp_operation(enum emulator_operation operation, struct emulator_operands *operands);
void emulator_copy(void *shared, const void *global);
void emulator_copy_commit(void);
void emulator_copy_wait(int groups);

#endif
