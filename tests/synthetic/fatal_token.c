/* A model in which one token makes the logits overflow. */
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#include "engine/formats/gguf.h"
#include "tests/synthetic/synthetic_model.h"

enum { FATAL_ROW = SYNTHETIC_FATAL_TOKEN + 1 };

static bool write_element(int fd, const struct nj_gguf_tensor *tensor, uint64_t row, uint64_t col, float value)
{
    const uint64_t at = tensor->offset + (row * tensor->shape[0] + col) * sizeof value;
    return pwrite(fd, &value, sizeof value, (off_t)at) == (ssize_t)sizeof value;
}

static bool clear_row(int fd, const struct nj_gguf_tensor *tensor)
{
    bool written = tensor != NULL;
    for (uint64_t col = 0; written && col < tensor->shape[0]; col++)
        written = write_element(fd, tensor, 0, col, 0.0f);
    return written;
}

/* Dimension 0 of the residual becomes a channel that is exactly 0 unless the current token is the fatal one: no
 * other token has it, no layer writes it. The head multiplies it by a number near the largest float. */
static bool patch(const struct nj_gguf *gguf, int fd)
{
    static const char *const writers[] = {"blk.0.attn_output.weight", "blk.0.ffn_down.weight",
                                          "blk.1.attn_output.weight", "blk.1.ffn_down.weight"};
    const struct nj_gguf_tensor *embedding = gguf_tensor_find(gguf, "token_embd.weight");
    const struct nj_gguf_tensor *head = gguf_tensor_find(gguf, "output.weight");
    bool written = embedding != NULL && head != NULL;
    for (uint64_t token = 0; written && token < embedding->shape[1]; token++)
        written = write_element(fd, embedding, token, 0, token == SYNTHETIC_FATAL_TOKEN ? 100.0f : 0.0f);
    for (int i = 0; written && i < 4; i++)
        written = clear_row(fd, gguf_tensor_find(gguf, writers[i]));
    return written && write_element(fd, head, FATAL_ROW, 0, 3e38f);
}

int synthetic_model_write_fatal(const char *vocabulary_directory, const char *path, struct nj_error *error)
{
    struct nj_synthetic_shape shape = synthetic_shape_small();
    shape.type = shape.embedding_type = "f32";
    shape.tied = false;
    if (synthetic_model_write(&shape, vocabulary_directory, NULL, path, error) != 0)
        return -1;
    struct nj_gguf *gguf = gguf_open(path, error);
    if (gguf == NULL)
        return -1;
    const int fd = open(path, O_WRONLY);
    const bool written = fd >= 0 && patch(gguf, fd);
    if (fd >= 0)
        close(fd);
    gguf_close(gguf);
    return written ? 0 : error_set(error, NJ_IO_FAILED, "%s could not be changed", path);
}
