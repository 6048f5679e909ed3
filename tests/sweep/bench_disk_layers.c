/* Layers on disk beside all layers in RAM: tokens per second of decoding, in one run and in turns.
 *
 *   bench_disk_layers MODEL.gguf CACHE_DIRECTORY DISK_LAYERS [SEQUENCES ...]
 *
 * With one number of sequences (64 if none is given) reading is slowed down so that it takes as long as computing T*
 * tokens would, for several T*; with more, the disk runs as it does and the curve over the numbers is printed. Reading
 * is slowed down where it happens, in pread, so threads read. Each line says what the bound allows: the slower of
 * computing and reading. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "engine/sweep/bench.h"

enum { CONTEXT = 200, ROUNDS = 3, MOST_SEQUENCES = 256, BYTES_PER_GIGABYTE = 1000000000 };

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;
static double disk_rate; /* bytes per second; 0: as fast as it is */
static double disk_free_at;

ssize_t __real_pread64(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t offset);

/* As a disk of this rate would: one read after another, each as long as its bytes take. */
ssize_t __wrap_pread64(int fd, void *to, size_t bytes, off_t offset)
{
    const ssize_t got = __real_pread64(fd, to, bytes, offset);
    pthread_mutex_lock(&disk);
    const double rate = disk_rate;
    const double begin = now_seconds();
    if (rate > 0)
        disk_free_at = (disk_free_at > begin ? disk_free_at : begin) + (double)bytes / rate;
    const double until = disk_free_at;
    pthread_mutex_unlock(&disk);
    if (rate > 0 && until > begin) {
        const double wait = until - begin;
        const struct timespec time = {.tv_sec = (time_t)wait, .tv_nsec = (long)(fmod(wait, 1.0) * 1e9)};
        nanosleep(&time, NULL);
    }
    return got;
}

static void set_disk_rate(double bytes_per_second)
{
    pthread_mutex_lock(&disk);
    disk_rate = bytes_per_second;
    pthread_mutex_unlock(&disk);
}

static void check(int status, const struct nj_error *error)
{
    if (status == 0)
        return;
    char text[2048];
    error_format(error, text, sizeof text);
    fprintf(stderr, "bench_disk_layers: %s\n", text);
    exit(error->code);
}

/* The model twice: all of it in RAM, and with layers on disk. */
struct pair {
    struct nj_device *device;
    struct nj_model *in_ram, *on_disk;
    double sweep_bytes;
};

static struct nj_model *open_model(struct nj_device *device, const char *path, const char *cache, int32_t disk_layers)
{
    struct nj_error error;
    const struct nj_weights_options weights = {.disk_layers = disk_layers, .reader = NJ_READER_THREADS};
    struct nj_model *model = model_open(&(struct nj_model_options){.path = path, .cache_directory = cache}, &error);
    check(model == NULL ? -1 : model_load_weights(model, device, &weights, &error), &error);
    return model;
}

