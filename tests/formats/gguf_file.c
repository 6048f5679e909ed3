#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"
#include "tests/support/temporary_directory.h"

static char *directory;
static char *path;

int gguf_file_set_up(void **state)
{
    (void)state;
    directory = temporary_directory_create();
    path = temporary_path(directory, "model.gguf");
    return 0;
}

int gguf_file_tear_down(void **state)
{
    (void)state;
    free(path);
    temporary_directory_remove(directory);
    return 0;
}

const char *gguf_file_path(void)
{
    return path;
}

struct nj_gguf *gguf_file_open_bytes(const struct nj_bytes *bytes, struct nj_error *error)
{
    temporary_write_file(path, bytes->data, bytes->count);
    return gguf_open(path, error);
}

void gguf_file_finish(struct nj_gguf_writer *writer, struct nj_bytes *out)
{
    gguf_writer_finish(writer, out);
    bytes_add_zeros(out, writer->data_bytes);
    gguf_writer_free(writer);
}

struct nj_gguf *gguf_file_open(struct nj_gguf_writer *writer, struct nj_error *error)
{
    struct nj_bytes bytes = {0};
    gguf_file_finish(writer, &bytes);
    struct nj_gguf *gguf = gguf_file_open_bytes(&bytes, error);
    bytes_free(&bytes);
    return gguf;
}

void gguf_file_assert_refused_bytes(struct nj_bytes *bytes, const char *expected, int64_t byte)
{
    struct nj_error error = {0};
    assert_null(gguf_file_open_bytes(bytes, &error));
    bytes_free(bytes);
    if (error.code != NJ_BAD_DATA || strstr(error.message, expected) == NULL)
        fail_msg("expected '%s', got %d '%s'", expected, error.code, error.message);
    assert_string_equal(error.file, path);
    if (byte != -2)
        assert_int_equal(error.byte, byte);
    else
        assert_true(error.byte >= 0);
}

void gguf_file_assert_refused(struct nj_gguf_writer *writer, const char *expected)
{
    struct nj_bytes bytes = {0};
    gguf_file_finish(writer, &bytes);
    gguf_file_assert_refused_bytes(&bytes, expected, -2);
}

void gguf_file_start_valid(struct nj_gguf_writer *writer)
{
    static const char *const WORDS[] = {"one", "two", ""};
    gguf_writer_start(writer);
    gguf_writer_add_text(writer, "general.architecture", "llama");
    gguf_writer_add_u32(writer, "llama.block_count", 2);
    gguf_writer_add_texts(writer, "words", WORDS, 3);
    gguf_writer_add_integers(writer, "numbers", (const int32_t[]){-1, 0, 70000}, 3);
    gguf_writer_add_tensor(writer, "a", 0, 2, (const uint64_t[]){64, 3}, 64 * 3 * 4);
    gguf_writer_add_tensor(writer, "b", 8, 2, (const uint64_t[]){64, 2}, 2 * 2 * 34);
}
