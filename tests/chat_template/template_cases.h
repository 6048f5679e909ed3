/* Reads the cases of tests/data/chat_template and renders them. Failures of the set-up end the test. */
#ifndef NJ_TESTS_CHAT_TEMPLATE_TEMPLATE_CASES_H
#define NJ_TESTS_CHAT_TEMPLATE_TEMPLATE_CASES_H

#include <jansson.h>

#include "engine/chat_template/chat_template.h"

#define BOS_TOKEN "<s>"
#define EOS_TOKEN "</s>"

/* A JSON file below tests/data; the caller releases it. */
json_t *cases_load_json(const char *name);
/* An array of the lines of a JSONL file below tests/data. */
json_t *cases_load_lines(const char *name);

/* The input a case asks for; borrows from the case and from inputs.json. */
struct nj_chat_input cases_make_input(const json_t *one, const json_t *inputs);

struct nj_chat_template *cases_compile(const json_t *one, struct nj_error *error);

/* Compiles and renders a template of a test's own over `messages` (JSON text); fails the test on an error. */
struct nj_rendered cases_render_text(const char *source, const char *messages, const char *variables);

#endif
