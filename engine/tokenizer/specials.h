/* Tokens whose text is recognised whole: control tokens and user-defined ones. */
#ifndef NJ_ENGINE_TOKENIZER_SPECIALS_H
#define NJ_ENGINE_TOKENIZER_SPECIALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/gguf.h"

struct nj_special {
    struct nj_text text; /* not empty, borrowed */
    int32_t id;
    bool is_control;
};

struct nj_specials {
    struct nj_special *item; /* in the order of their bytes, each text once */
    size_t count;
    size_t first[257]; /* items that begin with byte b are first[b] .. first[b + 1] */
};

/* Takes over `item` (from malloc), sorts it and makes the index. Of equal texts the highest id stays. */
void specials_build(struct nj_specials *specials, struct nj_special *item, size_t count);
void specials_destroy(struct nj_specials *specials);

/* The longest special token that `text` begins with, NULL if none; only control tokens if so asked. */
const struct nj_special *specials_match(const struct nj_specials *specials, const char *text, size_t length,
                                        bool only_control);

#endif
