/* The pass over the input with hashes so short that nearly all collide: every duplicate is found, and only those. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/index/index_build.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/pipeline/job_fixture.h"
#include "tests/support/temporary_directory.h"

enum { REQUESTS = 300 };

struct built {
    struct nj_examiner examiner;
    struct nj_model *model;
    struct nj_index *index;
    struct nj_index_totals totals;
};

static void build(struct job_fixture *fixture, int hash_bits, struct built *out)
{
    struct nj_error error;
    struct nj_model_options options = {.path = fixture->model, .cache_directory = fixture->cache};
    struct nj_prompt_options encoding = {.job_time = 0};
    *out = (struct built){.model = model_open(&options, &error), .index = index_create(hash_bits)};
    assert_non_null(out->model);
    out->examiner.encoder = prompt_encoder_create(out->model, &encoding, &error);
    out->examiner.input = input_open((const char *const *)&fixture->source, 1, &error);
    struct nj_index_build pass = {.examiner = &out->examiner, .index = out->index};
    assert_int_equal(index_build(&pass, &out->totals, &error), 0);
}

static void free_built(struct built *built)
{
    index_destroy(built->index);
    prompt_encoder_destroy(built->examiner.encoder);
    input_close(built->examiner.input);
    examiner_free(&built->examiner);
    model_close(built->model);
}

/* Ids 0 to REQUESTS - 1; every tenth line repeats an earlier id, every seventh has none. */
static void write_input(struct job_fixture *fixture)
{
    char *lines = malloc(REQUESTS * 80), *at = lines;
    assert_non_null(lines);
    for (int i = 0; i < REQUESTS; i++) {
        if (i % 7 == 6)
            at += sprintf(at, "{\"prompt\":\"river\"}\n");
        else
            at += sprintf(at, "{\"id\":\"%d\",\"prompt\":\"river\"}\n", i % 10 == 9 ? i / 20 * 7 : i);
    }
    job_fixture_write(fixture, lines);
    free(lines);
}

static void check_entries(struct built *built)
{
    int first[REQUESTS];
    memset(first, -1, sizeof first);
    uint64_t bad = 0;
    for (int i = 0; i < REQUESTS; i++) {
        const struct nj_index_entry *entry = index_at(built->index, (uint32_t)i);
        int id = i % 10 == 9 ? i / 20 * 7 : i;
        bool has_id = i % 7 != 6;
        bool duplicate = has_id && first[id] >= 0;
        assert_int_equal(index_entry_line(entry), i + 1);
        assert_int_equal(entry->kind, duplicate ? NJ_ENTRY_DUPLICATE : NJ_ENTRY_REQUEST);
        assert_int_equal(entry->own_id, has_id && !duplicate);
        bad += duplicate;
        if (has_id && !duplicate)
            first[id] = i;
    }
    assert_int_equal(built->totals.bad, bad);
    assert_true(bad > 10);
}

static void test_collisions(void **state)
{
    static const int bits[] = {64, 8, 1};
    struct job_fixture *fixture = *state;
    write_input(fixture);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        struct built built;
        build(fixture, bits[i], &built);
        assert_int_equal(index_count(built.index), REQUESTS);
        assert_int_equal(built.totals.requests, REQUESTS);
        check_entries(&built);
        free_built(&built);
    }
}

/* Whatever kind of line it is, its entry leads back to it. */
static void test_lines_are_found_again(void **state)
{
    struct job_fixture *fixture = *state;
    struct nj_error error;
    struct built built;
    job_fixture_write(fixture,
                      "\xEF\xBB\xBF{\"id\":\"a\",\"prompt\":\"x\"}\r\n\n{\"prompt\":\"y\"}\n{\"prompt\":\n[]\n");
    build(fixture, 64, &built);
    static const char *const wanted[] = {"{\"id\":\"a\",\"prompt\":\"x\"}", "{\"prompt\":\"y\"}", "{\"prompt\":", "[]"};
    static const char *const ids[] = {"a", "in.jsonl:3", "in.jsonl:4", "in.jsonl:5"};
    assert_int_equal(index_count(built.index), 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct nj_index_entry *entry = index_at(built.index, i);
        struct nj_line line;
        struct nj_examined examined;
        assert_int_equal(examine_read_again(&built.examiner, entry, &line, &error), 0);
        assert_int_equal(line.length, strlen(wanted[i]));
        assert_memory_equal(line.text, wanted[i], line.length);
        assert_int_equal(examine_line(&built.examiner, &line, &examined, &error), 0);
        assert_int_equal(examined.digest.low, entry->digest);
        assert_int_equal(examined.ok, i < 2);
        char *id = examine_entry_id(&built.examiner, built.index, entry, &examined.request);
        assert_string_equal(id, ids[i]);
        free(id);
        examined_free(&examined);
    }
    free_built(&built);
}

static struct nj_digest digest_of_line(struct job_fixture *fixture, const char *text)
{
    struct nj_error error;
    struct built built;
    struct nj_line line = {.text = text, .length = strlen(text), .number = 1};
    struct nj_examined examined;
    job_fixture_write(fixture, "\n");
    build(fixture, 64, &built);
    assert_int_equal(examine_line(&built.examiner, &line, &examined, &error), 0);
    assert_true(examined.ok);
    struct nj_digest digest = examined.digest;
    examined_free(&examined);
    free_built(&built);
    return digest;
}

/* The digest depends on tokens and parameters, not on id, max_tokens, ignored fields or how the JSON is written. */
static void test_request_digest(void **state)
{
    static const char *const same[] = {"{\"id\":\"b\",\"prompt\":\"river\"}", "{ \"prompt\" : \"r\\u0069ver\" }",
                                       "{\"prompt\":\"river\",\"max_tokens\":9}",
                                       "{\"prompt\":\"river\",\"model\":\"x\"}",
                                       "{\"prompt\":\"river\",\"temperature\":0.0,\"seed\":0,\"top_p\":1,\"stop\":[]}"};
    static const char *const other[] = {"{\"prompt\":\"river \"}",
                                        "{\"prompt\":\"river\",\"temperature\":0.5}",
                                        "{\"prompt\":\"river\",\"seed\":1}",
                                        "{\"prompt\":\"river\",\"top_p\":0.5}",
                                        "{\"prompt\":\"river\",\"top_k\":5}",
                                        "{\"prompt\":\"river\",\"min_p\":0.1}",
                                        "{\"prompt\":\"river\",\"stop\":\"a\"}",
                                        "{\"custom_id\":\"a\",\"body\":{\"prompt\":\"river\"}}"};
    struct job_fixture *fixture = *state;
    struct nj_digest digest = digest_of_line(fixture, "{\"id\":\"a\",\"prompt\":\"river\"}");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        assert_true(digest_equal(digest_of_line(fixture, same[i]), digest));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(digest_equal(digest_of_line(fixture, other[i]), digest));
    assert_false(digest_equal(digest_of_line(fixture, "{\"prompt\":\"a\",\"stop\":[\"b\",\"c\"]}"),
                              digest_of_line(fixture, "{\"prompt\":\"a\",\"stop\":\"bc\"}")));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, job_fixture_set_up, job_fixture_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_collisions), TEST(test_lines_are_found_again),
                                       TEST(test_request_digest)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
