#include "pipeline/input/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/base/utf8_text.h"
#include "pipeline/input/input_names.h"

enum { PACKED_BYTES = 64 << 10, NAME_BYTES_MOST = 4096, TAR_BLOCK_BYTES = 512 };

const struct nj_unpack_limits NJ_UNPACK_LIMITS = {
    .members = 1 << 20, .bytes = UINT64_C(1) << 40, .ratio = 1000, .ratio_minimum = 64 << 20};

int unpack_limits_check(const struct nj_unpack_limits *limits, uint64_t packed, uint64_t unpacked,
                        struct nj_error *error)
{
    if (unpacked > limits->bytes)
        return error_set(error, NJ_BAD_DATA,
                         "it unpacks to more than %" PRIu64 " MiB: if that is meant, unpack it and give the files",
                         limits->bytes >> 20);
    if (unpacked > limits->ratio_minimum && unpacked / limits->ratio > packed)
        return error_set(error, NJ_BAD_DATA,
                         "it unpacks to more than %" PRIu64
                         " times its size, as made to fill a disk: if that is meant, unpack it and give the files",
                         limits->ratio);
    return 0;
}

/* A member of the archive as a source. */
struct member_source {
    struct nj_byte_source source;
    struct nj_archive_reader *reader;
};

struct nj_archive_reader {
    struct archive *archive;
    struct nj_byte_source *file, *bytes; /* bytes: `file` itself, or a gzip source that owns it */
    struct nj_unpack_limits limits;
    const char *path;
    char *name;
    uint64_t members, matching, unpacked;
    struct member_source raw;
    struct nj_byte_source *member; /* `raw` or a gzip source around it */
    struct nj_error failure;       /* of a source below libarchive */
    char packed[PACKED_BYTES];
};

/* The source's own error if that is what stopped libarchive. */
static int fail_archive(struct nj_archive_reader *reader, struct nj_error *error)
{
    const char *reason = archive_error_string(reader->archive);
    if (reader->failure.code != NJ_OK) {
        if (error != NULL)
            *error = reader->failure;
        return -1;
    }
    return error_set(error, NJ_BAD_DATA, "the archive is damaged or of an unknown kind (%s): get it again",
                     reason != NULL ? reason : "no reason given");
}

static la_ssize_t give_packed(struct archive *archive, void *context, const void **buffer)
{
    struct nj_archive_reader *reader = context;
    size_t got;
    if (byte_source_read(reader->bytes, reader->packed, sizeof reader->packed, &got, &reader->failure) != 0) {
        archive_set_error(archive, EIO, "read failed");
        return -1;
    }
    *buffer = reader->packed;
    return (la_ssize_t)got;
}

static la_int64_t seek_packed(struct archive *archive, void *context, la_int64_t offset, int whence)
{
    struct nj_archive_reader *reader = context;
    int64_t position = reader->file->kind->seek(reader->file, offset, whence);
    if (position >= 0)
        return position;
    archive_set_error(archive, errno, "seek failed");
    return ARCHIVE_FATAL;
}

static int check_limits(struct nj_archive_reader *reader, struct nj_error *error)
{
    int64_t passed = archive_filter_bytes(reader->archive, 0);
    uint64_t unpacked = reader->unpacked;
    if (passed > 0 && (uint64_t)passed > unpacked)
        unpacked = (uint64_t)passed;
    return unpack_limits_check(&reader->limits, byte_source_taken(reader->file), unpacked, error);
}

static int member_read(struct nj_byte_source *source, void *to, size_t most, size_t *got, struct nj_error *error)
{
    struct nj_archive_reader *reader = ((struct member_source *)(void *)source)->reader;
    la_ssize_t count = archive_read_data(reader->archive, to, most);
    if (count < 0)
        return fail_archive(reader, error);
    *got = (size_t)count;
    return 0;
}

static void member_close(struct nj_byte_source *source)
{
    (void)source; /* a part of the reader */
}

static const struct nj_byte_source_kind MEMBER_KIND = {member_read, NULL, member_close};

