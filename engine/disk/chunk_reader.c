#include "engine/disk/chunk_reader.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/disk/chunk_reader_internal.h"

void chunk_reader_read(struct nj_chunk_reader *reader, const struct nj_chunk *chunk)
{
    const struct nj_chunk_source *source = &reader->options.source;
    struct nj_error error;
    const int status = direct_file_read(reader->options.file, chunk->to, (size_t)chunk->bytes, chunk->offset, &error);
    source->done(source->context, chunk, status == 0 ? NULL : &error);
}

/* One of several threads, each of which reads a piece at a time. */
static void *run_thread(void *context)
{
    struct nj_chunk_reader *reader = context;
    const struct nj_chunk_source *source = &reader->options.source;
    struct nj_chunk chunk;
    while (source->next(source->context, true, &chunk) > 0)
        chunk_reader_read(reader, &chunk);
    return NULL;
}

/* Signals are for the thread that computes, which looks after the job. */
static int start_threads(struct nj_chunk_reader *reader)
{
    const bool has_ring = reader->kind == NJ_READER_URING;
    const int wanted = has_ring ? 1 : reader->options.depth;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = 0;
    while (reader->threads < wanted && status == 0) {
        status = pthread_create(&reader->thread[reader->threads], NULL, has_ring ? chunk_reader_run_uring : run_thread,
                                reader);
        reader->threads += status == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reader->threads > 0 ? 0 : -1; /* fewer than wanted read all the same */
}

static int choose_kind(struct nj_chunk_reader *reader, struct nj_error *error)
{
    const struct nj_chunk_reader_options *options = &reader->options;
    reader->kind = NJ_READER_THREADS;
    /* Reads through the page cache do not run in the background of a ring. */
    if (options->kind == NJ_READER_THREADS ||
        (options->kind == NJ_READER_AUTOMATIC && !direct_file_is_direct(options->file)))
        return 0;
    const int status = chunk_reader_open_uring(reader);
    if (status == 0)
        reader->kind = NJ_READER_URING;
    else if (options->kind == NJ_READER_URING)
        return error_set(error, NJ_UNAVAILABLE, "the kernel gives no io_uring: %s", strerror(-status));
    return 0;
}

struct nj_chunk_reader *chunk_reader_create(const struct nj_chunk_reader_options *options, struct nj_error *error)
{
    struct nj_chunk_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    reader->options = *options;
    reader->options.memory = reader->memory;
    memcpy(reader->memory, options->memory, (size_t)options->memories * sizeof reader->memory[0]);
    if (choose_kind(reader, error) != 0) {
        free(reader);
        return NULL;
    }
    if (start_threads(reader) != 0) {
        error_set(error, NJ_INTERNAL, "cannot start a thread that reads from the disk");
        chunk_reader_destroy(reader);
        return NULL;
    }
    return reader;
}

void chunk_reader_destroy(struct nj_chunk_reader *reader)
{
    if (reader == NULL)
        return;
    for (int i = 0; i < reader->threads; i++)
        pthread_join(reader->thread[i], NULL);
    if (reader->kind == NJ_READER_URING)
        chunk_reader_close_uring(reader);
    free(reader);
}

enum nj_reader_kind chunk_reader_kind(const struct nj_chunk_reader *reader)
{
    return reader->kind;
}
