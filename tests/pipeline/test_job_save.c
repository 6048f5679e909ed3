/* What a stop saves: a checkpoint whose sequences have not all been found yet is not replaced. */
#include <stdlib.h>

#include "engine/base/file.h"
#include "pipeline/job/job_state.h"
#include "tests/pipeline/cmocka_headers.h"
#include "tests/support/temporary_directory.h"

static const int32_t TOKENS[] = {5, 6, 7};

static void write_checkpoint(const struct nj_job *job, const char *path, int sequences)
{
    struct nj_error error;
    struct nj_checkpoint_writer writer = {0};
    assert_int_equal(checkpoint_begin(&writer, job->file.job_digest, record_log_mark(job->results),
                                      record_log_mark(job->errors), &error),
                     0);
    for (int i = 0; i < sequences; i++) {
        struct nj_checkpoint_sequence sequence = {
            .id_hash = {.low = (uint64_t)i}, .generated = TOKENS, .generated_count = 3};
        assert_int_equal(checkpoint_add(&writer, &sequence, &error), 0);
    }
    assert_int_equal(checkpoint_write(&writer, path, &error), 0);
    checkpoint_writer_free(&writer);
}

static size_t sequences_in(const struct nj_job *job, const char *path)
{
    struct nj_error error;
    struct nj_checkpoint checkpoint;
    assert_int_equal(checkpoint_read(path, job->file.job_digest, &checkpoint, &error), 1);
    const size_t count = checkpoint.count;
    checkpoint_free(&checkpoint);
    return count;
}

static struct nj_record_log *open_log(const struct nj_job *job, const char *name)
{
    struct nj_error error;
    struct nj_log_options options = {.directory = job->directory, .name = name};
    struct nj_record_log *log = record_log_open(&options, &error);
    assert_non_null(log);
    return log;
}

static void test_checkpoint_that_was_matched_in_part(void **state)
{
    (void)state;
    struct nj_error error;
    struct nj_job job = {.directory = temporary_directory_create(), .file.job_digest = {.low = 1}};
    char *path = temporary_path(job.directory, "inflight.ckpt");
    job.results = open_log(&job, "results");
    job.errors = open_log(&job, "errors");
    write_checkpoint(&job, path, 2);
    assert_int_equal(checkpoint_read(path, job.file.job_digest, &job.checkpoint, &error), 1);
    struct nj_resumption first = {.sequence = &job.checkpoint.sequences[0]};
    job.resumptions = &first;
    job.resumption_count = 1;
    assert_int_equal(record_log_append(job.errors, "{\"id\":\"a\"}", &error), 0);
    assert_int_equal(job_save_all(&job, &error), 0);
    assert_int_equal(sequences_in(&job, path), 2);
    assert_true(record_log_is_synced(job.errors)); /* the records are saved whatever happened */

    job.is_checkpoint_matched = true;
    assert_int_equal(job_save_all(&job, &error), 0);
    assert_int_equal(sequences_in(&job, path), 1);
    record_log_close(job.results);
    record_log_close(job.errors);
    checkpoint_free(&job.checkpoint);
    free(path);
    temporary_directory_remove(job.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_checkpoint_that_was_matched_in_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
