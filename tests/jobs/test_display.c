/* The progress line and what is escaped on its way to a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "jobs/progress.h"

static const struct nj_job_progress halfway = {
    .phase = NJ_PHASE_COMPUTE,
    .requests = 200,
    .requests_done = 84,
    .requests_failed = 3,
    .work_total = 1000,
    .work_done = 423,
    .tokens_per_second = 118.4,
    .elapsed_seconds = 754,
    .least_left_seconds = 800,
    .most_left_seconds = 7300,
};

static void check_line(size_t width, const char *expected)
{
    char line[256];
    progress_format(&halfway, width, line, sizeof line);
    assert_string_equal(line, expected);
}

static void test_width(void **state)
{
    (void)state;
    check_line(200, "42.3 %  84/200 requests (3 failed)  118 tokens/s  13 min elapsed  13 min to 2 h 02 min left");
    check_line(91, "42.3 %  84/200 requests (3 failed)  118 tokens/s  13 min elapsed  13 min to 2 h 02 min left");
    check_line(90, "42.3 %  84/200 requests (3 failed)  118 tokens/s  13 min to 2 h 02 min left");
    check_line(70, "42.3 %  84/200 requests (3 failed)  13 min to 2 h 02 min left");
    check_line(40, "42.3 %  84/200 requests (3 failed)");
    check_line(20, "42.3 %");
    check_line(3, "42.");
}

static void test_other_phases(void **state)
{
    (void)state;
    char line[256];
    struct nj_job_progress progress = {.phase = NJ_PHASE_INDEX, .requests = 4000};
    progress_format(&progress, 80, line, sizeof line);
    assert_string_equal(line, "reading the input: 4000 requests so far");
    progress.phase = NJ_PHASE_LOAD;
    progress_format(&progress, 80, line, sizeof line);
    assert_string_equal(line, "loading the model");
    progress = halfway;
    progress.phase = NJ_PHASE_DONE;
    progress_format(&progress, 200, line, sizeof line);
    assert_non_null(strstr(line, "100.0 %"));
    assert_null(strstr(line, "left"));
}

static void test_percent(void **state)
{
    (void)state;
    struct nj_job_progress progress = {.phase = NJ_PHASE_COMPUTE};
    assert_true(progress_percent(&progress) == 0); /* nothing is known yet */
    progress.work_total = 10;
    progress.work_done = 10;
    assert_true(progress_percent(&progress) < 100); /* not before the end */
    progress.phase = NJ_PHASE_DONE;
    assert_true(progress_percent(&progress) == 100);
}

static void check_duration(double seconds, const char *expected)
{
    char text[64];
    progress_format_duration(seconds, text, sizeof text);
    assert_string_equal(text, expected);
}

static void test_durations(void **state)
{
    (void)state;
    check_duration(0, "0 s");
    check_duration(99.4, "99 s");
    check_duration(99.6, "2 min");
    check_duration(99 * 60, "99 min");
    check_duration(100 * 60, "1 h 40 min");
    check_duration(3 * 3600 + 5 * 60, "3 h 05 min");
    check_duration(52 * 3600, "2 d 4 h");
    check_duration(-1, "unknown");
    check_duration(__builtin_nan(""), "unknown");
    check_duration(__builtin_inf(), "unknown");
}

static void test_left(void **state)
{
    (void)state;
    char text[128];
    struct nj_job_progress progress = {.least_left_seconds = -1, .most_left_seconds = -1};
    progress_format_left(&progress, text, sizeof text);
    assert_string_equal(text, "unknown");
    progress.least_left_seconds = progress.most_left_seconds = 600;
    progress_format_left(&progress, text, sizeof text);
    assert_string_equal(text, "about 10 min");
    progress.most_left_seconds = 1200;
    progress_format_left(&progress, text, sizeof text);
    assert_string_equal(text, "10 min to 20 min");
}

static void check_escaped(const char *text, const char *expected)
{
    char out[256];
    console_escape(text, out, sizeof out);
    assert_string_equal(out, expected);
}

static void test_escaping(void **state)
{
    (void)state;
    check_escaped("plain caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x90\xa6", "plain caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x90\xa6");
    check_escaped("a\033[31mb\nc\rd\x7f", "a\\x1b[31mb\\x0ac\\x0dd\\x7f");
    check_escaped("\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b31m"); /* C1: an escape sequence in one character */
    check_escaped("x\xe2\x80\xae"
                  "y",
                  "x\\xe2\\x80\\xaey");      /* reverses what follows */
    check_escaped("\xff\xc3", "\\xff\\xc3"); /* not UTF-8 */
    char small[6];
    console_escape("ab\nc", small, sizeof small);
    assert_string_equal(small, "ab"); /* never half an escape */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_width),     cmocka_unit_test(test_other_phases), cmocka_unit_test(test_percent),
        cmocka_unit_test(test_durations), cmocka_unit_test(test_left),         cmocka_unit_test(test_escaping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
