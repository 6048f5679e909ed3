#include "engine/disk/layer_ring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CANCEL_POLL_NANOSECONDS = 50000000, NANOSECONDS = 1000000000 };

/* A visit is the use of one layer in one sweep. Visits are numbered from 0 since the ring was created or a sweep was
 * abandoned: visit v is of layer v % count in sweep v / count, and lies in slot v % slot_count. In order:
 *   given_back <= taken <= read (all pieces asked for) <= allowed, and read - given_back <= slot_count. */
struct nj_layer_ring {
    struct nj_direct_file *file;
    struct nj_ring_layer *layers;
    uint64_t count, slot_count;
    void *slot[NJ_RING_MOST_SLOTS];

    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t has_work, has_read;
    uint64_t given_back, taken, allowed;
    uint64_t read, read_bytes;           /* the visit whose pieces are being asked for, and how far that is */
    int pieces_left[NJ_RING_MOST_SLOTS]; /* under way, for the visit in this slot */
    int under_way;
    uint64_t sweep_bytes[2]; /* read for the sweep of this parity, not yet ended */
    struct nj_error failure; /* code NJ_OK: none */
    bool is_closing;
    struct nj_ring_counts counts;

    struct nj_chunk_reader *reader;
};

static bool may_read(const struct nj_layer_ring *ring)
{
    return ring->failure.code == NJ_OK && ring->read < ring->allowed &&
           ring->read < ring->given_back + ring->slot_count;
}

/* The next piece of the visit that is being read. */
static void cut_chunk(struct nj_layer_ring *ring, struct nj_chunk *out)
{
    const struct nj_ring_layer *layer = &ring->layers[ring->read % ring->count];
    const uint64_t slot = ring->read % ring->slot_count, rest = layer->bytes - ring->read_bytes;
    *out = (struct nj_chunk){.to = (char *)ring->slot[slot] + ring->read_bytes,
                             .offset = layer->offset + ring->read_bytes,
                             .bytes = rest < NJ_RING_CHUNK_BYTES ? rest : NJ_RING_CHUNK_BYTES,
                             .tag = ring->read};
    ring->pieces_left[slot]++;
    ring->under_way++;
    ring->read_bytes += out->bytes;
    if (ring->read_bytes == layer->bytes) {
        ring->read++;
        ring->read_bytes = 0;
    }
}

static int next_chunk(void *context, bool may_wait, struct nj_chunk *out)
{
    struct nj_layer_ring *ring = context;
    pthread_mutex_lock(&ring->mutex);
    while (!ring->is_closing && !may_read(ring) && may_wait)
        pthread_cond_wait(&ring->has_work, &ring->mutex);
    const int answer = ring->is_closing ? -1 : may_read(ring);
    if (answer > 0)
        cut_chunk(ring, out);
    pthread_mutex_unlock(&ring->mutex);
    return answer;
}

static void note_chunk(void *context, const struct nj_chunk *chunk, const struct nj_error *error)
{
    struct nj_layer_ring *ring = context;
    pthread_mutex_lock(&ring->mutex);
    ring->pieces_left[chunk->tag % ring->slot_count]--;
    ring->under_way--;
    if (error == NULL)
        ring->sweep_bytes[chunk->tag / ring->count % 2] += chunk->bytes;
    else if (ring->failure.code == NJ_OK)
        ring->failure = *error;
    pthread_cond_broadcast(&ring->has_read);
    pthread_mutex_unlock(&ring->mutex);
}

static int start_reader(struct nj_layer_ring *ring, enum nj_reader_kind kind, struct nj_error *error)
{
    struct nj_reader_memory memory[NJ_RING_MOST_SLOTS];
    uint64_t largest = 0;
    for (uint64_t i = 0; i < ring->count; i++)
        largest = ring->layers[i].bytes > largest ? ring->layers[i].bytes : largest;
    for (uint64_t i = 0; i < ring->slot_count; i++)
        memory[i] = (struct nj_reader_memory){.address = ring->slot[i], .bytes = largest};
    const struct nj_chunk_reader_options options = {
        .kind = kind,
        .depth = NJ_RING_DEPTH,
        .file = ring->file,
        .source = {.context = ring, .next = next_chunk, .done = note_chunk},
        .memory = memory,
        .memories = (int)ring->slot_count,
    };
    ring->reader = chunk_reader_create(&options, error);
    return ring->reader == NULL ? -1 : 0;
}

