/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions into device memory, and without any, from the command line. */
#include "replayer/device_session.h"
#include "replayer/replay_cli.h"

lp_status lp_cli_host_copy(const lp_trace *trace, const lp_scope *scope, const lp_plan *from, lp_destinations **memory,
                           lp_plan **copy, const lp_platform *platform, lp_error *err)
{
    const lp_bind_options o = {.platform = platform};
    int64_t count;
    if (*copy == NULL) {
        LP_TRY(lp_destinations_allocate(memory, trace, scope, false, platform, err));
        const lp_destination_memory *list = lp_destinations_list(*memory, &count);
        LP_TRY(lp_bind(copy, trace, scope, list, count, &o, err));
    }
    return lp_device_fetch(from, *copy, err);
}

lp_status lp_cli_enough_staging(const lp_trace *trace, int32_t rank, int64_t *staging, lp_error *err)
{
    lp_push_order *order;
    int64_t host, device;
    LP_TRY(lp_push_order_make(&order, trace, lp_trace_scope_find(trace, rank), err));
    lp_push_order_peaks(order, &host, &device);
    lp_push_order_free(order);
    return lp_mul(device, 2, staging) ? LP_OK : lp_fail(err, LP_E_LIMIT, "the staging cannot be counted");
}

/* The same in host memory, for files. */
lp_status lp_cli_copy_back(const lp_cli_job *job, int32_t rank, lp_cli_load *load, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(job->cli);
    const lp_scope *scope = lp_trace_scope_at(job->trace, lp_trace_scope_find(job->trace, rank));
    char device[32], host[32], taken[32];
    lp_cli_note(job->cli, "rank %d: %s of device staging and %s of the spill used, %s of device memory taken at bind",
                rank, lp_format_bytes(device, load->report.device_staging_peak_bytes),
                lp_format_bytes(host, load->report.staging_peak_bytes),
                lp_format_bytes(taken, lp_plan_device_bytes(load->plan)));
    if (lp_cli_text(job->cli, "output", NULL) == NULL)
        return LP_OK;
    return lp_cli_host_copy(job->trace, scope, load->plan, &load->copy_memory, &load->copy, platform, err);
}

lp_status lp_cli_push_names(lp_session *s, const lp_plan *plan, lp_error *err)
{
    const char *name;
    for (lp_handle h = 0; (name = lp_plan_name(plan, h)) != NULL; h++)
        if (lp_plan_use(plan, h) == LP_USE_LOADED)
            LP_TRY(lp_push_range(s, name, 0, NULL, plan->entry[plan->entry_of[h]].bytes, err));
    return LP_OK;
}
