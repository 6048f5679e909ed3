#include "tests/emulator/emulator.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/emulator/fiber.h"
#include "tests/emulator/warp.h"

enum {
    WARP = 32,
    MOST_WARPS = EMULATOR_MOST_THREADS / WARP,
    STACK_BYTES = 128 * 1024,
    PAGE = 4096,
    SHARED_MARGIN = 1024, /* bytes before the shared memory that stay as they were */
    MOST_COPIES = 64,     /* of a thread, not yet landed */
    COPY_BYTES = 16,
    NONSENSE = 0xfd /* floats of it are huge, integers far from any index */
};

/* One asynchronous copy. */
struct copy {
    void *shared;
    const void *global;
    int group; /* counted from the kernel's begin */
};

struct thread {
    struct fiber fiber;
    struct copy copies[MOST_COPIES]; /* oldest first */
    int copy_count;
    int committed; /* groups */
};

/* Lanes of a warp that wait for an operation of the whole warp. */
struct warp {
    struct emulator_operands *operands[WARP];
    enum emulator_operation operation;
    int arrived;
};

static struct {
    const struct emulator_launch *launch;
    struct thread thread[EMULATOR_MOST_THREADS];
    struct warp warp[MOST_WARPS];
    uint32_t ready[MOST_WARPS]; /* lanes that can run */
    struct fiber scheduler;
    int current;    /* thread */
    int at_barrier; /* threads */
    int finished;   /* threads */
    int64_t block_x, block_y;
    char *stacks;        /* of EMULATOR_MOST_THREADS, each with a page below that faults */
    char *shared;        /* SHARED_MARGIN and EMULATOR_MOST_SHARED_BYTES, then a page that faults */
    size_t shared_bytes; /* 0: the block has not asked for any */
    uint64_t random;
    const char *fault;
    char message[160];
} state;

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Whole pages, then one that faults. */
static char *map_guarded(size_t bytes)
{
    char *memory = mmap(NULL, whole_pages(bytes) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    mprotect(memory + whole_pages(bytes), PAGE, PROT_NONE);
    return memory;
}

static size_t guarded_offset(size_t bytes)
{
    return whole_pages(bytes) - (bytes + 15) / 16 * 16;
}

void *emulator_allocate(size_t bytes)
{
    char *memory = map_guarded(bytes);
    return memory == NULL ? NULL : memory + guarded_offset(bytes);
}

void emulator_free(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap((char *)memory - guarded_offset(bytes), whole_pages(bytes) + PAGE);
}

static int map_memory(void)
{
    if (state.shared == NULL)
        state.shared = map_guarded(SHARED_MARGIN + EMULATOR_MOST_SHARED_BYTES);
    if (state.stacks != NULL || state.shared == NULL)
        return state.shared != NULL;
    size_t bytes = (size_t)EMULATOR_MOST_THREADS * STACK_BYTES;
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return 0;
    for (int i = 0; i < EMULATOR_MOST_THREADS; i++)
        mprotect(stacks + (size_t)i * STACK_BYTES, PAGE, PROT_NONE);
    state.stacks = stacks;
    return 1;
}

static void wait_for_others(int is_last)
{
    struct thread *thread = &state.thread[state.current];
    fiber_switch(&thread->fiber, &state.scheduler, is_last);
}

static void report_block(const char *what)
{
    snprintf(state.message, sizeof state.message, "block (%lld, %lld), thread %d: %s", (long long)state.block_x,
             (long long)state.block_y, state.current, what);
    state.fault = state.message;
}

/* The first fault ends the launch: the thread never goes on. */
static void report(const char *what)
{
    report_block(what);
    wait_for_others(0);
}

static void suspend(void)
{
    state.ready[state.current / WARP] &= ~(1u << state.current % WARP);
    wait_for_others(0);
}

static void run_thread(void)
{
    fiber_begin(&state.scheduler);
    state.launch->kernel(state.launch->args);
    state.ready[state.current / WARP] &= ~(1u << state.current % WARP);
    state.finished++;
    wait_for_others(1);
}

int emulator_thread_index(void)
{
    return state.current;
}

int64_t emulator_block_x(void)
{
    return state.block_x;
}

int64_t emulator_block_y(void)
{
    return state.block_y;
}

static char *shared_begin(size_t bytes)
{
    return state.shared + whole_pages(SHARED_MARGIN + EMULATOR_MOST_SHARED_BYTES) - (bytes + 15) / 16 * 16;
}

void *emulator_shared_memory(size_t bytes)
{
    if (bytes > EMULATOR_MOST_SHARED_BYTES || (state.shared_bytes != 0 && bytes != state.shared_bytes))
        report("shared memory of more than 48 KiB or of two sizes");
    if (state.shared_bytes == 0)
        memset(shared_begin(bytes) - SHARED_MARGIN, NONSENSE, SHARED_MARGIN + bytes);
    state.shared_bytes = bytes;
    return shared_begin(bytes);
}

/* What lies before the block's shared memory has not been written. */
static void check_shared_memory(void)
{
    const char *margin = shared_begin(state.shared_bytes) - SHARED_MARGIN;
    for (int i = 0; i < SHARED_MARGIN && state.shared_bytes != 0; i++) {
        if ((unsigned char)margin[i] != NONSENSE) {
            report_block("memory before the shared memory was written");
            return;
        }
    }
}

void emulator_block_barrier(void)
{
    if (++state.at_barrier < state.launch->threads) {
        suspend();
        return;
    }
    state.at_barrier = 0;
    for (int warp = 0; warp < state.launch->threads / WARP; warp++)
        state.ready[warp] = 0xffffffffu;
}

void emulator_warp_operation(enum emulator_operation operation, struct emulator_operands *operands)
{
    struct warp *warp = &state.warp[state.current / WARP];
    if (warp->arrived > 0 && warp->operation != operation)
        report("lanes of a warp are at different operations");
    warp->operation = operation;
    warp->operands[state.current % WARP] = operands;
    if (++warp->arrived < WARP) {
        suspend();
        return;
    }
    warp_operate(operation, warp->operands);
    warp->arrived = 0;
    state.ready[state.current / WARP] = 0xffffffffu;
}

void emulator_copy(void *shared, const void *global)
{
    struct thread *thread = &state.thread[state.current];
    if ((uintptr_t)shared % COPY_BYTES != 0 || (uintptr_t)global % COPY_BYTES != 0)
        report("a copy is not aligned");
    if (thread->copy_count == MOST_COPIES)
        report("a thread never waits for its copies");
    memset(shared, NONSENSE, COPY_BYTES);
    thread->copies[thread->copy_count++] =
        (struct copy){.shared = shared, .global = global, .group = thread->committed};
}

void emulator_copy_commit(void)
{
    state.thread[state.current].committed++;
}

void emulator_copy_wait(int groups)
{
    struct thread *thread = &state.thread[state.current];
    int landed = 0;
    while (landed < thread->copy_count && thread->copies[landed].group < thread->committed - groups) {
        memcpy(thread->copies[landed].shared, thread->copies[landed].global, COPY_BYTES);
        landed++;
    }
    thread->copy_count -= landed;
    memmove(thread->copies, thread->copies + landed, (size_t)thread->copy_count * sizeof thread->copies[0]);
}

static uint32_t random_number(void)
{
    state.random = state.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state.random >> 33);
}

