#include "engine/model/pack_store.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/model/pack_lock.h"

enum { DIGITS = NJ_DIGEST_TEXT_BYTES - 1 };

/* "DIGEST-vN.pack" or "DIGEST-vN.pack.tmp" */
static bool read_name(const char *name, struct nj_pack_entry *out)
{
    int end = 0;
    if (strspn(name, "0123456789abcdef") != DIGITS || sscanf(name + DIGITS, "-v%d.pack%n", &out->version, &end) != 1 ||
        end == 0 || out->version < 1)
        return false;
    const char *rest = name + DIGITS + end;
    out->is_leftover = strcmp(rest, ".tmp") == 0;
    memcpy(out->digest, name, DIGITS);
    out->digest[DIGITS] = '\0';
    return rest[0] == '\0' || out->is_leftover;
}

static int join_path(char out[PATH_MAX], const char *directory, const char *name, struct nj_error *error)
{
    const int length = snprintf(out, PATH_MAX, "%s/%s", directory, name);
    if (length > 0 && length < PATH_MAX)
        return 0;
    return error_set(error, NJ_CANT_CREATE, "the name of the cache directory is too long");
}

static int append(struct nj_pack_list *list, const struct nj_pack_entry *entry, struct nj_error *error)
{
    struct nj_pack_entry *grown = realloc(list->entries, (list->count + 1) * sizeof *grown);
    if (grown == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    list->entries = grown;
    list->entries[list->count++] = *entry;
    return 0;
}

/* Files that vanish meanwhile are not there. */
static int take_file(const char *directory, const char *name, struct nj_pack_list *list, struct nj_error *error)
{
    struct nj_pack_entry entry = {.model = NULL};
    char path[PATH_MAX];
    struct stat info;
    if (!read_name(name, &entry))
        return 0;
    if (join_path(path, directory, name, error) != 0)
        return -1;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return 0;
    entry.bytes = (uint64_t)info.st_size;
    entry.used_seconds = info.st_atime > info.st_mtime ? info.st_atime : info.st_mtime;
    return append(list, &entry, error);
}

static int fail_directory(const char *path, struct nj_error *error)
{
    error_set(error, NJ_IO_FAILED, "cannot read the directory: %s", strerror(errno));
    return error_at(error, path, 0, -1);
}

static int list_packs(const char *directory, struct nj_pack_list *list, struct nj_error *error)
{
    DIR *files = opendir(directory);
    if (files == NULL)
        return errno == ENOENT ? 0 : fail_directory(directory, error);
    int status = 0;
    const struct dirent *file;
    while (status == 0 && (file = readdir(files)) != NULL)
        status = take_file(directory, file->d_name, list, error);
    closedir(files);
    return status;
}

static int compare_entries(const void *left, const void *right)
{
    const struct nj_pack_entry *a = left, *b = right;
    if (a->used_seconds != b->used_seconds)
        return a->used_seconds < b->used_seconds ? 1 : -1;
    return strcmp(a->digest, b->digest);
}

/* Every digest that is remembered of a file which is still the same names the packs made of it. */
static void note_model(void *context, const char *path, const char *digest)
{
    const struct nj_pack_list *list = context;
    for (size_t i = 0; i < list->count; i++) {
        struct nj_pack_entry *entry = &list->entries[i];
        if (strcmp(entry->digest, digest) == 0 && entry->model == NULL)
            entry->model = strdup(path); /* NULL: it stays without a name */
    }
}

int pack_store_list(const char *cache_directory, struct nj_pack_list *out, struct nj_error *error)
{
    char packs[PATH_MAX], digests[PATH_MAX];
    *out = (struct nj_pack_list){.count = 0};
    if (join_path(packs, cache_directory, "packs", error) != 0 ||
        join_path(digests, cache_directory, "digests", error) != 0)
        return -1;
    if (list_packs(packs, out, error) != 0) {
        pack_store_free(out);
        return -1;
    }
    file_digest_visit(digests, note_model, out);
    if (out->count > 1)
        qsort(out->entries, out->count, sizeof out->entries[0], compare_entries);
    return 0;
}

void pack_store_free(struct nj_pack_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->entries[i].model);
    free(list->entries);
    *list = (struct nj_pack_list){.count = 0};
}

/* The one digest of the list that begins so. */
static const char *find_digest(const struct nj_pack_list *list, const char *beginning, struct nj_error *error)
{
    const char *found = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const char *digest = list->entries[i].digest;
        if (beginning[0] == '\0' || strncmp(digest, beginning, strlen(beginning)) != 0)
            continue;
        if (found != NULL && strcmp(found, digest) != 0) {
            error_set(error, NJ_BAD_USAGE, "several packs begin with \"%.40s\"; give more of the name", beginning);
            return NULL;
        }
        found = digest;
    }
    if (found == NULL)
        error_set(error, NJ_NO_INPUT, "there is no pack \"%.40s\"; pack --list shows them", beginning);
    return found;
}

static int remove_entry(const char *packs, const struct nj_pack_entry *entry, uint64_t *freed, struct nj_error *error)
{
    char name[DIGITS + 64], path[PATH_MAX];
    snprintf(name, sizeof name, "%s-v%d.pack%s", entry->digest, entry->version, entry->is_leftover ? ".tmp" : "");
    if (join_path(path, packs, name, error) != 0)
        return -1;
    if (unlink(path) == 0)
        *freed += entry->bytes;
    else if (errno != ENOENT) {
        error_set(error, NJ_IO_FAILED, "cannot remove: %s", strerror(errno));
        return error_at(error, path, 0, -1);
    }
    return 0;
}

int pack_store_remove(const char *cache_directory, const struct nj_pack_list *list, const char *digest, uint64_t *freed,
                      struct nj_error *error)
{
    char packs[PATH_MAX], lock_path[PATH_MAX], lock_name[DIGITS + 8];
    const char *whole = find_digest(list, digest, error);
    if (whole == NULL || join_path(packs, cache_directory, "packs", error) != 0)
        return -1;
    snprintf(lock_name, sizeof lock_name, "%s.lock", whole);
    if (join_path(lock_path, packs, lock_name, error) != 0)
        return -1;
    const int lock = pack_lock_try(lock_path, error);
    if (lock < 0)
        return -1;
    int status = 0;
    for (size_t i = 0; i < list->count && status == 0; i++)
        if (strcmp(list->entries[i].digest, whole) == 0)
            status = remove_entry(packs, &list->entries[i], freed, error);
    pack_lock_release(lock);
    return status;
}
