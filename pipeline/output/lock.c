#include "pipeline/output/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/output/output.h"

enum { LOCK_BYTES_MOST = 4096, HOST_BYTES = 256 };

struct nj_lock {
    int fd;
};

static int fail_errno(struct nj_error *error, const char *what, const char *path)
{
    error_set(error, NJ_CANT_CREATE, "%s failed: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

/* What the file says; between taking the lock and writing it may say nothing, or name an earlier holder. */
static void describe_holder(int fd, char *holder, size_t holder_bytes)
{
    char text[LOCK_BYTES_MOST];
    ssize_t length = pread(fd, text, sizeof text, 0);
    json_t *root = length > 0 ? json_loadb(text, (size_t)length, 0, NULL) : NULL;
    const char *host = json_string_value(json_object_get(root, "host"));
    const char *slurm = json_string_value(json_object_get(root, "slurm_job_id"));
    char line[2 * HOST_BYTES + 64];
    if (host == NULL)
        snprintf(line, sizeof line, "another process");
    else
        snprintf(line, sizeof line, "host %.*s, pid %lld%s%.*s", HOST_BYTES, host,
                 (long long)json_integer_value(json_object_get(root, "pid")), slurm != NULL ? ", Slurm job " : "",
                 HOST_BYTES, slurm != NULL ? slurm : "");
    utf8_copy_printable(holder, holder_bytes, line, strlen(line));
    json_decref(root);
}

static int write_holder(int fd, const char *path, const char *slurm_job_id, struct nj_error *error)
{
    char host[HOST_BYTES] = "";
    gethostname(host, sizeof host - 1);
    json_t *root = json_pack("{s:i, s:o, s:I, s:I, s:o}", "schema", 1, "host", utf8_json_message(host), "pid",
                             (json_int_t)getpid(), "started", (json_int_t)time(NULL), "slurm_job_id",
                             slurm_job_id != NULL ? utf8_json_message(slurm_job_id) : json_null());
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int result = ftruncate(fd, 0) == 0 ? file_write_all(fd, path, text, strlen(text), error)
                                       : fail_errno(error, "truncate", path);
    free(text);
    return result;
}

static int fail_in_use(const char *directory, const char *holder, struct nj_error *error)
{
    error_set(error, NJ_CANT_CREATE, "the output directory is in use by %s: wait for it, or stop it first", holder);
    return error_at(error, directory, 0, -1);
}

struct nj_lock *lock_take(const char *directory, const char *slurm_job_id, struct nj_error *error)
{
    struct nj_lock *lock = malloc(sizeof *lock);
    char *path = output_path(directory, "lock", error);
    struct flock request = whole_file();
    char holder[256];
    if (lock == NULL || path == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        goto failed;
    }
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock->fd < 0) {
        fail_errno(error, "open", path);
        goto failed;
    }
    if (fcntl(lock->fd, F_OFD_SETLK, &request) != 0) {
        if (errno == EAGAIN || errno == EACCES) {
            describe_holder(lock->fd, holder, sizeof holder);
            fail_in_use(directory, holder, error);
        } else {
            fail_errno(error, "locking", path);
        }
        goto close_file;
    }
    if (write_holder(lock->fd, path, slurm_job_id, error) != 0)
        goto close_file;
    free(path);
    return lock;
close_file:
    close(lock->fd);
failed:
    free(path);
    free(lock);
    return NULL;
}

void lock_release(struct nj_lock *lock)
{
    if (lock == NULL)
        return;
    close(lock->fd); /* with the open file description its lock goes */
    free(lock);
}

int lock_find_holder(const char *directory, char *holder, size_t holder_bytes, struct nj_error *error)
{
    char *path = output_path(directory, "lock", error);
    if (path == NULL)
        return -1;
    int result = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct flock request = whole_file();
    holder[0] = '\0';
    if (fd < 0 && errno != ENOENT)
        result = fail_errno(error, "open", path);
    else if (fd >= 0 && fcntl(fd, F_OFD_GETLK, &request) != 0)
        result = fail_errno(error, "asking for the lock", path);
    else if (fd >= 0 && request.l_type != F_UNLCK) {
        describe_holder(fd, holder, holder_bytes);
        result = 1;
    }
    if (fd >= 0)
        close(fd);
    free(path);
    return result;
}

int lock_check_free(const char *directory, struct nj_error *error)
{
    char holder[256];
    int held = lock_find_holder(directory, holder, sizeof holder, error);
    return held > 0 ? fail_in_use(directory, holder, error) : held;
}
