/* Which files are read from their originals and which from the job's copy, and that both give the same lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "pipeline/input/input.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static char *directory, *packed, *plain, *output;

static int make_directory(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    packed = temporary_path(directory, "a.jsonl.gz");
    plain = temporary_path(directory, "b.jsonl");
    output = temporary_path(directory, "out");
    return mkdir(output, 0700);
}

static int remove_directory(void **state)
{
    (void)state;
    free(packed);
    free(plain);
    free(output);
    temporary_directory_remove(directory);
    return 0;
}

static void write_packed(const char *text)
{
    gzFile file = gzopen(packed, "wb1");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
}

static struct nj_input *open_input(bool copied, enum nj_input_run run, struct nj_error *error)
{
    const char *const arguments[] = {packed, plain};
    struct nj_input *input = copied ? input_open_copied(arguments, 2, error) : input_open(arguments, 2, error);
    if (input == NULL || input_use_spool(input, output, run, NULL, error) == 0)
        return input;
    input_close(input);
    return NULL;
}

/* All lines, each read again at once, joined by "|". */
static const char *read_lines(struct nj_input *input)
{
    static char joined[1024];
    struct nj_error error;
    struct nj_line line;
    int got;
    joined[0] = '\0';
    struct nj_line_reader *reader = line_reader_create(input, &error);
    assert_non_null(reader);
    while ((got = line_reader_next(reader, &line, &error)) > 0) {
        char again[64];
        assert_true(line.length < sizeof again);
        assert_int_equal(input_read_at(input, line.file, line.offset, again, line.length, &error), 0);
        assert_memory_equal(again, line.text, line.length);
        size_t length = strlen(joined);
        snprintf(joined + length, sizeof joined - length, "%s:%d %.*s|", input_file_at(input, line.file)->label,
                 (int)line.number, (int)line.length, line.text);
    }
    assert_int_equal(got, 0);
    line_reader_destroy(reader);
    return joined;
}

static void make_copy(void)
{
    struct nj_error error;
    write_packed("{1}\n\n{2}");
    temporary_write_file(plain, "{p}\n", 4);
    struct nj_input *input = open_input(false, NJ_RUN_NEW, &error);
    assert_non_null(input);
    assert_false(input_reads_copy(input));
    assert_string_equal(read_lines(input), "a.jsonl.gz:1 {1}|a.jsonl.gz:3 {2}|b.jsonl:1 {p}|");
    assert_int_equal(input_file_at(input, 0)->bytes, 8);
    assert_int_equal(input_commit_spool(input, &error), 0);
    input_close(input);
}

static void check_again(enum nj_input_run run, bool reads_copy, const char *lines)
{
    struct nj_error error;
    struct nj_input *input = open_input(true, run, &error);
    assert_non_null(input);
    assert_int_equal(input_reads_copy(input), reads_copy);
    assert_string_equal(read_lines(input), lines);
    assert_int_equal(input_commit_spool(input, &error), 0);
    input_close(input);
}

static void test_choice(void **state)
{
    static const char first[] = "a.jsonl.gz:1 {1}|a.jsonl.gz:3 {2}|b.jsonl:1 {p}|";
    static const char second[] = "a.jsonl.gz:1 {changed}|b.jsonl:1 {p}|";
    struct nj_error error;
    (void)state;
    make_copy();
    check_again(NJ_RUN_AGAIN, true, first);
    check_again(NJ_RUN_RESUME, true, first);
    write_packed("{changed}");
    check_again(NJ_RUN_RESUME, true, first);
    /* Read and given up: the copy is the old one. */
    struct nj_input *input = open_input(true, NJ_RUN_AGAIN, &error);
    assert_string_equal(read_lines(input), second);
    input_close(input);
    check_again(NJ_RUN_RESUME, true, first);
    check_again(NJ_RUN_AGAIN, false, second);
    assert_int_equal(unlink(packed), 0);
    check_again(NJ_RUN_AGAIN, true, second);
    check_again(NJ_RUN_RESUME, true, second);
}

