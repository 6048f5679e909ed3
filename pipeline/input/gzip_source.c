/* gzip through zlib and not through libarchive, whose gzip reader does not verify the checksum. */
#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

#include "pipeline/input/byte_source.h"

enum { INPUT_BYTES = 64 << 10, GZIP_ONLY = 15 + 16 };

struct gzip_source {
    struct nj_byte_source source;
    struct nj_byte_source *inner;
    z_stream stream;
    bool stream_ready;
    bool between_members; /* the last member is complete */
    bool inner_ended;
    uint64_t taken; /* compressed bytes read from the inner source */
    unsigned char input[INPUT_BYTES];
};

static struct gzip_source *gzip_of(struct nj_byte_source *source)
{
    return (struct gzip_source *)(void *)source;
}

static int fail_damaged(const struct gzip_source *source, const char *reason, struct nj_error *error)
{
    return error_set(error, NJ_BAD_DATA, "the gzip data is damaged at its byte %" PRIu64 " (%s): get the file again",
                     source->taken - source->stream.avail_in, reason);
}

static int take_input(struct gzip_source *source, struct nj_error *error)
{
    size_t got;
    if (source->stream.avail_in > 0 || source->inner_ended)
        return 0;
    if (byte_source_read(source->inner, source->input, sizeof source->input, &got, error) != 0)
        return -1;
    source->inner_ended = got == 0;
    source->taken += got;
    source->stream.next_in = source->input;
    source->stream.avail_in = (uInt)got;
    return 0;
}

/* Behind a member: another one, or zeros that pad the file. 1: another member, 0: the end. */
static int begin_member(struct gzip_source *source, struct nj_error *error)
{
    for (;;) {
        if (take_input(source, error) != 0)
            return -1;
        if (source->stream.avail_in == 0)
            return 0;
        if (*source->stream.next_in != 0)
            break;
        source->stream.next_in++;
        source->stream.avail_in--;
    }
    if (*source->stream.next_in != 0x1F)
        return fail_damaged(source, "something else follows the compressed data", error);
    source->between_members = false;
    return inflateReset(&source->stream) == Z_OK ? 1 : error_set(error, NJ_INTERNAL, "inflateReset failed");
}

static int gzip_read(struct nj_byte_source *base, void *to, size_t most, size_t *got, struct nj_error *error)
{
    struct gzip_source *source = gzip_of(base);
    z_stream *stream = &source->stream;
    *got = 0;
    stream->next_out = to;
    stream->avail_out = (uInt)(most < (1u << 30) ? most : 1u << 30);
    uInt room = stream->avail_out;
    while (stream->avail_out == room) {
        int more = source->between_members ? begin_member(source, error) : 1;
        if (more <= 0)
            return more;
        if (take_input(source, error) != 0)
            return -1;
        if (stream->avail_in == 0)
            return fail_damaged(source, "it ends in the middle", error);
        int code = inflate(stream, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            source->between_members = true;
        else if (code == Z_MEM_ERROR)
            return error_set(error, NJ_INTERNAL, "out of memory");
        else if (code != Z_OK)
            return fail_damaged(source, stream->msg != NULL ? stream->msg : "no valid stream", error);
    }
    *got = room - stream->avail_out;
    return 0;
}

static void gzip_close(struct nj_byte_source *base)
{
    struct gzip_source *source = gzip_of(base);
    if (source->stream_ready)
        inflateEnd(&source->stream);
    byte_source_close(source->inner);
    free(source);
}

static const struct nj_byte_source_kind GZIP_KIND = {gzip_read, NULL, gzip_close};

struct nj_byte_source *byte_source_open_gzip(struct nj_byte_source *inner, struct nj_error *error)
{
    struct gzip_source *source = inner == NULL ? NULL : calloc(1, sizeof *source);
    if (source == NULL) {
        if (inner != NULL)
            error_set(error, NJ_INTERNAL, "out of memory");
        byte_source_close(inner);
        return NULL;
    }
    source->source.kind = &GZIP_KIND;
    source->inner = inner;
    source->stream_ready = inflateInit2(&source->stream, GZIP_ONLY) == Z_OK;
    if (source->stream_ready)
        return &source->source;
    error_set(error, NJ_INTERNAL, "out of memory");
    gzip_close(&source->source);
    return NULL;
}
