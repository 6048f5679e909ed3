/* What a kind of device implements behind kernels/device.h. Included by device.c and the devices only. */
#ifndef NJ_KERNELS_DEVICE_BACKEND_H
#define NJ_KERNELS_DEVICE_BACKEND_H

#include "kernels/device.h"

struct nj_device_backend {
    void (*close)(struct nj_device *device);
    void *(*allocate)(struct nj_device *device, size_t bytes); /* zeroed, 4096-byte aligned; NULL: no memory */
    void (*release)(struct nj_device *device, void *address, size_t bytes);

    struct nj_stream *(*stream_create)(struct nj_device *device, size_t capacity);
    void (*stream_destroy)(struct nj_stream *stream);
    void (*launch)(struct nj_stream *stream, enum nj_operation operation, const union nj_operation_args *args);
    void (*copy)(struct nj_stream *stream, void *to, const void *from, size_t bytes);
    int (*synchronize)(struct nj_stream *stream, const atomic_int *cancel);

    struct nj_event *(*event_create)(struct nj_device *device);
    void (*event_destroy)(struct nj_event *event);
    void (*event_record)(struct nj_event *event, struct nj_stream *stream);
    void (*wait)(struct nj_stream *stream, struct nj_event *event);
    int (*event_synchronize)(struct nj_event *event, const atomic_int *cancel);
};

/* Each device's own structures begin with these. */
struct nj_device {
    const struct nj_device_backend *backend;
    char name[32];
    int threads;
    size_t bytes;                  /* held by buffers */
    struct nj_device_times *times; /* NULL: launches are not timed */
};

struct nj_stream {
    struct nj_device *device;
};

struct nj_event {
    struct nj_device *device;
};

#endif
