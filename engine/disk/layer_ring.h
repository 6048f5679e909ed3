/* A ring of memory through which layers on disk come, sweep after sweep in the same order, read ahead of their use.
 * A slot holds one whole layer. A layer's bytes are read once per sweep; what is read ahead for a sweep that has not
 * been announced is: nothing.
 *
 * One thread uses a ring; the reading goes on in the background. */
#ifndef NJ_ENGINE_DISK_LAYER_RING_H
#define NJ_ENGINE_DISK_LAYER_RING_H

#include <stdatomic.h>

#include "engine/disk/chunk_reader.h"

enum { NJ_RING_CHUNK_BYTES = 8 << 20, NJ_RING_DEPTH = 4, NJ_RING_MOST_SLOTS = NJ_READER_MOST_MEMORIES };

/* Where a layer lies in the file; multiples of 4,096, not empty. */
struct nj_ring_layer {
    uint64_t offset, bytes;
};

struct nj_layer_ring_options {
    struct nj_direct_file *file;        /* outlives the ring */
    const struct nj_ring_layer *layers; /* [count], in a sweep's order; copied */
    int32_t count;                      /* >= 1 */
    void *const *slots;                 /* [slot_count], each as large as the largest layer, 4,096-byte aligned; kept */
    int slot_count;                     /* 1 .. NJ_RING_MOST_SLOTS; from 2 on, reading goes on while a layer is used */
    enum nj_reader_kind reader;
};

struct nj_ring_counts {
    uint64_t completed_sweeps;
    uint64_t completed_bytes; /* read for them */
    uint64_t abandoned_bytes; /* read for sweeps that were not completed */
    uint64_t ahead_bytes;     /* asked for and not yet taken; behind the last sweep there should be none */
    double wait_seconds;      /* that layer_ring_take waited */
};

struct nj_layer_ring;

struct nj_layer_ring *layer_ring_create(const struct nj_layer_ring_options *options, struct nj_error *error);
void layer_ring_destroy(struct nj_layer_ring *ring); /* ends the reads that are under way; NULL is fine */

/* Begins a sweep. If another one certainly follows, its first layers are read as soon as there is room. */
void layer_ring_begin_sweep(struct nj_layer_ring *ring, bool another_follows);
/* Whether the next layer is there. */
bool layer_ring_is_ready(struct nj_layer_ring *ring);
/* The next layer of the sweep: waits until it is there. Valid until it is given back. NULL: NJ_INTERRUPTED as *cancel
 * became non-zero (looked at twenty times a second; may be NULL), or what the read failed of. */
void *layer_ring_take(struct nj_layer_ring *ring, const atomic_int *cancel, struct nj_error *error);
/* Gives the longest taken layer's memory back. */
void layer_ring_give_back(struct nj_layer_ring *ring);
/* Ends a sweep whose layers have all been taken and given back; or abandons it, which waits for the reads under way
 * and forgets what has been read and taken. */
void layer_ring_end_sweep(struct nj_layer_ring *ring, bool is_completed);

struct nj_ring_counts layer_ring_counts(struct nj_layer_ring *ring);
enum nj_reader_kind layer_ring_reader(const struct nj_layer_ring *ring);

#endif
