/* doctor without a model: what this machine is, which kernels it runs, and what it does at best. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "jobs/doctor.h"
#include "jobs/values.h"
#include "kernels/device.h"
#include "pipeline/base/utf8_text.h"
#include "pipeline/machine/machine.h"
#include "pipeline/machine/machine_rates.h"

enum { SIZE_BYTES = 32 };

struct doctor_findings {
    struct nj_machine machine;
    struct nj_processor processor;
    const struct nj_cpu_kernels *kernels;
    int threads;
    struct nj_machine_rates rates;
    const char *cache_directory; /* NULL: there is none */
    struct nj_disk_rate disk;
};

static void doctor_print_processor(const struct doctor_findings *findings)
{
    const struct nj_machine *machine = &findings->machine;
    const struct nj_processor *processor = &findings->processor;
    char quota[64] = "no quota";
    if (machine->quota_threads > 0)
        snprintf(quota, sizeof quota, "the cgroup's quota allows %d", machine->quota_threads);
    command_print_row("processor", "%s", processor->name[0] != '\0' ? processor->name : "unknown");
    command_print_row("threads", "%d usable: %d cores with %d threads, affinity allows %d, %s", machine->threads,
                      processor->cores, processor->threads, machine->affinity_threads, quota);
    command_print_row("has", "%s", processor->instructions);
}

static void doctor_print_memory_of_machine(const struct nj_machine *machine)
{
    char physical[SIZE_BYTES], available[SIZE_BYTES], limit[SIZE_BYTES] = "none";
    value_format_size(machine->physical_bytes, physical, SIZE_BYTES);
    value_format_size(machine->memory_available_bytes, available, SIZE_BYTES);
    if (machine->cgroup_memory_bytes != UINT64_MAX)
        value_format_size(machine->cgroup_memory_bytes, limit, SIZE_BYTES);
    command_print_row("memory", "%s, limit of the cgroup %s, %s free", physical, limit, available);
}

static void doctor_print_kernels(const struct doctor_findings *findings)
{
    const struct nj_cpu_kernels *kernels;
    command_print_row("kernels", "%s, the fastest that run here", findings->kernels->name);
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++) {
        if (kernels != findings->kernels)
            command_print_row("", "%s: %s", kernels->name,
                              cpu_kernels_runnable(kernels) ? "would run too" : "cannot run here");
        if (!cpu_kernels_runnable(kernels) && kernels->needs != NULL)
            command_print_row("", "  needs %s, which this machine lacks", kernels->needs);
    }
}

static void doctor_print_rates(const struct doctor_findings *findings)
{
    const struct nj_machine_rates *rates = &findings->rates;
    const struct nj_disk_rate *disk = &findings->disk;
    if (rates->peak_mix != NULL)
        command_print_row("peak", "%.4f TOPS on %d threads (%s)", rates->peak_operations_per_second * 1e-12,
                          findings->threads, rates->peak_mix);
    if (rates->memory_bytes_per_second > 0)
        command_print_row("reads", "%.1f GB/s from memory, all threads", rates->memory_bytes_per_second * 1e-9);
    if (disk->bytes_per_second > 0)
        command_print_row("", "%.2f GB/s from the disk of %s", disk->bytes_per_second * 1e-9,
                          findings->cache_directory);
    else
        command_print_row("", "disk not measured: %s", disk->why_not);
    command_print_row("", "measured just now, beside whatever else the machine does");
}

/* A number of bytes, null where it is unknown or there is no limit. */
static json_t *doctor_json_bytes(uint64_t bytes)
{
    return bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *doctor_json_kernels(void)
{
    json_t *all = json_array();
    const struct nj_cpu_kernels *kernels;
    for (size_t i = 0; (kernels = cpu_kernels_at(i)) != NULL; i++)
        json_array_append_new(all, json_pack("{s:s, s:b, s:s?}", "name", kernels->name, "runs",
                                             cpu_kernels_runnable(kernels), "needs", kernels->needs));
    return all;
}

static json_t *doctor_json_machine(const struct doctor_findings *findings)
{
    const struct nj_machine *machine = &findings->machine;
    const struct nj_processor *processor = &findings->processor;
    json_t *quota = machine->quota_threads > 0 ? json_integer(machine->quota_threads) : json_null();
    return json_pack("{s:o, s:s, s:i, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "processor",
                     utf8_json_message(processor->name), "instructions", processor->instructions, "cores",
                     processor->cores, "hardware_threads", processor->threads, "threads", machine->threads,
                     "affinity_threads", machine->affinity_threads, "quota_threads", quota, "memory_bytes",
                     doctor_json_bytes(machine->physical_bytes), "cgroup_memory_bytes",
                     doctor_json_bytes(machine->cgroup_memory_bytes), "free_bytes",
                     doctor_json_bytes(machine->memory_available_bytes));
}

static json_t *doctor_json_rates(const struct doctor_findings *findings)
{
    const struct nj_machine_rates *rates = &findings->rates;
    const struct nj_disk_rate *disk = &findings->disk;
    const bool has_disk = disk->bytes_per_second > 0;
    return json_pack("{s:i, s:s?, s:f, s:f, s:o, s:o}", "threads", findings->threads, "peak_mix", rates->peak_mix,
                     "peak_tops", rates->peak_operations_per_second * 1e-12, "memory_bytes_per_second",
                     rates->memory_bytes_per_second, "disk_bytes_per_second",
                     has_disk ? json_real(disk->bytes_per_second) : json_null(), "disk_not_measured",
                     has_disk ? json_null() : utf8_json_message(disk->why_not));
}

static json_t *doctor_json(const struct doctor_findings *findings)
{
    return json_pack("{s:i, s:o, s:s, s:o, s:o, s:o}", "schema", 1, "machine", doctor_json_machine(findings), "kernels",
                     findings->kernels->name, "all_kernels", doctor_json_kernels(), "rates",
                     doctor_json_rates(findings), "cache_directory",
                     findings->cache_directory != NULL ? utf8_json_message(findings->cache_directory) : json_null());
}

int doctor_machine(struct nj_context *context, const struct nj_arguments *arguments)
{
    struct nj_error error = {0};
    struct doctor_findings findings = {
        .machine = machine_read(""), .processor = processor_read(""), .kernels = cpu_kernels_find(arguments->kernels)};
    findings.threads = arguments->threads > 0 ? (int)arguments->threads : findings.machine.threads;
    if (!arguments->json) {
        doctor_print_processor(&findings);
        doctor_print_memory_of_machine(&findings.machine);
        doctor_print_kernels(&findings);
        fflush(stdout); /* what follows takes seconds */
    }
    findings.rates = machine_rates_measure(findings.kernels, findings.threads);
    if (command_need_cache(context, arguments, &findings.cache_directory, &error) == 0) {
        findings.disk = disk_rate_measure(findings.cache_directory);
    } else {
        findings.cache_directory = NULL;
        snprintf(findings.disk.why_not, sizeof findings.disk.why_not, "%s", error.message);
    }
    if (!arguments->json)
        doctor_print_rates(&findings);
    else if (command_print_json(doctor_json(&findings), &error) != 0)
        return console_report(&context->console, &error);
    return command_finish_output(context);
}
