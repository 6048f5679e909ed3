#include "engine/model/pack.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "engine/base/file.h"
#include "engine/model/pack_build.h"
#include "engine/model/pack_header.h"
#include "engine/model/pack_layout.h"
#include "engine/model/pack_lock.h"

enum { DIGEST_DIGITS = 32, REASON_BYTES = 256 };

struct nj_pack {
    char path[PATH_MAX];
    struct nj_pack_layout layout;
    struct nj_direct_file *file; /* NULL until the pack has been found good */
    const atomic_int *stop;
};

enum pack_state { PACK_READY, PACK_ABSENT, PACK_DAMAGED, PACK_FAILED };

static void give_notice(const struct nj_pack_options *options, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void give_notice(const struct nj_pack_options *options, const char *format, ...)
{
    char line[PATH_MAX + REASON_BYTES + 128];
    if (options->notice == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    options->notice(options->notice_context, line);
}

/* Reads the header, in memory fit for direct I/O, and checks it. PACK_DAMAGED fills `reason`. */
static enum pack_state check_header(struct nj_pack *pack, struct nj_direct_file *file, const char *digest,
                                    char reason[REASON_BYTES], struct nj_error *error)
{
    uint64_t bytes = pack->layout.header_bytes;
    if (direct_file_bytes(file) != pack->layout.file_bytes) {
        snprintf(reason, REASON_BYTES, "it has %" PRIu64 " bytes, expected %" PRIu64, direct_file_bytes(file),
                 pack->layout.file_bytes);
        return PACK_DAMAGED;
    }
    unsigned char *memory = aligned_alloc(NJ_PACK_ALIGNMENT, 2 * (size_t)bytes);
    if (memory == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening %s", pack->path);
        return PACK_FAILED;
    }
    enum pack_state state = PACK_FAILED;
    if (direct_file_read(file, memory, (size_t)bytes, 0, error) == 0) {
        const char *wrong = pack_header_check(&pack->layout, digest, memory, memory + bytes);
        state = wrong == NULL ? PACK_READY : PACK_DAMAGED;
        snprintf(reason, REASON_BYTES, "%s", wrong == NULL ? "" : wrong);
    }
    free(memory);
    return state;
}

/* Takes the pack file if it is there and good. */
static enum pack_state find_pack(struct nj_pack *pack, const char *digest, char reason[REASON_BYTES],
                                 struct nj_error *error)
{
    struct stat info;
    if (stat(pack->path, &info) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return PACK_ABSENT;
    struct nj_direct_file *file = direct_file_open(pack->path, error);
    if (file == NULL)
        return PACK_FAILED;
    enum pack_state state = check_header(pack, file, digest, reason, error);
    if (state == PACK_READY)
        pack->file = file;
    else
        direct_file_close(file);
    return state;
}

static int build_pack(struct nj_pack *pack, const struct nj_pack_options *options, struct nj_error *error)
{
    char reason[REASON_BYTES];
    give_notice(options, "building the pack %s (%.1f MiB)", pack->path,
                (double)pack->layout.file_bytes / (1024.0 * 1024.0));
    if (pack_build(pack->path, &pack->layout, options->gguf, options->model_digest, options->stop, error) != 0)
        return -1;
    enum pack_state state = find_pack(pack, options->model_digest, reason, error);
    if (state == PACK_READY)
        return 0;
    if (state == PACK_FAILED)
        return -1;
    error_set(error, NJ_IO_FAILED, "the pack was written but cannot be read back: %s",
              state == PACK_ABSENT ? "it is gone" : reason);
    return error_at(error, pack->path, 0, -1);
}

/* With the lock held: another process may have built it while this one waited. */
static int find_or_build(struct nj_pack *pack, const struct nj_pack_options *options, struct nj_error *error)
{
    char reason[REASON_BYTES];
    enum pack_state state = find_pack(pack, options->model_digest, reason, error);
    if (state == PACK_READY)
        return 0;
    if (state == PACK_FAILED)
        return -1;
    if (state == PACK_DAMAGED)
        give_notice(options, "the pack %s is not usable: %s", pack->path, reason);
    return build_pack(pack, options, error);
}

static int build_under_lock(struct nj_pack *pack, const struct nj_pack_options *options, struct nj_error *error)
{
    char lock_path[PATH_MAX];
    int length = snprintf(lock_path, sizeof lock_path, "%s/%s.lock", options->directory, options->model_digest);
    if (length < 0 || (size_t)length >= sizeof lock_path)
        return error_set(error, NJ_CANT_CREATE, "the name of the cache directory is too long");
    if (file_make_directories(options->directory, error) != 0)
        return -1;
    int lock = pack_lock_take(lock_path, options->notice, options->notice_context, options->stop, error);
    if (lock < 0)
        return -1;
    int result = find_or_build(pack, options, error);
    pack_lock_release(lock);
    return result;
}

static int open_or_build(struct nj_pack *pack, const struct nj_pack_options *options, struct nj_error *error)
{
    char reason[REASON_BYTES];
    switch (find_pack(pack, options->model_digest, reason, error)) {
    case PACK_READY:
        return 0;
    case PACK_FAILED:
        return -1;
    case PACK_ABSENT:
    case PACK_DAMAGED:
        break;
    }
    return build_under_lock(pack, options, error);
}

/* The digest becomes part of a file name. */
static int check_digest(const char *digest, struct nj_error *error)
{
    if (strlen(digest) == DIGEST_DIGITS && strspn(digest, "0123456789abcdef") == DIGEST_DIGITS)
        return 0;
    return error_set(error, NJ_INTERNAL, "not a digest: \"%.40s\"", digest);
}

struct nj_pack *pack_open(const struct nj_pack_options *options, struct nj_error *error)
{
    struct nj_pack *pack = calloc(1, sizeof *pack);
    if (pack == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory opening the pack");
        return NULL;
    }
    pack->stop = options->stop;
    if (check_digest(options->model_digest, error) != 0)
        goto failed;
    int length = snprintf(pack->path, sizeof pack->path, "%s/%s-v%d.pack", options->directory, options->model_digest,
                          NJ_PACK_VERSION);
    if (length < 0 || (size_t)length >= sizeof pack->path) {
        error_set(error, NJ_CANT_CREATE, "the name of the cache directory is too long");
        goto failed;
    }
    if (pack_layout_plan(options->gguf, options->shape, &pack->layout, error) == 0 &&
        open_or_build(pack, options, error) == 0) {
        if (!direct_file_is_direct(pack->file))
            give_notice(options, "the file system of %s has no direct I/O: the pack is read through the page cache",
                        pack->path);
        return pack;
    }
failed:
    pack_close(pack);
    return NULL;
}

void pack_close(struct nj_pack *pack)
{
    if (pack == NULL)
        return;
    direct_file_close(pack->file);
    pack_layout_free(&pack->layout);
    free(pack);
}

const char *pack_path(const struct nj_pack *pack)
{
    return pack->path;
}
int pack_section_count(const struct nj_pack *pack)
{
    return pack->layout.section_count;
}
uint64_t pack_bytes(const struct nj_pack *pack)
{
    return pack->layout.file_bytes;
}

const struct nj_pack_section *pack_section_at(const struct nj_pack *pack, int index)
{
    return &pack->layout.sections[index];
}

const struct nj_pack_tensor *pack_tensor_at(const struct nj_pack *pack, int index)
{
    return &pack->layout.tensors[index];
}

static int fail_damaged(const struct nj_pack *pack, const struct nj_pack_tensor *tensor, struct nj_error *error)
{
    char name[NJ_TENSOR_NAME_BYTES];
    pack_tensor_name(tensor->slot, tensor->layer, name);
    error_set(error, NJ_BAD_DATA,
              "tensor %s of the pack is damaged: its checksum does not match; delete the pack and run again, it will "
              "be rebuilt",
              name);
    return error_at(error, pack->path, 0, (int64_t)tensor->offset);
}

struct nj_direct_file *pack_direct_file(const struct nj_pack *pack)
{
    return pack->file;
}

int pack_check_section(const struct nj_pack *pack, int index, const void *bytes, struct nj_error *error)
{
    const struct nj_pack_section *section = &pack->layout.sections[index];
    for (int i = 0; i < section->tensors; i++) {
        const struct nj_pack_tensor *tensor = &pack->layout.tensors[section->first_tensor + i];
        const char *tensor_bytes = (const char *)bytes + (tensor->offset - section->offset);
        if (XXH3_64bits(tensor_bytes, (size_t)tensor->bytes) != tensor->checksum)
            return fail_damaged(pack, tensor, error);
    }
    return 0;
}

int pack_read_section(struct nj_pack *pack, int index, void *to, struct nj_error *error)
{
    const struct nj_pack_section *section = &pack->layout.sections[index];
    if (pack->stop != NULL && atomic_load(pack->stop) != 0)
        return error_set(error, NJ_INTERRUPTED, "interrupted while reading the pack");
    if (direct_file_read(pack->file, to, (size_t)section->bytes, section->offset, error) != 0)
        return -1;
    return pack_check_section(pack, index, to, error);
}
