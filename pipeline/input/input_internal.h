/* What the files of the input share: the list (input_list.c), reading again (input.c), the one pass from begin to
 * end (input_walk.c, line_reader.c) and the spool's part in both (input_spool.c). */
#ifndef NJ_PIPELINE_INPUT_INPUT_INTERNAL_H
#define NJ_PIPELINE_INPUT_INPUT_INTERNAL_H

#include "pipeline/input/byte_source.h"
#include "pipeline/input/input.h"
#include "pipeline/input/spool.h"

enum { NJ_OPEN_FILES_MOST = 64 };

struct listed_file {
    struct nj_input_file file;
    size_t label_start; /* the label is path + label_start until it is known to be unique */
    bool missing;       /* the original; the spool may have it */
    bool from_old;      /* read from the complete spool's ... */
    size_t old_source;  /* ... source of this number */
};

struct open_file {
    size_t file;
    int fd;
};

struct nj_input {
    struct listed_file *files; /* first those that were named or found, then members of archives as they are met */
    size_t count, capacity, listed;
    bool may_lack_originals;
    bool is_read_once;                         /* no spool is needed */
    struct open_file open[NJ_OPEN_FILES_MOST]; /* a ring: the next to be closed is at `oldest` */
    size_t opened, oldest;

    struct nj_unpack_limits limits;
    const atomic_int *stop;
    struct nj_byte_source *standard_input; /* opened to see whether it is empty */
    struct nj_spool *old;                  /* the complete spool, NULL if there is none */
    struct nj_spool *writer;               /* the one being made; NULL if `old` has everything, or nothing is needed */
};

/* input_list.c */
int input_list(struct nj_input *input, const char *const *arguments, size_t count, struct nj_error *error);
/* Takes the path and the label over, also when it fails. */
int input_add_file(struct nj_input *input, const struct listed_file *file, struct nj_error *error);

/* input.c: a descriptor of a plain file. -1: error filled. */
int input_descriptor(struct nj_input *input, size_t file, struct nj_error *error);

/* input_walk.c: every file from begin to end, in order. What is not plain goes to the spool as it comes. */
struct nj_input_walk;
struct nj_input_walk *input_walk_create(struct nj_input *input, struct nj_error *error);
void input_walk_destroy(struct nj_input_walk *walk);
/* The next file: 1, 0 at the end, -1. */
int input_walk_next(struct nj_input_walk *walk, size_t *file, struct nj_error *error);
/* To its end, without reading; not where it must be copied. */
void input_walk_skip(struct nj_input_walk *walk);
/* Its next bytes; *got 0 at its end. */
int input_walk_read(struct nj_input_walk *walk, void *to, size_t most, size_t *got, struct nj_error *error);

#endif
