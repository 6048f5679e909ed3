/* What a run that is limited to the first requests shows of each: its prompt and its answer. */
#include "pipeline/job/job_state.h"
#include "pipeline/request/content_parts.h"

/* "ROLE: CONTENT" and a newline. */
static int append_message(struct nj_byte_buffer *buffer, const json_t *message, struct nj_error *error)
{
    const json_t *role = json_object_get(message, "role"), *content = json_object_get(message, "content");
    if (byte_buffer_append(buffer, json_string_value(role), json_string_length(role), error) != 0 ||
        byte_buffer_append(buffer, ": ", 2, error) != 0)
        return -1;
    if (json_is_string(content) &&
        byte_buffer_append(buffer, json_string_value(content), json_string_length(content), error) != 0)
        return -1;
    return byte_buffer_append(buffer, "\n", 1, error);
}

static int describe_messages(json_t *messages, struct nj_byte_buffer *buffer, struct nj_error *error)
{
    json_t *joined = content_parts_join(messages);
    if (joined == NULL)
        return error_set(error, NJ_INTERNAL, "out of memory");
    int status = 0;
    for (size_t i = 0; i < json_array_size(joined) && status == 0; i++)
        status = append_message(buffer, json_array_get(joined, i), error);
    json_decref(joined);
    return status;
}

static const char *finish_reason(enum nj_finish finish)
{
    return finish == NJ_FINISH_STOP ? "stop" : finish == NJ_FINISH_LENGTH ? "length" : "failed";
}

static void show_samples(const struct nj_job *job, const char *id, struct nj_text prompt,
                         const struct nj_sequence_result *samples, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const struct nj_job_answer answer = {.id = id,
                                             .prompt = prompt,
                                             .text = samples[i].text,
                                             .finish_reason = finish_reason(samples[i].finish),
                                             .prompt_tokens = samples[i].prompt_count,
                                             .new_tokens = samples[i].generated_count,
                                             .index = i,
                                             .count = count};
        job->callbacks->answered(job->callbacks->context, &answer);
    }
}

int job_show_answer(struct nj_job *job, const struct nj_index_entry *entry, const char *id,
                    const struct nj_sequence_result *samples, int32_t count, struct nj_error *error)
{
    if (job->options->first == 0 || job->callbacks == NULL || job->callbacks->answered == NULL)
        return 0;
    struct nj_line line;
    struct nj_request request;
    struct nj_problem problem;
    struct nj_byte_buffer chat = {0};
    if (examine_read_again(&job->examiner, entry, &line, error) != 0)
        return -1;
    /* The line was valid when the scheduler took it; if it has been changed since, its answer is shown alone. */
    bool is_valid = request_parse(line.text, line.length, &request, &problem) == 0;
    int status = is_valid && request.messages != NULL ? describe_messages(request.messages, &chat, error) : 0;
    const struct nj_text shown = {.bytes = chat.data, .length = chat.length};
    if (status == 0)
        show_samples(job, id, chat.length > 0 ? shown : request.prompt, samples, count);
    byte_buffer_free(&chat);
    request_free(&request);
    return status;
}
