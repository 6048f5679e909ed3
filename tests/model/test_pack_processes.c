/* Several processes and one pack: builders that are killed at any moment, builders that meet, and what a builder
 * takes of memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "tests/model/model_file.h"
#include "tests/model/pack_check.h"
#include "tests/support/temporary_directory.h"

enum { ID_F32 = 0, EXIT_TEST_FAILED = 99 };

static char *directory, *model, *packs, *pack_file, *temporary_file;

/* The calls by which a build changes the disk are counted. A process may be set to die in the middle of one, or to
 * stop before one until somebody writes to a pipe. */
int __real_rename(const char *from, const char *to);
int __real_fsync(int fd);
ssize_t __real_write(int fd, const void *from, size_t count);
int __wrap_rename(const char *from, const char *to);
int __wrap_fsync(int fd);
ssize_t __wrap_write(int fd, const void *from, size_t count);

static int calls, fatal_call = -1, waiting_call = -1;
static int gate[2];

static int count_call(void)
{
    int call = calls++;
    char byte;
    if (call == waiting_call && read(gate[0], &byte, 1) != 1)
        abort();
    return call == fatal_call;
}

int __wrap_rename(const char *from, const char *to)
{
    if (count_call())
        raise(SIGKILL);
    return __real_rename(from, to);
}

int __wrap_fsync(int fd)
{
    if (count_call())
        raise(SIGKILL);
    return __real_fsync(fd);
}

ssize_t __wrap_write(int fd, const void *from, size_t count)
{
    if (count_call()) {
        ssize_t ignored = __real_write(fd, from, count / 2);
        (void)ignored;
        raise(SIGKILL);
    }
    return __real_write(fd, from, count);
}

static int set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    model = temporary_path(directory, "model.gguf");
    packs = temporary_path(directory, "packs");
    pack_file = temporary_path(packs, TEST_DIGEST "-v1.pack");
    temporary_file = temporary_path(packs, TEST_DIGEST "-v1.pack.tmp");
    calls = 0;
    fatal_call = waiting_call = -1;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(temporary_file);
    free(pack_file);
    free(packs);
    free(model);
    temporary_directory_remove(directory);
    return 0;
}

struct noted {
    int count;
    char last[512];
};

static void note(void *context, const char *line)
{
    struct noted *noted = context;
    noted->count++;
    snprintf(noted->last, sizeof noted->last, "%s", line);
}

static struct nj_pack *open_pack(const struct test_source *source, nj_notice notice, void *context,
                                 struct nj_error *error)
{
    struct nj_pack_options options = test_pack_options(source, packs);
    options.notice = notice;
    options.notice_context = context;
    return pack_open(&options, error);
}

static void open_and_check(const struct test_source *source)
{
    struct nj_error error;
    struct nj_pack *pack = open_pack(source, NULL, NULL, &error);
    if (pack == NULL)
        fail_msg("pack_open: %s", error.message);
    test_pack_equals_source(pack, source);
    pack_close(pack);
    assert_int_equal(access(temporary_file, F_OK), -1);
}

/* In a child: opens the pack and ends, with 0 if that went well. */
static pid_t start_builder(const struct test_source *source)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    if (waiting_call >= 0)
        close(gate[1]); /* the wait ends with the parent, if that fails */
    struct nj_error error;
    struct nj_pack *pack = open_pack(source, NULL, NULL, &error);
    _exit(pack != NULL ? 0 : EXIT_TEST_FAILED);
}

static int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static struct test_source write_model(void)
{
    struct model_recipe recipe = model_recipe_small();
    model_file_write(&recipe, model);
    return test_source_open(model);
}

static void a_build_killed_at_any_call_is_made_good(void **state)
{
    (void)state;
    struct test_source source = write_model();
    open_and_check(&source); /* to count the calls */
    int total = calls, leftovers = 0;
    assert_true(total > 20);
    for (int call = 0; call < total; call++) {
        unlink(pack_file);
        calls = 0;
        fatal_call = call;
        int status = wait_for(start_builder(&source));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        fatal_call = -1;
        leftovers += access(temporary_file, F_OK) == 0;
        open_and_check(&source);
    }
    assert_true(leftovers >= total - 2); /* all but the calls after the rename */
    test_source_close(&source);
}

/* A builder that dies halfway through, without ever being replaced, leaves no file that could pass for a pack. */
static void a_killed_build_leaves_no_pack(void **state)
{
    (void)state;
    struct test_source source = write_model();
    fatal_call = 10;
    wait_for(start_builder(&source));
    assert_int_equal(access(temporary_file, F_OK), 0);
    assert_int_equal(access(pack_file, F_OK), -1);
    test_source_close(&source);
}

static void open_gate(void *context, const char *line)
{
    note(context, line);
    assert_int_equal(__real_write(gate[1], "", 1), 1);
}

