/* Loaded in front of the C library (LD_PRELOAD): counts the calls by which a process changes the files of one
 * directory, and makes one of them the last, or a failing, one.
 *
 *   NJ_FAULT_DIRECTORY  absolute path; only calls on files below it (and on itself) count
 *   NJ_FAULT_AT         number of the call, from 1; 0 or unset: none
 *   NJ_FAULT_KIND       kill    the process dies by SIGKILL before the call
 *                       half    it dies after half of the call's bytes are written (other calls: before)
 *                       enospc  the call fails with ENOSPC
 *                       eio     the call fails with EIO
 *                       full    every call from this one on that needs space fails with ENOSPC
 *   NJ_FAULT_TERM_AT    number of the call before which the process sends itself SIGTERM, and goes on
 *   NJ_FAULT_LOG        a file that gets a line "NUMBER CALL PATH" per counted call
 *
 * And, counted apart, how the directory's files are read:
 *
 *   NJ_FAULT_READ_AT    number of the pread from which on all of them fail with EIO; 0 or unset: none
 *   NJ_FAULT_NO_DIRECT  set: the file system refuses direct I/O
 *   NJ_FAULT_NO_URING   set: the kernel refuses io_uring, for whatever file
 *
 * The calls go to the kernel directly, so that nothing here depends on the order in which libraries start. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault_kind { FAULT_NONE, FAULT_KILL, FAULT_HALF, FAULT_ENOSPC, FAULT_EIO, FAULT_FULL };

enum fault_verdict { GO_ON, FAIL, HALF_THEN_DIE };

/* What a call needs that a full disk lacks. */
enum fault_need { NEEDS_NOTHING, NEEDS_SPACE };

static struct {
    char directory[PATH_MAX];
    size_t directory_length; /* 0: switched off */
    long at, term_at, read_at;
    enum fault_kind kind;
    bool has_no_direct, has_no_uring;
    int log_fd;
    atomic_long count, reads;
} fault = {.log_fd = -1};

static __attribute__((constructor)) void fault_set_up(void)
{
    static const char *const kinds[] = {"none", "kill", "half", "enospc", "eio", "full"};
    const char *directory = getenv("NJ_FAULT_DIRECTORY"), *at = getenv("NJ_FAULT_AT"), *kind = getenv("NJ_FAULT_KIND");
    const char *log = getenv("NJ_FAULT_LOG"), *term_at = getenv("NJ_FAULT_TERM_AT");
    const char *read_at = getenv("NJ_FAULT_READ_AT");
    if (directory == NULL || directory[0] != '/' || strlen(directory) >= sizeof fault.directory)
        return;
    fault.at = at != NULL ? atol(at) : 0;
    fault.term_at = term_at != NULL ? atol(term_at) : 0;
    fault.read_at = read_at != NULL ? atol(read_at) : 0;
    fault.has_no_direct = getenv("NJ_FAULT_NO_DIRECT") != NULL;
    fault.has_no_uring = getenv("NJ_FAULT_NO_URING") != NULL;
    for (size_t i = 0; kind != NULL && i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kind, kinds[i]) == 0)
            fault.kind = (enum fault_kind)i;
    }
    if (log != NULL)
        fault.log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    strcpy(fault.directory, directory);
    fault.directory_length = strlen(directory);
}

static void fault_die(void)
{
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;)
        pause();
}

static void fault_log(long number, const char *call, const char *path)
{
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    if (fault.log_fd >= 0 && syscall(SYS_write, fault.log_fd, line, (size_t)length) != length)
        fault_die(); /* a log with holes would hide calls from the test */
}

static bool fault_is_watched(const char *path)
{
    return fault.directory_length > 0 && strncmp(path, fault.directory, fault.directory_length) == 0 &&
           (path[fault.directory_length] == '/' || path[fault.directory_length] == '\0');
}

