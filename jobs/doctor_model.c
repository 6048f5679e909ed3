/* doctor -m: what is in a model's file, whether nightjar runs it, and the memory that jobs of some sizes take. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/model_facts.h"
#include "jobs/doctor.h"
#include "jobs/values.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/job/job_plan.h"
#include "pipeline/job/memory_need.h"

enum { SEQUENCE_COUNTS = 3, LENGTHS_MOST = 3, SIZE_BYTES = 32 };

static const int32_t SEQUENCES[SEQUENCE_COUNTS] = {1, 16, 64};
static const int32_t LENGTHS[LENGTHS_MOST] = {512, 2048, 8192};

/* The lengths above as far as the context goes; a shorter context itself. Returns their number. */
static int doctor_lengths(const struct nj_hyperparameters *shape, int32_t out[LENGTHS_MOST])
{
    int count = 0;
    for (int i = 0; i < LENGTHS_MOST; i++) {
        bool is_cut = LENGTHS[i] > shape->context;
        out[count++] = is_cut ? shape->context : LENGTHS[i];
        if (is_cut)
            break;
    }
    while (count > 1 && out[count - 1] == out[count - 2])
        count--;
    return count;
}

static void doctor_print_types(const struct nj_model_facts *facts)
{
    for (size_t i = 0; i < facts->type_count; i++) {
        const struct nj_model_type_count *type = &facts->types[i];
        char size[SIZE_BYTES] = "not read by nightjar", number[SIZE_BYTES];
        if (type->is_read)
            value_format_size(type->bytes, size, sizeof size);
        snprintf(number, sizeof number, "number %" PRIu32, type->type_id);
        command_print_row(i == 0 ? "types" : "", "%-8s %5" PRIu64 " tensors  %s",
                          type->name != NULL ? type->name : number, type->tensors, size);
    }
}

static void doctor_print_shape(const struct nj_model_facts *facts)
{
    const struct nj_hyperparameters *shape = &facts->shape;
    command_print_row("layers", "%" PRId32 ", width %" PRId32 ", feed-forward %" PRId32, shape->layers, shape->width,
                      shape->feed_forward);
    command_print_row("heads", "%" PRId32 ", %" PRId32 " for keys and values, %" PRId32 " wide", shape->heads,
                      shape->kv_heads, shape->head_width);
    command_print_row("context", "%" PRId32 " tokens, vocabulary of %" PRId32 "%s", shape->context, shape->vocabulary,
                      shape->tied_embeddings ? " (head tied to the embedding)" : "");
}

static void doctor_print_memory(const struct nj_model_facts *facts, enum nj_kv_type kv_type)
{
    char size[SIZE_BYTES], cells[SEQUENCE_COUNTS][SIZE_BYTES];
    int32_t lengths[LENGTHS_MOST];
    int count = doctor_lengths(&facts->shape, lengths);
    struct nj_sequences_memory memory = {0};
    value_format_size(facts->tensor_bytes, size, sizeof size);
    command_print_row("memory", "weights %s; keys and values (%s) of sequences of so many tokens:", size,
                      kv_type_name(kv_type));
    command_print_row("", "%12s %14s %14s %14s", "", "1 sequence", "16 sequences", "64 sequences");
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < SEQUENCE_COUNTS; j++) {
            memory = memory_of_sequences(&facts->shape, kv_type, NJ_DEFAULT_TOKEN_BUDGET, SEQUENCES[j], lengths[i]);
            value_format_size(memory.kv_bytes, cells[j], SIZE_BYTES);
        }
        command_print_row("", "%5" PRId32 " tokens %14s %14s %14s", lengths[i], cells[0], cells[1], cells[2]);
    }
    value_format_size(memory.other_bytes, size, sizeof size);
    command_print_row("", "activations and the rest, at a token budget of %d: up to %s", NJ_DEFAULT_TOKEN_BUDGET, size);
}

static const char *doctor_template_state(const struct nj_model_facts *facts)
{
    if (!facts->has_template)
        return "none";
    return facts->template_problem.code == NJ_OK ? "yes" : "refused";
}

static void doctor_print_tokenizer(const struct nj_model_facts *facts)
{
    command_print_row("tokenizer", "%.*s, pre-tokenizer %.*s", (int)facts->tokenizer.length, facts->tokenizer.bytes,
                      facts->pretokenizer.length > 0 ? (int)facts->pretokenizer.length : 4,
                      facts->pretokenizer.length > 0 ? facts->pretokenizer.bytes : "none");
    if (facts->template_problem.code != NJ_OK)
        command_print_row("template", "refused, chat requests fail (raw prompts work): %s",
                          facts->template_problem.message);
    else
        command_print_row("template", "%s", facts->has_template ? "yes" : "none: raw prompts only, chat requests fail");
}

static void doctor_print(const struct nj_model_facts *facts, enum nj_kv_type kv_type)
{
    char size[SIZE_BYTES];
    value_format_size(facts->tensor_bytes, size, sizeof size);
    command_print_row("model", "%s", gguf_path(facts->gguf));
    if (facts->name.length > 0)
        command_print_row("name", "%.*s", (int)facts->name.length, facts->name.bytes);
    command_print_row("format", "GGUF, %" PRIu64 " tensors, %s%s", facts->tensors, size,
                      facts->problem_count > 0 ? " in types that nightjar reads" : "");
    doctor_print_types(facts);
    command_print_row("family", "%.*s", (int)facts->architecture.length, facts->architecture.bytes);
    doctor_print_shape(facts);
    doctor_print_tokenizer(facts);
    if (facts->is_shape_known)
        doctor_print_memory(facts, kv_type);
    command_print_row("runs", "%s", facts->problem_count == 0 ? "yes" : "no:");
    for (size_t i = 0; i < facts->problem_count; i++)
        command_print_row("", "%s: %s", facts->problems[i].about, facts->problems[i].why.message);
}

