/* GGUF files of tests: bytes to a file to the reader. Include after <cmocka.h>. */
#ifndef NJ_TESTS_FORMATS_GGUF_FILE_H
#define NJ_TESTS_FORMATS_GGUF_FILE_H

#include "engine/formats/gguf.h"
#include "tests/support/gguf_writer.h"

/* cmocka fixtures: a temporary directory with room for the one file `gguf_file_path` names. */
int gguf_file_set_up(void **state);
int gguf_file_tear_down(void **state);
const char *gguf_file_path(void);

/* Writes the bytes and opens them. */
struct nj_gguf *gguf_file_open_bytes(const struct nj_bytes *bytes, struct nj_error *error);

/* The writer's file with all the data that its tensors need (zeros); frees the writer. */
void gguf_file_finish(struct nj_gguf_writer *writer, struct nj_bytes *out);
struct nj_gguf *gguf_file_open(struct nj_gguf_writer *writer, struct nj_error *error);

/* The file must be refused with NJ_BAD_DATA, naming the file, with `expected` in the message; `byte` -2: any
 * place. Frees what it is given. */
void gguf_file_assert_refused_bytes(struct nj_bytes *bytes, const char *expected, int64_t byte);
void gguf_file_assert_refused(struct nj_gguf_writer *writer, const char *expected);

/* A file with a few keys and the tensors "a" (F32, 64 x 3) and "b" (Q8_0, 64 x 2). */
void gguf_file_start_valid(struct nj_gguf_writer *writer);

#endif
