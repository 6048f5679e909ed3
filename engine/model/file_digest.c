#include "engine/model/file_digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/file.h"

enum { READ_BYTES = 1 << 20, RECORD_BYTES = PATH_MAX + 512 };

/* File times may be as coarse as two seconds: a file this young could be changed again without a new time, so
 * its digest is not remembered. */
static const int64_t YOUNG_NS = INT64_C(2000000000);

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

static void identity_from(const struct stat *info, struct nj_file_identity *out)
{
    *out = (struct nj_file_identity){.bytes = (uint64_t)info->st_size,
                                     .device = (uint64_t)info->st_dev,
                                     .inode = (uint64_t)info->st_ino,
                                     .modified_ns = nanoseconds(&info->st_mtim),
                                     .changed_ns = nanoseconds(&info->st_ctim)};
}

static int fail_io(const char *what, const char *path, struct nj_error *error)
{
    error_set(error, errno == ENOENT ? NJ_NO_INPUT : NJ_IO_FAILED, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

int file_identity_of(const char *path, struct nj_file_identity *out, struct nj_error *error)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return fail_io("stat", path, error);
    identity_from(&info, out);
    return 0;
}

bool file_identity_equal(const struct nj_file_identity *a, const struct nj_file_identity *b)
{
    return a->bytes == b->bytes && a->device == b->device && a->inode == b->inode && a->modified_ns == b->modified_ns &&
           a->changed_ns == b->changed_ns;
}

static void digest_print(XXH128_hash_t hash, char out[NJ_DIGEST_TEXT_BYTES])
{
    snprintf(out, NJ_DIGEST_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, (uint64_t)hash.high64, (uint64_t)hash.low64);
}

void digest_bytes(const void *bytes, size_t count, char out[NJ_DIGEST_TEXT_BYTES])
{
    digest_print(XXH3_128bits(bytes, count), out);
}

/* Hashes from the descriptor's position to the end. The pages are dropped behind the reader: a model larger than
 * memory must not push everything else out of the page cache. */
static int hash_stream(int fd, const char *path, const atomic_int *stop, XXH3_state_t *state, char *buffer,
                       struct nj_error *error)
{
    off_t position = 0;
    for (;;) {
        if (stop != NULL && atomic_load(stop) != 0)
            return error_set(error, NJ_INTERRUPTED, "interrupted while reading the model file");
        ssize_t got = read(fd, buffer, READ_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_io("read", path, error);
        if (got == 0)
            return 0;
        XXH3_128bits_update(state, buffer, (size_t)got);
        posix_fadvise(fd, position, got, POSIX_FADV_DONTNEED);
        position += got;
    }
}

static int hash_descriptor(int fd, const char *path, const atomic_int *stop, char out[NJ_DIGEST_TEXT_BYTES],
                           struct nj_error *error)
{
    int result = -1;
    XXH3_state_t *state = XXH3_createState();
    char *buffer = malloc(READ_BYTES);
    if (state == NULL || buffer == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory reading %s", path);
        goto done;
    }
    XXH3_128bits_reset(state);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    result = hash_stream(fd, path, stop, state, buffer, error);
    if (result == 0)
        digest_print(XXH3_128bits_digest(state), out);
done:
    free(buffer);
    XXH3_freeState(state);
    return result;
}

static int hash_file(const char *path, const struct nj_file_identity *identity, const atomic_int *stop,
                     char out[NJ_DIGEST_TEXT_BYTES], struct nj_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_io("open", path, error);
    int result = hash_descriptor(fd, path, stop, out, error);
    struct nj_file_identity after;
    if (result == 0)
        result = file_identity_of(path, &after, error);
    if (result == 0 && !file_identity_equal(identity, &after)) {
        error_set(error, NJ_BAD_DATA, "the file changed while it was being read; run again when it is complete");
        result = error_at(error, path, 0, -1);
    }
    close(fd);
    return result;
}

/* A record is this text, one line "xxh3-128 DIGEST", and one line "check CHECKSUM" over all before it. */
static int record_key(const char *path, const struct nj_file_identity *identity, char *out, size_t out_bytes)
{
    int length =
        snprintf(out, out_bytes,
                 "nightjar file digest 1\npath %s\nbytes %" PRIu64 "\ndevice %" PRIu64 "\ninode %" PRIu64
                 "\nmodified_ns %" PRId64 "\nchanged_ns %" PRId64 "\n",
                 path, identity->bytes, identity->device, identity->inode, identity->modified_ns, identity->changed_ns);
    return length > 0 && (size_t)length < out_bytes ? length : -1;
}

static void record_print(const char *key, const char digest[NJ_DIGEST_TEXT_BYTES], char *out, size_t out_bytes)
{
    int length = snprintf(out, out_bytes, "%sxxh3-128 %s\n", key, digest);
    snprintf(out + length, out_bytes - (size_t)length, "check %016" PRIx64 "\n",
             (uint64_t)XXH3_64bits(out, (size_t)length));
}

static int record_path(const char *path, const char *directory, char *out, size_t out_bytes)
{
    char name[NJ_DIGEST_TEXT_BYTES];
    digest_bytes(path, strlen(path), name);
    int length = snprintf(out, out_bytes, "%s/%s", directory, name);
    return length > 0 && (size_t)length < out_bytes ? 0 : -1;
}

/* The digest in the record, if the record is exactly what would be written for this file with that digest. */
static bool record_read(const char *file, const char *key, char out[NJ_DIGEST_TEXT_BYTES])
{
    size_t bytes;
    char *content = file_read_whole(file, RECORD_BYTES, &bytes, NULL);
    if (content == NULL)
        return false;
    char expected[RECORD_BYTES];
    bool good = false;
    size_t key_length = strlen(key);
    if (bytes > key_length + strlen("xxh3-128 ") + NJ_DIGEST_TEXT_BYTES) {
        char digest[NJ_DIGEST_TEXT_BYTES] = {0};
        memcpy(digest, content + key_length + strlen("xxh3-128 "), NJ_DIGEST_TEXT_BYTES - 1);
        record_print(key, digest, expected, sizeof expected);
        good = strlen(digest) == NJ_DIGEST_TEXT_BYTES - 1 && strcmp(expected, content) == 0;
        if (good)
            memcpy(out, digest, NJ_DIGEST_TEXT_BYTES);
    }
    free(content);
    return good;
}

static void record_write(const char *file, const char *directory, const char *key, const char *digest)
{
    char record[RECORD_BYTES];
    record_print(key, digest, record, sizeof record);
    if (file_make_directories(directory, NULL) == 0)
        (void)file_replace(file, record, strlen(record), NULL);
}

static bool is_young(const struct nj_file_identity *identity)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return nanoseconds(&now) - identity->modified_ns < YOUNG_NS;
}

int file_digest_cached(const char *path, const char *directory, const atomic_int *stop,
                       struct nj_file_identity *identity, char out[NJ_DIGEST_TEXT_BYTES], struct nj_error *error)
{
    if (file_identity_of(path, identity, error) != 0)
        return -1;
    bool young = is_young(identity);
    char key[RECORD_BYTES - NJ_DIGEST_TEXT_BYTES - 64], file[PATH_MAX];
    bool cachable =
        record_key(path, identity, key, sizeof key) > 0 && record_path(path, directory, file, sizeof file) == 0;
    if (cachable && record_read(file, key, out))
        return 0;
    if (hash_file(path, identity, stop, out, error) != 0)
        return -1;
    if (cachable && !young)
        record_write(file, directory, key, out);
    return 0;
}

/* The path that a record says it is about; NULL unless the rest of the record is about the same file as it is now. */
static char *record_subject(const char *file, char digest[NJ_DIGEST_TEXT_BYTES])
{
    static const char before_path[] = "nightjar file digest 1\npath ";
    size_t bytes;
    char *content = file_read_whole(file, RECORD_BYTES, &bytes, NULL), *path = NULL;
    char *end = content == NULL ? NULL : strstr(content, "\nbytes ");
    if (end != NULL && strncmp(content, before_path, strlen(before_path)) == 0)
        path = strndup(content + strlen(before_path), (size_t)(end - content) - strlen(before_path));
    free(content);
    struct nj_file_identity identity;
    char key[RECORD_BYTES - NJ_DIGEST_TEXT_BYTES - 64];
    if (path != NULL && file_identity_of(path, &identity, NULL) == 0 &&
        record_key(path, &identity, key, sizeof key) > 0 && record_read(file, key, digest))
        return path;
    free(path);
    return NULL;
}

void file_digest_visit(const char *directory, nj_digest_visitor visit, void *context)
{
    DIR *files = opendir(directory);
    const struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        char file[PATH_MAX], digest[NJ_DIGEST_TEXT_BYTES];
        const int length = snprintf(file, sizeof file, "%s/%s", directory, entry->d_name);
        char *path = entry->d_name[0] == '.' || length >= (int)sizeof file ? NULL : record_subject(file, digest);
        if (path != NULL)
            visit(context, path, digest);
        free(path);
    }
    if (files != NULL)
        closedir(files);
}
