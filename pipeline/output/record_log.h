/* An append-only file of JSON lines: results.jsonl, errors.jsonl, runs.jsonl.
 *
 * Each line ends in ,"crc32":"XXXXXXXX"} : the CRC-32 of the line before that. Lines are committed in groups:
 * record_log_flush hands them to the system (they survive a kill), record_log_sync makes them durable (they
 * survive a power cut). A mark says how much was durable and what its CRC-32 was; the checkpoint stores it.
 *
 * Opening checks every line. What is invalid behind the mark is a torn tail: it is copied to NAME.torn.N and cut
 * off. What is invalid before it is damage: the file stays as it is, good lines are kept. Both are reported. */
#ifndef NJ_PIPELINE_OUTPUT_RECORD_LOG_H
#define NJ_PIPELINE_OUTPUT_RECORD_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/error.h"
#include "engine/model/pack.h"

struct nj_log_mark {
    uint64_t length;
    uint32_t crc;
};

/* A good line, without its newline. `offset` is where it begins. Not 0 ends the reading with -1. */
typedef int (*nj_line_visitor)(void *context, const char *line, size_t length, uint64_t offset, struct nj_error *error);

struct nj_log_options {
    const char *directory, *name;        /* the file is DIRECTORY/NAME.jsonl */
    const struct nj_log_mark *committed; /* NULL: nothing known */
    nj_line_visitor visit;               /* every good line; may be NULL */
    void *visit_context;
    nj_notice notice; /* torn tails and damage; may be NULL */
    void *notice_context;
};

struct nj_record_log;

/* Opens it for appending, creating it if it is missing. */
struct nj_record_log *record_log_open(const struct nj_log_options *options, struct nj_error *error);
void record_log_close(struct nj_record_log *log); /* writes nothing */

/* `record` is a JSON object that is not empty; kept in memory until the next flush. */
int record_log_append(struct nj_record_log *log, const char *record, struct nj_error *error);
int record_log_flush(struct nj_record_log *log, struct nj_error *error);
/* Flush and fsync. Once an fsync has failed, every later call fails: what is on the disk is then unknown. A
 * flush that failed (a full disk) may be tried again. */
int record_log_sync(struct nj_record_log *log, struct nj_error *error);
bool record_log_is_synced(const struct nj_record_log *log);
/* What was durable at the last sync; at first, what the file held when it was opened and checked. */
struct nj_log_mark record_log_mark(const struct nj_record_log *log);

/* Visits the good lines of a log that may be growing; a missing file has none. For readers without the lock. */
int record_log_scan(const char *path, nj_line_visitor visit, void *context, struct nj_error *error);

/* Whether the line's checksum is there and right. */
bool record_log_line_is_good(const char *line, size_t length);

#endif
