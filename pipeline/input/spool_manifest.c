#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/checked.h"
#include "engine/base/file.h"
#include "pipeline/input/spool_internal.h"

static const char MAGIC[8] = "NJSPOOL";
enum { MANIFEST_BYTES_MOST = 1 << 30 };

struct header {
    char magic[8];
    uint32_t version, block_bytes;
    uint64_t generation;
    uint64_t raw_bytes, stored_bytes; /* of the space, of the file of blocks */
    uint32_t sources, streams;
    uint64_t content_checksum; /* of everything behind the header */
    uint64_t checksum;         /* of the header before this field */
};
static_assert(sizeof(struct header) == 64, "the header's layout is part of the format");

/* The path's bytes follow. */
struct source_entry {
    uint64_t bytes;
    int64_t modified_nanoseconds;
    uint32_t kind, path_bytes;
};
static_assert(sizeof(struct source_entry) == 24, "part of the format");

/* The name's bytes follow. */
struct stream_entry {
    uint64_t start, bytes;
    uint32_t source, name_bytes;
};
static_assert(sizeof(struct stream_entry) == 24, "part of the format");
static_assert(sizeof(struct spool_block) == 16, "part of the format");

static int put_sources(const struct nj_spool *spool, struct nj_byte_buffer *out, struct nj_error *error)
{
    for (size_t i = 0; i < spool->source_count; i++) {
        const struct nj_spool_source *source = &spool->sources[i];
        struct source_entry entry = {.bytes = source->bytes,
                                     .modified_nanoseconds = source->modified_nanoseconds,
                                     .kind = source->kind,
                                     .path_bytes = (uint32_t)strlen(source->path)};
        if (byte_buffer_append(out, &entry, sizeof entry, error) != 0 ||
            byte_buffer_append(out, source->path, entry.path_bytes, error) != 0)
            return -1;
    }
    return 0;
}

static int put_streams(const struct nj_spool *spool, struct nj_byte_buffer *out, struct nj_error *error)
{
    for (size_t i = 0; i < spool->stream_count; i++) {
        const struct nj_spool_stream *stream = &spool->streams[i];
        struct stream_entry entry = {.start = stream->start,
                                     .bytes = stream->bytes,
                                     .source = stream->source,
                                     .name_bytes = (uint32_t)strlen(stream->name)};
        if (byte_buffer_append(out, &entry, sizeof entry, error) != 0 ||
            byte_buffer_append(out, stream->name, entry.name_bytes, error) != 0)
            return -1;
    }
    return 0;
}

int spool_manifest_write(struct nj_spool *spool, struct nj_error *error)
{
    struct nj_byte_buffer out = {0};
    struct header header = {.version = NJ_SPOOL_VERSION,
                            .block_bytes = NJ_SPOOL_BLOCK_BYTES,
                            .generation = spool->generation,
                            .raw_bytes = spool->raw_bytes,
                            .stored_bytes = spool->stored_bytes,
                            .sources = (uint32_t)spool->source_count,
                            .streams = (uint32_t)spool->stream_count};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    int result = -1;
    if (byte_buffer_append(&out, &header, sizeof header, error) == 0 && put_sources(spool, &out, error) == 0 &&
        put_streams(spool, &out, error) == 0 &&
        byte_buffer_append(&out, spool->blocks, spool->block_count * sizeof *spool->blocks, error) == 0) {
        header.content_checksum = XXH3_64bits(out.data + sizeof header, out.length - sizeof header);
        header.checksum = XXH3_64bits(&header, offsetof(struct header, checksum));
        memcpy(out.data, &header, sizeof header);
        result = file_replace(spool->manifest_path, out.data, out.length, error);
        spool->manifest_checksum = header.checksum;
    }
    byte_buffer_free(&out);
    return result;
}

/* What of the content is not read yet. */
struct cursor {
    const char *at;
    size_t left;
};

static bool take(struct cursor *cursor, void *to, size_t bytes)
{
    if (bytes > cursor->left)
        return false;
    memcpy(to, cursor->at, bytes);
    cursor->at += bytes;
    cursor->left -= bytes;
    return true;
}

