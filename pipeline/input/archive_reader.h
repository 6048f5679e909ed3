/* The .jsonl and .jsonl.gz members of an archive (tar or zip, plain or in gzip, xz or zstd), one after another.
 * Nothing is extracted to disk: a member's name is only a label. Links, devices and members of other names are
 * passed over. Libarchive does the reading, restricted to these formats. */
#ifndef NJ_PIPELINE_INPUT_ARCHIVE_READER_H
#define NJ_PIPELINE_INPUT_ARCHIVE_READER_H

#include "pipeline/input/byte_source.h"

/* Beyond these an archive (or a .jsonl.gz, for bytes and ratio) is refused with NJ_BAD_DATA. */
struct nj_unpack_limits {
    uint64_t members;       /* of any kind and name */
    uint64_t bytes;         /* unpacked */
    uint64_t ratio;         /* unpacked : packed ... */
    uint64_t ratio_minimum; /* ... once so many bytes are unpacked */
};
extern const struct nj_unpack_limits NJ_UNPACK_LIMITS;

/* NJ_BAD_DATA if so many packed bytes may not become so many unpacked ones. */
int unpack_limits_check(const struct nj_unpack_limits *limits, uint64_t packed, uint64_t unpacked,
                        struct nj_error *error);

struct nj_archive_reader;

/* `path` is for messages. NULL: it cannot be read or is no archive of these formats. */
struct nj_archive_reader *archive_reader_open(const char *path, const struct nj_unpack_limits *limits,
                                              const atomic_int *stop, struct nj_error *error);
void archive_reader_close(struct nj_archive_reader *reader);

/* Goes to the next member: 1, 0 at the end, -1. *name (valid until the next call) is its path, made harmless: valid
 * UTF-8 without control characters, empty, "." and ".." parts. */
int archive_reader_next(struct nj_archive_reader *reader, const char **name, struct nj_error *error);

/* The present member's bytes, decompressed if it is a .jsonl.gz. At most `most`; *got 0 at its end. */
int archive_reader_read(struct nj_archive_reader *reader, void *to, size_t most, size_t *got, struct nj_error *error);

#endif
