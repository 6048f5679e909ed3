#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/machine/machine_rates.h"

enum {
    PATH_BYTES = 4096,
    CHUNK_BYTES = 8 << 20, /* as large as a pack's sections are, about */
    TEMPORARY_BYTES = 128 << 20,
    LEAST_PACK_BYTES = 64 << 20,
    MOST_READ_BYTES = 512 << 20,
    FREE_SPACE_TIMES = 4 /* what must be free for a temporary file, in files of its size */
};

static const double SECONDS = 1;

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fail(struct nj_disk_rate *rate, const char *what, const char *why)
{
    snprintf(rate->why_not, sizeof rate->why_not, "%.300s: %.800s", what, why);
}

static int read_some(struct nj_direct_file *file, void *chunk, struct nj_disk_rate *rate, struct nj_error *error)
{
    const uint64_t chunks = direct_file_bytes(file) / CHUNK_BYTES;
    const double start = now_seconds();
    double seconds = 0;
    for (uint64_t i = 0; i < chunks && rate->bytes < MOST_READ_BYTES && seconds < SECONDS; i++) {
        if (direct_file_read(file, chunk, CHUNK_BYTES, i * CHUNK_BYTES, error) != 0)
            return -1;
        rate->bytes += CHUNK_BYTES;
        seconds = now_seconds() - start;
    }
    if (seconds > 0)
        rate->bytes_per_second = (double)rate->bytes / seconds;
    return 0;
}

static void read_file(const char *path, struct nj_disk_rate *rate)
{
    struct nj_error error = {0};
    void *chunk = aligned_alloc(4096, CHUNK_BYTES);
    struct nj_direct_file *file = chunk != NULL ? direct_file_open(path, &error) : NULL;
    if (chunk == NULL)
        fail(rate, "memory", "there is none for a buffer");
    else if (file == NULL || read_some(file, chunk, rate, &error) != 0)
        fail(rate, path, error.message);
    else if (!direct_file_is_direct(file))
        fail(rate, path, "this file system has no direct I/O, and a buffered read would measure memory");
    if (rate->why_not[0] != '\0')
        rate->bytes_per_second = 0;
    direct_file_close(file);
    free(chunk);
}

/* The largest file of the directory that is worth reading; false: there is none. */
static bool find_pack(const char *directory, char path[PATH_BYTES])
{
    DIR *packs = opendir(directory);
    off_t largest = LEAST_PACK_BYTES - 1;
    const struct dirent *entry;
    while (packs != NULL && (entry = readdir(packs)) != NULL) {
        char candidate[PATH_BYTES];
        struct stat info;
        int length = snprintf(candidate, sizeof candidate, "%s/%s", directory, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof candidate || stat(candidate, &info) != 0 || !S_ISREG(info.st_mode) ||
            info.st_size <= largest)
            continue;
        largest = info.st_size;
        memcpy(path, candidate, sizeof candidate);
    }
    if (packs != NULL)
        closedir(packs);
    return largest >= LEAST_PACK_BYTES;
}

/* Cuts the path to a directory that is there. */
static void find_existing(char *path)
{
    struct stat info;
    while (stat(path, &info) != 0) {
        char *slash = strrchr(path, '/');
        if (slash == NULL) {
            strcpy(path, ".");
            return;
        }
        slash[slash == path] = '\0'; /* the root keeps its slash */
        if (slash == path)
            return;
    }
}

/* Numbers that no file system compresses away. */
static void fill_chunk(uint64_t *chunk)
{
    uint64_t state = 88172645463325252;
    for (size_t i = 0; i < CHUNK_BYTES / sizeof *chunk; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk[i] = state;
    }
}

static int write_file(int fd, const char *path, struct nj_error *error)
{
    uint64_t *chunk = malloc(CHUNK_BYTES);
    if (chunk == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    fill_chunk(chunk);
    int status = 0;
    for (int written = 0; written < TEMPORARY_BYTES && status == 0; written += CHUNK_BYTES)
        status = file_write_all(fd, path, chunk, CHUNK_BYTES, error);
    free(chunk);
    return status == 0 ? file_sync(fd, path, error) : -1;
}

static void measure_temporary(const char *directory, struct nj_disk_rate *rate)
{
    char path[PATH_BYTES + 32];
    struct statfs system;
    struct nj_error error = {0};
    bool is_known = statfs(directory, &system) == 0;
    if (is_known && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC)) {
        fail(rate, directory, "this file system is in memory");
        return;
    }
    if (is_known &&
        (uint64_t)system.f_bavail * (uint64_t)system.f_bsize < (uint64_t)FREE_SPACE_TIMES * TEMPORARY_BYTES) {
        fail(rate, directory, "too little space is free for a temporary file");
        return;
    }
    snprintf(path, sizeof path, "%s/nightjar-rate-XXXXXX", directory);
    int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0) {
        fail(rate, directory, strerror(errno));
        return;
    }
    if (write_file(fd, path, &error) != 0)
        fail(rate, directory, error.message);
    else
        read_file(path, rate);
    unlink(path);
    close(fd);
}

struct nj_disk_rate disk_rate_measure(const char *cache_directory)
{
    struct nj_disk_rate rate = {0};
    char path[PATH_BYTES], packs[PATH_BYTES];
    int length = snprintf(packs, sizeof packs, "%s/packs", cache_directory);
    if (length < 0 || (size_t)length >= sizeof packs) {
        fail(&rate, "the cache directory", "its name is too long");
    } else if (find_pack(packs, path)) {
        read_file(path, &rate);
    } else {
        find_existing(packs);
        measure_temporary(packs, &rate);
    }
    return rate;
}