/* A copy of the next bytes as text; NULL if they are not there, hold a NUL, or memory is out. */
static char *take_text(struct cursor *cursor, size_t bytes)
{
    if (bytes > cursor->left || memchr(cursor->at, '\0', bytes) != NULL)
        return NULL;
    char *text = strndup(cursor->at, bytes);
    cursor->at += bytes;
    cursor->left -= bytes;
    return text;
}

static bool take_sources(struct nj_spool *spool, size_t count, struct cursor *cursor)
{
    struct source_entry entry;
    if (count > cursor->left / sizeof entry)
        return false;
    spool->sources = calloc(count + 1, sizeof *spool->sources);
    for (size_t i = 0; spool->sources != NULL && i < count; i++) {
        if (!take(cursor, &entry, sizeof entry))
            return false;
        char *path = take_text(cursor, entry.path_bytes);
        if (path == NULL)
            return false;
        spool->sources[spool->source_count++] = (struct nj_spool_source){
            .path = path, .bytes = entry.bytes, .modified_nanoseconds = entry.modified_nanoseconds, .kind = entry.kind};
    }
    return spool->sources != NULL;
}

static bool take_streams(struct nj_spool *spool, size_t count, struct cursor *cursor)
{
    struct stream_entry entry;
    uint64_t end;
    if (count > cursor->left / sizeof entry)
        return false;
    spool->streams = calloc(count + 1, sizeof *spool->streams);
    for (size_t i = 0; spool->streams != NULL && i < count; i++) {
        if (!take(cursor, &entry, sizeof entry) || entry.source >= spool->source_count ||
            !checked_add(entry.start, entry.bytes, &end) || end > spool->raw_bytes)
            return false;
        char *name = take_text(cursor, entry.name_bytes);
        if (name == NULL)
            return false;
        spool->streams[spool->stream_count++] =
            (struct nj_spool_stream){.name = name, .source = entry.source, .start = entry.start, .bytes = entry.bytes};
    }
    return spool->streams != NULL;
}

static bool take_blocks(struct nj_spool *spool, struct cursor *cursor)
{
    uint64_t count = spool->raw_bytes / NJ_SPOOL_BLOCK_BYTES + (spool->raw_bytes % NJ_SPOOL_BLOCK_BYTES != 0);
    if (count != cursor->left / sizeof *spool->blocks || cursor->left % sizeof *spool->blocks != 0)
        return false;
    spool->blocks = malloc(cursor->left + 1);
    if (spool->blocks == NULL)
        return false;
    spool->block_count = (size_t)count;
    take(cursor, spool->blocks, cursor->left);
    uint64_t least = 0;
    for (size_t i = 0; i < spool->block_count; i++) {
        if (spool->blocks[i].offset < least || spool->blocks[i].offset > spool->stored_bytes)
            return false;
        least = spool->blocks[i].offset;
    }
    return true;
}

static int parse(struct nj_spool *spool, const char *content, size_t length, struct nj_error *error)
{
    const char *path = spool->manifest_path;
    struct cursor cursor = {content, length};
    struct header header;
    if (!take(&cursor, &header, sizeof header) || memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 ||
        header.checksum != XXH3_64bits(&header, offsetof(struct header, checksum)))
        return spool_fail_damaged(path, "its header", error);
    if (header.version != NJ_SPOOL_VERSION || header.block_bytes != NJ_SPOOL_BLOCK_BYTES)
        return spool_fail_damaged(path, "another version of nightjar wrote it", error);
    if (header.content_checksum != XXH3_64bits(cursor.at, cursor.left))
        return spool_fail_damaged(path, "its checksum", error);
    spool->manifest_checksum = header.checksum;
    spool->generation = header.generation;
    spool->raw_bytes = header.raw_bytes;
    spool->stored_bytes = header.stored_bytes;
    if (!take_sources(spool, header.sources, &cursor) || !take_streams(spool, header.streams, &cursor) ||
        !take_blocks(spool, &cursor))
        return spool_fail_damaged(path, "its tables", error);
    return 1;
}

int spool_manifest_read(struct nj_spool *spool, struct nj_error *error)
{
    size_t length;
    if (access(spool->manifest_path, F_OK) != 0)
        return 0;
    char *content = file_read_whole(spool->manifest_path, MANIFEST_BYTES_MOST, &length, error);
    int result = content == NULL ? -1 : parse(spool, content, length, error);
    free(content);
    return result;
}
