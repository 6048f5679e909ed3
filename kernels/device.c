/* The device interface: buffers and their accounting; everything else goes to the backend. */
#include "kernels/device.h"

#include <stdlib.h>

#include "kernels/device_backend.h"

struct nj_buffer {
    struct nj_device *device;
    void *address;
    size_t bytes;
};

void device_close(struct nj_device *device)
{
    if (device != NULL)
        device->backend->close(device);
}

const char *device_name(const struct nj_device *device)
{
    return device->name;
}

int device_threads(const struct nj_device *device)
{
    return device->threads;
}

size_t device_bytes(const struct nj_device *device)
{
    return device->bytes;
}

void device_time_launches(struct nj_device *device, struct nj_device_times *times)
{
    device->times = times;
}

struct nj_buffer *buffer_create(struct nj_device *device, size_t bytes)
{
    struct nj_buffer *buffer = malloc(sizeof *buffer);
    if (buffer == NULL)
        return NULL;
    void *address = device->backend->allocate(device, bytes);
    if (address == NULL) {
        free(buffer);
        return NULL;
    }
    *buffer = (struct nj_buffer){.device = device, .address = address, .bytes = bytes};
    device->bytes += bytes;
    return buffer;
}

void buffer_destroy(struct nj_buffer *buffer)
{
    if (buffer == NULL)
        return;
    buffer->device->bytes -= buffer->bytes;
    buffer->device->backend->release(buffer->device, buffer->address, buffer->bytes);
    free(buffer);
}

void *buffer_address(const struct nj_buffer *buffer)
{
    return buffer->address;
}

size_t buffer_bytes(const struct nj_buffer *buffer)
{
    return buffer->bytes;
}

struct nj_stream *stream_create(struct nj_device *device, size_t capacity)
{
    return device->backend->stream_create(device, capacity);
}

void stream_destroy(struct nj_stream *stream)
{
    if (stream != NULL)
        stream->device->backend->stream_destroy(stream);
}

void stream_launch(struct nj_stream *stream, enum nj_operation operation, const union nj_operation_args *args)
{
    stream->device->backend->launch(stream, operation, args);
}

void stream_copy(struct nj_stream *stream, void *to, const void *from, size_t bytes)
{
    stream->device->backend->copy(stream, to, from, bytes);
}

int stream_synchronize(struct nj_stream *stream, const atomic_int *cancel)
{
    return stream->device->backend->synchronize(stream, cancel);
}

struct nj_event *event_create(struct nj_device *device)
{
    return device->backend->event_create(device);
}

void event_destroy(struct nj_event *event)
{
    if (event != NULL)
        event->device->backend->event_destroy(event);
}

void event_record(struct nj_event *event, struct nj_stream *stream)
{
    event->device->backend->event_record(event, stream);
}

void stream_wait(struct nj_stream *stream, struct nj_event *event)
{
    stream->device->backend->wait(stream, event);
}

int event_synchronize(struct nj_event *event, const atomic_int *cancel)
{
    return event->device->backend->event_synchronize(event, cancel);
}