/* -1: none can run. */
static int next_thread(void)
{
    const int warps = state.launch->threads / WARP, is_up = state.launch->order == EMULATOR_ASCENDING;
    int begin = is_up ? 0 : warps - 1;
    if (state.launch->order == EMULATOR_SHUFFLED)
        begin = (int)(random_number() % (uint32_t)warps);
    else if (state.ready[state.current / WARP] != 0)
        begin = state.current / WARP;
    for (int i = 0; i < warps; i++) {
        int warp = (begin + (is_up ? i : warps - i)) % warps;
        uint32_t ready = state.ready[warp];
        if (ready == 0)
            continue;
        if (state.launch->order == EMULATOR_SHUFFLED) {
            uint32_t above = ready & (0xffffffffu << random_number() % WARP);
            return warp * WARP + __builtin_ctz(above != 0 ? above : ready);
        }
        return warp * WARP + (is_up ? __builtin_ctz(ready) : WARP - 1 - __builtin_clz(ready));
    }
    return -1;
}

static void begin_block(void)
{
    memset(state.warp, 0, sizeof state.warp);
    state.at_barrier = state.finished = state.current = 0;
    state.shared_bytes = 0;
    for (int i = 0; i < state.launch->threads; i++) {
        struct thread *thread = &state.thread[i];
        char *stack = state.stacks + (size_t)i * STACK_BYTES + PAGE;
        fiber_prepare(&thread->fiber, stack, STACK_BYTES - PAGE - (size_t)(i % 16) * 256, run_thread);
        thread->copy_count = thread->committed = 0;
    }
    for (int warp = 0; warp < MOST_WARPS; warp++)
        state.ready[warp] = warp < state.launch->threads / WARP ? 0xffffffffu : 0;
}

static void run_block(void)
{
    begin_block();
    int next;
    while (state.fault == NULL && (next = next_thread()) >= 0) {
        state.current = next;
        fiber_switch(&state.scheduler, &state.thread[next].fiber, 0);
    }
    if (state.fault == NULL && state.finished < state.launch->threads)
        report_block("threads wait for others that do not come");
    if (state.fault == NULL)
        check_shared_memory();
}

const char *emulator_run(const struct emulator_launch *launch)
{
    if (launch->threads % WARP != 0 || launch->threads <= 0 || launch->threads > EMULATOR_MOST_THREADS)
        return "a block has 32 to 256 threads, a multiple of 32";
    if (!map_memory())
        return "no memory for the emulator";
    state.launch = launch;
    state.fault = NULL;
    int64_t blocks = launch->grid_x * launch->grid_y;
    for (int64_t i = 0; i < blocks && state.fault == NULL; i++) {
        int64_t block = launch->order == EMULATOR_DESCENDING ? blocks - 1 - i : i;
        state.block_x = block % launch->grid_x;
        state.block_y = block / launch->grid_x;
        run_block();
    }
    return state.fault;
}
