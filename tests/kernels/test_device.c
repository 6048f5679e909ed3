/* The CPU device: buffers, order, copies, cancelling, full queues, events. Most launches run a table of
 * the test's own, whose kernels note what was called. */
#include <immintrin.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/device.h"
#include "tests/kernels/kernel_test.h"

enum { THREADS = 4, MOST_LAUNCHES = 64 };

/* What the noting kernel saw; launches are numbered by their `count` argument. */
static struct {
    atomic_int calls[MOST_LAUNCHES];     /* threads that ran this launch */
    atomic_int out_of_order;             /* a thread began a launch before all had ended the one before it */
    atomic_int threads;                  /* as the kernel was told */
    atomic_int subnormals_lost;          /* a thread flushed a subnormal number */
    atomic_int cancel, cancel_in_launch; /* sets `cancel` inside this launch; -1: never */
    int check_order;
} seen;

/* Looks at bits: where subnormals read as zero, a comparison would not tell. */
static int keeps_subnormals(void)
{
    volatile float subnormal = 0x1p-140f;
    float doubled = subnormal * 2.0f;
    uint32_t bits;
    memcpy(&bits, &doubled, sizeof bits);
    return bits == 1u << 10; /* 2^-139 */
}

static void note_launch(const union nj_operation_args *args, int thread, int threads)
{
    int64_t launch = args->embed.count;
    (void)thread;
    if (seen.check_order && launch > 0 && atomic_load(&seen.calls[launch - 1]) != threads)
        atomic_store(&seen.out_of_order, 1);
    if (!keeps_subnormals())
        atomic_store(&seen.subnormals_lost, 1);
    if (atomic_load(&seen.cancel_in_launch) == (int)launch)
        atomic_store(&seen.cancel, 1);
    atomic_store(&seen.threads, threads);
    atomic_fetch_add(&seen.calls[launch], 1);
}

static const struct nj_cpu_kernels noting_kernels = {.name = "noting", .run = {[NJ_OP_EMBED] = note_launch}};

static int forget_all(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    atomic_store(&seen.cancel_in_launch, -1);
    seen.check_order = 1;
    return 0;
}

static void launch(struct nj_stream *stream, int number)
{
    union nj_operation_args args = {.embed.count = number};
    stream_launch(stream, NJ_OP_EMBED, &args);
}

static int calls(int number)
{
    return atomic_load(&seen.calls[number]);
}

static void buffers_are_zeroed_aligned_and_counted(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 4097, 3 << 20};
    struct nj_buffer *buffers[5];
    struct nj_device *device = device_open_cpu(&noting_kernels, 1);
    assert_non_null(device);
    assert_string_equal(device_name(device), "cpu noting");
    size_t total = 0;
    for (int i = 0; i < 5; i++) {
        buffers[i] = buffer_create(device, sizes[i]);
        assert_non_null(buffers[i]);
        total += sizes[i];
        assert_int_equal(device_bytes(device), total);
        assert_int_equal(buffer_bytes(buffers[i]), sizes[i]);
        unsigned char *bytes = buffer_address(buffers[i]);
        assert_int_equal((uintptr_t)bytes % 4096, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(bytes[j], 0);
        memset(bytes, 1, sizes[i]);
    }
    for (int i = 0; i < 5; i++) {
        buffer_destroy(buffers[i]);
        total -= sizes[i];
        assert_int_equal(device_bytes(device), total);
    }
    assert_null(buffer_create(device, SIZE_MAX));
    assert_null(buffer_create(device, SIZE_MAX / 2));
    assert_int_equal(device_bytes(device), 0);
    buffer_destroy(NULL);
    device_close(device);
    device_close(NULL);
}

static void launches_run_in_order_on_all_threads(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        forget_all(NULL);
        struct nj_device *device = device_open_cpu(&noting_kernels, threads);
        assert_int_equal(device_threads(device), threads);
        struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
        for (int i = 0; i < MOST_LAUNCHES; i++)
            launch(stream, i);
        assert_int_equal(calls(0), 0); /* nothing runs before it must */
        assert_int_equal(stream_synchronize(stream, NULL), 0);
        for (int i = 0; i < MOST_LAUNCHES; i++)
            assert_int_equal(calls(i), threads);
        assert_int_equal(atomic_load(&seen.threads), threads);
        assert_int_equal(atomic_load(&seen.out_of_order), 0);
        assert_int_equal(stream_synchronize(stream, NULL), 0);
        assert_int_equal(calls(0), threads); /* nothing runs twice */
        stream_destroy(stream);
        device_close(device);
    }
}

