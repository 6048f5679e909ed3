#include "jobs/doctor.h"

int command_doctor(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    if (command_need_no_operand(arguments, &error) != 0)
        return console_report(&context->console, &error);
    return arguments->model != NULL ? doctor_model(context, arguments) : doctor_machine(context, arguments);
}
