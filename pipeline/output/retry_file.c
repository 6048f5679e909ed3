#include "pipeline/output/retry_file.h"

#include <assert.h>
#include <string.h>

#include "pipeline/base/table_file.h"

static const struct nj_table_kind RETRY = {.magic = "NJRETRY",
                                           .version = NJ_RETRY_FILE_VERSION,
                                           .row_bytes = sizeof(struct nj_retry_request),
                                           .name = "list of requests to retry",
                                           .remedy = "give --retry again for those that are left"};
static_assert(sizeof(struct nj_retry_request) == 40, "the row's layout is part of the format");
static_assert(sizeof(struct nj_retry_wish) == 24, "the trailer's layout is part of the format");

/* Both are the table's under a name of their own. */
static struct nj_table_writer *table_of(struct nj_retry_writer *writer)
{
    return (struct nj_table_writer *)(void *)writer;
}

static struct nj_table_reader *rows_of(const struct nj_retry_reader *reader)
{
    return (struct nj_table_reader *)(uintptr_t)reader;
}

struct nj_retry_writer *retry_writer_create(const char *path, struct nj_digest job_digest, struct nj_error *error)
{
    return (struct nj_retry_writer *)(void *)table_writer_create(path, &RETRY, job_digest, error);
}

int retry_writer_add(struct nj_retry_writer *writer, const struct nj_retry_request *request, struct nj_error *error)
{
    return table_writer_add(table_of(writer), request, error);
}

int retry_writer_commit(struct nj_retry_writer *writer, const struct nj_retry_wish *wish, struct nj_error *error)
{
    if (table_writer_add_trailer(table_of(writer), wish, sizeof *wish, error) != 0)
        return -1;
    return table_writer_commit(table_of(writer), error);
}

void retry_writer_destroy(struct nj_retry_writer *writer)
{
    table_writer_destroy(table_of(writer));
}

struct nj_retry_reader *retry_reader_open(const char *path, struct nj_digest job_digest, struct nj_error *error)
{
    struct nj_table_reader *table = table_reader_open(path, &RETRY, &job_digest, error);
    size_t length;
    if (table == NULL)
        return NULL;
    table_reader_trailer(table, &length);
    if (length == sizeof(struct nj_retry_wish))
        return (struct nj_retry_reader *)(void *)table;
    table_reader_fail(table, "its end", error);
    table_reader_close(table);
    return NULL;
}

void retry_reader_close(struct nj_retry_reader *reader)
{
    table_reader_close(rows_of(reader));
}

int retry_reader_next(struct nj_retry_reader *reader, struct nj_retry_request *request, struct nj_error *error)
{
    return table_reader_next(rows_of(reader), request, error);
}

struct nj_retry_wish retry_reader_wish(const struct nj_retry_reader *reader)
{
    struct nj_retry_wish wish;
    size_t length;
    memcpy(&wish, table_reader_trailer(rows_of(reader), &length), sizeof wish);
    return wish;
}
