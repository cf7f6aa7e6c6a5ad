/* SPDX-License-Identifier: Apache-2.0 */
/* Replay into device memory, from the command line. */
#include "replayer/replay_cli.h"

#include <inttypes.h>
#include <stdlib.h>

#ifdef LOADPLAN_HAVE_CUDA

enum { LEAST_FOR_START = 1 << 30 }; /* of a checkpoint: ranks of less hardly fill the ring */

static int64_t bytes_of(const lp_checkpoint *checkpoint)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < lp_checkpoint_file_count(checkpoint); i++)
        if (lp_checkpoint_file_at(checkpoint, i)->size_bytes > 0)
            bytes += lp_checkpoint_file_at(checkpoint, i)->size_bytes;
    return bytes;
}

int lp_cli_device_open(lp_cli_job *job, const char *name)
{
    lp_error err;
    int64_t pinned = 0;
    if (!lp_cli_bytes(job->cli, "pinned", 0, &pinned))
        return LP_EXIT_USAGE;
    if (lp_cuda_device_open(&job->table, name, &err) != LP_OK)
        return lp_cli_fail(job->cli, &err);
    job->device = &job->table;
    if (lp_cold_ring_new(&job->ring, job->device, lp_cli_platform(job->cli), &err) != LP_OK)
        return lp_cli_fail(job->cli, &err);
    if (job->checkpoint != NULL && bytes_of(job->checkpoint) >= LEAST_FOR_START)
        lp_cold_ring_start(job->ring, &(lp_cold_options){.pinned = pinned});
    return 0;
}

void lp_cli_device_close(lp_cli_job *job)
{
    lp_cold_ring_free(job->ring);
    if (job->device != NULL)
        lp_cuda_device_close(&job->table);
    job->ring = NULL;
    job->device = NULL;
}

#else

int lp_cli_device_open(lp_cli_job *job, const char *name)
{
    lp_error err;
    (void)lp_fail(&err, LP_E_DEVICE, "cannot use device '%s': this build has only cpu", lp_cli_clean(name));
    return lp_cli_fail(job->cli, &err);
}

void lp_cli_device_close(lp_cli_job *job)
{
    (void)job;
}

#endif

enum { LEAST_FOR_LINK = 256 << 20 }; /* less moves too briefly to say anything of the link */

static int show_progress(void *context, int64_t done, int64_t total)
{
    lp_cli_progress(context, "replay: reading", done, total, true);
    return 0;
}

static void take_report(const lp_cold_report *r, lp_cli_load *load)
{
    load->reads = (lp_read_stats){.bytes_read = r->bytes_read, .ranges = r->reads, .files = r->files};
    lp_cold_report_load(r, &load->report);
    load->cold = *r;
}

static void note_times(const lp_cli_job *job, int32_t rank, const lp_cold_report *r)
{
    char straight[32], device[32];
    lp_cli_note(job->cli,
                "rank %d: set up in %.1f ms (%.1f of it planning), derives %.1f ms; %" PRId64
                " batches, %s copied without staging, %s of device memory for staging and program",
                rank, (double)r->setup_nanoseconds / 1e6, (double)r->plan_nanoseconds / 1e6,
                (double)r->derive_nanoseconds / 1e6, r->batches, lp_format_bytes(straight, r->bytes_straight),
                lp_format_bytes(device, r->device_bytes));
}

/* Digests stay with the plan, so that whoever asks it for one gets it. */
static lp_status take_digests(const lp_cold_device *d, lp_cli_load *load, lp_error *err)
{
    load->digest = calloc((size_t)load->plan->rows->ndest + 1, sizeof *load->digest);
    if (load->digest == NULL)
        return lp_fail_memory(err);
    LP_TRY(d->digests(d->context, load->plan, load->digest, err));
    load->plan->known_digest = (const uint8_t(*)[LP_VALUE_DIGEST_BYTES])load->digest;
    return LP_OK;
}

/* The same in host memory, for files. */
static lp_status copy_back(const lp_cli_job *job, const lp_scope *scope, lp_cli_load *load, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(job->cli);
    const lp_bind_options o = {.platform = platform};
    int64_t count;
    LP_TRY(lp_destinations_allocate(&load->memory, job->trace, scope, false, platform, err));
    const lp_destination_memory *list = lp_destinations_list(load->memory, &count);
    LP_TRY(lp_bind(&load->copy, job->trace, scope, list, count, &o, err));
    return lp_cold_fetch(job->device, load->plan, load->copy, err);
}

lp_status lp_cli_device_results(const lp_cli_job *job, int32_t rank, lp_cli_load *load, lp_error *err)
{
    LP_TRY(take_digests(job->device, load, err));
    if (lp_cli_text(job->cli, "output", NULL) == NULL)
        return LP_OK;
    return copy_back(job, lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, rank)), load, err);
}

int lp_cli_load_rank_on_device(const lp_cli_job *job, int32_t rank, lp_cli_load *load)
{
    lp_error err = {.code = LP_OK};
    *load = (lp_cli_load){.memory = NULL};
    const lp_platform *platform = lp_cli_platform(job->cli);
    const lp_scope *scope = lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, rank));
    int64_t pinned = 0, staging = 0, threads = 0;
    if (!lp_cli_bytes(job->cli, "pinned", 0, &pinned) || !lp_cli_bytes(job->cli, "device-staging", 0, &staging) ||
        !lp_cli_integer(job->cli, "threads", 0, 0, 256, &threads))
        return LP_EXIT_USAGE;
    const lp_bind_options bind = {.threads = 1, .platform = platform};
    const lp_cold_options o = {.ring = job->ring,
                               .pinned = pinned,
                               .staging = staging,
                               .readers = (int32_t)threads,
                               .allow_fallbacks = job->allow_fallbacks,
                               .progress = show_progress,
                               .progress_context = job->cli};
    lp_cold_report report = {0};
    lp_status status = LP_OK;
    LP_TRY_GOTO(lp_cold_memory_take(&load->on_device, job->device, job->trace, scope, platform, &err), end);
    LP_TRY_GOTO(lp_bind(&load->plan, job->trace, scope, load->on_device.list, load->on_device.count, &bind, &err), end);
    status = lp_cold_load(job->device, load->plan, job->checkpoint, &o, &report, &err);
    lp_cli_progress_end(job->cli);
    take_report(&report, load);
    if (status == LP_OK && report.bytes_needed >= LEAST_FOR_LINK) /* at once: a link that idles slows down */
        load->link = lp_cold_ring_link_rate(job->ring);
    if (status == LP_OK && !job->is_shared)
        status = lp_cli_device_results(job, rank, load, &err);
    if (status == LP_OK)
        note_times(job, rank, &report);
end:
    return status == LP_OK ? 0 : lp_cli_fail(job->cli, &err);
}
