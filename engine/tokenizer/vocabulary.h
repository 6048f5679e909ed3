/* The tokens by id, and the tables built from them and from the merges. */
#ifndef NJ_ENGINE_TOKENIZER_VOCABULARY_H
#define NJ_ENGINE_TOKENIZER_VOCABULARY_H

#include "engine/tokenizer/merges.h"
#include "engine/tokenizer/metadata.h"
#include "engine/tokenizer/specials.h"
#include "engine/tokenizer/text_table.h"

struct nj_vocabulary {
    int32_t count;
    size_t longest_bytes;
    struct nj_text *bytes; /* what a token stands for: special tokens their text, unused ones nothing */
    uint8_t *type;         /* enum nj_token_type */
    bool *ends_generation;
    char *arena; /* holds the bytes */
    struct nj_merges merges;
    struct nj_text_table whole; /* the tokens that a piece with just their bytes becomes, by their bytes */
    struct nj_specials specials;
};

/* Builds everything; NJ_BAD_DATA for merges that do not fit the tokens. takes_whole_pieces: a piece that is a
 * normal token needs no merges that lead there (see pretokenizer.h). Of equal tokens, and of equal merges, the
 * last counts, as in Hugging Face's readers. The metadata is not needed afterwards. */
int vocabulary_build(struct nj_vocabulary *vocabulary, const struct nj_tokenizer_metadata *metadata,
                     bool takes_whole_pieces, struct nj_error *error);
void vocabulary_destroy(struct nj_vocabulary *vocabulary); /* also after a failed build */

#endif
