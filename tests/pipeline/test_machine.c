/* Limits read from made-up /proc and /sys/fs/cgroup trees. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "pipeline/machine/machine.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static char *root;

static int set_up(void **state)
{
    (void)state;
    root = temporary_directory_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temporary_directory_remove(root);
    return 0;
}

static void put(const char *name, const char *content)
{
    struct nj_error error;
    char *path = temporary_path(root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(file_make_directories(path, &error), 0);
    *slash = '/';
    temporary_write_file(path, content, strlen(content));
    free(path);
}

static int all_threads(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_COUNT(&set);
}

static void test_nothing_known(void **state)
{
    (void)state;
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.threads, all_threads());
    assert_true(machine.memory_bytes == UINT64_MAX && machine.memory_available_bytes == UINT64_MAX);
}

static void test_this_machine(void **state)
{
    (void)state;
    struct nj_machine machine = machine_read("");
    assert_in_range((uint64_t)machine.threads, 1, (uint64_t)all_threads());
    assert_true(machine.memory_available_bytes <= machine.memory_bytes);
    assert_true(machine.memory_bytes > 1 << 20);
}

static void put_memory(void)
{
    put("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:  5000 kB\n");
}

static void test_no_limits(void **state)
{
    (void)state;
    put_memory();
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.threads, all_threads());
    assert_int_equal(machine.memory_bytes, 8000 << 10);
    assert_int_equal(machine.memory_available_bytes, 5000 << 10);
}

/* Any level may be the narrow one, whatever the others say. */
static void test_version_2_levels(void **state)
{
    (void)state;
    put_memory();
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/cpu.max", "900000 100000\n");
    put("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    put("sys/fs/cgroup/a/b/memory.max", "4096000\n");
    put("sys/fs/cgroup/a/b/memory.current", "96000\n");
    put("sys/fs/cgroup/memory.max", "6000000\n");
    put("sys/fs/cgroup/memory.current", "5000000\n");
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.threads, 1);
    assert_int_equal(machine.memory_bytes, 4096000);
    assert_int_equal(machine.memory_available_bytes, 1000000);
}

static void test_version_1(void **state)
{
    (void)state;
    put_memory();
    put("proc/self/cgroup", "7:memory:/m\n3:cpu,cpuacct:/c\n1:cpuset:/\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/m/memory.usage_in_bytes", "4000000\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.threads, 1);
    assert_int_equal(machine.memory_bytes, 3000000);
    assert_int_equal(machine.memory_available_bytes, 0);
}

/* Pages of files that were read once are taken back when somebody needs memory. */
static void test_page_cache_is_free(void **state)
{
    (void)state;
    put_memory();
    put("proc/self/cgroup", "7:memory:/m\n0::/a\n");
    put("sys/fs/cgroup/memory/m/memory.limit_in_bytes", "3000000\n");
    put("sys/fs/cgroup/memory/m/memory.usage_in_bytes", "2900000\n");
    put("sys/fs/cgroup/memory/m/memory.stat", "cache 1\ninactive_file 5\ntotal_inactive_file 2000000\n");
    assert_int_equal(machine_read(root).memory_available_bytes, 2100000);
    put("sys/fs/cgroup/a/memory.max", "2000000\n");
    put("sys/fs/cgroup/a/memory.current", "1900000\n");
    put("sys/fs/cgroup/a/memory.stat", "inactive_file 1000000\ntotal_inactive_file 7\nactive_file 5\n");
    assert_int_equal(machine_read(root).memory_available_bytes, 1100000);
    put("sys/fs/cgroup/a/memory.stat", "inactive_file 1900001\n");
    assert_int_equal(machine_read(root).memory_available_bytes, 2000000);
}

static void test_version_1_without_quota(void **state)
{
    (void)state;
    put("proc/self/cgroup", "3:cpu,cpuacct:/c\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    assert_int_equal(machine_read(root).threads, all_threads());
}

static void test_nonsense(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: lots\n");
    put("proc/self/cgroup", "nonsense\n0\n:::\n\n0::\n");
    put("sys/fs/cgroup/cpu.max", "0 0\n");
    put("sys/fs/cgroup/memory.max", "\n");
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.threads, all_threads());
    assert_true(machine.memory_bytes == UINT64_MAX);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Two sockets of two cores with two threads each; the numbers of cores repeat. */
static void test_processor(void **state)
{
    (void)state;
    char text[4096] = "", *at = text;
    for (int i = 0; i < 8; i++)
        at += sprintf(at,
                      "processor\t: %d\nmodel name\t: A Processor @ 2.00GHz\nphysical id\t: %d\ncore id\t\t: %d\n"
                      "flags\t\t: fpu avx fma avx2x f16c avx512f avx\n\n",
                      i, i / 4, i / 2 % 2);
    put("proc/cpuinfo", text);
    struct nj_processor processor = processor_read(root);
    assert_string_equal(processor.name, "A Processor @ 2.00GHz");
    assert_string_equal(processor.instructions, "avx f16c fma avx512f");
    assert_int_equal(processor.cores, 4);
    assert_int_equal(processor.threads, 8);
}

static void test_no_processor(void **state)
{
    (void)state;
    struct nj_processor processor = processor_read(root);
    assert_string_equal(processor.name, "");
    assert_int_equal(processor.threads, 0);
}

static void test_where_limits_come_from(void **state)
{
    (void)state;
    put("proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 4194304 kB\n");
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
    put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a/b/memory.max", "9223372036854771712\n");
    struct nj_machine machine = machine_read(root);
    assert_int_equal(machine.quota_threads, 3);
    assert_int_equal(machine.affinity_threads, all_threads());
    assert_true(machine.physical_bytes == UINT64_C(4) << 30);
    assert_true(machine.cgroup_memory_bytes == UINT64_MAX);
    put("sys/fs/cgroup/a/memory.max", "1073741824\n");
    assert_true(machine_read(root).cgroup_memory_bytes == UINT64_C(1) << 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_processor),        TEST(test_no_processor),       TEST(test_where_limits_come_from),
        TEST(test_nothing_known),    TEST(test_this_machine),       TEST(test_no_limits),
        TEST(test_version_2_levels), TEST(test_version_1),          TEST(test_version_1_without_quota),
        TEST(test_nonsense),         TEST(test_page_cache_is_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
