/* The fields of a request and what each may hold. */
#ifndef NJ_PIPELINE_REQUEST_REQUEST_FIELDS_H
#define NJ_PIPELINE_REQUEST_REQUEST_FIELDS_H

#include "pipeline/request/request.h"

/* Where a field may stand. */
enum { NJ_IN_PLAIN = 1, NJ_IN_COMPLETION = 2, NJ_IN_CHAT = 4, NJ_IN_BODY = 6, NJ_IN_ANY = 7 };

enum { NJ_COMPLETION_LOGPROBS_MOST = 5 }; /* as OpenAI has it */

/* Reads one field that is not null into the request; unknown ones are refused. */
int request_field_read(struct nj_request *request, const char *name, json_t *value, int where,
                       struct nj_problem *problem);

/* "a string", "an array", ... for messages. */
const char *request_type_name(const json_t *value);

#endif
