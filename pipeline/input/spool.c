#include "pipeline/input/spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/file.h"
#include "pipeline/input/spool_internal.h"

static const int COMPRESSION_LEVEL = 3;
static const char BLOCKS_PREFIX[] = "blocks.";

static int fail_memory(struct nj_error *error)
{
    return error_set(error, NJ_INTERNAL, "out of memory for the copy of the input");
}

int spool_fail_damaged(const char *path, const char *what, struct nj_error *error)
{
    error_set(
        error, NJ_BAD_DATA,
        "the job's copy of its input is damaged (%s): delete the directory \"spool\" in the output directory, and "
        "run the first command again with the same input; finished answers are kept",
        what);
    return error_at(error, path, 0, -1);
}

static int fail_errno(struct nj_error *error, enum nj_code code, const char *what, const char *path)
{
    error_set(error, code, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

int spool_grow(void **array, size_t *capacity, size_t count, size_t element_bytes, struct nj_error *error)
{
    if (count < *capacity)
        return 0;
    size_t wanted = *capacity == 0 ? 16 : 2 * *capacity;
    void *grown = realloc(*array, wanted * element_bytes);
    if (grown == NULL)
        return fail_memory(error);
    *array = grown;
    *capacity = wanted;
    return 0;
}

int spool_set_paths(struct nj_spool *spool, const char *output_directory, struct nj_error *error)
{
    if (asprintf(&spool->directory, "%s/spool", output_directory) < 0)
        spool->directory = NULL;
    if (spool->directory == NULL || asprintf(&spool->manifest_path, "%s/spool.bin", spool->directory) < 0)
        spool->manifest_path = NULL;
    return spool->manifest_path != NULL ? 0 : fail_memory(error);
}

int spool_set_blocks_path(struct nj_spool *spool, struct nj_error *error)
{
    if (asprintf(&spool->blocks_path, "%s/%s%" PRIu64, spool->directory, BLOCKS_PREFIX, spool->generation) < 0)
        spool->blocks_path = NULL;
    return spool->blocks_path != NULL ? 0 : fail_memory(error);
}

static struct nj_spool *allocate(const char *output_directory, struct nj_error *error)
{
    struct nj_spool *spool = calloc(1, sizeof *spool);
    if (spool == NULL) {
        fail_memory(error);
        return NULL;
    }
    spool->fd = -1;
    spool->packed_capacity = ZSTD_compressBound(NJ_SPOOL_BLOCK_BYTES);
    spool->packed = malloc(spool->packed_capacity);
    spool->decompressor = ZSTD_createDCtx();
    if (spool->packed != NULL && spool->decompressor != NULL && spool_set_paths(spool, output_directory, error) == 0)
        return spool;
    fail_memory(error);
    spool_close(spool);
    return NULL;
}

/* Files of blocks that no manifest speaks of. Failing to remove one costs space only. */
static void remove_leftovers(const struct nj_spool *spool, const char *kept)
{
    DIR *entries = opendir(spool->directory);
    const struct dirent *entry;
    if (entries == NULL)
        return;
    const char *kept_name = kept == NULL ? "" : strrchr(kept, '/') + 1;
    while ((entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, BLOCKS_PREFIX, strlen(BLOCKS_PREFIX)) == 0 && strcmp(entry->d_name, kept_name) != 0)
            unlinkat(dirfd(entries), entry->d_name, 0);
    }
    closedir(entries);
}

int spool_open(const char *output_directory, struct nj_spool **out, struct nj_error *error)
{
    *out = NULL;
    struct nj_spool *spool = allocate(output_directory, error);
    int found = spool == NULL ? -1 : spool_manifest_read(spool, error);
    if (found > 0 && spool_set_blocks_path(spool, error) != 0)
        found = -1;
    if (found > 0) {
        spool->fd = open(spool->blocks_path, O_RDONLY | O_CLOEXEC);
        if (spool->fd < 0)
            found = spool_fail_damaged(spool->blocks_path, strerror(errno), error);
    }
    if (found > 0)
        *out = spool;
    else
        spool_close(spool);
    return found;
}

/* The number behind the complete spool's, if there is one. */
static int choose_generation(struct nj_spool *spool, const char *output_directory, struct nj_error *error)
{
    struct nj_spool *old;
    int found = spool_open(output_directory, &old, error);
    if (found < 0)
        return -1;
    spool->generation = found > 0 ? old->generation + 1 : 1;
    remove_leftovers(spool, found > 0 ? old->blocks_path : NULL);
    spool_close(old);
    return 0;
}

static int create_files(struct nj_spool *spool, struct nj_error *error)
{
    if (file_make_directories(spool->directory, error) != 0 || file_sync_directory_of(spool->directory, error) != 0 ||
        spool_set_blocks_path(spool, error) != 0)
        return -1;
    spool->fd = open(spool->blocks_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (spool->fd < 0)
        return fail_errno(error, NJ_CANT_CREATE, "create", spool->blocks_path);
    spool->writing = true;
    return 0;
}

struct nj_spool *spool_create(const char *output_directory, struct nj_error *error)
{
    struct nj_spool *spool = allocate(output_directory, error);
    if (spool == NULL)
        return NULL;
    spool->pending = malloc(NJ_SPOOL_BLOCK_BYTES);
    spool->compressor = ZSTD_createCCtx();
    if (spool->pending == NULL || spool->compressor == NULL)
        fail_memory(error);
    else if (choose_generation(spool, output_directory, error) == 0 && create_files(spool, error) == 0)
        return spool;
    spool_close(spool);
    return NULL;
}

void spool_close(struct nj_spool *spool)
{
    if (spool == NULL)
        return;
    if (spool->fd >= 0)
        close(spool->fd);
    if (spool->writing)
        unlink(spool->blocks_path);
    for (size_t i = 0; i < spool->source_count; i++)
        free(spool->sources[i].path);
    for (size_t i = 0; i < spool->stream_count; i++)
        free(spool->streams[i].name);
    for (size_t i = 0; i < SPOOL_CACHED_BLOCKS; i++)
        free(spool->cache[i].bytes);
    free(spool->sources);
    free(spool->streams);
    free(spool->blocks);
    free(spool->pending);
    free(spool->packed);
    ZSTD_freeCCtx(spool->compressor);
    ZSTD_freeDCtx(spool->decompressor);
    free(spool->directory);
    free(spool->manifest_path);
    free(spool->blocks_path);
    free(spool);
}

int spool_begin_source(struct nj_spool *spool, const struct nj_spool_source *source, struct nj_error *error)
{
    if (spool_grow((void **)&spool->sources, &spool->source_capacity, spool->source_count, sizeof *spool->sources,
                   error) != 0)
        return -1;
    struct nj_spool_source copy = *source;
    copy.path = strdup(source->path);
    if (copy.path == NULL)
        return fail_memory(error);
    spool->sources[spool->source_count++] = copy;
    return 0;
}

int spool_begin_stream(struct nj_spool *spool, const char *name, struct nj_error *error)
{
    if (spool_grow((void **)&spool->streams, &spool->stream_capacity, spool->stream_count, sizeof *spool->streams,
                   error) != 0)
        return -1;
    char *copy = strdup(name);
    if (copy == NULL)
        return fail_memory(error);
    spool->streams[spool->stream_count++] =
        (struct nj_spool_stream){.name = copy, .source = (uint32_t)spool->source_count - 1, .start = spool->raw_bytes};
    return 0;
}

static int write_block(struct nj_spool *spool, struct nj_error *error)
{
    if (spool->pending_used == 0)
        return 0;
    if (spool_grow((void **)&spool->blocks, &spool->block_capacity, spool->block_count, sizeof *spool->blocks, error) !=
        0)
        return -1;
    size_t packed = ZSTD_compressCCtx(spool->compressor, spool->packed, spool->packed_capacity, spool->pending,
                                      spool->pending_used, COMPRESSION_LEVEL);
    if (ZSTD_isError(packed))
        return error_set(error, NJ_INTERNAL, "compressing the input failed: %s", ZSTD_getErrorName(packed));
    if (file_write_all(spool->fd, spool->blocks_path, spool->packed, packed, error) != 0)
        return -1;
    spool->blocks[spool->block_count++] =
        (struct spool_block){.offset = spool->stored_bytes, .checksum = XXH3_64bits(spool->packed, packed)};
    spool->stored_bytes += packed;
    spool->pending_used = 0;
    return 0;
}

int spool_append(struct nj_spool *spool, const void *bytes, size_t length, struct nj_error *error)
{
    const char *from = bytes;
    spool->streams[spool->stream_count - 1].bytes += length;
    while (length > 0) {
        size_t room = NJ_SPOOL_BLOCK_BYTES - spool->pending_used;
        size_t taken = length < room ? length : room;
        memcpy(spool->pending + spool->pending_used, from, taken);
        spool->pending_used += taken;
        spool->raw_bytes += taken;
        from += taken;
        length -= taken;
        if (spool->pending_used == NJ_SPOOL_BLOCK_BYTES && write_block(spool, error) != 0)
            return -1;
    }
    return 0;
}

int spool_commit(struct nj_spool *spool, struct nj_error *error)
{
    if (write_block(spool, error) != 0 || file_sync(spool->fd, spool->blocks_path, error) != 0 ||
        file_sync_directory_of(spool->blocks_path, error) != 0)
        return -1;
    /* From here on a manifest may speak of the blocks, even if its replacement reports a failure. */
    spool->writing = false;
    if (spool_manifest_write(spool, error) != 0)
        return -1;
    remove_leftovers(spool, spool->blocks_path);
    return 0;
}

size_t spool_source_count(const struct nj_spool *spool)
{
    return spool->source_count;
}

const struct nj_spool_source *spool_source_at(const struct nj_spool *spool, size_t index)
{
    return &spool->sources[index];
}

size_t spool_stream_count(const struct nj_spool *spool)
{
    return spool->stream_count;
}

const struct nj_spool_stream *spool_stream_at(const struct nj_spool *spool, size_t index)
{
    return &spool->streams[index];
}

size_t spool_block_bytes(const struct nj_spool *spool, uint64_t number)
{
    uint64_t left = spool->raw_bytes - number * NJ_SPOOL_BLOCK_BYTES;
    return left < NJ_SPOOL_BLOCK_BYTES ? (size_t)left : NJ_SPOOL_BLOCK_BYTES;
}

static int unpack_block(struct nj_spool *spool, uint64_t number, char *to, struct nj_error *error)
{
    const struct spool_block *block = &spool->blocks[number];
    uint64_t end = number + 1 < spool->block_count ? block[1].offset : spool->stored_bytes;
    size_t packed = (size_t)(end - block->offset), wanted = spool_block_bytes(spool, number);
    char what[80];
    snprintf(what, sizeof what, "block %" PRIu64 ", at byte %" PRIu64, number, block->offset);
    if (end - block->offset > spool->packed_capacity)
        return spool_fail_damaged(spool->blocks_path, what, error);
    struct nj_error reading = {0};
    if (file_read_at(spool->fd, spool->blocks_path, spool->packed, packed, block->offset, &reading) != 0) {
        if (reading.code == NJ_BAD_DATA)
            return spool_fail_damaged(spool->blocks_path, what, error);
        if (error != NULL)
            *error = reading;
        return -1;
    }
    if (XXH3_64bits(spool->packed, packed) != block->checksum ||
        ZSTD_decompressDCtx(spool->decompressor, to, wanted, spool->packed, packed) != wanted)
        return spool_fail_damaged(spool->blocks_path, what, error);
    return 0;
}

/* The block's bytes, from the cache or into its oldest place. */
static const char *find_block(struct nj_spool *spool, uint64_t number, struct nj_error *error)
{
    struct spool_cached_block *oldest = &spool->cache[0];
    for (size_t i = 0; i < SPOOL_CACHED_BLOCKS; i++) {
        struct spool_cached_block *cached = &spool->cache[i];
        if (cached->used_at > 0 && cached->number == number) {
            cached->used_at = ++spool->clock;
            return cached->bytes;
        }
        if (cached->used_at < oldest->used_at)
            oldest = cached;
    }
    if (oldest->bytes == NULL && (oldest->bytes = malloc(NJ_SPOOL_BLOCK_BYTES)) == NULL) {
        fail_memory(error);
        return NULL;
    }
    oldest->used_at = 0;
    if (unpack_block(spool, number, oldest->bytes, error) != 0)
        return NULL;
    oldest->number = number;
    oldest->used_at = ++spool->clock;
    return oldest->bytes;
}

uint64_t spool_checksum(const struct nj_spool *spool)
{
    return spool->manifest_checksum;
}

int spool_read(struct nj_spool *spool, uint64_t position, void *to, size_t length, struct nj_error *error)
{
    if (length > spool->raw_bytes || position > spool->raw_bytes - length)
        return error_set(error, NJ_INTERNAL, "a place that the copy of the input does not have");
    char *out = to;
    while (length > 0) {
        uint64_t number = position / NJ_SPOOL_BLOCK_BYTES;
        size_t within = (size_t)(position % NJ_SPOOL_BLOCK_BYTES);
        size_t taken = NJ_SPOOL_BLOCK_BYTES - within < length ? NJ_SPOOL_BLOCK_BYTES - within : length;
        const char *bytes = number < spool->block_count ? find_block(spool, number, error) : spool->pending;
        if (bytes == NULL)
            return -1;
        memcpy(out, bytes + within, taken);
        out += taken;
        position += taken;
        length -= taken;
    }
    return 0;
}
