/* The ring without computing: layers of a file are taken and given back at once.
 *
 *   bench_layer_ring FILE [SECONDS] [MIB_OF_A_LAYER]
 *
 * Prints one line: how it reads, and bytes per second. tests/bench/compare_fio.py puts it beside fio. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/disk/layer_ring.h"

enum { SLOTS = 2, MEBIBYTE = 1 << 20, DEFAULT_LAYER_MIB = 128, DEFAULT_SECONDS = 5 };

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int fail(const struct nj_error *error)
{
    char text[2048];
    error_format(error, text, sizeof text);
    fprintf(stderr, "bench_layer_ring: %s\n", text);
    return error->code;
}

/* Whole sweeps, one after another, until the time is up. Returns bytes per second, or -1. */
static double run_sweeps(struct nj_layer_ring *ring, int32_t layers, double seconds, struct nj_error *error)
{
    const double begin = now_seconds();
    do {
        layer_ring_begin_sweep(ring, true);
        for (int32_t i = 0; i < layers; i++) {
            if (layer_ring_take(ring, NULL, error) == NULL)
                return -1;
            layer_ring_give_back(ring);
        }
        layer_ring_end_sweep(ring, true);
    } while (now_seconds() - begin < seconds);
    return (double)layer_ring_counts(ring).completed_bytes / (now_seconds() - begin);
}

int main(int argc, char **argv)
{
    const double seconds = argc > 2 ? atof(argv[2]) : DEFAULT_SECONDS;
    const uint64_t layer_bytes = (uint64_t)(argc > 3 ? atoi(argv[3]) : DEFAULT_LAYER_MIB) * MEBIBYTE;
    struct nj_error error;
    struct nj_direct_file *file = argc < 2 ? NULL : direct_file_open(argv[1], &error);
    if (argc < 2 || layer_bytes == 0) {
        fprintf(stderr, "usage: bench_layer_ring FILE [SECONDS] [MIB_OF_A_LAYER]\n");
        return 64;
    }
    if (file == NULL)
        return fail(&error);
    const int32_t layers = (int32_t)(direct_file_bytes(file) / layer_bytes);
    struct nj_ring_layer *places = calloc((size_t)layers + 1, sizeof *places);
    if (layers == 0 || places == NULL) {
        fprintf(stderr, "bench_layer_ring: the file is smaller than a layer\n");
        return 65;
    }
    for (int32_t i = 0; i < layers; i++)
        places[i] = (struct nj_ring_layer){.offset = (uint64_t)i * layer_bytes, .bytes = layer_bytes};
    void *slots[SLOTS];
    for (int i = 0; i < SLOTS; i++) { /* as the CPU device takes memory */
        slots[i] = mmap(NULL, layer_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(slots[i], layer_bytes, MADV_HUGEPAGE);
    }
    const struct nj_layer_ring_options options = {
        .file = file, .layers = places, .count = layers, .slots = slots, .slot_count = SLOTS};
    struct nj_layer_ring *ring = layer_ring_create(&options, &error);
    if (ring == NULL)
        return fail(&error);
    const double rate = run_sweeps(ring, layers, seconds, &error);
    if (rate < 0)
        return fail(&error);
    printf("%s %.0f\n", layer_ring_reader(ring) == NJ_READER_URING ? "io_uring" : "threads", rate);
    layer_ring_destroy(ring);
    direct_file_close(file);
    free(places);
    return 0;
}
