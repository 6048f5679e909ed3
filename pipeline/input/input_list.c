#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pipeline/base/utf8_text.h"
#include "pipeline/input/input_internal.h"
#include "pipeline/input/input_names.h"

static const int64_t SETTLED_NANOSECONDS = INT64_C(2000000000);

static int fail_path(struct nj_error *error, const char *path, const char *what)
{
    error_set(error, NJ_NO_INPUT, "%s", what);
    return error_at(error, path, 0, -1);
}

static int fail_errno(struct nj_error *error, const char *path)
{
    return fail_path(error, path, strerror(errno));
}

char *input_argument_path(const char *argument, struct nj_error *error)
{
    if (strcmp(argument, "-") != 0)
        return input_absolute_path(argument, error);
    char *path = strdup(argument);
    if (path == NULL)
        error_set(error, NJ_INTERNAL, "out of memory");
    return path;
}

char *input_absolute_path(const char *argument, struct nj_error *error)
{
    char *path = NULL;
    const char *last = strrchr(argument, '/');
    last = last == NULL ? argument : last + 1;
    if (argument[0] == '\0') {
        fail_path(error, argument, "an input has no name");
        return NULL;
    }
    /* "." and ".." have no name of their own to label lines with. */
    if (strcmp(last, ".") == 0 || strcmp(last, "..") == 0) {
        path = realpath(argument, NULL);
    } else if (argument[0] == '/') {
        path = strdup(argument);
    } else {
        char *here = getcwd(NULL, 0);
        if (here != NULL && asprintf(&path, "%s/%s", here, argument) < 0)
            path = NULL;
        free(here);
    }
    if (path == NULL) {
        fail_errno(error, argument);
        return NULL;
    }
    for (size_t length = strlen(path); length > 1 && path[length - 1] == '/'; length--)
        path[length - 1] = '\0';
    return path;
}

int input_add_file(struct nj_input *input, const struct listed_file *file, struct nj_error *error)
{
    if (input->count == NJ_INPUT_FILES_MOST) {
        error_set(error, NJ_BAD_USAGE, "more than %d input files: join some", NJ_INPUT_FILES_MOST);
        goto failed;
    }
    if (input->count == input->capacity) {
        size_t capacity = input->capacity == 0 ? 16 : 2 * input->capacity;
        struct listed_file *grown = realloc(input->files, capacity * sizeof *grown);
        if (grown == NULL) {
            error_set(error, NJ_INTERNAL, "out of memory listing the input");
            goto failed;
        }
        input->files = grown;
        input->capacity = capacity;
    }
    input->files[input->count++] = *file;
    return 0;
failed:
    free(file->file.path);
    free(file->file.label);
    return -1;
}

static bool ends_in_any(const char *name, const char *const *endings)
{
    for (; *endings != NULL; endings++) {
        if (name_ends_in(name, *endings))
            return true;
    }
    return false;
}

/* By its name. -1: of a kind that is known and not read. */
static int kind_of_name(const char *path, enum nj_input_kind *kind, struct nj_error *error)
{
    static const char *const archives[] = {".tar",     ".tar.gz", ".tgz", ".tar.xz", ".txz",
                                           ".tar.zst", ".tzst",   ".zip", NULL};
    static const char *const refused[] = {".zst", ".xz", ".bz2", ".tbz2", ".lz4", ".lzma", ".7z", ".rar", NULL};
    *kind = ends_in_any(path, archives) ? NJ_INPUT_ARCHIVE : name_ends_in(path, ".gz") ? NJ_INPUT_GZIP : NJ_INPUT_PLAIN;
    if (*kind != NJ_INPUT_PLAIN || !ends_in_any(path, refused))
        return 0;
    error_set(error, NJ_BAD_USAGE,
              "compressed files of this kind are not read: take .jsonl.gz, or tar or zip, or unpack it and give the "
              "lines on standard input (-)");
    return error_at(error, path, 0, -1);
}

static int64_t nanoseconds_of(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* File systems tell times apart by milliseconds, some by two seconds. */
static int64_t settled_change_time(const struct stat *info)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t changed = nanoseconds_of(info->st_ctim);
    return nanoseconds_of(now) - changed > SETTLED_NANOSECONDS ? changed : 0;
}

/* Takes `path` over, also when it fails. `info` NULL: the file is gone. */
static int add_named(struct nj_input *input, char *path, size_t label_start, const struct stat *info,
                     struct nj_error *error)
{
    struct listed_file listed = {.file = {.path = path}, .label_start = label_start, .missing = info == NULL};
    if (kind_of_name(path, &listed.file.kind, error) != 0) {
        free(path);
        return -1;
    }
    if (info != NULL) {
        listed.file.bytes = (uint64_t)info->st_size;
        listed.file.modified_nanoseconds = nanoseconds_of(info->st_mtim);
        listed.file.changed_nanoseconds = settled_change_time(info);
        listed.file.device = (uint64_t)info->st_dev;
        listed.file.inode = (uint64_t)info->st_ino;
    }
    return input_add_file(input, &listed, error);
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int list_directory(struct nj_input *input, const char *path, size_t label_start, struct nj_error *error);

static int list_entry(struct nj_input *input, const char *directory, const char *name, size_t label_start,
                      struct nj_error *error)
{
    char *path;
    if (asprintf(&path, "%s/%s", directory, name) < 0)
        return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    struct stat info;
    int result = 0;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        result = list_directory(input, path, label_start, error);
    } else if (name_ends_in(name, ".jsonl") || name_ends_in(name, ".jsonl.gz")) {
        if (stat(path, &info) != 0) {
            result = fail_errno(error, path);
        } else if (S_ISREG(info.st_mode)) {
            return add_named(input, path, label_start, &info, error);
        }
    }
    free(path);
    return result;
}

