/* What the process takes, read from made-up and from real /proc files. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "pipeline/machine/process_memory.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

/* AddressSanitizer has a heap of its own, which keeps what is freed and tells nothing. */
#ifdef __SANITIZE_ADDRESS__
enum { HEAP_IS_THE_SYSTEMS = 0 };
#else
enum { HEAP_IS_THE_SYSTEMS = 1 };
#endif

static const uint64_t MIB = 1 << 20;

static void test_made_up(void **state)
{
    (void)state;
    static const char text[] =
        "Name:\tnightjar\nVmPeak:\t 900 kB\nVmHWM:\t 500 kB\nVmRSS:\t 400 kB\nRssAnon:\t 300 kB\n"
        "RssFile:\t 90 kB\nRssShmem:\t 10 kB\n";
    struct nj_error error;
    char *root = temporary_directory_create(), *folder = temporary_path(root, "proc/self");
    char *path = temporary_path(root, "proc/self/status");
    assert_int_equal(file_make_directories(folder, &error), 0);
    temporary_write_file(path, text, strlen(text));
    const struct nj_process_memory memory = process_memory_read(root);
    assert_int_equal(memory.peak_bytes, 500 << 10);
    assert_int_equal(memory.resident_bytes, 400 << 10);
    assert_int_equal(memory.anonymous_bytes, 300 << 10);
    assert_int_equal(memory.file_bytes, 90 << 10);
    free(path);
    free(folder);
    temporary_directory_remove(root);
}

static void test_nothing_known(void **state)
{
    (void)state;
    const struct nj_process_memory memory = process_memory_read("/nonexistent");
    assert_int_equal(memory.peak_bytes, 0);
    assert_int_equal(memory.resident_bytes, 0);
}

static void test_this_process(void **state)
{
    (void)state;
    const struct nj_process_memory before = process_memory_read("");
    unsigned char *block = malloc(32 * MIB);
    assert_non_null(block);
    memset(block, 1, 32 * MIB);
    __asm__ volatile("" : : "r"(block) : "memory"); /* the compiler must not see that nobody reads it */
    const struct nj_process_memory during = process_memory_read("");
    free(block);
    process_memory_trim();
    const struct nj_process_memory after = process_memory_read("");
    assert_true(during.resident_bytes >= before.resident_bytes + 31 * MIB);
    assert_true(after.resident_bytes + 31 * MIB <= during.resident_bytes || !HEAP_IS_THE_SYSTEMS);
    /* The system notes the peak a few pages late. */
    assert_true(after.peak_bytes + MIB >= during.resident_bytes);
    assert_true(during.heap_bytes >= before.heap_bytes + 32 * MIB || !HEAP_IS_THE_SYSTEMS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_up),
        cmocka_unit_test(test_nothing_known),
        cmocka_unit_test(test_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
