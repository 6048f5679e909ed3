/* The digest of a file, and when the remembered one may be used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/model/file_digest.h"
#include "tests/support/temporary_directory.h"

enum { CONTENT_BYTES = 3000000 };

static char *directory, *path, *cache;
static unsigned char *content;

/* A file is hashed with read, a record is looked at with pread. */
ssize_t __real_read(int fd, void *to, size_t count);
ssize_t __wrap_read(int fd, void *to, size_t count);

static int reads;
static void (*at_read)(void);

ssize_t __wrap_read(int fd, void *to, size_t count)
{
    reads++;
    if (at_read != NULL)
        at_read();
    return __real_read(fd, to, count);
}

/* Writes the content and makes the file look old enough to be remembered. */
static void write_file(void)
{
    const struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    usleep(20000); /* file times come from a coarse clock: two writings must not share a tick */
    temporary_write_file(path, content, CONTENT_BYTES);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "a model\nof two lines.gguf");
    cache = temporary_path(directory, "cache/digests");
    content = malloc(CONTENT_BYTES);
    assert_non_null(content);
    for (uint32_t i = 0; i < CONTENT_BYTES; i++)
        content[i] = (unsigned char)(i * 2654435761u >> 24);
    at_read = NULL;
    write_file();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(content);
    free(cache);
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

/* The digest is that of the content; the file was read or not, as said. */
static void expect_digest(bool read_expected)
{
    char expected[NJ_DIGEST_TEXT_BYTES], found[NJ_DIGEST_TEXT_BYTES];
    struct nj_file_identity identity, now;
    struct nj_error error;
    digest_bytes(content, CONTENT_BYTES, expected);
    reads = 0;
    if (file_digest_cached(path, cache, NULL, &identity, found, &error) != 0)
        fail_msg("%s", error.message);
    assert_string_equal(found, expected);
    assert_int_equal(reads > 0, read_expected);
    assert_int_equal(file_identity_of(path, &now, &error), 0);
    assert_true(file_identity_equal(&identity, &now));
}

/* The one record in the cache. */
static char *record_path(void)
{
    DIR *listing = opendir(cache);
    char *found = NULL;
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        assert_null(found);
        found = temporary_path(cache, entry->d_name);
    }
    closedir(listing);
    assert_non_null(found);
    return found;
}

static void known_digests(void **state)
{
    (void)state;
    char digest[NJ_DIGEST_TEXT_BYTES];
    digest_bytes("", 0, digest);
    assert_string_equal(digest, "99aa06d3014798d86001c324468d497f"); /* as xxhsum -H128 prints it */
}

static void an_unchanged_file_is_read_once(void **state)
{
    (void)state;
    expect_digest(true);
    expect_digest(false);
}

static void a_changed_file_is_read_again(void **state)
{
    (void)state;
    expect_digest(true);
    content[CONTENT_BYTES / 2] ^= 1;
    write_file(); /* same size, same modification time */
    expect_digest(true);
    expect_digest(false);
    content[7] ^= 1;
    assert_int_equal(unlink(path), 0); /* another inode */
    write_file();
    expect_digest(true);
    assert_int_equal(utimensat(AT_FDCWD, path, (const struct timespec[2]){{.tv_sec = 2000}, {.tv_sec = 2000}}, 0), 0);
    expect_digest(true);
}

static void a_file_just_written_is_not_remembered(void **state)
{
    (void)state;
    temporary_write_file(path, content, CONTENT_BYTES);
    expect_digest(true);
    expect_digest(true);
}

static void another_path_is_read(void **state)
{
    (void)state;
    expect_digest(true);
    char *other = temporary_path(directory, "other.gguf");
    assert_int_equal(rename(path, other), 0);
    free(path);
    path = other;
    expect_digest(true);
}

static void a_damaged_record_is_replaced(void **state)
{
    (void)state;
    expect_digest(true);
    char *record = record_path();
    size_t bytes;
    struct nj_error error;
    char *text = file_read_whole(record, 65536, &bytes, &error);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i += 7) {
        text[i] ^= 1;
        temporary_write_file(record, text, bytes);
        text[i] ^= 1;
        expect_digest(true);
        expect_digest(false);
    }
    for (size_t length = 0; length < bytes; length += 50) {
        temporary_write_file(record, text, length);
        expect_digest(true);
    }
    expect_digest(false);
    free(text);
    free(record);
}

static void a_cache_that_cannot_be_written_only_costs_time(void **state)
{
    (void)state;
    free(cache);
    cache = temporary_path(path, "below a file");
    expect_digest(true);
    expect_digest(true);
}

static void append_once(void)
{
    at_read = NULL;
    FILE *file = fopen(path, "abe");
    assert_non_null(file);
    assert_int_equal(fputc('x', file), 'x');
    fclose(file);
}

static void a_file_that_grows_meanwhile_is_refused(void **state)
{
    (void)state;
    char digest[NJ_DIGEST_TEXT_BYTES];
    struct nj_file_identity identity;
    struct nj_error error;
    at_read = append_once;
    assert_int_equal(file_digest_cached(path, cache, NULL, &identity, digest, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_string_equal(error.file, path);
    assert_non_null(strstr(error.message, "changed while it was being read"));
}

static void stop_and_absence_are_told_apart(void **state)
{
    (void)state;
    char digest[NJ_DIGEST_TEXT_BYTES];
    struct nj_file_identity identity;
    struct nj_error error;
    atomic_int stop = 1;
    assert_int_equal(file_digest_cached(path, cache, &stop, &identity, digest, &error), -1);
    assert_int_equal(error.code, NJ_INTERRUPTED);
    unlink(path);
    assert_int_equal(file_digest_cached(path, cache, NULL, &identity, digest, &error), -1);
    assert_int_equal(error.code, NJ_NO_INPUT);
}

#define DIGEST_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIGEST_TEST(known_digests),
        DIGEST_TEST(an_unchanged_file_is_read_once),
        DIGEST_TEST(a_changed_file_is_read_again),
        DIGEST_TEST(a_file_just_written_is_not_remembered),
        DIGEST_TEST(another_path_is_read),
        DIGEST_TEST(a_damaged_record_is_replaced),
        DIGEST_TEST(a_cache_that_cannot_be_written_only_costs_time),
        DIGEST_TEST(a_file_that_grows_meanwhile_is_refused),
        DIGEST_TEST(stop_and_absence_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
