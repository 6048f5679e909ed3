/* make_model: writes a synthetic GGUF model; the options are the fields of struct nj_synthetic_shape. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/synthetic/synthetic_model.h"

enum option_code {
    OPTION_LAYERS = 256,
    OPTION_WIDTH,
    OPTION_HEADS,
    OPTION_KV_HEADS,
    OPTION_HEAD_WIDTH,
    OPTION_FEED_FORWARD,
    OPTION_CONTEXT,
    OPTION_TYPE,
    OPTION_EMBEDDING_TYPE,
    OPTION_TIED,
    OPTION_SEED,
    OPTION_VOCABULARY,
    OPTION_TEMPLATE,
    OPTION_ARCHITECTURE
};

static const struct option OPTIONS[] = {
    {"layers", required_argument, NULL, OPTION_LAYERS},
    {"width", required_argument, NULL, OPTION_WIDTH},
    {"heads", required_argument, NULL, OPTION_HEADS},
    {"kv-heads", required_argument, NULL, OPTION_KV_HEADS},
    {"head-width", required_argument, NULL, OPTION_HEAD_WIDTH},
    {"feed-forward", required_argument, NULL, OPTION_FEED_FORWARD},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"type", required_argument, NULL, OPTION_TYPE},
    {"embedding-type", required_argument, NULL, OPTION_EMBEDDING_TYPE},
    {"tied", no_argument, NULL, OPTION_TIED},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"vocabulary", required_argument, NULL, OPTION_VOCABULARY},
    {"template", required_argument, NULL, OPTION_TEMPLATE},
    {"architecture", required_argument, NULL, OPTION_ARCHITECTURE},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct nj_synthetic_shape shape;
    const char *vocabulary, *template;
};

static long long parse_number(const char *text, int64_t most)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*text != '\0' && *end == '\0' && value >= 0 && value <= most)
        return value;
    fprintf(stderr, "make_model: '%s' is not a number from 0 to %lld\n", text, (long long)most);
    exit(NJ_BAD_USAGE);
}

/* The field that an option of one small number sets, or NULL. */
static int *find_number(struct nj_synthetic_shape *shape, int option)
{
    switch (option) {
    case OPTION_LAYERS:
        return &shape->layers;
    case OPTION_WIDTH:
        return &shape->width;
    case OPTION_HEADS:
        return &shape->heads;
    case OPTION_KV_HEADS:
        return &shape->kv_heads;
    case OPTION_HEAD_WIDTH:
        return &shape->head_width;
    case OPTION_FEED_FORWARD:
        return &shape->feed_forward;
    case OPTION_CONTEXT:
        return &shape->context;
    default:
        return NULL;
    }
}

static int parse_option(struct arguments *arguments, int option)
{
    int *number = find_number(&arguments->shape, option);
    if (number != NULL)
        *number = (int)parse_number(optarg, 1 << 24);
    else if (option == OPTION_TYPE)
        arguments->shape.type = optarg;
    else if (option == OPTION_EMBEDDING_TYPE)
        arguments->shape.embedding_type = optarg;
    else if (option == OPTION_TIED)
        arguments->shape.tied = true;
    else if (option == OPTION_SEED)
        arguments->shape.seed = (uint64_t)parse_number(optarg, INT64_MAX);
    else if (option == OPTION_VOCABULARY)
        arguments->vocabulary = optarg;
    else if (option == OPTION_TEMPLATE)
        arguments->template = optarg;
    else if (option == OPTION_ARCHITECTURE)
        arguments->shape.architecture = optarg;
    else
        return -1;
    return 0;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.shape = synthetic_shape_small()};
    arguments.shape.tied = false;
    arguments.shape.embedding_type = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1)
        if (parse_option(&arguments, option) != 0)
            return NJ_BAD_USAGE;
    if (optind + 1 != argc || arguments.vocabulary == NULL) {
        fprintf(stderr,
                "usage: make_model --vocabulary DIR [--layers N] [--width N] [--heads N] [--kv-heads N]\n"
                "           [--head-width N] [--feed-forward N] [--context N] [--type TYPE] [--embedding-type TYPE]\n"
                "           [--tied] [--seed N] [--template FILE] [--architecture NAME] OUT.gguf\n"
                "architectures: llama qwen2\n"
                "types: q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k f16 bf16 f32\n");
        return NJ_BAD_USAGE;
    }
    struct nj_error error;
    if (synthetic_model_write(&arguments.shape, arguments.vocabulary, arguments.template, argv[optind], &error) == 0)
        return 0;
    char text[2048];
    error_format(&error, text, sizeof text);
    fprintf(stderr, "make_model: %s\n", text);
    return error.code;
}