static double decode_rate(const struct pair *pair, const struct nj_model *model, int32_t sequences)
{
    struct nj_error error;
    struct nj_bench_result result;
    const struct nj_bench_options options = {.token_budget = MOST_SEQUENCES, .seconds = 3};
    check(bench_decode(model, pair->device, &options, sequences, CONTEXT, &result, &error), &error);
    return (double)result.tokens / result.seconds;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct rates {
    double in_ram, on_disk; /* tokens per second, medians of the rounds */
};

static struct rates measure(const struct pair *pair, int32_t sequences)
{
    double in_ram[ROUNDS], on_disk[ROUNDS];
    const double rate = disk_rate;
    for (int i = 0; i < ROUNDS; i++) {
        in_ram[i] = decode_rate(pair, pair->in_ram, sequences);
        set_disk_rate(rate);
        on_disk[i] = decode_rate(pair, pair->on_disk, sequences);
    }
    qsort(in_ram, ROUNDS, sizeof in_ram[0], compare_doubles);
    qsort(on_disk, ROUNDS, sizeof on_disk[0], compare_doubles);
    return (struct rates){in_ram[ROUNDS / 2], on_disk[ROUNDS / 2]};
}

static void print_line(const struct rates *rates, double disk_bound)
{
    const double bound = disk_bound < rates->in_ram ? disk_bound : rates->in_ram;
    printf("in RAM %7.2f tokens/s, layers on disk %7.2f (%5.1f %% of RAM), disk's bound %8.2f: %5.1f %% of the lower\n",
           rates->in_ram, rates->on_disk, 100 * rates->on_disk / rates->in_ram, disk_bound,
           100 * rates->on_disk / bound);
    fflush(stdout);
}

/* Reading takes as long as computing `equal` tokens does, if that grows with their number. */
static void measure_slowed(const struct pair *pair, int32_t sequences, double equal)
{
    const double sweep_seconds = (double)sequences / decode_rate(pair, pair->in_ram, sequences);
    set_disk_rate(pair->sweep_bytes / (sweep_seconds * equal / (double)sequences));
    const double bound = disk_rate / pair->sweep_bytes * (double)sequences;
    const struct rates rates = measure(pair, sequences);
    printf("T %3d  T* %3.0f  ", (int)sequences, equal);
    print_line(&rates, bound);
    set_disk_rate(0);
}

/* The disk's own rate, from what the ring alone would read: the pack's layers in order. */
static double measure_disk(const struct pair *pair, double seconds)
{
    struct nj_error error;
    struct nj_direct_file *file = pack_direct_file(pair->on_disk->pack);
    void *to = aligned_alloc(NJ_PACK_ALIGNMENT, NJ_RING_CHUNK_BYTES);
    const double begin = now_seconds();
    double bytes = 0;
    for (uint64_t offset = 0; now_seconds() - begin < seconds; offset += NJ_RING_CHUNK_BYTES) {
        if (offset + NJ_RING_CHUNK_BYTES > direct_file_bytes(file))
            offset = 0;
        check(direct_file_read(file, to, NJ_RING_CHUNK_BYTES, offset, &error), &error);
        bytes += NJ_RING_CHUNK_BYTES;
    }
    free(to);
    return bytes / (now_seconds() - begin);
}

static void measure_curve(const struct pair *pair, char **sequences, int count)
{
    for (int i = 0; i < count; i++) {
        const int32_t n = atoi(sequences[i]);
        if (n < 1 || n > MOST_SEQUENCES)
            continue;
        const double before = measure_disk(pair, 1);
        const struct rates rates = measure(pair, n);
        const double rate = (before + measure_disk(pair, 1)) / 2;
        printf("T %3d  disk %.2f GB/s  ", (int)n, rate / BYTES_PER_GIGABYTE);
        print_line(&rates, rate / pair->sweep_bytes * n);
    }
}

int main(int argc, char **argv)
{
    if (argc < 4 || atoi(argv[3]) < 1) {
        fprintf(stderr, "usage: bench_disk_layers MODEL.gguf CACHE_DIRECTORY DISK_LAYERS [SEQUENCES ...]\n");
        return 64;
    }
    struct pair pair = {.device = device_open_cpu(cpu_kernels_find(NULL), 2)};
    const int32_t disk_layers = atoi(argv[3]);
    pair.in_ram = open_model(pair.device, argv[1], argv[2], 0);
    if (disk_layers > pair.in_ram->shape.layers) {
        fprintf(stderr, "bench_disk_layers: the model has %d layers\n", (int)pair.in_ram->shape.layers);
        return 64;
    }
    pair.on_disk = open_model(pair.device, argv[1], argv[2], disk_layers);
    struct nj_weights_memory memory;
    struct nj_error error;
    check(weights_plan_memory(pair.in_ram->gguf, &pair.in_ram->shape, disk_layers, &memory, &error), &error);
    pair.sweep_bytes = (double)memory.disk_bytes;
    printf("%d of %d layers on disk: %.0f MB a sweep; ring %.0f MB; %s\n", (int)disk_layers,
           (int)pair.in_ram->shape.layers, pair.sweep_bytes / 1e6, (double)memory.ring_bytes / 1e6,
           device_name(pair.device));
    if (argc > 5) {
        measure_curve(&pair, argv + 4, argc - 4);
    } else {
        const int32_t sequences = argc == 5 ? atoi(argv[4]) : 64;
        for (int i = 0; i < 3; i++)
            measure_slowed(&pair, sequences, (double)(int[]){32, 48, 128}[i]);
    }
    model_close(pair.on_disk);
    model_close(pair.in_ram);
    device_close(pair.device);
    return 0;
}
