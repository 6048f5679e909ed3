/* Files, directories, labels and lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/input/input.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static char *directory;

static int make_directory(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    temporary_directory_remove(directory);
    return 0;
}

/* Writes DIRECTORY/NAME; its directories must be there. */
static void write_file(const char *name, const char *content, size_t length)
{
    char *path = temporary_path(directory, name);
    temporary_write_file(path, content, length);
    free(path);
}

static void write_text(const char *name, const char *content)
{
    write_file(name, content, strlen(content));
}

static void add_directory(const char *name)
{
    char *path = temporary_path(directory, name);
    assert_int_equal(mkdir(path, 0700), 0);
    free(path);
}

/* Opens up to three names below the directory. */
static struct nj_input *open_input(const char *a, const char *b, const char *c, struct nj_error *error)
{
    const char *names[] = {a, b, c};
    char *paths[3] = {0};
    size_t count = 0;
    for (size_t i = 0; i < 3 && names[i] != NULL; i++)
        paths[count++] = temporary_path(directory, names[i]);
    struct nj_input *input = input_open((const char *const *)paths, count, error);
    for (size_t i = 0; i < count; i++)
        free(paths[i]);
    return input;
}

struct wanted_line {
    const char *text;
    uint64_t number, offset;
};

static void check_lines(struct nj_input *input, const struct wanted_line *wanted, size_t count)
{
    struct nj_error error;
    struct nj_line_reader *reader = line_reader_create(input, &error);
    struct nj_line line;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(line_reader_next(reader, &line, &error), 1);
        assert_int_equal(line.length, strlen(wanted[i].text));
        assert_memory_equal(line.text, wanted[i].text, line.length);
        assert_int_equal(line.number, wanted[i].number);
        assert_int_equal(line.offset, wanted[i].offset);
        assert_false(line.too_long);
        char again[64];
        assert_int_equal(input_read_at(input, line.file, line.offset, again, line.length, &error), 0);
        assert_memory_equal(again, wanted[i].text, line.length);
    }
    assert_int_equal(line_reader_next(reader, &line, &error), 0);
    line_reader_destroy(reader);
}

static void test_line_ends(void **state)
{
    (void)state;
    struct nj_error error;
    write_text("a.jsonl", "\xEF\xBB\xBF{1}\r\n\r\n \t\n{2}\n\n{3}");
    struct nj_input *input = open_input("a.jsonl", NULL, NULL, &error);
    assert_non_null(input);
    const struct wanted_line wanted[] = {{"{1}", 1, 3}, {"{2}", 4, 13}, {"{3}", 6, 18}};
    check_lines(input, wanted, 3);
    input_close(input);
}

static void test_empty_files(void **state)
{
    (void)state;
    struct nj_error error;
    write_text("a.jsonl", "");
    write_text("b.jsonl", "\n\n");
    write_text("c.jsonl", "\xEF\xBB\xBF");
    struct nj_input *input = open_input("a.jsonl", "b.jsonl", "c.jsonl", &error);
    assert_non_null(input);
    check_lines(input, NULL, 0);
    input_close(input);
}

static void test_directories_are_sorted(void **state)
{
    (void)state;
    struct nj_error error;
    add_directory("in");
    add_directory("in/sub");
    write_text("in/b.jsonl", "{b}\n");
    write_text("in/a.jsonl", "{a}\n");
    write_text("in/sub/c.jsonl", "{c}\n");
    write_text("in/Z.jsonl", "{Z}\n");
    write_text("in/notes.txt", "no\n");
    write_text("in/.jsonl", "no\n");
    struct nj_input *input = open_input("in", NULL, NULL, &error);
    assert_non_null(input);
    assert_int_equal(input_file_count(input), 4);
    assert_string_equal(input_file_at(input, 0)->label, "in/Z.jsonl");
    assert_string_equal(input_file_at(input, 1)->label, "in/a.jsonl");
    assert_string_equal(input_file_at(input, 2)->label, "in/b.jsonl");
    assert_string_equal(input_file_at(input, 3)->label, "in/sub/c.jsonl");
    input_close(input);
}

static void test_links_to_directories_are_not_followed(void **state)
{
    (void)state;
    struct nj_error error;
    add_directory("in");
    write_text("in/a.jsonl", "{a}\n");
    char *link = temporary_path(directory, "in/again");
    assert_int_equal(symlink(".", link), 0);
    free(link);
    struct nj_input *input = open_input("in", NULL, NULL, &error);
    assert_non_null(input);
    assert_int_equal(input_file_count(input), 1);
    input_close(input);
}

static void test_equal_labels_get_parents(void **state)
{
    (void)state;
    struct nj_error error;
    add_directory("x");
    add_directory("y");
    write_text("x/a.jsonl", "{1}\n");
    write_text("y/a.jsonl", "{2}\n");
    struct nj_input *input = open_input("x/a.jsonl", "y/a.jsonl", NULL, &error);
    assert_non_null(input);
    assert_string_equal(input_file_at(input, 0)->label, "x/a.jsonl");
    assert_string_equal(input_file_at(input, 1)->label, "y/a.jsonl");
    input_close(input);
    /* The same file twice is one file: its lines are duplicates. */
    input = open_input("x/a.jsonl", "x/a.jsonl", NULL, &error);
    assert_non_null(input);
    assert_string_equal(input_file_at(input, 0)->label, "a.jsonl");
    assert_string_equal(input_file_at(input, 1)->label, "a.jsonl");
    input_close(input);
}

