/* A reader with a ring of the kernel's: one thread keeps `depth` reads under way. */
#include <sys/uio.h>

#include "engine/disk/chunk_reader_internal.h"

/* The pieces under way. Only these numbers go through the kernel. */
struct flight {
    struct nj_chunk chunk[NJ_READER_MOST_DEPTH];
    bool is_used[NJ_READER_MOST_DEPTH];
    int count;
};

int chunk_reader_open_uring(struct nj_chunk_reader *reader)
{
    const int status = io_uring_queue_init(NJ_READER_MOST_DEPTH, &reader->uring, 0);
    if (status < 0)
        return status;
    struct iovec pages[NJ_READER_MOST_MEMORIES];
    for (int i = 0; i < reader->options.memories; i++)
        pages[i] = (struct iovec){.iov_base = reader->memory[i].address, .iov_len = (size_t)reader->memory[i].bytes};
    /* Refused where more memory would be locked than the user may: reads are then a little dearer. */
    reader->is_registered = io_uring_register_buffers(&reader->uring, pages, (unsigned)reader->options.memories) == 0;
    return 0;
}

void chunk_reader_close_uring(struct nj_chunk_reader *reader)
{
    io_uring_queue_exit(&reader->uring);
}

static int memory_of(const struct nj_chunk_reader *reader, const void *address)
{
    for (int i = 0; i < reader->options.memories; i++) {
        const char *begin = reader->memory[i].address;
        if ((const char *)address >= begin && (const char *)address < begin + reader->memory[i].bytes)
            return i;
    }
    return -1;
}

static void submit(struct nj_chunk_reader *reader, struct flight *flight, const struct nj_chunk *chunk)
{
    int number = 0;
    while (flight->is_used[number])
        number++;
    flight->chunk[number] = *chunk;
    flight->is_used[number] = true;
    flight->count++;
    /* There are as many entries as pieces can be under way. */
    struct io_uring_sqe *entry = io_uring_get_sqe(&reader->uring);
    const int fd = direct_file_descriptor(reader->options.file);
    const int memory = memory_of(reader, chunk->to);
    if (reader->is_registered && memory >= 0)
        io_uring_prep_read_fixed(entry, fd, chunk->to, (unsigned)chunk->bytes, chunk->offset, memory);
    else
        io_uring_prep_read(entry, fd, chunk->to, (unsigned)chunk->bytes, chunk->offset);
    io_uring_sqe_set_data64(entry, (uint64_t)number);
}

/* Whatever is not simply read is read again in the plain way, which goes on after short reads, leaves direct I/O where
 * it is refused, and has the words for what failed. */
static void finish(struct nj_chunk_reader *reader, struct flight *flight, const struct io_uring_cqe *entry)
{
    const struct nj_chunk_source *source = &reader->options.source;
    const uint64_t number = entry->user_data;
    const struct nj_chunk chunk = flight->chunk[number];
    flight->is_used[number] = false;
    flight->count--;
    if (entry->res >= 0 && (uint64_t)entry->res == chunk.bytes)
        source->done(source->context, &chunk, NULL);
    else
        chunk_reader_read(reader, &chunk);
}

/* Gives the ring what the source has, and waits for it only if nothing is under way. False: there will be no more. */
static bool fill(struct nj_chunk_reader *reader, struct flight *flight)
{
    const struct nj_chunk_source *source = &reader->options.source;
    while (flight->count < reader->options.depth) {
        struct nj_chunk chunk;
        const int answer = source->next(source->context, flight->count == 0, &chunk);
        if (answer <= 0)
            return answer == 0;
        submit(reader, flight, &chunk);
        io_uring_submit(&reader->uring); /* at once, as the next call may take its time */
    }
    return true;
}

void *chunk_reader_run_uring(void *context)
{
    struct nj_chunk_reader *reader = context;
    struct flight flight = {.count = 0};
    for (bool goes_on = true; goes_on || flight.count > 0;) {
        goes_on = goes_on && fill(reader, &flight);
        struct io_uring_cqe *entry;
        if (flight.count == 0 || io_uring_submit_and_wait(&reader->uring, 1) < 0)
            continue; /* nothing under way; or the wait was disturbed, and what is left is submitted with the next */
        while (io_uring_peek_cqe(&reader->uring, &entry) == 0) {
            finish(reader, &flight, entry);
            io_uring_cqe_seen(&reader->uring, entry);
        }
    }
    return NULL;
}
