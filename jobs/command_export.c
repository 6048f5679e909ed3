#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "jobs/commands.h"

/* Where an export goes. */
struct nj_export_target {
    int fd;
    char path[PATH_MAX];           /* what -o names, links followed; empty: standard output */
    char temporary[PATH_MAX + 32]; /* renamed to `path` when complete; empty: written in place */
};

static int export_refuse(const char *path, enum nj_code code, struct nj_error *error)
{
    error_set(error, code, "cannot write the export: %s", strerror(errno));
    return error_at(error, path, 0, -1);
}

/* Nothing in a job's directory is ever overwritten, so an export may not replace a file there. */
static int export_check_outside(const char *directory, const char *path, struct nj_error *error)
{
    char job[PATH_MAX], parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", path);
    char *slash = strrchr(parent, '/');
    slash[slash == parent ? 1 : 0] = '\0';
    if (realpath(directory, job) == NULL || strcmp(job, parent) != 0)
        return 0;
    error_set(error, NJ_BAD_USAGE, "--output lies in the job's own directory; give a place outside it");
    return error_at(error, path, 0, -1);
}

/* Resolves links and relative paths; the last part need not exist. */
static int export_resolve(const char *name, char out[PATH_MAX], struct nj_error *error)
{
    char parent[PATH_MAX], resolved[PATH_MAX];
    if (realpath(name, out) != NULL)
        return 0;
    const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
    if (slash == NULL)
        snprintf(parent, sizeof parent, ".");
    else
        snprintf(parent, sizeof parent, "%.*s", slash == name ? 1 : (int)(slash - name), name);
    if (errno != ENOENT || base[0] == '\0' || realpath(parent, resolved) == NULL)
        return export_refuse(name, NJ_CANT_CREATE, error);
    if (snprintf(out, PATH_MAX, "%s/%s", strcmp(resolved, "/") == 0 ? "" : resolved, base) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return export_refuse(name, NJ_CANT_CREATE, error);
    }
    return 0;
}

static int export_open(const char *directory, const char *name, struct nj_export_target *target, struct nj_error *error)
{
    struct stat info;
    *target = (struct nj_export_target){.fd = STDOUT_FILENO};
    if (name == NULL)
        return 0;
    if (export_resolve(name, target->path, error) != 0 || export_check_outside(directory, target->path, error) != 0)
        return -1;
    if (stat(target->path, &info) == 0 && !S_ISREG(info.st_mode)) {
        target->fd = open(target->path, O_WRONLY | O_CLOEXEC); /* a device or pipe cannot be replaced */
    } else {
        snprintf(target->temporary, sizeof target->temporary, "%s.%ld.tmp", target->path, (long)getpid());
        target->fd = open(target->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (target->fd < 0)
            target->temporary[0] = '\0';
    }
    return target->fd < 0 ? export_refuse(name, NJ_CANT_CREATE, error) : 0;
}

/* Makes the new file durable and puts it in place. */
static int export_commit(struct nj_export_target *target, struct nj_error *error)
{
    if (target->temporary[0] == '\0')
        return 0;
    if (file_sync(target->fd, target->path, error) != 0)
        return -1;
    if (rename(target->temporary, target->path) != 0)
        return export_refuse(target->path, NJ_IO_FAILED, error);
    target->temporary[0] = '\0';
    return file_sync_directory_of(target->path, error);
}

static void export_close(struct nj_export_target *target)
{
    if (target->fd >= 0 && target->fd != STDOUT_FILENO)
        close(target->fd);
    if (target->temporary[0] != '\0')
        unlink(target->temporary);
}

/* An unfinished job's export is written as far as it goes, which is no failure of the export. */
static int export_write(const char *directory, struct nj_export_target *target, uint64_t *missing,
                        struct nj_error *error)
{
    int status = job_export(directory, target->fd, missing, error);
    if (status != 0 && error->code != NJ_INTERRUPTED)
        return -1;
    struct nj_error commit_error = {0};
    if (export_commit(target, &commit_error) != 0) {
        *error = commit_error;
        return -1;
    }
    return status;
}

int command_export(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct nj_export_target target = {.fd = -1};
    uint64_t missing = 0;
    const char *directory;
    if (command_need_directory(arguments, &directory, &error) != 0 ||
        export_open(directory, arguments->output, &target, &error) != 0)
        return console_report(&context->console, &error);
    int status = export_write(directory, &target, &missing, &error);
    export_close(&target);
    if (status == 0)
        return NJ_OK;
    if (error.code != NJ_INTERRUPTED || missing == 0)
        return console_report(&context->console, &error);
    console_note(&context->console, "the export is partial: %" PRIu64 " requests have no record yet", missing);
    return NJ_INTERRUPTED;
}
