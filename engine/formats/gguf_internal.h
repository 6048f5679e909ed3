/* What the files of the GGUF reader share; nobody else includes it. */
#ifndef NJ_ENGINE_FORMATS_GGUF_INTERNAL_H
#define NJ_ENGINE_FORMATS_GGUF_INTERNAL_H

#include "engine/formats/gguf.h"
#include "engine/formats/gguf_memory.h"

/* Numbers are the format's own. */
enum nj_gguf_value_type {
    NJ_GGUF_UINT8,
    NJ_GGUF_INT8,
    NJ_GGUF_UINT16,
    NJ_GGUF_INT16,
    NJ_GGUF_UINT32,
    NJ_GGUF_INT32,
    NJ_GGUF_FLOAT32,
    NJ_GGUF_BOOL,
    NJ_GGUF_STRING,
    NJ_GGUF_ARRAY,
    NJ_GGUF_UINT64,
    NJ_GGUF_INT64,
    NJ_GGUF_FLOAT64,
    NJ_GGUF_VALUE_TYPES
};

enum nj_gguf_value_class { NJ_GGUF_UNSIGNED, NJ_GGUF_SIGNED, NJ_GGUF_REAL, NJ_GGUF_TRUTH, NJ_GGUF_TEXT, NJ_GGUF_LIST };

struct nj_gguf_value_info {
    const char *name;
    enum nj_gguf_value_class class;
    uint32_t bytes; /* in the file; for a string its length field, for an array its type and count */
};

/* `type` is below NJ_GGUF_VALUE_TYPES. */
const struct nj_gguf_value_info *gguf_value_info(uint32_t type);

struct nj_gguf_entry {
    struct nj_text key;
    uint64_t position; /* of the key's record in the file */
    uint32_t type, element_type;
    union {
        uint64_t unsigned_number;
        int64_t signed_number;
        double real;
        bool truth;
        struct nj_text text;
    } value;
    /* Arrays. `texts` or `integers` by the element's class; arrays of other classes are checked, not kept. */
    uint64_t count;
    struct nj_text *texts;
    int64_t *integers;
    bool exceeds_int64; /* some element does not fit `integers` */
};

/* A name, which entry or tensor has it, and where its record begins in the file. */
struct nj_gguf_name {
    struct nj_text name;
    size_t index;
    uint64_t position;
};

struct nj_gguf {
    int fd;
    char *path;
    uint64_t file_bytes;
    uint64_t alignment;
    struct nj_gguf_memory memory; /* everything below lives here */
    struct nj_gguf_entry *entries;
    size_t entry_count;
    struct nj_gguf_name *entry_names; /* sorted, as are the tensors' */
    struct nj_gguf_tensor *tensors;
    size_t tensor_count;
    struct nj_gguf_name *tensor_names;
    /* Of a split model: its further files, each with its own directory; the first one's tensors are those of all. */
    struct nj_gguf **further;
    size_t further_count;
};

/* One file by itself, whether or not it belongs to a split model. */
struct nj_gguf *gguf_open_file(const char *path, struct nj_error *error);
/* Opens the further files that the metadata asks for and adds their tensors. */
int gguf_join_parts(struct nj_gguf *gguf, struct nj_error *error);
/* gguf_read of a tensor that is in this very file. */
int gguf_read_file(const struct nj_gguf *gguf, const struct nj_gguf_tensor *tensor, uint64_t offset, void *to,
                   size_t bytes, struct nj_error *error);

/* Sorts by name; returns the later occurrence of a name that occurs twice, or NULL. */
const struct nj_gguf_name *gguf_names_sort(struct nj_gguf_name *names, size_t count);
const struct nj_gguf_name *gguf_names_find(const struct nj_gguf_name *names, size_t count, struct nj_text name);

const struct nj_gguf_entry *gguf_find_entry(const struct nj_gguf *gguf, const char *key);

/* A buffered position in the file's metadata. All reads are little endian and checked against the end. */
struct nj_gguf_cursor {
    int fd;
    const char *path;
    uint64_t end;      /* of what may be read: the file's end or the limit on metadata */
    uint64_t position; /* of the next byte */
    char what[160];    /* what is being read, for messages: "the value of 'general.name'" */
    uint64_t chunk_position;
    size_t chunk_bytes;
    unsigned char *chunk;
    struct nj_error *error;
};

int gguf_cursor_open(struct nj_gguf_cursor *cursor, const struct nj_gguf *gguf, struct nj_error *error);
void gguf_cursor_close(struct nj_gguf_cursor *cursor);

void gguf_cursor_name(struct nj_gguf_cursor *cursor, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails with this message at byte `position` of the file; -1. */
int gguf_cursor_fail(struct nj_gguf_cursor *cursor, uint64_t position, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int gguf_cursor_no_memory(struct nj_gguf_cursor *cursor);

int gguf_cursor_read(struct nj_gguf_cursor *cursor, void *to, size_t bytes);
int gguf_cursor_skip(struct nj_gguf_cursor *cursor, uint64_t bytes);
int gguf_cursor_u32(struct nj_gguf_cursor *cursor, uint32_t *out);
int gguf_cursor_u64(struct nj_gguf_cursor *cursor, uint64_t *out);
/* A string of at most `most` bytes, copied to the reader's memory. */
int gguf_cursor_text(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, uint64_t most, struct nj_text *out);
/* A string that names something: not empty, valid UTF-8 without control characters. */
int gguf_cursor_name_text(struct nj_gguf_cursor *cursor, struct nj_gguf_memory *memory, uint64_t most,
                          struct nj_text *out);
/* Fails if `count` records of at least `least_bytes` each cannot be in what follows. */
int gguf_cursor_check_count(struct nj_gguf_cursor *cursor, uint64_t count, uint64_t least_bytes);

/* The two halves of the directory; `count` is as the header says, unchecked. */
int gguf_read_entries(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, uint64_t count);
int gguf_read_tensors(struct nj_gguf *gguf, struct nj_gguf_cursor *cursor, uint64_t count);

#endif
