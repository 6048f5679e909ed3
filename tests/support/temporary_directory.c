#include "tests/support/temporary_directory.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    abort();
}

char *temporary_path(const char *directory, const char *name)
{
    size_t bytes = strlen(directory) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (path == NULL)
        fail("no memory for the path", name);
    snprintf(path, bytes, "%s/%s", directory, name);
    return path;
}

char *temporary_directory_create(void)
{
    const char *base = getenv("TMPDIR");
    char *path = temporary_path(base != NULL && base[0] == '/' ? base : "/tmp", "nightjar-test-XXXXXX");
    if (mkdtemp(path) == NULL)
        fail("cannot create", path);
    return path;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void temporary_remove_tree(const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        fail("cannot remove", path);
}

void temporary_directory_remove(char *path)
{
    if (path == NULL)
        return;
    temporary_remove_tree(path);
    free(path);
}

void temporary_write_file(const char *path, const void *from, unsigned long bytes)
{
    unlink(path); /* some file systems write a truncated file to disk when it is closed, which is slow */
    FILE *file = fopen(path, "wbe");
    if (file == NULL)
        fail("cannot create", path);
    if ((bytes > 0 && fwrite(from, 1, bytes, file) != bytes) || fclose(file) != 0)
        fail("cannot write", path);
}