/* Counts the call if it is on a watched path and says what is to become of it. */
static enum fault_verdict fault_judge(const char *call, const char *path, enum fault_need need)
{
    if (!fault_is_watched(path))
        return GO_ON;
    long number = atomic_fetch_add(&fault.count, 1) + 1;
    fault_log(number, call, path);
    if (number == fault.term_at)
        syscall(SYS_kill, getpid(), SIGTERM);
    if (fault.kind == FAULT_FULL && fault.at > 0 && number >= fault.at && need == NEEDS_SPACE) {
        errno = ENOSPC;
        return FAIL;
    }
    if (number != fault.at || fault.kind == FAULT_NONE || fault.kind == FAULT_FULL)
        return GO_ON;
    if (fault.kind == FAULT_HALF)
        return HALF_THEN_DIE;
    if (fault.kind == FAULT_KILL)
        fault_die();
    errno = fault.kind == FAULT_EIO ? EIO : ENOSPC;
    return FAIL;
}

/* False: switched off, or nobody knows. */
static bool fault_find_fd(int fd, char path[PATH_MAX])
{
    char link[64];
    if (fault.directory_length == 0)
        return false;
    if (fd == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    return true;
}

/* Relative names are taken from `directory_fd`. */
static bool fault_find_name(int directory_fd, const char *name, char path[2 * PATH_MAX])
{
    char base[PATH_MAX];
    if (name[0] == '/')
        return snprintf(path, 2 * PATH_MAX, "%s", name) < 2 * PATH_MAX;
    return fault_find_fd(directory_fd, base) && snprintf(path, 2 * PATH_MAX, "%s/%s", base, name) < 2 * PATH_MAX;
}

static enum fault_verdict fault_judge_fd(const char *call, int fd, enum fault_need need)
{
    char path[PATH_MAX];
    return fault_find_fd(fd, path) ? fault_judge(call, path, need) : GO_ON;
}

static enum fault_verdict fault_judge_name(const char *call, int directory_fd, const char *name, enum fault_need need)
{
    char path[2 * PATH_MAX];
    return fault_find_name(directory_fd, name, path) ? fault_judge(call, path, need) : GO_ON;
}

ssize_t write(int fd, const void *from, size_t bytes)
{
    switch (fault_judge_fd("write", fd, NEEDS_SPACE)) {
    case FAIL:
        return -1;
    case HALF_THEN_DIE:
        syscall(SYS_write, fd, from, bytes / 2);
        fault_die();
        break;
    case GO_ON:
        break;
    }
    return syscall(SYS_write, fd, from, bytes);
}

ssize_t pwrite(int fd, const void *from, size_t bytes, off_t offset)
{
    switch (fault_judge_fd("pwrite", fd, NEEDS_SPACE)) {
    case FAIL:
        return -1;
    case HALF_THEN_DIE:
        syscall(SYS_pwrite64, fd, from, bytes / 2, offset);
        fault_die();
        break;
    case GO_ON:
        break;
    }
    return syscall(SYS_pwrite64, fd, from, bytes, offset);
}

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t offset)
{
    return pwrite(fd, from, bytes, offset);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    switch (fault_judge_fd("writev", fd, NEEDS_SPACE)) {
    case FAIL:
        return -1;
    case HALF_THEN_DIE:
        /* Half the parts, and half of the next one. */
        syscall(SYS_writev, fd, parts, count / 2);
        syscall(SYS_write, fd, parts[count / 2].iov_base, parts[count / 2].iov_len / 2);
        fault_die();
        break;
    case GO_ON:
        break;
    }
    return syscall(SYS_writev, fd, parts, count);
}

/* Calls that are made whole or not at all. */
static long fault_call(enum fault_verdict verdict, long number, long a, long b, long c, long d, long e)
{
    if (verdict == FAIL)
        return -1;
    if (verdict == HALF_THEN_DIE)
        fault_die();
    return syscall(number, a, b, c, d, e);
}

int fsync(int fd)
{
    return (int)fault_call(fault_judge_fd("fsync", fd, NEEDS_NOTHING), SYS_fsync, fd, 0, 0, 0, 0);
}

int fdatasync(int fd)
{
    return (int)fault_call(fault_judge_fd("fdatasync", fd, NEEDS_NOTHING), SYS_fdatasync, fd, 0, 0, 0, 0);
}