static void the_second_process_waits_and_says_for_whom(void **state)
{
    (void)state;
    struct test_source source = write_model();
    assert_int_equal(pipe(gate), 0);
    waiting_call = 5;
    pid_t builder = start_builder(&source);
    waiting_call = -1;
    while (access(temporary_file, F_OK) != 0) /* it has the lock */
        usleep(1000);
    struct noted noted = {0};
    struct nj_error error;
    struct nj_pack *pack = open_pack(&source, open_gate, &noted, &error);
    if (pack == NULL)
        fail_msg("pack_open: %s", error.message);
    char expected[128];
    snprintf(expected, sizeof expected, "waiting for process %ld, which is building the pack", (long)builder);
    assert_int_equal(noted.count, 1);
    assert_string_equal(noted.last, expected);
    assert_int_equal(wait_for(builder), 0);
    test_pack_equals_source(pack, &source);
    pack_close(pack);
    assert_int_equal(calls, 0); /* nothing was built here */
    close(gate[0]);
    close(gate[1]);
    test_source_close(&source);
}

static void the_second_process_builds_if_the_first_is_killed(void **state)
{
    (void)state;
    struct test_source source = write_model();
    assert_int_equal(pipe(gate), 0);
    waiting_call = 5;
    pid_t builder = start_builder(&source);
    waiting_call = -1;
    while (access(temporary_file, F_OK) != 0)
        usleep(1000);
    pid_t second = start_builder(&source);
    usleep(20000);
    kill(builder, SIGKILL);
    assert_true(WIFSIGNALED(wait_for(builder)));
    assert_int_equal(wait_for(second), 0);
    calls = 0;
    open_and_check(&source);
    assert_int_equal(calls, 0);
    close(gate[0]);
    close(gate[1]);
    test_source_close(&source);
}

static void waiting_ends_when_stopped(void **state)
{
    (void)state;
    struct test_source source = write_model();
    assert_int_equal(pipe(gate), 0);
    waiting_call = 5;
    pid_t builder = start_builder(&source);
    while (access(temporary_file, F_OK) != 0)
        usleep(1000);
    atomic_int stop = 1;
    struct nj_pack_options options = test_pack_options(&source, packs);
    options.stop = &stop;
    struct nj_error error;
    assert_null(pack_open(&options, &error));
    assert_int_equal(error.code, NJ_INTERRUPTED);
    kill(builder, SIGKILL);
    wait_for(builder);
    close(gate[0]);
    close(gate[1]);
    test_source_close(&source);
}

static void many_processes_at_once_all_succeed(void **state)
{
    (void)state;
    struct test_source source = write_model();
    pid_t children[6];
    for (int i = 0; i < 6; i++)
        children[i] = start_builder(&source);
    for (int i = 0; i < 6; i++)
        assert_int_equal(wait_for(children[i]), 0);
    calls = 0;
    open_and_check(&source);
    assert_int_equal(calls, 0);
    test_source_close(&source);
}

/* The most memory that this process has had, in KiB. */
static long largest_size_kib(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss : -1;
}

/* In a child, since the largest size of a process never shrinks: builds, and ends with the growth in MiB. */
static int growth_while_building_mib(const struct test_source *source)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct nj_error error;
        long before = largest_size_kib();
        struct nj_pack *pack = open_pack(source, NULL, NULL, &error);
        long after = largest_size_kib();
        _exit(pack == NULL || before < 0 ? EXIT_TEST_FAILED : (int)((after - before) / 1024));
    }
    int status = wait_for(child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void memory_does_not_grow_with_the_model(void **state)
{
    (void)state;
    struct model_recipe recipe = model_recipe_small();
    recipe.vocabulary = 60000; /* an embedding of 14.6 MiB */
    recipe.embedding_type = ID_F32;
    recipe.feed_forward = 8192; /* matrices of 2 MiB, six of them */
    recipe.matrix_type = ID_F32;
    model_file_write(&recipe, model);
    struct test_source source = test_source_open(model);
    struct stat info;
    assert_int_equal(stat(model, &info), 0);
    assert_true(info.st_size > 26 << 20);
    assert_in_range(growth_while_building_mib(&source), 0, 6);
    open_and_check(&source);
    test_source_close(&source);
}

#define PACK_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PACK_TEST(a_build_killed_at_any_call_is_made_good),
        PACK_TEST(a_killed_build_leaves_no_pack),
        PACK_TEST(the_second_process_waits_and_says_for_whom),
        PACK_TEST(the_second_process_builds_if_the_first_is_killed),
        PACK_TEST(waiting_ends_when_stopped),
        PACK_TEST(many_processes_at_once_all_succeed),
        PACK_TEST(memory_does_not_grow_with_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