static void test_gone_without_a_copy(void **state)
{
    (void)state;
    struct nj_error error;
    temporary_write_file(plain, "{p}\n", 4);
    assert_null(open_input(false, NJ_RUN_NEW, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_null(open_input(true, NJ_RUN_RESUME, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_non_null(strstr(error.message, "before it had a copy"));
    /* Plain files are never copied. */
    make_copy();
    assert_int_equal(unlink(plain), 0);
    assert_null(open_input(true, NJ_RUN_RESUME, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
}

/* Two files of one name that are both gone keep the labels they had. */
static void test_labels_without_originals(void **state)
{
    (void)state;
    struct nj_error error;
    char *other = temporary_path(directory, "x"), *twin = temporary_path(directory, "x/a.jsonl.gz");
    assert_int_equal(mkdir(other, 0700), 0);
    write_packed("{1}");
    assert_int_equal(link(packed, twin), 0);
    assert_int_equal(unlink(packed), 0);
    write_packed("{2}");
    const char *const arguments[] = {packed, twin, packed};
    char lines[256] = "";
    for (int round = 0; round < 2; round++) {
        struct nj_input *input =
            round == 0 ? input_open(arguments, 3, &error) : input_open_copied(arguments, 3, &error);
        assert_non_null(input);
        assert_int_equal(input_use_spool(input, output, NJ_RUN_RESUME, NULL, &error), 0);
        const char *got = read_lines(input);
        if (round == 0)
            snprintf(lines, sizeof lines, "%s", got);
        assert_string_equal(got, lines);
        assert_non_null(strstr(got, "x/a.jsonl.gz:1 {1}|"));
        assert_int_equal(input_commit_spool(input, &error), 0);
        input_close(input);
        unlink(packed);
        unlink(twin);
    }
    free(other);
    free(twin);
}

/* A line over the limit in a compressed file, between good ones. */
static void test_long_line(void **state)
{
    (void)state;
    static const size_t length = NJ_LINE_BYTES_MOST + 100;
    struct nj_error error;
    struct nj_line line;
    char *text = malloc(length + 20), again[4];
    assert_non_null(text);
    memset(text, 'x', length + 20);
    memcpy(text, "{1}\n", 4);
    strcpy(text + 4 + length, "\n{3}\n");
    write_packed(text);
    free(text);
    struct nj_unpack_limits limits = NJ_UNPACK_LIMITS;
    limits.ratio = UINT64_MAX;
    temporary_write_file(plain, "", 0);
    struct nj_input *input = open_input(false, NJ_RUN_NEW, &error);
    input_set_limits(input, &limits);
    struct nj_line_reader *reader = line_reader_create(input, &error);
    assert_int_equal(line_reader_next(reader, &line, &error), 1);
    assert_int_equal(line_reader_next(reader, &line, &error), 1);
    assert_true(line.too_long);
    assert_int_equal(line_reader_next(reader, &line, &error), 1);
    assert_int_equal(line.number, 3);
    assert_int_equal(line.offset, 5 + length);
    assert_int_equal(input_read_at(input, line.file, line.offset, again, 3, &error), 0);
    assert_memory_equal(again, "{3}", 3);
    assert_int_equal(line_reader_next(reader, &line, &error), 0);
    line_reader_destroy(reader);
    input_close(input);
}

static void test_names_of_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum nj_input_kind kind;
    } kinds[] = {{"a", NJ_INPUT_PLAIN},           {"a.txt", NJ_INPUT_PLAIN},   {"a.gz", NJ_INPUT_GZIP},
                 {"a.tar", NJ_INPUT_ARCHIVE},     {"a.tgz", NJ_INPUT_ARCHIVE}, {"a.tar.gz", NJ_INPUT_ARCHIVE},
                 {"a.tar.zst", NJ_INPUT_ARCHIVE}, {"a.zip", NJ_INPUT_ARCHIVE}, {"a.tzst", NJ_INPUT_ARCHIVE},
                 {"a.tar.xz", NJ_INPUT_ARCHIVE},  {"tar", NJ_INPUT_PLAIN}};
    static const char *const refused[] = {"a.jsonl.zst", "a.tar.bz2", "a.7z", "a.jsonl.xz"};
    struct nj_error error;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char *path = temporary_path(directory, kinds[i].name);
        temporary_write_file(path, "", 0);
        struct nj_input *input = input_open((const char *const *)&path, 1, &error);
        assert_non_null(input);
        assert_int_equal(input_file_at(input, 0)->kind, kinds[i].kind);
        input_close(input);
        free(path);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char *path = temporary_path(directory, refused[i]);
        temporary_write_file(path, "", 0);
        assert_null(input_open((const char *const *)&path, 1, &error));
        assert_int_equal(error.code, NJ_BAD_USAGE);
        free(path);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_choice),    TEST(test_gone_without_a_copy), TEST(test_labels_without_originals),
        TEST(test_long_line), TEST(test_names_of_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