static void test_names_that_are_not_utf8(void **state)
{
    (void)state;
    struct nj_error error;
    write_text("a\xFF.jsonl", "{}\n");
    struct nj_input *input = open_input("a\xFF.jsonl", NULL, NULL, &error);
    assert_non_null(input);
    assert_string_equal(input_file_at(input, 0)->label, "a%FF.jsonl");
    input_close(input);
}

static void test_missing_input(void **state)
{
    (void)state;
    struct nj_error error;
    assert_null(open_input("none.jsonl", NULL, NULL, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    assert_non_null(strstr(error.file, "none.jsonl"));
    add_directory("empty");
    assert_null(open_input("empty", NULL, NULL, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
    char *fifo = temporary_path(directory, "pipe.jsonl");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    free(fifo);
    assert_null(open_input("pipe.jsonl", NULL, NULL, &error));
    assert_int_equal(error.code, NJ_NO_INPUT);
}

/* More files than are kept open at once. */
static void test_many_files(void **state)
{
    (void)state;
    enum { FILES = 150 };
    struct nj_error error;
    add_directory("in");
    for (int i = 0; i < FILES; i++) {
        char name[40], content[40];
        snprintf(name, sizeof name, "in/%03d.jsonl", i);
        snprintf(content, sizeof content, "{%03d}\n", i);
        write_text(name, content);
    }
    struct nj_input *input = open_input("in", NULL, NULL, &error);
    assert_non_null(input);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < FILES; i++) {
            char text[4] = "", wanted[8];
            size_t file = i * 67 % FILES;
            assert_int_equal(input_read_at(input, file, 1, text, 3, &error), 0);
            snprintf(wanted, sizeof wanted, "%03zu", file);
            assert_memory_equal(text, wanted, 3);
        }
    }
    input_close(input);
}

static void fill_line(FILE *file, size_t bytes)
{
    static char block[1 << 16];
    memset(block, 'x', sizeof block);
    for (; bytes > 0; bytes -= bytes < sizeof block ? bytes : sizeof block)
        assert_int_equal(fwrite(block, 1, bytes < sizeof block ? bytes : sizeof block, file),
                         bytes < sizeof block ? bytes : sizeof block);
}

/* Lines of exactly the limit, one more, and much more, between good ones. */
static void test_long_lines(void **state)
{
    (void)state;
    static const size_t lengths[] = {NJ_LINE_BYTES_MOST, NJ_LINE_BYTES_MOST + 1, 50 << 20};
    struct nj_error error;
    char *path = temporary_path(directory, "long.jsonl");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    uint64_t offset = 0;
    for (size_t i = 0; i < 3; i++) {
        fputs("{good}\n", file);
        fill_line(file, lengths[i]);
        fputs("\r\n", file);
    }
    fputs("{last}", file);
    fclose(file);
    free(path);
    struct nj_input *input = open_input("long.jsonl", NULL, NULL, &error);
    assert_non_null(input);
    struct nj_line_reader *reader = line_reader_create(input, &error);
    struct nj_line line;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(line_reader_next(reader, &line, &error), 1);
        assert_int_equal(line.number, 2 * i + 1);
        assert_int_equal(line.offset, offset);
        assert_memory_equal(line.text, "{good}", 6);
        offset += 7;
        assert_int_equal(line_reader_next(reader, &line, &error), 1);
        assert_int_equal(line.number, 2 * i + 2);
        assert_int_equal(line.offset, offset);
        assert_int_equal(line.too_long, i > 0);
        assert_int_equal(line.length, i > 0 ? (size_t)NJ_LONG_LINE_PREFIX_BYTES : lengths[i]);
        assert_true(line.text[0] == 'x' && line.text[line.length - 1] == 'x');
        offset += lengths[i] + 2;
    }
    assert_int_equal(line_reader_next(reader, &line, &error), 1);
    assert_int_equal(line.number, 7);
    assert_int_equal(line.offset, offset);
    assert_memory_equal(line.text, "{last}", 6);
    assert_int_equal(line_reader_next(reader, &line, &error), 0);
    line_reader_destroy(reader);
    input_close(input);
}

static void test_long_last_line(void **state)
{
    (void)state;
    struct nj_error error;
    char *path = temporary_path(directory, "long.jsonl");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fill_line(file, NJ_LINE_BYTES_MOST + 100);
    fclose(file);
    free(path);
    struct nj_input *input = open_input("long.jsonl", NULL, NULL, &error);
    struct nj_line_reader *reader = line_reader_create(input, &error);
    struct nj_line line;
    assert_int_equal(line_reader_next(reader, &line, &error), 1);
    assert_true(line.too_long);
    assert_int_equal(line_reader_next(reader, &line, &error), 0);
    line_reader_destroy(reader);
    input_close(input);
}

static void test_shortened_file(void **state)
{
    (void)state;
    struct nj_error error;
    char text[8];
    write_text("a.jsonl", "{12345}\n");
    struct nj_input *input = open_input("a.jsonl", NULL, NULL, &error);
    write_text("a.jsonl", "{1");
    assert_int_equal(input_read_at(input, 0, 0, text, 7, &error), -1);
    assert_int_equal(error.code, NJ_BAD_DATA);
    input_close(input);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_line_ends),
        TEST(test_empty_files),
        TEST(test_directories_are_sorted),
        TEST(test_links_to_directories_are_not_followed),
        TEST(test_equal_labels_get_parents),
        TEST(test_names_that_are_not_utf8),
        TEST(test_missing_input),
        TEST(test_many_files),
        TEST(test_long_lines),
        TEST(test_long_last_line),
        TEST(test_shortened_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
