/* Damaged copies of a valid file, deterministic: each opens or is refused with a clear error, and whatever
 * opens can be read to its end. What this proves is under AddressSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/formats/gguf_file.h"

enum { ROUNDS = 4000, FLIPS_MOST = 4 };

static uint64_t random_state = 12345;

static size_t random_below(size_t limit)
{
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (size_t)((random_state >> 33) % limit);
}

/* Directory bytes are favoured: damage to tensor data is not the reader's to see. */
static void mutate(struct nj_bytes *bytes, size_t directory_bytes)
{
    static const unsigned char TELLING[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    size_t flips = 1 + random_below(FLIPS_MOST);
    for (size_t i = 0; i < flips; i++) {
        unsigned char *byte = &bytes->data[random_below(directory_bytes)];
        *byte = random_below(2) == 0 ? TELLING[random_below(sizeof TELLING)]
                                     : *byte ^ (unsigned char)(1u << random_below(8));
    }
    if (random_below(8) == 0)
        bytes->count = random_below(bytes->count);
}

static void read_everything(const struct nj_gguf *gguf)
{
    struct nj_error error;
    const struct nj_text *texts;
    const int64_t *integers;
    size_t count;
    unsigned sum = 0;
    if (gguf_get_texts(gguf, "words", &texts, &count, &error) == 1)
        for (size_t i = 0; i < count; i++)
            for (size_t j = 0; j < texts[i].length; j++)
                sum += (unsigned char)texts[i].bytes[j];
    if (gguf_get_integers(gguf, "numbers", &integers, &count, &error) == 1)
        for (size_t i = 0; i < count; i++)
            sum += (unsigned)integers[i];
    assert_true(sum < UINT32_MAX);
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct nj_gguf_tensor *tensor = gguf_tensor_at(gguf, i);
        assert_true(tensor->bytes < 1 << 20); /* the file has no more */
        char *data = malloc(tensor->bytes + 1);
        assert_int_equal(gguf_read(gguf, tensor, 0, data, tensor->bytes, &error), 0);
        free(data);
    }
}

static void test_mutations(void **state)
{
    (void)state;
    struct nj_gguf_writer writer;
    struct nj_bytes whole = {0};
    gguf_file_start_valid(&writer);
    size_t directory_bytes = 24 + writer.entries.count + writer.tensors.count;
    gguf_file_finish(&writer, &whole);
    int opened = 0;
    for (int round = 0; round < ROUNDS; round++) {
        struct nj_bytes damaged = {0};
        bytes_add(&damaged, whole.data, whole.count);
        mutate(&damaged, directory_bytes);
        struct nj_error error = {0};
        struct nj_gguf *gguf = gguf_file_open_bytes(&damaged, &error);
        bytes_free(&damaged);
        if (gguf != NULL) {
            opened++;
            read_everything(gguf);
            gguf_close(gguf);
        } else {
            assert_int_equal(error.code, NJ_BAD_DATA);
            assert_true(error.message[0] != '\0');
            assert_string_equal(error.file, gguf_file_path());
        }
    }
    bytes_free(&whole);
    assert_in_range(opened, ROUNDS / 100, ROUNDS * 9 / 10); /* the damage is neither always nor never fatal */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mutations, gguf_file_set_up, gguf_file_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