/* Libarchive's gzip reader does not verify checksums: a gzip layer outside is taken off here. */
static int open_bytes(struct nj_archive_reader *reader, const char *path, const atomic_int *stop,
                      struct nj_error *error)
{
    unsigned char magic[2] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_gzip = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic && magic[0] == 0x1F && magic[1] == 0x8B;
    if (fd >= 0)
        close(fd);
    reader->file = byte_source_open_file(path, stop, error);
    reader->bytes = is_gzip ? byte_source_open_gzip(reader->file, error) : reader->file;
    return reader->bytes != NULL ? 0 : -1;
}

static int open_archive(struct nj_archive_reader *reader, struct nj_error *error)
{
    struct archive *archive = reader->archive;
    /* A zip through its list of members, which stands at its end: without it a cut zip would seem whole. */
    bool refused = archive_read_support_format_tar(archive) != ARCHIVE_OK ||
                   archive_read_support_format_zip_seekable(archive) != ARCHIVE_OK ||
                   archive_read_support_filter_xz(archive) != ARCHIVE_OK ||
                   archive_read_support_filter_zstd(archive) != ARCHIVE_OK ||
                   archive_read_set_read_callback(archive, give_packed) != ARCHIVE_OK ||
                   archive_read_set_callback_data(archive, reader) != ARCHIVE_OK;
    if (!refused && reader->bytes == reader->file)
        refused = archive_read_set_seek_callback(archive, seek_packed) != ARCHIVE_OK;
    if (refused)
        return error_set(error, NJ_INTERNAL, "libarchive lacks a format: %s", archive_error_string(archive));
    return archive_read_open1(archive) == ARCHIVE_OK ? 0 : fail_archive(reader, error);
}

struct nj_archive_reader *archive_reader_open(const char *path, const struct nj_unpack_limits *limits,
                                              const atomic_int *stop, struct nj_error *error)
{
    struct nj_archive_reader *reader = calloc(1, sizeof *reader);
    if (reader == NULL || (reader->archive = archive_read_new()) == NULL) {
        error_set(error, NJ_INTERNAL, "out of memory");
        free(reader);
        return NULL;
    }
    reader->path = path;
    reader->limits = *limits;
    reader->raw = (struct member_source){.source = {&MEMBER_KIND}, .reader = reader};
    if (open_bytes(reader, path, stop, error) == 0 && open_archive(reader, error) == 0)
        return reader;
    error_at(error, path, 0, -1);
    archive_reader_close(reader);
    return NULL;
}

void archive_reader_close(struct nj_archive_reader *reader)
{
    if (reader == NULL)
        return;
    byte_source_close(reader->member);
    archive_read_free(reader->archive);
    byte_source_close(reader->bytes);
    free(reader->name);
    free(reader);
}

static size_t put_part(char *out, size_t put, const char *part, size_t length)
{
    if (length == 0 || (length == 1 && part[0] == '.'))
        return put;
    if (put > 0)
        out[put++] = '/';
    bool is_parent = length == 2 && part[0] == '.' && part[1] == '.';
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)part[i];
        if (is_parent || byte < 0x20 || byte == 0x7F)
            put += (size_t)sprintf(out + put, "%%%02X", byte);
        else
            out[put++] = part[i];
    }
    return put;
}

/* A member's path as a label. NULL: out of memory. */
static char *make_harmless(const char *path)
{
    char *text = malloc(3 * strlen(path) + 1);
    if (text == NULL)
        return NULL;
    size_t put = 0;
    while (*path != '\0') {
        size_t length = strcspn(path, "/");
        put = put_part(text, put, path, length);
        path += length + (path[length] == '/');
    }
    char *name = utf8_escape_invalid(text, put);
    free(text);
    return name;
}

/* AppleDouble files, which archives made on a Mac hold beside the real ones, are no JSONL. */
static bool is_wanted(struct archive_entry *entry, const char *name)
{
    const char *last = strrchr(name, '/');
    last = last == NULL ? name : last + 1;
    return archive_entry_filetype(entry) == AE_IFREG && archive_entry_hardlink(entry) == NULL &&
           strncmp(last, "._", 2) != 0 && (name_ends_in(last, ".jsonl") || name_ends_in(last, ".jsonl.gz"));
}