int ftruncate(int fd, off_t bytes)
{
    return (int)fault_call(fault_judge_fd("ftruncate", fd, NEEDS_NOTHING), SYS_ftruncate, fd, bytes, 0, 0, 0);
}

int ftruncate64(int fd, off64_t bytes)
{
    return ftruncate(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return (int)fault_call(fault_judge_fd("fallocate", fd, NEEDS_SPACE), SYS_fallocate, fd, mode, offset, bytes, 0);
}

int fallocate64(int fd, int mode, off64_t offset, off64_t bytes)
{
    return fallocate(fd, mode, offset, bytes);
}

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    return fallocate(fd, 0, offset, bytes) == 0 ? 0 : errno;
}

int posix_fallocate64(int fd, off64_t offset, off64_t bytes)
{
    return posix_fallocate(fd, offset, bytes);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned int flags)
{
    return (int)fault_call(fault_judge_name("rename", to_fd, to, NEEDS_SPACE), SYS_renameat2, from_fd, (long)from,
                           to_fd, (long)to, (long)flags);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return renameat2(from_fd, from, to_fd, to, 0);
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    return (int)fault_call(fault_judge_name("link", to_fd, to, NEEDS_SPACE), SYS_linkat, from_fd, (long)from, to_fd,
                           (long)to, flags);
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int directory_fd, const char *name, int flags)
{
    return (int)fault_call(fault_judge_name("unlink", directory_fd, name, NEEDS_NOTHING), SYS_unlinkat, directory_fd,
                           (long)name, flags, 0, 0);
}

int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}

int mkdirat(int directory_fd, const char *name, mode_t mode)
{
    return (int)fault_call(fault_judge_name("mkdir", directory_fd, name, NEEDS_SPACE), SYS_mkdirat, directory_fd,
                           (long)name, (long)mode, 0, 0);
}

int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset)
{
    char path[PATH_MAX];
    if (fault.read_at > 0 && fault_find_fd(fd, path) && fault_is_watched(path) &&
        atomic_fetch_add(&fault.reads, 1) + 1 >= fault.read_at) {
        errno = EIO;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, bytes, offset);
}

ssize_t pread64(int fd, void *to, size_t bytes, off64_t offset)
{
    return pread(fd, to, bytes, offset);
}

struct io_uring;
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);

/* Of liburing, which makes its calls itself. */
int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    int (*real)(unsigned, struct io_uring *, unsigned) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "io_uring_queue_init");
    memcpy(&real, &symbol, sizeof real);
    return fault.has_no_uring || real == NULL ? -EPERM : real(entries, ring, flags);
}

static bool fault_refuses_direct(int directory_fd, const char *name, int flags)
{
    char path[2 * PATH_MAX];
    return fault.has_no_direct && (flags & O_DIRECT) != 0 && fault_find_name(directory_fd, name, path) &&
           fault_is_watched(path);
}

/* Opening counts only where it may make or cut a file. */
static int fault_open(int directory_fd, const char *name, int flags, mode_t mode)
{
    if (fault_refuses_direct(directory_fd, name, flags)) {
        errno = EINVAL;
        return -1;
    }
    enum fault_verdict verdict = GO_ON;
    if ((flags & (O_CREAT | O_TRUNC)) != 0)
        verdict = fault_judge_name("open", directory_fd, name, NEEDS_SPACE);
    return (int)fault_call(verdict, SYS_openat, directory_fd, (long)name, flags, (long)mode, 0);
}

static mode_t fault_mode(int flags, va_list arguments)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

int openat(int directory_fd, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = fault_mode(flags, arguments);
    va_end(arguments);
    return fault_open(directory_fd, name, flags, mode);
}

int openat64(int directory_fd, const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = fault_mode(flags, arguments);
    va_end(arguments);
    return fault_open(directory_fd, name, flags, mode);
}

int open(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = fault_mode(flags, arguments);
    va_end(arguments);
    return fault_open(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = fault_mode(flags, arguments);
    va_end(arguments);
    return fault_open(AT_FDCWD, name, flags, mode);
}
