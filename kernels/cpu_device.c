/* The CPU as a device. A stream is a queue of launches and copies; running it is one OpenMP parallel
 * region in which every thread walks the whole queue, with a barrier after each item. */
#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/barrier.h"
#include "kernels/device_backend.h"

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

/* Round to nearest even, all exceptions masked, subnormals neither flushed nor taken as zero. */
static const unsigned contract_mxcsr = 0x1f80;

struct cpu_device {
    struct nj_device base;
    const struct nj_cpu_kernels *kernels;
    struct nj_barrier barrier; /* after each item of a queue */
};

struct copy_args {
    void *to;
    const void *from;
    size_t bytes;
};

struct queue_item {
    nj_cpu_kernel run; /* NULL: a copy */
    enum nj_operation operation;
    union {
        union nj_operation_args operation;
        struct copy_args copy;
    } args;
};

/* Items are numbered from 0 in the order given; the queue holds numbers [finished, submitted). */
struct cpu_stream {
    struct nj_stream base;
    size_t capacity;
    uint64_t submitted, finished;
    struct queue_item items[];
};

/* An event has happened when its stream has finished all items numbered below `submitted`. */
struct cpu_event {
    struct nj_event base;
    struct cpu_stream *stream; /* NULL: never recorded */
    uint64_t submitted;
};

