#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/file.h"
#include "tests/support/temporary_directory.h"

static char *directory; /* per test */

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_directory_remove(directory);
    return 0;
}

static void assert_content(const char *path, const char *expected)
{
    size_t bytes;
    struct nj_error error;
    char *content = file_read_whole(path, 1 << 20, &bytes, &error);
    assert_non_null(content);
    assert_int_equal(bytes, strlen(expected));
    assert_string_equal(content, expected);
    free(content);
}

static void test_read_at(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    temporary_write_file(path, "0123456789", 10);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct nj_error error;
    char got[8] = "";
    assert_int_equal(file_read_at(fd, path, got, 3, 7, &error), 0);
    assert_string_equal(got, "789");
    assert_int_equal(file_read_at(fd, path, got, 4, 7, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_int_equal(error.byte, 7);
    assert_string_equal(error.file, path);
    assert_non_null(strstr(error.message, "too short"));
    close(fd);
    assert_int_equal(file_read_at(-1, path, got, 1, 0, &error), -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    free(path);
}

static void test_read_whole(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    temporary_write_file(path, "12345", 5);
    struct nj_error error;
    size_t bytes;
    assert_content(path, "12345");
    assert_null(file_read_whole(path, 4, &bytes, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_null(file_read_whole(directory, 1 << 20, &bytes, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    unlink(path);
    assert_null(file_read_whole(path, 4, &bytes, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_null(file_read_whole(path, 4, &bytes, &error)); /* does not wait for a writer */
    assert_int_equal(error.code, NJ_BAD_DATA);
    free(path);
}

static void test_replace(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    struct nj_error error;
    assert_int_equal(file_replace(path, "old", 3, &error), 0);
    assert_content(path, "old");
    assert_int_equal(file_replace(path, "new content", 11, &error), 0);
    assert_content(path, "new content");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    free(path);
}

/* The limit on a file's size makes the write fail half-way, as a full disk does. */
static void test_replace_failure_keeps_the_old_content(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    struct nj_error error;
    assert_int_equal(file_replace(path, "old", 3, &error), 0);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {1000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    static char large[5000];
    int result = file_replace(path, large, sizeof large, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(result, -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    assert_content(path, "old");
    char *temporary = temporary_path(directory, "data.tmp");
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
    free(path);
}

static void test_replace_without_directory_fails(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "absent/data");
    struct nj_error error;
    assert_int_equal(file_replace(path, "x", 1, &error), -1);
    assert_int_equal(error.code, NJ_IO_FAILED);
    free(path);
}

static void test_make_directories(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "a/b//c");
    struct nj_error error;
    assert_int_equal(file_make_directories(path, &error), 0);
    assert_int_equal(file_make_directories(path, &error), 0);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0700);
    char *file = temporary_path(path, "file");
    temporary_write_file(file, "", 0);
    char *below = temporary_path(file, "d");
    assert_int_equal(file_make_directories(file, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_non_null(strstr(error.message, "Not a directory"));
    assert_int_equal(file_make_directories(below, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_int_equal(file_make_directories("", &error), -1);
    free(below);
    free(file);
    free(path);
}

enum { BLOCK = 4096, DIRECT_BYTES = 3 * BLOCK + 100 };

static struct nj_direct_file *open_direct(const char *path)
{
    static char content[DIRECT_BYTES];
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * 7 + i / 256);
    temporary_write_file(path, content, sizeof content);
    struct nj_error error;
    struct nj_direct_file *file = direct_file_open(path, &error);
    assert_non_null(file);
    assert_int_equal(direct_file_bytes(file), DIRECT_BYTES);
    return file;
}

static void test_direct_read(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    struct nj_direct_file *file = open_direct(path);
    unsigned char *to = aligned_alloc(BLOCK, 4 * BLOCK);
    struct nj_error error;
    assert_int_equal(direct_file_read(file, to, 2 * BLOCK, BLOCK, &error), 0);
    for (size_t i = 0; i < 2 * BLOCK; i++)
        assert_int_equal(to[i], (unsigned char)((i + BLOCK) * 7 + (i + BLOCK) / 256));
    /* The file's end is not a multiple of a block. */
    assert_int_equal(direct_file_read(file, to, DIRECT_BYTES, 0, &error), 0);
    for (size_t i = 0; i < DIRECT_BYTES; i++)
        assert_int_equal(to[i], (unsigned char)(i * 7 + i / 256));
    assert_int_equal(direct_file_read(file, to, 4 * BLOCK, 0, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_int_equal(direct_file_read(file, to, BLOCK, UINT64_MAX - 10, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    direct_file_close(file);
    free(to);
    free(path);
}

static void test_direct_read_of_a_shortened_file(void **state)
{
    (void)state;
    char *path = temporary_path(directory, "data");
    struct nj_direct_file *file = open_direct(path);
    assert_int_equal(truncate(path, BLOCK + 10), 0);
    unsigned char *to = aligned_alloc(BLOCK, 4 * BLOCK);
    struct nj_error error;
    assert_int_equal(direct_file_read(file, to, 3 * BLOCK, 0, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    assert_non_null(strstr(error.message, "shortened"));
    direct_file_close(file);
    free(to);
    free(path);
}

static void test_direct_open_refuses(void **state)
{
    (void)state;
    struct nj_error error;
    assert_null(direct_file_open(directory, &error));
    assert_int_equal(error.code, NJ_BAD_DATA);
    char *path = temporary_path(directory, "absent");
    assert_null(direct_file_open(path, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_string_equal(error.file, path);
    free(path);
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN); /* so that the limit on file sizes is an error, not a signal */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read_at, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_read_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace_failure_keeps_the_old_content, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace_without_directory_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_make_directories, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_direct_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_direct_read_of_a_shortened_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_direct_open_refuses, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