/* Libarchive would pass over a member without asking whether it is a bomb. A zip's is passed over by seeking. */
static int pass_over(struct nj_archive_reader *reader, struct nj_error *error)
{
    const void *block;
    size_t bytes;
    la_int64_t offset;
    int code = ARCHIVE_OK;
    if ((archive_format(reader->archive) & ARCHIVE_FORMAT_BASE_MASK) == ARCHIVE_FORMAT_ZIP)
        return 0;
    while ((code = archive_read_data_block(reader->archive, &block, &bytes, &offset)) == ARCHIVE_OK) {
        if (check_limits(reader, error) != 0)
            return -1;
    }
    return code == ARCHIVE_EOF ? 0 : fail_archive(reader, error);
}

static int take_name(struct nj_archive_reader *reader, struct archive_entry *entry, struct nj_error *error)
{
    const char *path = archive_entry_pathname_utf8(entry);
    if (path == NULL)
        path = archive_entry_pathname(entry);
    free(reader->name);
    reader->name = NULL;
    if (path == NULL || strlen(path) > NAME_BYTES_MOST)
        return error_set(error, NJ_BAD_DATA, "member %" PRIu64 " has %s: repack the archive", reader->members,
                         path == NULL ? "no name that can be read" : "too long a name");
    reader->name = make_harmless(path);
    return reader->name != NULL ? 0 : error_set(error, NJ_INTERNAL, "out of memory");
}

/* Opens the present member if it is wanted: 1, 0 if it is not, -1. */
static int open_member(struct nj_archive_reader *reader, struct archive_entry *entry, struct nj_error *error)
{
    if (++reader->members > reader->limits.members)
        return error_set(error, NJ_BAD_DATA, "the archive has more than %" PRIu64 " members: split it",
                         reader->limits.members);
    if (take_name(reader, entry, error) != 0)
        return -1;
    if (!is_wanted(entry, reader->name))
        return pass_over(reader, error);
    reader->matching++;
    reader->member =
        name_ends_in(reader->name, ".gz") ? byte_source_open_gzip(&reader->raw.source, error) : &reader->raw.source;
    return reader->member != NULL ? 1 : -1;
}

/* A tar ends in blocks of zeros. One that was cut between two members lacks them, also where it is compressed and the
 * cut fell between two of the compressor's frames; libarchive does not mind. What it took from the last member's end
 * on, `before`, is that member's padding and the first of these blocks. */
static int check_tar_end(struct nj_archive_reader *reader, int64_t before, struct nj_error *error)
{
    if ((archive_format(reader->archive) & ARCHIVE_FORMAT_BASE_MASK) != ARCHIVE_FORMAT_TAR ||
        archive_filter_bytes(reader->archive, 0) - before >= TAR_BLOCK_BYTES)
        return 0;
    return error_set(error, NJ_BAD_DATA, "the archive has no end: it was cut behind a member; get it again");
}

static int check_end(struct nj_archive_reader *reader, int64_t before, struct nj_error *error)
{
    if (check_tar_end(reader, before, error) != 0)
        return -1;
    return reader->matching > 0 ? 0 : error_set(error, NJ_NO_INPUT, "the archive holds no .jsonl or .jsonl.gz file");
}

int archive_reader_next(struct nj_archive_reader *reader, const char **name, struct nj_error *error)
{
    byte_source_close(reader->member);
    reader->member = NULL;
    for (;;) {
        struct archive_entry *entry;
        int64_t before = archive_filter_bytes(reader->archive, 0);
        int code = archive_read_next_header(reader->archive, &entry);
        int opened;
        if (code == ARCHIVE_EOF && check_end(reader, before, error) == 0)
            return 0;
        if (code == ARCHIVE_EOF)
            opened = -1;
        else if (code != ARCHIVE_OK && code != ARCHIVE_WARN) /* a warning is about a name's characters: see below */
            opened = fail_archive(reader, error);
        else
            opened = open_member(reader, entry, error);
        if (opened < 0)
            return error_at(error, reader->path, 0, -1);
        *name = reader->name;
        if (opened > 0)
            return 1;
    }
}

int archive_reader_read(struct nj_archive_reader *reader, void *to, size_t most, size_t *got, struct nj_error *error)
{
    if (byte_source_read(reader->member, to, most, got, error) != 0)
        return -1;
    reader->unpacked += *got;
    return check_limits(reader, error);
}
