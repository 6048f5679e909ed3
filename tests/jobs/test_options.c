/* Values and names on the command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/nearest.h"
#include "jobs/options.h"
#include "jobs/values.h"
#include "pipeline/job/job.h"

static void test_counts(void **state)
{
    (void)state;
    int64_t value = 77;
    assert_int_equal(value_parse_count("0", 0, 10, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(value_parse_count("0010", 0, 10, &value), 0);
    assert_int_equal(value, 10);
    assert_int_equal(value_parse_count("9223372036854775807", 0, INT64_MAX, &value), 0);
    assert_int_equal(value, INT64_MAX);
    const char *const refused[] = {"", "-1", "+1", " 1", "1 ", "11", "1.0", "1e0", "0x1", "9223372036854775808", "x"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        value = 77;
        assert_int_equal(value_parse_count(refused[i], 0, 10, &value), -1);
        assert_int_equal(value, 77);
    }
}

static void test_sizes_shown(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1.00 KiB"},
                 {10235, "10.0 KiB"},
                 {1048063, "1023 KiB"},
                 {1048064, "1.00 MiB"},
                 {UINT64_C(3) << 29, "1.50 GiB"},
                 {UINT64_MAX, "16777216 TiB"}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char text[32];
        value_format_size(sizes[i].bytes, text, sizeof text);
        assert_string_equal(text, sizes[i].text);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t bytes;
    } sizes[] = {
        {"1", 1},
        {"512MiB", UINT64_C(512) << 20},
        {"512m", UINT64_C(512) << 20},
        {"7GiB", UINT64_C(7) << 30},
        {"1.5G", UINT64_C(3) << 29},
        {".5kib", 512},
        {"2.K", 2048},
        {"0.1MB", 100000},
        {"1.1KB", 1100},
        {"3GB", UINT64_C(3000000000)},
        {"1TiB", UINT64_C(1) << 40},
        {"2TB", UINT64_C(2000000000000)},
        {"9007199254740993B", UINT64_C(9007199254740993)},
        {"9223372036854775807", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t bytes = 0;
        assert_int_equal(value_parse_size(sizes[i].text, &bytes), 0);
        assert_true(bytes == sizes[i].bytes);
    }
    const char *const refused[] = {"",    "0",    "0.0G",   "-1",  "G",   ".",    "1.2.3",    "1 G",
                                   "1e3", "0x10", "1Gib/s", "inf", "nan", "1PiB", "8388608T", "9223372036854775808"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        uint64_t bytes = 77;
        assert_int_equal(value_parse_size(refused[i], &bytes), -1);
        assert_int_equal(bytes, 77);
    }
}

static void test_times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds;
    } times[] = {
        {"0", 0},
        {"1769896800", 1769896800},
        {"1970-01-01", 0},
        {"2026-01-31T22:00:00Z", 1769896800},
        {"2026-01-31t22:00z", 1769896800},
        {"2026-01-31 22:00", 1769896800},
        {"2026-02-01T00:30:00+02:30", 1769896800},
        {"2026-01-31T17:00:00-05:00", 1769896800},
        {"2024-02-29", 1709164800},
        {"9999-12-31T23:59:59Z", 253402300799},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        int64_t seconds = -1;
        assert_int_equal(value_parse_time(times[i].text, &seconds), 0);
        assert_int_equal(seconds, times[i].seconds);
    }
    const char *const refused[] = {"",
                                   "-1",
                                   "now",
                                   "2026-1-1",
                                   "2026-00-01",
                                   "2026-13-01",
                                   "2025-02-29",
                                   "2026-04-31",
                                   "2026-01-01T",
                                   "2026-01-01T10",
                                   "2026-01-01T24:00",
                                   "2026-01-01T10:60",
                                   "2026-01-01T10:00:60",
                                   "2026-01-01T10:00:00+2",
                                   "2026-01-01Z",
                                   "2026-01-01T10:00:00Zx",
                                   "1969-12-31",
                                   "1970-01-01T00:00+01:00",
                                   "253402300800"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int64_t seconds = 77;
        assert_int_equal(value_parse_time(refused[i], &seconds), -1);
    }
}

static void test_words(void **state)
{
    (void)state;
    static const char *const words[] = {"changed", "removed", NULL};
    static const struct {
        const char *text;
        unsigned bits;
    } lists[] = {{"changed", 1}, {"removed", 2}, {"changed,removed", 3}, {"removed,changed,removed", 3}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        unsigned bits = 4;
        assert_int_equal(value_parse_words(lists[i].text, words, &bits), 0);
        assert_int_equal(bits, 4 | lists[i].bits);
    }
    const char *const refused[] = {"", ",", "changed,", ",changed", "change", "changedd", "changed removed", "Changed"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        unsigned bits = 4;
        assert_int_equal(value_parse_words(refused[i], words, &bits), -1);
        assert_int_equal(bits, 4);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    const char *const names[] = {"run", NULL, "resume", "status", "export", "help"};
    size_t count = sizeof names / sizeof names[0];
    assert_string_equal(nearest_name("rn", names, count), "run");
    assert_string_equal(nearest_name("exprot", names, count), "export");
    assert_string_equal(nearest_name("resumee", names, count), "resume");
    assert_string_equal(nearest_name("stat", names, count), "status");
    assert_null(nearest_name("frobnicate", names, count));
    assert_null(nearest_name("", names, count));
    assert_null(nearest_name("x", names, count));
    char endless[2000];
    memset(endless, 'r', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(nearest_name(endless, names, count));
}

static void test_options_and_operands_mix(void **state)
{
    (void)state;
    const char *words[] = {"a.jsonl",         "--threads=3", "-m", "m.gguf",        "b", "-oout", "--quiet", "--",
                           "--not-an-option", "--strict",    "-",  "--token-budget"};
    struct nj_arguments arguments;
    struct nj_error error = {0};
    assert_int_equal(options_parse(NJ_FOR_RUN, words, sizeof words / sizeof words[0], &arguments, &error), 0);
    assert_string_equal(arguments.model, "m.gguf");
    assert_string_equal(arguments.output, "out");
    assert_int_equal(arguments.threads, 3);
    assert_true(arguments.quiet);
    assert_false(arguments.strict);
    assert_int_equal(arguments.job_time, -1);
    const char *const operands[] = {"a.jsonl", "b", "--not-an-option", "--strict", "-", "--token-budget"};
    assert_int_equal(arguments.operand_count, 6);
    for (size_t i = 0; i < arguments.operand_count; i++)
        assert_string_equal(arguments.operands[i], operands[i]);
}

static void test_options_of_another_command(void **state)
{
    (void)state;
    struct nj_arguments arguments;
    struct nj_error error = {0};
    const char *json[] = {"--json"}, *strict[] = {"dir", "--strict"};
    assert_int_equal(options_parse(NJ_FOR_STATUS, json, 1, &arguments, &error), 0);
    assert_true(arguments.json);
    assert_int_equal(options_parse(NJ_FOR_RUN, json, 1, &arguments, &error), -1);
    assert_int_equal(error.code, NJ_BAD_USAGE);
    assert_int_equal(options_parse(NJ_FOR_RESUME, strict, 2, &arguments, &error), -1);
    assert_non_null(strstr(error.message, "--strict"));
}

static void test_accept_and_retry(void **state)
{
    (void)state;
    struct nj_arguments arguments;
    struct nj_error error = {0};
    const char *given[] = {"dir",     "--accept", "changed", "--retry=length,errors", "--accept=removed",
                           "--retry", "ids=a,b"};
    assert_int_equal(options_parse(NJ_FOR_RESUME, given, 7, &arguments, &error), 0);
    assert_int_equal(arguments.accept, NJ_ACCEPT_CHANGED | NJ_ACCEPT_REMOVED);
    assert_int_equal(arguments.retry, NJ_RETRY_ERRORS | NJ_RETRY_LENGTH | NJ_RETRY_IDS);
    assert_string_equal(arguments.retry_ids, "a,b");
    const char *const refused[] = {"--retry=all", "--retry=", "--retry=ids=", "--retry=errors,ids=x", "--accept=added"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const char *word = refused[i];
        assert_int_equal(options_parse(NJ_FOR_RUN, &word, 1, &arguments, &error), -1);
        assert_int_equal(error.code, NJ_BAD_USAGE);
    }
    const char *twice[] = {"--retry=ids=a", "--retry=ids=b"};
    assert_int_equal(options_parse(NJ_FOR_RUN, twice, 2, &arguments, &error), -1);
    assert_non_null(strstr(error.message, "twice"));
}

static void test_max_memory(void **state)
{
    (void)state;
    struct nj_arguments arguments;
    struct nj_error error = {0};
    static const struct {
        const char *word;
        uint64_t bytes;
    } given[] = {{"--max-memory=cpu=3GiB", UINT64_C(3) << 30}, {"--max-memory=512MiB", UINT64_C(512) << 20}};
    static const enum nj_command_bit commands[] = {NJ_FOR_RUN, NJ_FOR_RESUME, NJ_FOR_PLAN};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 2; j++) {
            const char *word = given[j].word;
            assert_int_equal(options_parse(commands[i], &word, 1, &arguments, &error), 0);
            assert_true(arguments.max_memory_bytes == given[j].bytes);
        }
    }
    const char *const refused[] = {"--max-memory=",         "--max-memory=cpu=",       "--max-memory=cpu=0",
                                   "--max-memory=gpu=3GiB", "--max-memory=cpu=cpu=1G", "--max-memory=CPU=1G",
                                   "--max-memory=cpu=1G,"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const char *word = refused[i];
        assert_int_equal(options_parse(NJ_FOR_RUN, &word, 1, &arguments, &error), -1);
        assert_int_equal(error.code, NJ_BAD_USAGE);
        assert_non_null(strstr(error.message, "cpu=SIZE"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_sizes_shown),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_options_and_operands_mix),
        cmocka_unit_test(test_options_of_another_command),
        cmocka_unit_test(test_accept_and_retry),
        cmocka_unit_test(test_max_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
