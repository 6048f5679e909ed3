#include "engine/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/checked.h"

enum { DIRECT_ALIGNMENT = 4096 };

static int fail_io(struct nj_error *error, const char *what, const char *path)
{
    error_set(error, NJ_IO_FAILED, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

static int fail_open(struct nj_error *error, const char *path)
{
    error_set(error, errno == ENOMEM ? NJ_INTERNAL : NJ_NO_INPUT, "cannot open: %s", strerror(errno));
    return error_at(error, path, 0, -1);
}

int file_read_at(int fd, const char *path, void *to, size_t bytes, uint64_t offset, struct nj_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_io(error, "read", path);
        if (got == 0) {
            error_set(error, NJ_BAD_DATA, "the file is too short: %zu bytes expected at this offset, %zu found", bytes,
                      done);
            return error_at(error, path, 0, (int64_t)offset);
        }
        done += (size_t)got;
    }
    return 0;
}

int file_write_all(int fd, const char *path, const void *from, size_t bytes, struct nj_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t put = write(fd, (const char *)from + done, bytes - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail_io(error, "write", path);
        done += (size_t)put;
    }
    return 0;
}

int file_sync(int fd, const char *path, struct nj_error *error)
{
    return fsync(fd) == 0 ? 0 : fail_io(error, "fsync", path);
}

int file_sync_directory_of(const char *path, struct nj_error *error)
{
    char copy[PATH_MAX];
    if (strlen(path) >= sizeof copy) {
        errno = ENAMETOOLONG;
        return fail_io(error, "fsync of the directory", path);
    }
    strcpy(copy, path);
    const char *directory = dirname(copy);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_io(error, "open of the directory", path);
    /* Some file systems have no fsync for directories and say EINVAL; there is nothing more to do there. */
    int failed = fsync(fd) != 0 && errno != EINVAL;
    if (failed)
        fail_io(error, "fsync of the directory", path);
    close(fd);
    return failed ? -1 : 0;
}

int file_replace(const char *path, const void *from, size_t bytes, struct nj_error *error)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.tmp", path);
    if (length < 0 || (size_t)length >= sizeof temporary) {
        errno = ENAMETOOLONG;
        return fail_io(error, "create", path);
    }
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_io(error, "create", temporary);
    int result = file_write_all(fd, temporary, from, bytes, error);
    if (result == 0)
        result = file_sync(fd, temporary, error);
    if (close(fd) != 0 && result == 0)
        result = fail_io(error, "close", temporary);
    if (result == 0 && rename(temporary, path) != 0)
        result = fail_io(error, "rename", path);
    if (result != 0) {
        unlink(temporary);
        return -1;
    }
    return file_sync_directory_of(path, error);
}

/* An existing directory is fine whatever mkdir says of it (a read-only file system has its own errors). */
static int make_directory(const char *path)
{
    if (mkdir(path, 0700) == 0)
        return 0;
    int reason = errno;
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return 0;
    errno = reason == EEXIST ? ENOTDIR : reason;
    return -1;
}

int file_make_directories(const char *path, struct nj_error *error)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial) {
        errno = length == 0 ? ENOENT : ENAMETOOLONG;
        goto failed;
    }
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        char kept = partial[i];
        partial[i] = '\0';
        if (make_directory(partial) != 0)
            goto failed;
        partial[i] = kept;
    }
    return 0;
failed:
    error_set(error, NJ_CANT_CREATE, "cannot create the directory: %s", strerror(errno));
    return error_at(error, path, 0, -1);
}

