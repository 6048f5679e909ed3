#include "pipeline/output/checkpoint.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "engine/base/file.h"

static const char MAGIC[8] = "NJCKPT";
/* More than any job writes: what it holds in memory of its sequences. */
static const uint64_t CHECKPOINT_BYTES_MOST = UINT64_C(1) << 36;

struct mark_bytes {
    uint64_t length, crc;
};

struct header {
    char magic[8];
    uint64_t version;
    struct nj_digest job;
    struct mark_bytes results, errors;
    uint64_t sequences, bytes; /* of the whole file */
};
static_assert(sizeof(struct header) == 80, "the header's layout is part of the format");

/* Behind it come the tokens (int32), then as many times so many log-probabilities (token and float32). */
struct sequence_bytes {
    struct nj_digest id_hash, digest;
    uint32_t sample, count, logprobs_per_token, unused;
};
static_assert(sizeof(struct sequence_bytes) == 48, "the layout is part of the format");
static_assert(sizeof(struct nj_logprob) == 2 * sizeof(int32_t), "log-probabilities are read into an array of int32");

static int fail_unusable(const char *path, const char *what, struct nj_error *error)
{
    error_set(error, NJ_BAD_DATA, "the checkpoint cannot be used: %s", what);
    return error_at(error, path, 0, -1);
}

static uint32_t crc_of(const char *bytes, size_t length)
{
    return (uint32_t)crc32_z(0, (const unsigned char *)bytes, length);
}

/* How many int32 lie behind a sequence's header. */
static uint64_t words_behind(const struct sequence_bytes *sequence)
{
    return sequence->count + 2 * (uint64_t)sequence->count * sequence->logprobs_per_token;
}

static struct nj_checkpoint_sequence sequence_from(const struct sequence_bytes *bytes, const int32_t *words)
{
    struct nj_checkpoint_sequence out = {.id_hash = bytes->id_hash,
                                         .digest = bytes->digest,
                                         .sample = bytes->sample,
                                         .generated = words,
                                         .generated_count = (int32_t)bytes->count};
    if (bytes->logprobs_per_token > 0) {
        out.logprobs = (const struct nj_logprob *)(words + bytes->count);
        out.top_logprobs = (int32_t)bytes->logprobs_per_token - 1;
    }
    return out;
}

/* Sequences lie behind the header; what follows each is gathered in one array. All sizes are checked here. */
static int read_sequences(const char *content, size_t end, uint64_t count, struct nj_checkpoint *out)
{
    size_t at = sizeof(struct header), used = 0;
    if (count > (end - at) / sizeof(struct sequence_bytes))
        return 1;
    out->sequences = calloc((size_t)count + 1, sizeof *out->sequences);
    out->tokens = malloc(end - at + sizeof(int32_t));
    if (out->sequences == NULL || out->tokens == NULL)
        return -1;
    for (; out->count < count; out->count++) {
        struct sequence_bytes sequence;
        if (end - at < sizeof sequence)
            return 1;
        memcpy(&sequence, content + at, sizeof sequence);
        at += sizeof sequence;
        if (sequence.count > INT32_MAX || sequence.logprobs_per_token > 1 + NJ_TOP_LOGPROBS_MOST ||
            words_behind(&sequence) > (end - at) / sizeof(int32_t))
            return 1;
        const size_t words = (size_t)words_behind(&sequence);
        memcpy(out->tokens + used, content + at, words * sizeof(int32_t));
        out->sequences[out->count] = sequence_from(&sequence, out->tokens + used);
        used += words;
        at += words * sizeof(int32_t);
    }
    return at == end ? 0 : 1;
}

