/* Requests in flight: what their records need, and the samples that are finished before the others. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/job/job_state.h"

struct nj_flight *job_flight_of(const struct nj_job *job, uint64_t tag)
{
    for (size_t i = 0; i < job->flight_count; i++) {
        if (job->flights[i].position == tag / NJ_CHOICES_MOST)
            return &job->flights[i];
    }
    return NULL;
}

static int reserve_flight(struct nj_job *job, struct nj_error *error)
{
    if (job->flight_count < job->flight_capacity)
        return 0;
    size_t capacity = job->flight_capacity == 0 ? 64 : 2 * job->flight_capacity;
    struct nj_flight *grown = realloc(job->flights, capacity * sizeof *grown);
    if (grown == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    job->flights = grown;
    job->flight_capacity = capacity;
    return 0;
}

int job_flight_add(struct nj_job *job, uint32_t position, char *id, struct nj_error *error)
{
    const struct nj_request *request = &job->pulled.request;
    const int32_t samples = request_samples(request);
    struct nj_sequence_result *kept = samples > 1 ? calloc((size_t)samples, sizeof *kept) : NULL;
    if (id == NULL || (samples > 1 && kept == NULL) || reserve_flight(job, error) != 0) {
        free(kept);
        free(id);
        return error_set(error, NJ_INTERNAL, "out of memory");
    }
    job->flights[job->flight_count++] = (struct nj_flight){.position = position,
                                                           .id = id,
                                                           .shape = request->shape,
                                                           .logprobs = request->logprobs,
                                                           .id_hash = digest_of(id, strlen(id)),
                                                           .digest = job->pulled.digest,
                                                           .n = request->n,
                                                           .samples = samples,
                                                           .kept = kept};
    return 0;
}

/* A copy's tokens, log-probabilities and text are one piece of memory, which begins with the tokens. */
static void free_flight(struct nj_flight *flight)
{
    for (int32_t i = 0; flight->kept != NULL && i < flight->samples; i++)
        free((void *)(uintptr_t)flight->kept[i].generated);
    free(flight->kept);
    free(flight->id);
}

void job_flight_drop(struct nj_job *job, struct nj_flight *flight)
{
    free_flight(flight);
    *flight = job->flights[--job->flight_count];
}

void job_flights_free(struct nj_job *job)
{
    for (size_t i = 0; i < job->flight_count; i++)
        free_flight(&job->flights[i]);
    free(job->flights);
}

int job_flight_keep(struct nj_flight *flight, const struct nj_sequence_result *result, struct nj_error *error)
{
    const size_t count = (size_t)result->generated_count;
    const size_t token_bytes = count * sizeof *result->generated;
    const size_t logprob_bytes =
        result->logprobs == NULL ? 0 : count * (size_t)(1 + result->top_logprobs) * sizeof *result->logprobs;
    char *memory = malloc(token_bytes + logprob_bytes + result->text.length + 1);
    if (memory == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    struct nj_sequence_result *kept = &flight->kept[job_tag_sample(result->tag)];
    *kept = *result;
    kept->generated = memcpy(memory, result->generated, token_bytes);
    if (result->logprobs != NULL)
        kept->logprobs = memcpy(memory + token_bytes, result->logprobs, logprob_bytes);
    kept->text.bytes = memcpy(memory + token_bytes + logprob_bytes, result->text.bytes, result->text.length);
    flight->finished++;
    return 0;
}

bool job_flight_has_kept(const struct nj_flight *flight, uint32_t sample)
{
    return flight->kept != NULL && flight->kept[sample].generated != NULL;
}
