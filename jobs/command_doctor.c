#include "jobs/doctor.h"

int command_doctor(struct nj_context *context, const struct nj_arguments *arguments)
{
    return doctor_model(context, arguments);
}
