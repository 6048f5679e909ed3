#include "pipeline/output/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/file.h"

static int fail_errno(struct nj_error *error, const char *what, const char *path)
{
    error_set(error, NJ_CANT_CREATE, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

char *output_path(const char *directory, const char *name, struct nj_error *error)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        error_set(error, NJ_INTERNAL, "out of memory");
        return NULL;
    }
    return path;
}

/* What a run that was killed before it wrote job.json may have left. */
static bool may_precede_job(const char *name)
{
    static const char *const names[] = {".", "..", "lock", "job.json.tmp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static int refuse_foreign(const char *directory, struct nj_error *error)
{
    DIR *entries = opendir(directory);
    if (entries == NULL)
        return fail_errno(error, "open of the output directory", directory);
    bool has_job = false, has_other = false;
    const struct dirent *entry;
    while ((entry = readdir(entries)) != NULL) {
        has_job = has_job || strcmp(entry->d_name, "job.json") == 0;
        has_other = has_other || !may_precede_job(entry->d_name);
    }
    closedir(entries);
    if (has_job || !has_other)
        return 0;
    error_set(error, NJ_CANT_CREATE,
              "the output directory is not empty and holds no nightjar job: name a new or an empty one");
    return error_at(error, directory, 0, -1);
}

int output_prepare(const char *directory, struct nj_error *error)
{
    struct stat info;
    bool existed = stat(directory, &info) == 0;
    if (file_make_directories(directory, error) != 0)
        return -1;
    if (!existed && file_sync_directory_of(directory, error) != 0)
        return -1;
    return refuse_foreign(directory, error);
}

static int free_bytes_of(const char *directory, uint64_t *bytes, struct nj_error *error)
{
    struct statvfs info;
    if (statvfs(directory, &info) != 0)
        return fail_errno(error, "statvfs", directory);
    *bytes = (uint64_t)info.f_bavail * info.f_frsize;
    return 0;
}

static int fail_space(const char *directory, uint64_t needed, uint64_t available, struct nj_error *error)
{
    error_set(error, NJ_CANT_CREATE,
              "not enough disk space for the output: %" PRIu64 " MiB are needed, %" PRIu64 " MiB are free",
              (needed >> 20) + 1, available >> 20);
    return error_at(error, directory, 0, -1);
}

int output_take_reserve(const char *directory, struct nj_error *error)
{
    char *path = output_path(directory, "reserve", error);
    if (path == NULL)
        return -1;
    int result = -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, NJ_RESERVE_BYTES);
    uint64_t available = 0;
    if (code == 0) {
        result = 0;
    } else if (fd >= 0 && (code == ENOSPC || code == EDQUOT)) {
        free_bytes_of(directory, &available, NULL);
        fail_space(directory, NJ_RESERVE_BYTES, available, error);
        unlink(path);
    } else {
        errno = code;
        fail_errno(error, "setting disk space aside", path);
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return result;
}

void output_give_up_reserve(const char *directory)
{
    char *path = output_path(directory, "reserve", NULL);
    if (path == NULL)
        return;
    unlink(path);
    free(path);
}

int output_check_space(const char *directory, uint64_t least_bytes, uint64_t *free_bytes, struct nj_error *error)
{
    if (free_bytes_of(directory, free_bytes, error) != 0)
        return -1;
    return least_bytes <= *free_bytes ? 0 : fail_space(directory, least_bytes, *free_bytes, error);
}
