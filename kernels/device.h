/* The device interface: buffers, copies, streams, events, launches. The CPU implements it here; a GPU
 * joins behind the same table.
 *
 * Work given to a stream runs in the order given, some time before stream_synchronize returns. The CPU
 * device queues it and runs the whole queue in one OpenMP parallel region, with a barrier after each
 * launch, when it is synchronised or full. Functions return 0 on success; -1 means no memory (create) or
 * cancelled (synchronise). Nothing allocates after creation. One thread uses a device at a time; `cancel`
 * may be set from anywhere, signal handlers included. */
#ifndef NJ_KERNELS_DEVICE_H
#define NJ_KERNELS_DEVICE_H

#include <stdatomic.h>
#include <stddef.h>

#include "kernels/cpu_kernels.h"
#include "kernels/operations.h"

struct nj_device;
struct nj_buffer;
struct nj_stream;
struct nj_event;

/* Host memory, page-aligned and zeroed, counted by the device. On the CPU it is also device memory. */
struct nj_device *device_open_cpu(const struct nj_cpu_kernels *kernels, int threads);
void device_close(struct nj_device *device); /* NULL is fine; everything made from it must be gone */

const char *device_name(const struct nj_device *device); /* e.g. "cpu avx2" */
int device_threads(const struct nj_device *device);
size_t device_bytes(const struct nj_device *device); /* held by its buffers now */

/* Where a device's time goes, added up while it is asked for. */
struct nj_device_times {
    double seconds[NJ_OP_COUNT];
    double matmul_operations; /* multiplications and additions of matrix products */
};
/* From now on launches are timed into *times, which the caller has zeroed; NULL: no longer, which is how a device
 * begins. A timed launch costs two readings of a clock. */
void device_time_launches(struct nj_device *device, struct nj_device_times *times);

struct nj_buffer *buffer_create(struct nj_device *device, size_t bytes);
void buffer_destroy(struct nj_buffer *buffer);
void *buffer_address(const struct nj_buffer *buffer); /* device address; 4096-byte aligned */
size_t buffer_bytes(const struct nj_buffer *buffer);

struct nj_stream *stream_create(struct nj_device *device, size_t capacity /* launches queued at most */);
void stream_destroy(struct nj_stream *stream);
void stream_launch(struct nj_stream *stream, enum nj_operation operation, const union nj_operation_args *args);
/* Copies between any two addresses, in stream order; both must stay valid until it has run. */
void stream_copy(struct nj_stream *stream, void *to, const void *from, size_t bytes);
/* Runs what is queued. If *cancel becomes non-zero the rest of the queue is dropped at the next launch
 * boundary and -1 is returned; what the dropped work would have written is undefined. cancel may be NULL. */
int stream_synchronize(struct nj_stream *stream, const atomic_int *cancel);

struct nj_event *event_create(struct nj_device *device);
void event_destroy(struct nj_event *event);
void event_record(struct nj_event *event, struct nj_stream *stream);
void stream_wait(struct nj_stream *stream, struct nj_event *event); /* later work waits for the event */
int event_synchronize(struct nj_event *event, const atomic_int *cancel);

#endif
