#include "engine/model/pack_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* While waiting the lock is asked for this often: a blocking request could not see `stop` if the signal came just
 * before it. A holder that has not written its number after so many tries is called "another process". */
enum { POLL_MILLISECONDS = 50, TRIES_FOR_NUMBER = 10, NUMBER_BYTES = 32 };

static int fail_lock(const char *what, const char *path, struct nj_error *error)
{
    error_set(error, NJ_CANT_CREATE, "cannot %s the lock file: %s", what, strerror(errno));
    return error_at(error, path, 0, -1);
}

/* 1: taken, 0: another process has it, -1: error. */
static int try_lock(int fd, const char *path, struct nj_error *error)
{
    struct flock whole_file = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (;;) {
        if (fcntl(fd, F_OFD_SETLK, &whole_file) == 0)
            return 1;
        if (errno == EAGAIN || errno == EACCES)
            return 0;
        if (errno != EINTR)
            return fail_lock("lock", path, error);
    }
}

/* The number in the file; 0 if there is none. */
static long read_holder(int fd)
{
    char text[NUMBER_BYTES] = "";
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    return got > 0 && text[got - 1] == '\n' ? strtol(text, NULL, 10) : 0;
}

static void give_notice(nj_notice notice, void *context, long holder)
{
    char line[128] = "waiting for another process, which is building the pack";
    if (holder > 0)
        snprintf(line, sizeof line, "waiting for process %ld, which is building the pack", holder);
    if (notice != NULL)
        notice(context, line);
}

static int wait_for_lock(int fd, const char *path, nj_notice notice, void *context, const atomic_int *stop,
                         struct nj_error *error)
{
    bool told = false;
    for (int tries = 1;; tries++) {
        int taken = try_lock(fd, path, error);
        if (taken != 0)
            return taken > 0 ? 0 : -1;
        if (stop != NULL && atomic_load(stop) != 0)
            return error_set(error, NJ_INTERRUPTED, "interrupted while waiting for the pack");
        long holder = read_holder(fd);
        if (!told && (holder > 0 || tries >= TRIES_FOR_NUMBER)) {
            give_notice(notice, context, holder);
            told = true;
        }
        nanosleep(&(struct timespec){.tv_nsec = POLL_MILLISECONDS * 1000000L}, NULL);
    }
}

/* Only others' notices need the number: a disk too full for it is no reason to stop. */
static void write_holder(int fd)
{
    char text[NUMBER_BYTES];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    ssize_t ignored = ftruncate(fd, 0) == 0 ? pwrite(fd, text, (size_t)length, 0) : -1;
    (void)ignored;
}

static int open_lock(const char *path, struct nj_error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? fail_lock("create", path, error) : fd;
}

int pack_lock_take(const char *path, nj_notice notice, void *notice_context, const atomic_int *stop,
                   struct nj_error *error)
{
    int fd = open_lock(path, error);
    if (fd < 0)
        return -1;
    if (wait_for_lock(fd, path, notice, notice_context, stop, error) != 0) {
        close(fd);
        return -1;
    }
    write_holder(fd);
    return fd;
}

int pack_lock_try(const char *path, struct nj_error *error)
{
    int fd = open_lock(path, error);
    int taken = fd < 0 ? -1 : try_lock(fd, path, error);
    if (taken == 0)
        error_set(error, NJ_CANT_CREATE, "process %ld is building this pack; wait for it or stop it", read_holder(fd));
    if (taken > 0) {
        write_holder(fd);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

void pack_lock_release(int descriptor)
{
    /* Nobody should be told to wait for a process that no longer builds. */
    int ignored = ftruncate(descriptor, 0);
    (void)ignored;
    close(descriptor);
}
