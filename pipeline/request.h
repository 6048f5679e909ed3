/* One line of input as a request: plain ({"id", "prompt" | "messages", parameters}) or an OpenAI batch line
 * ({"custom_id", "method", "url", "body"}). */
#ifndef NJ_PIPELINE_REQUEST_H
#define NJ_PIPELINE_REQUEST_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/formats/gguf.h"
#include "engine/tokenizer/output_text.h"
#include "pipeline/problem.h"

enum { NJ_ID_BYTES_MOST = 512, NJ_DEFAULT_MAX_TOKENS = 512 };

/* Which records the request gets. */
enum nj_shape { NJ_SHAPE_PLAIN, NJ_SHAPE_BATCH_COMPLETION, NJ_SHAPE_BATCH_CHAT };

struct nj_request {
    enum nj_shape shape;
    const char *id; /* NULL: none given */
    size_t id_length;
    struct nj_text prompt; /* bytes NULL: messages instead */
    json_t *messages;      /* NULL: prompt instead */
    json_t *variables;     /* chat_template_kwargs, an object that is not empty; NULL: none */
    float temperature, top_p, min_p;
    int32_t top_k;
    uint64_t seed;
    int64_t max_tokens;
    struct nj_text stop[NJ_STOP_STRINGS_MOST];
    int stop_count;
    uint32_t ignored; /* bit i: the field request_ignored_name(i) was given and ignored */
    json_t *root;     /* owns all of the above */
};

enum { NJ_IGNORED_FIELDS = 4 };
const char *request_ignored_name(int bit);

/* Parses one line. 0, or -1 with the problem filled; id and shape are then set as far as they could be read.
 * Free in both cases. */
int request_parse(const char *text, size_t length, struct nj_request *request, struct nj_problem *problem);
void request_free(struct nj_request *request);

#endif
