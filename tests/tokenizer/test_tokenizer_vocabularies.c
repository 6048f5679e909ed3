/* Real vocabularies against the vectors that lie beside them. NJ_VOCABULARIES is the folder models/ of llama.cpp (as
 * in the source distribution of PyPI's llama-cpp-python): ggml-vocab-NAME.gguf, texts in .gguf.inp, ids in .gguf.out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tokenizer/tokenizer_file.h"

static const char separator[] = "\n__ggml_vocab_test__\n";

static char *make_path(const char *name, const char *ending)
{
    char *path = malloc(4096);
    assert_non_null(path);
    snprintf(path, 4096, "%s/ggml-vocab-%s.gguf%s", getenv("NJ_VOCABULARIES"), name, ending);
    return path;
}

/* The whole file; it holds no NUL. */
static char *read_file(const char *name, const char *ending)
{
    char *path = make_path(name, ending), *text = NULL;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        fail_msg("%s cannot be opened", path);
    size_t capacity = 0;
    assert_true(getdelim(&text, &capacity, '\0', file) > 0);
    fclose(file);
    free(path);
    return text;
}

/* One line of ids against the ids of a text; returns where the next line begins. */
static char *check_text(const struct nj_tokenizer *tokenizer, const char *name, const char *text, size_t length,
                        char *line)
{
    struct nj_ids ids = {0};
    struct nj_error error;
    assert_int_equal(tokenizer_encode_text(tokenizer, text, length, &ids, &error), 0);
    for (size_t i = 0; i < ids.count; i++) {
        char *end;
        long expected = strtol(line, &end, 10);
        if (end == line || expected != ids.id[i])
            fail_msg("%s: \"%.*s\": id %zu is %d, not %ld", name, (int)length, text, i, ids.id[i], expected);
        line = end;
        if (*line == ' ' && i + 1 < ids.count)
            line++;
    }
    ids_free(&ids);
    line += strspn(line, " ");
    if (*line != '\n')
        fail_msg("%s: \"%.*s\": more ids are expected", name, (int)length, text);
    return line + 1;
}

static void check_vocabulary(const char *name)
{
    char *path = make_path(name, ""), *texts = read_file(name, ".inp"), *ids = read_file(name, ".out");
    struct nj_tokenizer *tokenizer = tokenizer_from_gguf(path);
    char *line = ids;
    int count = 0;
    for (const char *text = texts, *end; (end = strstr(text, separator)) != NULL; text = end + strlen(separator)) {
        line = check_text(tokenizer, name, text, (size_t)(end - text), line);
        count++;
    }
    printf("%s: %d texts\n", name, count);
    assert_true(count > 40);
    tokenizer_destroy(tokenizer);
    free(path);
    free(texts);
    free(ids);
}

static void test_vocabularies(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-2", "qwen2", "llama-bpe", "starcoder", "refact"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_vocabulary(names[i]);
}

int main(void)
{
    if (getenv("NJ_VOCABULARIES") == NULL) {
        puts("skipped: NJ_VOCABULARIES does not name the folder models/ of llama.cpp");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