static size_t round_up_to_pages(size_t bytes)
{
    return bytes == 0 ? PAGE_BYTES : (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void *cpu_allocate(struct nj_device *device, size_t bytes)
{
    (void)device;
    if (bytes > SIZE_MAX - PAGE_BYTES)
        return NULL;
    size_t mapped_bytes = round_up_to_pages(bytes);
    void *address = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
        return NULL;
    if (mapped_bytes >= HUGE_PAGE_BYTES)
        madvise(address, mapped_bytes, MADV_HUGEPAGE); /* advice: failure costs only speed */
    return address;
}

static void cpu_release(struct nj_device *device, void *address, size_t bytes)
{
    (void)device;
    munmap(address, round_up_to_pages(bytes));
}

static void cpu_close(struct nj_device *base)
{
    struct cpu_device *device = (struct cpu_device *)base;
    barrier_close(&device->barrier);
    free(device);
}

static struct nj_stream *cpu_stream_create(struct nj_device *device, size_t capacity)
{
    capacity = capacity == 0 ? 1 : capacity;
    if (capacity > (SIZE_MAX - sizeof(struct cpu_stream)) / sizeof(struct queue_item))
        return NULL;
    struct cpu_stream *stream = malloc(sizeof *stream + capacity * sizeof stream->items[0]);
    if (stream == NULL)
        return NULL;
    *stream = (struct cpu_stream){.base.device = device, .capacity = capacity};
    return &stream->base;
}

static void cpu_stream_destroy(struct nj_stream *stream)
{
    free(stream);
}

static void copy_share(const struct copy_args *copy, int thread, int threads)
{
    size_t pages = (copy->bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    size_t begin = pages * (size_t)thread / (size_t)threads * PAGE_BYTES;
    size_t end = pages * ((size_t)thread + 1) / (size_t)threads * PAGE_BYTES;
    end = end < copy->bytes ? end : copy->bytes;
    if (begin < end)
        memcpy((char *)copy->to + begin, (const char *)copy->from + begin, end - begin);
}

static void run_item(const struct queue_item *item, int thread, int threads)
{
    if (item->run != NULL)
        item->run(&item->args.operation, thread, threads);
    else
        copy_share(&item->args.copy, thread, threads);
}

static double matmul_operations(const struct nj_matmul_args *args)
{
    double sum = 0;
    for (int i = 0; i < args->outputs; i++)
        sum += 2.0 * (double)args->count * (double)args->output[i].w.rows * (double)args->output[i].w.cols;
    return sum;
}

/* Thread 0, when an item is done; `start` is when it began. Returns the time now. */
static double note_time(struct nj_device_times *times, const struct queue_item *item, double start)
{
    double now = omp_get_wtime();
    if (item->run != NULL)
        times->seconds[item->operation] += now - start;
    if (item->run != NULL && item->operation == NJ_OP_MATMUL)
        times->matmul_operations += matmul_operations(&item->args.operation.matmul);
    return now;
}

/* One thread's walk through the queue. Thread 0 alone reads `cancel`, before the barrier that ends an
 * item; all read its verdict after that barrier. Two verdicts take turns, because a thread may be one
 * barrier behind thread 0, but not two. */
static void run_queue(struct cpu_device *device, const struct queue_item *items, size_t count, const atomic_int *cancel,
                      int verdict[2])
{
    int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    struct nj_device_times *times = thread == 0 ? device->base.times : NULL;
    double start = times != NULL ? omp_get_wtime() : 0;
    for (size_t i = 0; i < count && !verdict[i % 2]; i++) {
        run_item(&items[i], thread, threads);
        if (thread == 0)
            verdict[(i + 1) % 2] = cancel != NULL && atomic_load(cancel) != 0 && i + 1 < count;
        barrier_wait(&device->barrier, (unsigned)threads);
        if (times != NULL)
            start = note_time(times, &items[i], start);
    }
}

static int run_stream(struct cpu_stream *stream, const atomic_int *cancel)
{
    struct cpu_device *device = (struct cpu_device *)stream->base.device;
    size_t count = (size_t)(stream->submitted - stream->finished);
    int verdict[2] = {cancel != NULL && atomic_load(cancel) != 0, 0};
    int dropped = verdict[0];
    if (count > 0 && !dropped) {
#pragma omp parallel num_threads(device->base.threads)
        {
            unsigned mxcsr = _mm_getcsr();
            _mm_setcsr(contract_mxcsr);
            run_queue(device, stream->items, count, cancel, verdict);
            _mm_setcsr(mxcsr);
        }
        dropped = verdict[0] || verdict[1];
    }
    stream->finished = stream->submitted;
    return dropped ? -1 : 0;
}

static struct queue_item *append_item(struct cpu_stream *stream)
{
    if (stream->submitted - stream->finished == stream->capacity)
        run_stream(stream, NULL);
    size_t index = (size_t)(stream->submitted - stream->finished);
    stream->submitted++;
    return &stream->items[index];
}

static void cpu_launch(struct nj_stream *base, enum nj_operation operation, const union nj_operation_args *args)
{
    struct cpu_stream *stream = (struct cpu_stream *)base;
    const struct cpu_device *device = (const struct cpu_device *)base->device;
    struct queue_item *item = append_item(stream);
    item->run = device->kernels->run[operation];
    item->operation = operation;
    item->args.operation = *args;
}

static void cpu_copy(struct nj_stream *base, void *to, const void *from, size_t bytes)
{
    struct queue_item *item = append_item((struct cpu_stream *)base);
    item->run = NULL;
    item->args.copy = (struct copy_args){.to = to, .from = from, .bytes = bytes};
}

static int cpu_synchronize(struct nj_stream *base, const atomic_int *cancel)
{
    return run_stream((struct cpu_stream *)base, cancel);
}

static struct nj_event *cpu_event_create(struct nj_device *device)
{
    struct cpu_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return NULL;
    event->base.device = device;
    return &event->base;
}

static void cpu_event_destroy(struct nj_event *event)
{
    free(event);
}

static void cpu_event_record(struct nj_event *base, struct nj_stream *stream)
{
    struct cpu_event *event = (struct cpu_event *)base;
    event->stream = (struct cpu_stream *)stream;
    event->submitted = event->stream->submitted;
}

static int cpu_event_synchronize(struct nj_event *base, const atomic_int *cancel)
{
    struct cpu_event *event = (struct cpu_event *)base;
    if (event->stream == NULL || event->stream->finished >= event->submitted)
        return 0;
    return run_stream(event->stream, cancel);
}

/* What a stream waits for is run at once: earlier than needed, but in an order that every wait allows. */
static void cpu_wait(struct nj_stream *stream, struct nj_event *event)
{
    if (((struct cpu_event *)event)->stream != (struct cpu_stream *)stream)
        cpu_event_synchronize(event, NULL);
}

static const struct nj_device_backend cpu_backend = {
    .close = cpu_close,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .synchronize = cpu_synchronize,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .event_record = cpu_event_record,
    .wait = cpu_wait,
    .event_synchronize = cpu_event_synchronize,
};

struct nj_device *device_open_cpu(const struct nj_cpu_kernels *kernels, int threads)
{
    struct cpu_device *device = calloc(1, sizeof *device);
    if (device == NULL || barrier_open(&device->barrier) != 0) {
        free(device);
        return NULL;
    }
    device->base.backend = &cpu_backend;
    device->base.threads = threads < 1 ? 1 : threads;
    snprintf(device->base.name, sizeof device->base.name, "cpu %s", kernels->name);
    device->kernels = kernels;
    return &device->base;
}