static int parse(const char *path, const char *content, size_t length, struct nj_digest job_digest,
                 struct nj_checkpoint *out, struct nj_error *error)
{
    struct header header;
    uint32_t crc;
    if (length < sizeof header + sizeof crc)
        return fail_unusable(path, "it is too short", error);
    memcpy(&header, content, sizeof header);
    memcpy(&crc, content + length - sizeof crc, sizeof crc);
    if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0)
        return fail_unusable(path, "it does not begin like one", error);
    if (crc != crc_of(content, length - sizeof crc))
        return fail_unusable(path, "its checksum is wrong", error);
    if (header.version != NJ_CHECKPOINT_VERSION)
        return fail_unusable(path, "another version wrote it", error);
    if (header.bytes != length)
        return fail_unusable(path, "its size is wrong", error);
    if (!digest_equal(header.job, job_digest))
        return fail_unusable(path, "it belongs to another job", error);
    out->results = (struct nj_log_mark){.length = header.results.length, .crc = (uint32_t)header.results.crc};
    out->errors = (struct nj_log_mark){.length = header.errors.length, .crc = (uint32_t)header.errors.crc};
    int result = read_sequences(content, length - sizeof crc, header.sequences, out);
    if (result < 0)
        return error_set(error, NJ_INTERNAL, "out of memory reading %s", path);
    return result == 0 ? 1 : fail_unusable(path, "its sequences do not fit its size", error);
}

int checkpoint_read(const char *path, struct nj_digest job_digest, struct nj_checkpoint *out, struct nj_error *error)
{
    *out = (struct nj_checkpoint){0};
    if (access(path, F_OK) != 0)
        return 0;
    size_t length;
    char *content = file_read_whole(path, CHECKPOINT_BYTES_MOST, &length, error);
    if (content == NULL)
        return -1;
    int result = parse(path, content, length, job_digest, out, error);
    free(content);
    if (result < 0)
        checkpoint_free(out);
    return result;
}

void checkpoint_free(struct nj_checkpoint *checkpoint)
{
    free(checkpoint->sequences);
    free(checkpoint->tokens);
    *checkpoint = (struct nj_checkpoint){0};
}

int checkpoint_begin(struct nj_checkpoint_writer *writer, struct nj_digest job_digest, struct nj_log_mark results,
                     struct nj_log_mark errors, struct nj_error *error)
{
    struct header header = {.version = NJ_CHECKPOINT_VERSION,
                            .job = job_digest,
                            .results = {.length = results.length, .crc = results.crc},
                            .errors = {.length = errors.length, .crc = errors.crc}};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    writer->buffer.length = 0;
    writer->count = 0;
    return byte_buffer_append(&writer->buffer, &header, sizeof header, error);
}

int checkpoint_add(struct nj_checkpoint_writer *writer, const struct nj_checkpoint_sequence *sequence,
                   struct nj_error *error)
{
    const uint32_t per_token = sequence->logprobs == NULL ? 0 : 1 + (uint32_t)sequence->top_logprobs;
    const struct sequence_bytes bytes = {.id_hash = sequence->id_hash,
                                         .digest = sequence->digest,
                                         .sample = sequence->sample,
                                         .count = (uint32_t)sequence->generated_count,
                                         .logprobs_per_token = per_token};
    const size_t count = (size_t)sequence->generated_count;
    writer->count++;
    if (byte_buffer_append(&writer->buffer, &bytes, sizeof bytes, error) != 0 ||
        byte_buffer_append(&writer->buffer, sequence->generated, count * sizeof(int32_t), error) != 0)
        return -1;
    return per_token == 0 ? 0
                          : byte_buffer_append(&writer->buffer, sequence->logprobs,
                                               count * per_token * sizeof *sequence->logprobs, error);
}

int checkpoint_write(struct nj_checkpoint_writer *writer, const char *path, struct nj_error *error)
{
    struct nj_byte_buffer *buffer = &writer->buffer;
    struct header header;
    uint32_t crc;
    memcpy(&header, buffer->data, sizeof header);
    header.sequences = writer->count;
    header.bytes = buffer->length + sizeof crc;
    memcpy(buffer->data, &header, sizeof header);
    crc = crc_of(buffer->data, buffer->length);
    if (byte_buffer_append(buffer, &crc, sizeof crc, error) != 0)
        return -1;
    return file_replace(path, buffer->data, buffer->length, error);
}

void checkpoint_writer_free(struct nj_checkpoint_writer *writer)
{
    byte_buffer_free(&writer->buffer);
}