static int list_directory(struct nj_input *input, const char *path, size_t label_start, struct nj_error *error)
{
    struct dirent **entries;
    int count = scandir(path, &entries, not_dots, by_bytes);
    if (count < 0)
        return fail_errno(error, path);
    int result = 0;
    for (int i = 0; i < count; i++) {
        if (result == 0)
            result = list_entry(input, path, entries[i]->d_name, label_start, error);
        free(entries[i]);
    }
    free(entries);
    return result;
}

static int list_standard_input(struct nj_input *input, struct nj_error *error)
{
    struct listed_file listed = {.file = {.path = strdup("-"), .kind = NJ_INPUT_STANDARD}};
    for (size_t i = 0; i < input->count; i++) {
        if (input->files[i].file.kind == NJ_INPUT_STANDARD) {
            free(listed.file.path);
            return error_set(error, NJ_BAD_USAGE, "standard input (-) is named twice, and can be read once");
        }
    }
    if (listed.file.path == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    return input_add_file(input, &listed, error);
}

/* Whether a file that is not there may be listed all the same. */
static bool may_be_gone(const struct nj_input *input, const char *path)
{
    enum nj_input_kind kind;
    return input->may_lack_originals && errno == ENOENT && kind_of_name(path, &kind, NULL) == 0 &&
           kind != NJ_INPUT_PLAIN;
}

static int list_argument(struct nj_input *input, const char *argument, struct nj_error *error)
{
    if (strcmp(argument, "-") == 0)
        return list_standard_input(input, error);
    char *path = input_absolute_path(argument, error);
    if (path == NULL)
        return -1;
    const char *slash = strrchr(path, '/');
    size_t label_start = (size_t)(slash - path) + 1;
    struct stat info;
    int result;
    if (stat(path, &info) != 0) {
        if (may_be_gone(input, path))
            return add_named(input, path, label_start, NULL, error);
        result = fail_errno(error, argument);
    } else if (S_ISREG(info.st_mode) && access(path, R_OK) != 0)
        result = fail_errno(error, argument);
    else if (S_ISREG(info.st_mode))
        return add_named(input, path, label_start, &info, error);
    else if (!S_ISDIR(info.st_mode))
        result =
            fail_path(error, argument, "neither a regular file nor a directory; give its lines on standard input (-)");
    else {
        size_t before = input->count;
        result = list_directory(input, path, label_start, error);
        if (result == 0 && input->count == before)
            result = fail_path(error, argument, "the directory holds no .jsonl or .jsonl.gz file");
    }
    free(path);
    return result;
}

static const char *label_of(const struct listed_file *file)
{
    return file->file.path + file->label_start;
}

static int by_label(const void *a, const void *b)
{
    const struct listed_file *const *first = a, *const *second = b;
    return strcmp(label_of(*first), label_of(*second));
}

static bool same_file(const struct listed_file *a, const struct listed_file *b)
{
    if (a->missing || b->missing)
        return strcmp(a->file.path, b->file.path) == 0;
    return a->file.device == b->file.device && a->file.inode == b->file.inode;
}

static bool extend_label(struct listed_file *file)
{
    if (file->label_start <= 1)
        return false;
    size_t start = file->label_start - 1;
    while (start > 0 && file->file.path[start - 1] != '/')
        start--;
    file->label_start = start == 0 ? 1 : start;
    return true;
}

/* Gives one more parent to the labels of different files that are equal. Returns whether any changed. */
static bool extend_equal_labels(struct listed_file **sorted, size_t count)
{
    qsort(sorted, count, sizeof *sorted, by_label);
    bool changed = false;
    for (size_t first = 0, end; first < count; first = end) {
        bool differ = false;
        for (end = first + 1; end < count && strcmp(label_of(sorted[first]), label_of(sorted[end])) == 0; end++)
            differ = differ || !same_file(sorted[first], sorted[end]);
        for (size_t i = first; differ && i < end; i++)
            changed = extend_label(sorted[i]) || changed;
    }
    return changed;
}

static int make_labels(struct nj_input *input, struct nj_error *error)
{
    struct listed_file **sorted = malloc((input->count + 1) * sizeof *sorted);
    if (sorted == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    for (size_t i = 0; i < input->count; i++)
        sorted[i] = &input->files[i];
    while (extend_equal_labels(sorted, input->count))
        ;
    free(sorted);
    for (size_t i = 0; i < input->count; i++) {
        struct listed_file *file = &input->files[i];
        file->file.label = utf8_escape_invalid(label_of(file), strlen(label_of(file)));
        if (file->file.label == NULL)
            return error_set(error, NJ_INTERNAL, "out of memory listing the input");
    }
    return 0;
}

int input_list(struct nj_input *input, const char *const *arguments, size_t count, struct nj_error *error)
{
    if (count == 0)
        return error_set(error, NJ_BAD_USAGE, "no input: name at least one .jsonl file or directory, or -");
    for (size_t i = 0; i < count; i++) {
        if (list_argument(input, arguments[i], error) != 0)
            return -1;
    }
    input->listed = input->count;
    return make_labels(input, error);
}
