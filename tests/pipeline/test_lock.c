/* The output directory: its lock, whose it is, its reserve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/output/lock.h"
#include "pipeline/output/output.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static char *directory;

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

/* A child that holds the lock until it is killed. */
static pid_t hold_lock(void)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct nj_error error;
        struct nj_lock *lock = lock_take(directory, "job-77", &error);
        byte = lock != NULL ? 'y' : 'n';
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(0);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    close(ready[0]);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_second_process_is_refused(void **state)
{
    (void)state;
    struct nj_error error;
    char holder[256], wanted[64];
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 0);
    assert_int_equal(lock_check_free(directory, &error), 0);
    pid_t child = hold_lock();
    snprintf(wanted, sizeof wanted, "pid %ld, Slurm job job-77", (long)child);
    assert_null(lock_take(directory, NULL, &error));
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_non_null(strstr(error.message, wanted));
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 1);
    assert_int_equal(lock_check_free(directory, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_non_null(strstr(error.message, holder));
    assert_non_null(strstr(holder, wanted));
    assert_memory_equal(holder, "host ", 5);
    end_child(child);
    /* Nothing needs cleaning up after a kill. */
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 0);
    struct nj_lock *lock = lock_take(directory, NULL, &error);
    assert_non_null(lock);
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 1);
    assert_null(strstr(holder, "Slurm"));
    lock_release(lock);
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 0);
}

/* Unlike a POSIX lock it keeps out a second job in the same process, and closing the file elsewhere keeps it. */
static void test_same_process_is_refused(void **state)
{
    (void)state;
    struct nj_error error;
    char holder[256];
    struct nj_lock *lock = lock_take(directory, NULL, &error);
    assert_non_null(lock);
    assert_null(lock_take(directory, NULL, &error));
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 1);
    assert_null(lock_take(directory, NULL, &error));
    lock_release(lock);
}

static void test_holder_that_says_nothing(void **state)
{
    (void)state;
    struct nj_error error;
    char holder[256];
    pid_t child = hold_lock();
    char *path = temporary_path(directory, "lock");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(lock_find_holder(directory, holder, sizeof holder, &error), 1);
    assert_string_equal(holder, "another process");
    free(path);
    end_child(child);
}

static void test_new_directory_is_private(void **state)
{
    (void)state;
    struct nj_error error;
    struct stat info;
    char *made = temporary_path(directory, "a/b");
    assert_int_equal(output_prepare(made, &error), 0);
    assert_int_equal(stat(made, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(output_prepare(made, &error), 0); /* empty: fine */
    free(made);
}

static void touch(const char *name)
{
    char *path = temporary_path(directory, name);
    temporary_write_file(path, "", 0);
    free(path);
}

static void test_foreign_directory_is_refused(void **state)
{
    (void)state;
    struct nj_error error;
    touch("lock");
    touch("job.json.tmp");
    assert_int_equal(output_prepare(directory, &error), 0); /* killed before job.json was there */
    touch("results.jsonl");
    assert_int_equal(output_prepare(directory, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_string_equal(error.file, directory);
    touch("job.json");
    assert_int_equal(output_prepare(directory, &error), 0);
}

static void test_file_in_the_way(void **state)
{
    (void)state;
    struct nj_error error;
    touch("file");
    char *path = temporary_path(directory, "file");
    assert_int_equal(output_prepare(path, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    free(path);
}

static void test_reserve(void **state)
{
    (void)state;
    struct nj_error error;
    struct stat info;
    char *path = temporary_path(directory, "reserve");
    assert_int_equal(output_take_reserve(directory, &error), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, NJ_RESERVE_BYTES);
    assert_true((uint64_t)info.st_blocks * 512 >= NJ_RESERVE_BYTES);
    assert_int_equal(output_take_reserve(directory, &error), 0);
    output_give_up_reserve(directory);
    assert_int_not_equal(stat(path, &info), 0);
    output_give_up_reserve(directory);
    free(path);
}

static void test_space(void **state)
{
    (void)state;
    struct nj_error error;
    uint64_t available = 0;
    assert_int_equal(output_check_space(directory, 1, &available, &error), 0);
    assert_true(available > 1);
    assert_int_equal(output_check_space(directory, UINT64_MAX, &available, &error), -1);
    assert_int_equal(error.code, NJ_CANT_CREATE);
    assert_non_null(strstr(error.message, "MiB are needed"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_second_process_is_refused),
        TEST(test_same_process_is_refused),
        TEST(test_holder_that_says_nothing),
        TEST(test_new_directory_is_private),
        TEST(test_foreign_directory_is_refused),
        TEST(test_file_in_the_way),
        TEST(test_reserve),
        TEST(test_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