static void full_queues_are_run(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(&noting_kernels, 2);
    struct nj_stream *stream = stream_create(device, 3);
    for (int i = 0; i < 8; i++) {
        launch(stream, i);
        for (int j = 0; j <= i; j++)
            assert_int_equal(calls(j), j < i / 3 * 3 ? 2 : 0);
    }
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(calls(i), 2);
    assert_int_equal(atomic_load(&seen.out_of_order), 0);
    stream_destroy(stream);
    stream = stream_create(device, 0); /* still works: runs one at a time */
    launch(stream, 8);
    launch(stream, 9);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    assert_int_equal(calls(9), 2);
    stream_destroy(stream);
    stream_destroy(NULL);
    device_close(device);
}

static void cancel_drops_the_rest(void **state)
{
    (void)state;
    for (int threads = 1; threads <= THREADS; threads++) {
        for (int when = 0; when < 6; when++) {
            forget_all(NULL);
            atomic_store(&seen.cancel_in_launch, when);
            struct nj_device *device = device_open_cpu(&noting_kernels, threads);
            struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
            for (int i = 0; i < 10; i++)
                launch(stream, i);
            assert_int_equal(stream_synchronize(stream, &seen.cancel), -1);
            for (int i = 0; i <= when; i++)
                assert_int_equal(calls(i), threads);
            for (int i = when + 2; i < 10; i++) /* thread 0 may have looked just before the flag was set */
                assert_int_equal(calls(i), 0);
            assert_true(calls(when + 1) == 0 || calls(when + 1) == threads);
            seen.check_order = 0;
            atomic_store(&seen.cancel, 0);
            launch(stream, 20);
            assert_int_equal(stream_synchronize(stream, &seen.cancel), 0); /* the stream is usable again */
            assert_int_equal(calls(9), 0);
            assert_int_equal(calls(20), threads);
            stream_destroy(stream);
            device_close(device);
        }
    }
}

/* A cancel that comes when nothing is left to drop is no failure. */
static void cancel_in_the_last_launch(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(&noting_kernels, 2);
    struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
    atomic_store(&seen.cancel_in_launch, 2);
    for (int i = 0; i < 3; i++)
        launch(stream, i);
    assert_int_equal(stream_synchronize(stream, &seen.cancel), 0);
    assert_int_equal(calls(2), 2);
    stream_destroy(stream);
    device_close(device);
}

static void cancel_before_the_start(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(&noting_kernels, 2);
    struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
    atomic_store(&seen.cancel, 1);
    launch(stream, 0);
    assert_int_equal(stream_synchronize(stream, &seen.cancel), -1);
    assert_int_equal(calls(0), 0);
    stream_destroy(stream);
    device_close(device);
}

/* Each copy reads what the one before it wrote. */
static void copies_keep_their_place(void **state)
{
    (void)state;
    enum { BYTES = 100001 };
    struct nj_device *device = device_open_cpu(&noting_kernels, 3);
    struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
    struct nj_buffer *buffer = buffer_create(device, 3 * BYTES);
    unsigned char *a = buffer_address(buffer), *b = a + BYTES, *c = b + BYTES;
    for (int i = 0; i < BYTES; i++)
        a[i] = (unsigned char)(i * 7);
    stream_copy(stream, b, a, BYTES);
    launch(stream, 0);
    stream_copy(stream, c, b, BYTES);
    stream_copy(stream, a, c + 1, 0);
    stream_copy(stream, b, c + 1, 10);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    assert_memory_equal(a, c, BYTES);
    assert_memory_equal(b, a + 1, 10);
    assert_memory_equal(b + 10, a + 10, BYTES - 10);
    assert_int_equal(calls(0), 3);
    buffer_destroy(buffer);
    stream_destroy(stream);
    device_close(device);
}

static void events_order_two_streams(void **state)
{
    (void)state;
    seen.check_order = 0;
    struct nj_device *device = device_open_cpu(&noting_kernels, 2);
    struct nj_stream *first = stream_create(device, MOST_LAUNCHES), *second = stream_create(device, MOST_LAUNCHES);
    struct nj_event *event = event_create(device);
    assert_int_equal(event_synchronize(event, NULL), 0); /* never recorded: nothing to wait for */
    unsigned char source = 5, middle = 0, target = 0;
    stream_copy(first, &middle, &source, 1);
    event_record(event, first);
    launch(first, 0);
    stream_wait(second, event);
    stream_copy(second, &target, &middle, 1);
    assert_int_equal(stream_synchronize(second, NULL), 0);
    assert_int_equal(target, 5);
    assert_int_equal(stream_synchronize(first, NULL), 0);
    assert_int_equal(calls(0), 2);

    launch(first, 1);
    event_record(event, first);
    stream_wait(first, event); /* its own stream is in order anyway */
    assert_int_equal(event_synchronize(event, NULL), 0);
    assert_int_equal(calls(1), 2);
    launch(first, 2);
    assert_int_equal(event_synchronize(event, NULL), 0); /* has happened: does not run what came later */
    assert_int_equal(calls(2), 0);
    event_record(event, first);
    atomic_store(&seen.cancel, 1);
    assert_int_equal(event_synchronize(event, &seen.cancel), -1);
    assert_int_equal(calls(2), 0);
    event_destroy(event);
    event_destroy(NULL);
    stream_destroy(second);
    stream_destroy(first);
    device_close(device);
}

