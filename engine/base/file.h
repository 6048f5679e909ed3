/* Files as nightjar uses them: whole reads, direct I/O, and replacement that survives a power cut. */
#ifndef NJ_ENGINE_BASE_FILE_H
#define NJ_ENGINE_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/error.h"

/* Reads exactly `bytes` at `offset`; a short file is NJ_BAD_DATA, a failed read NJ_IO_FAILED. */
int file_read_at(int fd, const char *path, void *to, size_t bytes, uint64_t offset, struct nj_error *error);

/* Writes all of it at the descriptor's position (EINTR and short writes handled). */
int file_write_all(int fd, const char *path, const void *from, size_t bytes, struct nj_error *error);

int file_sync(int fd, const char *path, struct nj_error *error);

/* fsync of the directory that holds `path`: makes a rename or creation durable. */
int file_sync_directory_of(const char *path, struct nj_error *error);

/* Replaces `path` by these bytes: temporary file in the same directory (mode 0600), fsync, rename, fsync
 * of the directory. The old content or the new one is there at any moment. */
int file_replace(const char *path, const void *from, size_t bytes, struct nj_error *error);

/* Makes a directory and its missing parents (mode 0700). An existing directory is fine. */
int file_make_directories(const char *path, struct nj_error *error);

/* The whole file, NUL-terminated beyond `bytes`; the caller frees it. Longer than `limit`: NJ_BAD_DATA. */
char *file_read_whole(const char *path, size_t limit, size_t *bytes, struct nj_error *error);

/* A reader that bypasses the page cache where the file system allows it (O_DIRECT), else reads buffered
 * and drops the pages behind it. Never maps. Offsets, sizes and addresses are multiples of 4,096, but for
 * the file's end. */
struct nj_direct_file;
struct nj_direct_file *direct_file_open(const char *path, struct nj_error *error);
void direct_file_close(struct nj_direct_file *file);
int direct_file_is_direct(const struct nj_direct_file *file);
uint64_t direct_file_bytes(const struct nj_direct_file *file);
int direct_file_descriptor(const struct nj_direct_file *file); /* for reading only; the file's */
/* Several threads may read at once. */
int direct_file_read(struct nj_direct_file *file, void *to, size_t bytes, uint64_t offset, struct nj_error *error);

#endif