static void init_locks(struct nj_layer_ring *ring)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&ring->mutex, NULL);
    pthread_cond_init(&ring->has_work, NULL);
    pthread_cond_init(&ring->has_read, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct nj_layer_ring *layer_ring_create(const struct nj_layer_ring_options *options, struct nj_error *error)
{
    struct nj_layer_ring *ring = calloc(1, sizeof *ring);
    struct nj_ring_layer *layers = calloc((size_t)options->count, sizeof *layers);
    if (ring == NULL || layers == NULL) {
        free(ring);
        free(layers);
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    memcpy(layers, options->layers, (size_t)options->count * sizeof *layers);
    ring->file = options->file;
    ring->layers = layers;
    ring->count = (uint64_t)options->count;
    ring->slot_count = (uint64_t)options->slot_count;
    memcpy(ring->slot, options->slots, (size_t)options->slot_count * sizeof ring->slot[0]);
    init_locks(ring);
    if (start_reader(ring, options->reader, error) == 0)
        return ring;
    layer_ring_destroy(ring);
    return NULL;
}

void layer_ring_destroy(struct nj_layer_ring *ring)
{
    if (ring == NULL)
        return;
    pthread_mutex_lock(&ring->mutex);
    ring->is_closing = true;
    pthread_cond_broadcast(&ring->has_work);
    pthread_mutex_unlock(&ring->mutex);
    chunk_reader_destroy(ring->reader);
    pthread_cond_destroy(&ring->has_read);
    pthread_cond_destroy(&ring->has_work);
    pthread_mutex_destroy(&ring->mutex);
    free(ring->layers);
    free(ring);
}

void layer_ring_begin_sweep(struct nj_layer_ring *ring, bool another_follows)
{
    pthread_mutex_lock(&ring->mutex);
    ring->allowed = (ring->taken / ring->count + (another_follows ? 2 : 1)) * ring->count;
    pthread_cond_broadcast(&ring->has_work);
    pthread_mutex_unlock(&ring->mutex);
}

/* All of the next visit's pieces have been asked for, and none is under way. */
static bool is_there(const struct nj_layer_ring *ring)
{
    return ring->taken < ring->read && ring->pieces_left[ring->taken % ring->slot_count] == 0;
}

bool layer_ring_is_ready(struct nj_layer_ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    const bool answer = ring->failure.code == NJ_OK && is_there(ring);
    pthread_mutex_unlock(&ring->mutex);
    return answer;
}

static struct timespec now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

static struct timespec next_look(struct timespec time)
{
    time.tv_nsec += CANCEL_POLL_NANOSECONDS;
    time.tv_sec += time.tv_nsec / NANOSECONDS;
    time.tv_nsec %= NANOSECONDS;
    return time;
}

static double seconds_between(struct timespec from, struct timespec to)
{
    return (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / NANOSECONDS;
}

void *layer_ring_take(struct nj_layer_ring *ring, const atomic_int *cancel, struct nj_error *error)
{
    void *address = NULL;
    pthread_mutex_lock(&ring->mutex);
    const struct timespec begin = now();
    bool is_cancelled = false;
    while (ring->failure.code == NJ_OK && !is_there(ring) && !is_cancelled) {
        const struct timespec until = next_look(now());
        pthread_cond_timedwait(&ring->has_read, &ring->mutex, &until);
        is_cancelled = cancel != NULL && atomic_load(cancel) != 0;
    }
    ring->counts.wait_seconds += seconds_between(begin, now());
    if (ring->failure.code != NJ_OK)
        *error = ring->failure;
    else if (!is_there(ring))
        error_set(error, NJ_INTERRUPTED, "interrupted while waiting for the disk");
    else
        address = ring->slot[ring->taken++ % ring->slot_count];
    pthread_mutex_unlock(&ring->mutex);
    return address;
}

void layer_ring_give_back(struct nj_layer_ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->given_back++;
    pthread_cond_broadcast(&ring->has_work);
    pthread_mutex_unlock(&ring->mutex);
}

/* Numbers begin anew. A failed read may be tried again. */
static void forget_visits(struct nj_layer_ring *ring)
{
    ring->allowed = 0;
    while (ring->under_way > 0)
        pthread_cond_wait(&ring->has_read, &ring->mutex);
    ring->counts.abandoned_bytes += ring->sweep_bytes[0] + ring->sweep_bytes[1];
    ring->sweep_bytes[0] = ring->sweep_bytes[1] = 0;
    ring->given_back = ring->taken = ring->read = ring->read_bytes = 0;
    ring->failure.code = NJ_OK;
}

void layer_ring_end_sweep(struct nj_layer_ring *ring, bool is_completed)
{
    pthread_mutex_lock(&ring->mutex);
    if (is_completed) {
        uint64_t *bytes = &ring->sweep_bytes[(ring->taken / ring->count - 1) % 2];
        ring->counts.completed_sweeps++;
        ring->counts.completed_bytes += *bytes;
        *bytes = 0;
    } else {
        forget_visits(ring);
    }
    pthread_mutex_unlock(&ring->mutex);
}

struct nj_ring_counts layer_ring_counts(struct nj_layer_ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    struct nj_ring_counts counts = ring->counts;
    counts.ahead_bytes = ring->read_bytes;
    for (uint64_t visit = ring->taken; visit < ring->read; visit++)
        counts.ahead_bytes += ring->layers[visit % ring->count].bytes;
    pthread_mutex_unlock(&ring->mutex);
    return counts;
}

enum nj_reader_kind layer_ring_reader(const struct nj_layer_ring *ring)
{
    return chunk_reader_kind(ring->reader);
}