/* Whatever the caller's floating-point mode, kernels run in the contract's, and the caller keeps its own. */
static void floating_point_mode_is_set_and_restored(void **state)
{
    (void)state;
    struct nj_device *device = device_open_cpu(&noting_kernels, 2);
    struct nj_stream *stream = stream_create(device, MOST_LAUNCHES);
    unsigned before = _mm_getcsr();
    unsigned flushing = before | 0x8040; /* flush to zero, denormals are zero */
    _mm_setcsr(flushing);
    launch(stream, 0);
    int result = stream_synchronize(stream, NULL);
    unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    assert_int_equal(result, 0);
    assert_int_equal(after & 0xffc0, flushing & 0xffc0);
    assert_int_equal(atomic_load(&seen.subnormals_lost), 0);
    assert_int_equal(calls(0), 2);
    stream_destroy(stream);
    device_close(device);
}

/* A chain of real launches gives what the kernels give when called directly. */
static void real_kernels_run(void **state)
{
    (void)state;
    enum { COUNT = 5, COLS = 64, ROWS = 48 };
    struct nj_test_random random = {1};
    float *x = test_random_floats(&random, COUNT * COLS, -1.0f, 1.0f);
    struct nj_matrix w = test_random_matrix(&random, NJ_KIND_U4_MIN, ROWS, COLS, NJ_TEST_ORDINARY);
    struct nj_q8 q8 = test_allocate_q8(COUNT, COLS);
    float y[COUNT * ROWS], expected[COUNT * ROWS];
    union nj_operation_args quantize = {.quantize = {.x = x, .count = COUNT, .width = COLS, .out.q8 = q8}};
    union nj_operation_args matmul = {
        .matmul = {.x.q8 = q8, .count = COUNT, .outputs = 1, .output[0] = {.w = w, .y = expected, .y_stride = ROWS}}};
    test_run(test_reference(), NJ_OP_QUANTIZE, &quantize, 1);
    test_run(test_reference(), NJ_OP_MATMUL, &matmul, 1);
    memset(q8.q, 0, COUNT * COLS);
    matmul.matmul.output[0].y = y;
    struct nj_device *device = device_open_cpu(cpu_kernels_find("auto"), THREADS);
    struct nj_stream *stream = stream_create(device, 8);
    stream_launch(stream, NJ_OP_QUANTIZE, &quantize);
    stream_launch(stream, NJ_OP_MATMUL, &matmul);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    assert_same_floats(y, expected, COUNT * ROWS, "through the device");
    stream_destroy(stream);
    device_close(device);
    test_free_q8(&q8);
    free((void *)w.data);
    free(x);
}

static void launches_are_timed_when_asked(void **state)
{
    (void)state;
    struct nj_device_times times = {0};
    struct nj_device *device = device_open_cpu(&noting_kernels, THREADS);
    struct nj_stream *stream = stream_create(device, 8);
    launch(stream, 0);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    assert_true(times.seconds[NJ_OP_EMBED] == 0);
    device_time_launches(device, &times);
    launch(stream, 1);
    launch(stream, 2);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    const double timed = times.seconds[NJ_OP_EMBED];
    assert_true(timed > 0 && timed < 60);
    assert_true(times.seconds[NJ_OP_MATMUL] == 0 && times.matmul_operations == 0);
    device_time_launches(device, NULL);
    launch(stream, 3);
    assert_int_equal(stream_synchronize(stream, NULL), 0);
    assert_true(times.seconds[NJ_OP_EMBED] == timed);
    stream_destroy(stream);
    device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(buffers_are_zeroed_aligned_and_counted, forget_all),
        cmocka_unit_test_setup(launches_run_in_order_on_all_threads, forget_all),
        cmocka_unit_test_setup(full_queues_are_run, forget_all),
        cmocka_unit_test_setup(cancel_drops_the_rest, forget_all),
        cmocka_unit_test_setup(cancel_in_the_last_launch, forget_all),
        cmocka_unit_test_setup(cancel_before_the_start, forget_all),
        cmocka_unit_test_setup(copies_keep_their_place, forget_all),
        cmocka_unit_test_setup(events_order_two_streams, forget_all),
        cmocka_unit_test_setup(floating_point_mode_is_set_and_restored, forget_all),
        cmocka_unit_test_setup(launches_are_timed_when_asked, forget_all),
        cmocka_unit_test_setup(real_kernels_run, forget_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
