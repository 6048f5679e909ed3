/* What several test programs do with packs. Failures are cmocka failures. */
#ifndef NJ_TESTS_MODEL_PACK_CHECK_H
#define NJ_TESTS_MODEL_PACK_CHECK_H

#include "engine/model/pack.h"

/* 32 digits that stand for a model's digest. */
#define TEST_DIGEST "00112233445566778899aabbccddeeff"

/* A model file opened for its pack. */
struct test_source {
    struct nj_gguf *gguf;
    struct nj_hyperparameters shape;
};

struct test_source test_source_open(const char *path);
void test_source_close(struct test_source *source);

struct nj_pack_options test_pack_options(const struct test_source *source, const char *directory);

/* Reads every section into memory of its own, page-aligned; freed by the caller. NULL: *error is set. */
void *test_section_read(struct nj_pack *pack, int index, struct nj_error *error);

/* The pack has every number of the model file, exactly, and zeros where there is no row. */
void test_pack_equals_source(struct nj_pack *pack, const struct test_source *source);

#endif