/* Text from the file need not be UTF-8. */
static json_t *doctor_json_text(struct nj_text text)
{
    char *valid = text.length > 0 ? utf8_escape_invalid(text.bytes, text.length) : NULL;
    json_t *json = valid != NULL ? json_string(valid) : json_null();
    free(valid);
    return json;
}

static json_t *doctor_json_shape(const struct nj_hyperparameters *shape)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "layers", shape->layers, "width", shape->width,
                     "feed_forward", shape->feed_forward, "heads", shape->heads, "kv_heads", shape->kv_heads,
                     "head_width", shape->head_width, "vocabulary", shape->vocabulary, "context", shape->context,
                     "tied_embeddings", (int)shape->tied_embeddings);
}

static json_t *doctor_json_types(const struct nj_model_facts *facts)
{
    json_t *types = json_array();
    for (size_t i = 0; i < facts->type_count; i++) {
        const struct nj_model_type_count *type = &facts->types[i];
        json_array_append_new(types,
                              json_pack("{s:s?, s:i, s:b, s:I, s:o}", "type", type->name, "number", (int)type->type_id,
                                        "read", (int)type->is_read, "tensors", (json_int_t)type->tensors, "bytes",
                                        type->is_read ? json_integer((json_int_t)type->bytes) : json_null()));
    }
    return types;
}

static json_t *doctor_json_problems(const struct nj_model_facts *facts)
{
    json_t *problems = json_array();
    for (size_t i = 0; i < facts->problem_count; i++)
        json_array_append_new(problems, json_pack("{s:s, s:o}", "about", facts->problems[i].about, "message",
                                                  utf8_json_message(facts->problems[i].why.message)));
    return problems;
}

static json_t *doctor_json_memory(const struct nj_model_facts *facts, enum nj_kv_type kv_type)
{
    if (!facts->is_shape_known)
        return json_null();
    int32_t lengths[LENGTHS_MOST];
    int count = doctor_lengths(&facts->shape, lengths);
    json_t *rows = json_array();
    for (int i = 0; i < count * SEQUENCE_COUNTS; i++) {
        int32_t sequences = SEQUENCES[i % SEQUENCE_COUNTS], tokens = lengths[i / SEQUENCE_COUNTS];
        struct nj_sequences_memory memory =
            memory_of_sequences(&facts->shape, kv_type, NJ_DEFAULT_TOKEN_BUDGET, sequences, tokens);
        json_array_append_new(rows,
                              json_pack("{s:i, s:i, s:I, s:I}", "sequences", sequences, "tokens", tokens, "kv_bytes",
                                        (json_int_t)memory.kv_bytes, "other_bytes", (json_int_t)memory.other_bytes));
    }
    return json_pack("{s:I, s:s, s:i, s:o}", "weights_bytes", (json_int_t)facts->tensor_bytes, "kv_type",
                     kv_type_name(kv_type), "token_budget", NJ_DEFAULT_TOKEN_BUDGET, "sequences", rows);
}

static json_t *doctor_json(const struct nj_model_facts *facts, enum nj_kv_type kv_type)
{
    struct nj_text path = {gguf_path(facts->gguf), strlen(gguf_path(facts->gguf))};
    return json_pack(
        "{s:i, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:s, s:o, s:o}", "schema", 1, "model",
        doctor_json_text(path), "runs", (int)(facts->problem_count == 0), "problems", doctor_json_problems(facts),
        "name", doctor_json_text(facts->name), "architecture", doctor_json_text(facts->architecture), "shape",
        doctor_json_shape(&facts->shape), "types", doctor_json_types(facts), "tensors", (json_int_t)facts->tensors,
        "tensor_bytes", (json_int_t)facts->tensor_bytes, "tokenizer", doctor_json_text(facts->tokenizer),
        "pretokenizer", doctor_json_text(facts->pretokenizer), "checked_shape", json_boolean(facts->is_shape_known),
        "chat_template", doctor_template_state(facts), "chat_template_problem",
        facts->template_problem.code == NJ_OK ? json_null() : utf8_json_message(facts->template_problem.message),
        "memory", doctor_json_memory(facts, kv_type));
}

int doctor_model(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    enum nj_kv_type kv_type;
    if (plan_find_kv_type(arguments->kv_type, &kv_type, &error) != 0)
        return console_report(&context->console, &error);
    struct nj_model_facts *facts = model_facts_read(arguments->model, &error);
    if (facts == NULL)
        return console_report(&context->console, &error);
    int code = facts->problem_count == 0 ? NJ_OK : NJ_BAD_DATA;
    if (!arguments->json)
        doctor_print(facts, kv_type);
    else if (command_print_json(doctor_json(facts, kv_type), &error) != 0)
        code = console_report(&context->console, &error);
    model_facts_free(facts);
    int output = command_finish_output(context);
    return output != NJ_OK ? output : code;
}
