/* One tokenizer, several threads: each gets the ids that one thread alone gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/temporary_directory.h"
#include "tests/synthetic/synthetic_model.h"
#include "tests/tokenizer/tokenizer_file.h"

enum { THREADS = 4, TEXTS = 6, ROUNDS = 200 };

static const char *const texts[TEXTS] = {"The ferry leaves the harbour at six in the morning.",
                                         "one 2 three 45",
                                         "don't you'll we've",
                                         "\xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80",
                                         "    indented\n\n\ttext",
                                         "wordswithoutanybreakwordswithoutanybreak"};

struct work {
    const struct nj_tokenizer *tokenizer;
    const struct nj_ids *expected;
    int differences;
};

static int encode(const struct nj_tokenizer *tokenizer, const char *text, struct nj_ids *ids)
{
    struct nj_error error;
    ids->count = 0;
    return tokenizer_encode_text(tokenizer, text, strlen(text), ids, &error);
}

static void *encode_all(void *argument)
{
    struct work *work = argument;
    struct nj_ids ids = {0};
    for (int i = 0; i < ROUNDS * TEXTS; i++) {
        const struct nj_ids *expected = &work->expected[i % TEXTS];
        if (encode(work->tokenizer, texts[i % TEXTS], &ids) != 0 || ids.count != expected->count ||
            memcmp(ids.id, expected->id, ids.count * sizeof *ids.id) != 0)
            work->differences++;
    }
    ids_free(&ids);
    return NULL;
}

static struct nj_tokenizer *open_synthetic(void)
{
    struct nj_error error;
    struct nj_synthetic_shape shape = synthetic_shape_small();
    char *directory = temporary_directory_create(), *path = temporary_path(directory, "model.gguf");
    assert_int_equal(synthetic_model_write(&shape, NJ_TEST_DATA "/synthetic", NULL, path, &error), 0);
    struct nj_tokenizer *tokenizer = tokenizer_from_gguf(path);
    free(path);
    temporary_directory_remove(directory);
    return tokenizer;
}

static void test_threads_agree(void **state)
{
    (void)state;
    struct nj_tokenizer *tokenizer = open_synthetic();
    struct nj_ids expected[TEXTS] = {{0}};
    for (int i = 0; i < TEXTS; i++)
        assert_int_equal(encode(tokenizer, texts[i], &expected[i]), 0);
    pthread_t thread[THREADS];
    struct work work[THREADS];
    for (int i = 0; i < THREADS; i++) {
        work[i] = (struct work){tokenizer, expected, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, encode_all, &work[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(work[i].differences, 0);
    }
    for (int i = 0; i < TEXTS; i++)
        ids_free(&expected[i]);
    tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_threads_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