char *file_read_whole(const char *path, size_t limit, size_t *bytes, struct nj_error *error)
{
    /* Without O_NONBLOCK the open of a named pipe would wait for a writer before it can be refused. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        fail_open(error, path);
        return NULL;
    }
    char *content = NULL;
    struct stat info;
    if (fstat(fd, &info) != 0) {
        fail_io(error, "stat", path);
    } else if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size > limit) {
        error_set(error, NJ_BAD_DATA, "not a regular file of at most %zu bytes", limit);
        error_at(error, path, 0, -1);
    } else if ((content = malloc((size_t)info.st_size + 1)) == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory reading %s", path);
    } else if (file_read_at(fd, path, content, (size_t)info.st_size, 0, error) != 0) {
        free(content);
        content = NULL;
    } else {
        content[info.st_size] = '\0';
        *bytes = (size_t)info.st_size;
    }
    close(fd);
    return content;
}

struct nj_direct_file {
    int fd;
    atomic_int direct; /* a read that is refused turns it off, in any thread */
    uint64_t bytes;
    char path[];
};

struct nj_direct_file *direct_file_open(const char *path, struct nj_error *error)
{
    int direct = 1;
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK; /* as in file_read_whole */
    int fd = open(path, flags | O_DIRECT);
    if (fd < 0 && errno == EINVAL) {
        direct = 0;
        fd = open(path, flags);
    }
    if (fd < 0) {
        fail_open(error, path);
        return NULL;
    }
    struct stat info;
    if (fstat(fd, &info) != 0) {
        fail_io(error, "stat", path);
        close(fd);
        return NULL;
    }
    if (!S_ISREG(info.st_mode)) {
        error_set(error, NJ_BAD_DATA, "not a regular file");
        error_at(error, path, 0, -1);
        close(fd);
        return NULL;
    }
    struct nj_direct_file *file = malloc(sizeof *file + strlen(path) + 1);
    if (file == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening %s", path);
        close(fd);
        return NULL;
    }
    file->fd = fd;
    atomic_init(&file->direct, direct);
    file->bytes = (uint64_t)info.st_size;
    strcpy(file->path, path);
    return file;
}

void direct_file_close(struct nj_direct_file *file)
{
    if (file == NULL)
        return;
    close(file->fd);
    free(file);
}

int direct_file_is_direct(const struct nj_direct_file *file)
{
    return file->direct;
}
uint64_t direct_file_bytes(const struct nj_direct_file *file)
{
    return file->bytes;
}
int direct_file_descriptor(const struct nj_direct_file *file)
{
    return file->fd;
}

static int leave_direct(struct nj_direct_file *file, struct nj_error *error)
{
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags & ~O_DIRECT) != 0)
        return fail_io(error, "read", file->path);
    file->direct = 0;
    return 0;
}

static int read_all(struct nj_direct_file *file, char *to, size_t bytes, uint64_t offset, struct nj_error *error)
{
    size_t done = 0;
    while (done < bytes) {
        const bool was_direct = file->direct != 0;
        ssize_t got = pread(file->fd, to + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        /* The file system took O_DIRECT at open but refuses this read (a size or alignment of its own). */
        bool is_refused = got < 0 && errno == EINVAL && was_direct;
        if (got < 0 && !is_refused)
            return fail_io(error, "read", file->path);
        if (got == 0) {
            error_set(error, NJ_BAD_DATA, "the file was shortened while it was being read");
            return error_at(error, file->path, 0, (int64_t)(offset + done));
        }
        done += is_refused ? 0 : (size_t)got;
        /* After a read that stopped between two blocks a direct one could not go on from there. */
        bool is_unaligned = done < bytes && done % DIRECT_ALIGNMENT != 0;
        if (was_direct && (is_refused || is_unaligned) && leave_direct(file, error) != 0)
            return -1;
    }
    return 0;
}

int direct_file_read(struct nj_direct_file *file, void *to, size_t bytes, uint64_t offset, struct nj_error *error)
{
    uint64_t end;
    if (!checked_add(offset, bytes, &end) || end > file->bytes) {
        error_set(error, NJ_BAD_DATA, "the file is too short: it ends at byte %llu", (unsigned long long)file->bytes);
        return error_at(error, file->path, 0, (int64_t)offset);
    }
    if (read_all(file, to, bytes, offset, error) != 0)
        return -1;
    if (!file->direct)
        posix_fadvise(file->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_DONTNEED);
    return 0;
}
