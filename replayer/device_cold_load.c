/* SPDX-License-Identifier: Apache-2.0 */
/* A cold start on the device, from end to end. */
#include "replayer/device_cold_pipe.h"
#include "replayer/session.h"

static lp_status check(const lp_plan *plan, const lp_cold_options *o, lp_cold_report *report, lp_error *err)
{
    if (plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "a plan of meta tensors has nothing to load");
    if (plan->is_open)
        return lp_fail(err, LP_E_MISUSE, "the plan has an open session");
    if (o->pinned < 0 || o->slot < 0 || o->readers < 0)
        return lp_fail(err, LP_E_ARGUMENT, "an option of a cold start is out of its range");
    const char *first = NULL;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (plan->entry[e].use == LP_USE_FALLBACK && report->fallbacks++ == 0)
            first = lp_checkpoint_at(plan->catalogue, plan->entry[e].name)->name;
    if (first == NULL || o->allow_fallbacks)
        return LP_OK;
    return lp_fail_at(err, LP_E_INCOMPLETE, first, -1, "%lld name%s missing: '%s' (a fallback)%s",
                      (long long)report->fallbacks, report->fallbacks == 1 ? " is" : "s are", first,
                      report->fallbacks > 1 ? ", ..." : "");
}

static void count_written(const lp_plan *plan, lp_cold_report *report)
{
    for (int64_t i = 0; i < plan->fill_count; i++)
        report->bytes_written += plan->fill[i].map->dst_bytes;
    for (int64_t i = 0; i < plan->step_count; i++)
        if (plan->step[i].stage == LP_NONE && plan->entry[plan->entry_of[plan->step[i].name]].use == LP_USE_LOADED)
            report->bytes_written += plan->step[i].map->dst_bytes;
}

static lp_status load(const lp_cold_device *device, lp_plan *plan, const lp_checkpoint *checkpoint,
                      const lp_cold_options *o, lp_cold_batches *batches, lp_cold_files *files, lp_cold_pipe **pipe,
                      lp_cold_report *report, lp_error *err)
{
    const int64_t begin = lp_session_clock();
    LP_TRY(lp_cold_batches_make(batches, plan, checkpoint, o->slot > 0 ? o->slot : LP_COLD_SLOT, err));
    LP_TRY(lp_cold_files_open(files, &plan->platform, checkpoint, batches->file_uses, err));
    LP_TRY(lp_cold_pipe_open(pipe, device, plan, batches, o, report, err));
    report->setup_nanoseconds = lp_session_clock() - begin;
    plan->is_all_dirty = true;
    LP_TRY(lp_cold_pipe_run(*pipe, files, err));
    report->bytes_read = batches->bytes;
    LP_TRY(lp_cold_derives(device, plan, files, report, err));
    LP_TRY(lp_cold_files_unchanged(files, err));
    plan->is_all_dirty = false;
    for (int32_t i = 0; i < files->count; i++)
        report->files += files->fd[i] >= 0;
    report->bytes_straight = batches->straight_bytes;
    report->reads = batches->reads;
    report->names = batches->names;
    report->batches = batches->batches;
    count_written(plan, report);
    return LP_OK;
}

lp_status lp_cold_load(const lp_cold_device *device, lp_plan *plan, const lp_checkpoint *checkpoint,
                       const lp_cold_options *options, lp_cold_report *report, lp_error *err)
{
    const lp_cold_options none = {0}, *o = options == NULL ? &none : options;
    lp_cold_report own, *r = report == NULL ? &own : report;
    lp_cold_batches batches = {.alloc = plan->platform.alloc};
    lp_cold_files files = {.platform = NULL};
    lp_cold_pipe *pipe = NULL;
    const int64_t begin = lp_session_clock();
    *r = (lp_cold_report){0};
    LP_TRY(check(plan, o, r, err));
    plan->is_open = true;
    const lp_status status = load(device, plan, checkpoint, o, &batches, &files, &pipe, r, err);
    r->nanoseconds = lp_session_clock() - begin;
    lp_cold_pipe_close(pipe);
    lp_cold_files_close(&files);
    lp_cold_batches_free(&batches);
    plan->is_open = false;
    return status;
}
