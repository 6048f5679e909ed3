#include "tests/tokenizer/tokenizer_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/support/gguf_writer.h"
#include "tests/support/temporary_directory.h"

#define KEY(name) "tokenizer.ggml." name

struct tokenizer_file tokenizer_file_empty(void)
{
    return (struct tokenizer_file){
        .model = "gpt2", .pre = "smollm", .bos = -1, .eos = -1, .eot = -1, .eom = -1, .adds_bos = -1, .adds_space = -1};
}

static void add_id(struct nj_gguf_writer *writer, const char *key, int64_t id)
{
    if (id >= 0)
        gguf_writer_add_u32(writer, key, (uint32_t)id);
}

static void add_entries(struct nj_gguf_writer *writer, const struct tokenizer_file *file)
{
    if (file->model != NULL)
        gguf_writer_add_text(writer, KEY("model"), file->model);
    if (file->pre != NULL)
        gguf_writer_add_text(writer, KEY("pre"), file->pre);
    if (file->tokens != NULL)
        gguf_writer_add_texts(writer, KEY("tokens"), file->tokens, file->token_count);
    if (file->types != NULL)
        gguf_writer_add_integers(writer, KEY("token_type"), file->types, file->type_count);
    if (file->merges != NULL)
        gguf_writer_add_texts(writer, KEY("merges"), file->merges, file->merge_count);
    add_id(writer, KEY("bos_token_id"), file->bos);
    add_id(writer, KEY("eos_token_id"), file->eos);
    add_id(writer, KEY("eot_token_id"), file->eot);
    add_id(writer, KEY("eom_token_id"), file->eom);
    if (file->adds_bos >= 0)
        gguf_writer_add_bool(writer, KEY("add_bos_token"), file->adds_bos != 0);
    if (file->adds_space >= 0)
        gguf_writer_add_bool(writer, KEY("add_space_prefix"), file->adds_space != 0);
}

struct nj_tokenizer *tokenizer_file_open(const struct tokenizer_file *file, struct nj_error *error)
{
    struct nj_gguf_writer writer;
    struct nj_bytes bytes = {0};
    gguf_writer_start(&writer);
    add_entries(&writer, file);
    gguf_writer_finish(&writer, &bytes);
    gguf_writer_free(&writer);

    char *directory = temporary_directory_create();
    char *path = temporary_path(directory, "tokenizer.gguf");
    temporary_write_file(path, bytes.data, bytes.count);
    bytes_free(&bytes);
    struct nj_gguf *gguf = gguf_open(path, error);
    struct nj_tokenizer *tokenizer = gguf != NULL ? tokenizer_create(gguf, error) : NULL;
    gguf_close(gguf);
    free(path);
    temporary_directory_remove(directory);
    return tokenizer;
}

struct nj_tokenizer *tokenizer_from_gguf(const char *path)
{
    struct nj_error error = {0};
    struct nj_gguf *gguf = gguf_open(path, &error);
    if (gguf == NULL)
        fail_msg("%s", error.message);
    struct nj_tokenizer *tokenizer = tokenizer_create(gguf, &error);
    if (tokenizer == NULL)
        fail_msg("%s", error.message);
    gguf_close(gguf);
    return tokenizer;
}

void byte_tokens_fill(char token[256][3])
{
    int hidden = 0;
    for (int byte = 0; byte < 256; byte++) {
        bool is_printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int point = is_printable ? byte : 256 + hidden++;
        char two[3] = {(char)(0xC0 | point >> 6), (char)(0x80 | (point & 0x3F)), 0};
        char one[3] = {(char)point, 0, 0};
        for (int i = 0; i < 3; i++)
            token[byte][i] = point < 128 ? one[i] : two[i];
    }
}
