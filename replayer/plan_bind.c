/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: binding from end to end, and what can be asked of a plan. */
#include "replayer/device_session.h"
#include "replayer/source_ranges.h"

static lp_status bind_rows(lp_plan *plan, const lp_scope *scope, const lp_destination_memory *dest, int64_t ndest,
                           const lp_bind_options *options, lp_error *err)
{
    LP_TRY(lp_replay_rows(plan->trace, scope, &plan->scope_index, &plan->rows, err));
    if (options->experts != NULL) {
        plan->expert_map = lp_arena_copy(&plan->arena, options->experts->logical,
                                         (size_t)options->experts->count * sizeof *plan->expert_map);
        if (plan->expert_map == NULL)
            return lp_fail_memory(err);
    }
    LP_TRY(lp_plan_places(plan, dest, ndest, err));
    LP_TRY(lp_plan_steps(plan, options->experts, err));
    LP_TRY(lp_plan_jobs(plan, err));
    lp_plan_group_bytes(plan);
    return LP_OK;
}

/* What a kernel layout is good for depends on the device: a trace for another one is as stale as one for another model.
 */
static lp_status check_target(const lp_trace *trace, const char *target, lp_error *err)
{
    const char *recorded = lp_trace_header_of(trace)->target;
    if (target == NULL || recorded[0] == '\0' || strcmp(target, recorded) == 0)
        return LP_OK;
    lp_fail(err, LP_E_STALE, "stale trace: it was recorded for target '%s', this is '%s'", recorded, target);
    lp_hint(err, "record again with --target %s", target);
    return LP_E_STALE;
}

lp_status lp_bind_with(lp_plan **out, const lp_trace *trace, const lp_scope *scope, const lp_destination_memory *dest,
                       int64_t ndest, const lp_bind_options *options, const lp_device_calls *calls, lp_error *err)
{
    const lp_bind_options none = {0};
    const lp_bind_options *with = options == NULL ? &none : options;
    const lp_platform platform = lp_platform_resolve(with->platform);
    if (with->staging < 0 || ndest < 0 || (ndest > 0 && dest == NULL) ||
        (with->experts != NULL && (with->experts->count < 1 || with->experts->logical == NULL)))
        return lp_fail(err, LP_E_ARGUMENT, "an argument of bind is out of its range");
    LP_TRY(check_target(trace, with->target, err));
    lp_plan *plan = lp_allocate_zero(platform.alloc, sizeof *plan);
    if (plan == NULL)
        return lp_fail_memory(err);
    plan->platform = platform;
    lp_arena_init(&plan->arena, platform.alloc);
    plan->trace = trace;
    plan->catalogue = lp_trace_checkpoint(trace);
    plan->staging = with->staging;
    plan->epoch = with->experts == NULL ? 0 : with->experts->epoch;
    plan->epoch_now = with->experts_epoch_now;
    lp_status status = lp_pool_new(&plan->pool, with->threads, platform.alloc, err);
    if (status == LP_OK)
        status = bind_rows(plan, scope, dest, ndest, with, err);
    if (status == LP_OK)
        status = lp_device_bind(plan, with, calls, err);
    if (status != LP_OK) {
        lp_plan_close(plan);
        return status;
    }
    *out = plan;
    return LP_OK;
}

lp_status lp_bind(lp_plan **out, const lp_trace *trace, const lp_scope *scope, const lp_destination_memory *dest,
                  int64_t ndest, const lp_bind_options *options, lp_error *err)
{
    return lp_bind_with(out, trace, scope, dest, ndest, options, NULL, err);
}

void lp_plan_close(lp_plan *plan)
{
    if (plan == NULL)
        return;
    const lp_alloc *alloc = plan->platform.alloc;
    lp_device_unbind(plan);
    for (int64_t i = 0; i < plan->owned_count; i++)
        lp_map_free(plan->owned[i], alloc);
    lp_release(alloc, (void *)plan->owned);
    lp_release(alloc, plan->step);
    lp_release(alloc, plan->fill);
    lp_pool_free(plan->pool);
    lp_arena_free(&plan->arena);
    lp_release(alloc, plan);
}

void lp_plan_start_over(lp_plan *plan)
{
    plan->is_all_dirty = true; /* whatever was left half done before is gone */
    for (uint32_t e = 0; e < plan->entry_count; e++)
        plan->entry[e].is_dirty = false;
    if (plan->epoch_now != NULL)
        *plan->epoch_now = plan->epoch;
}

lp_handle lp_plan_handle(const lp_plan *plan, const char *name)
{
    const int64_t index = lp_checkpoint_find(plan->catalogue, name);
    return index < 0 ? LP_NONE : (lp_handle)index;
}

const char *lp_plan_name(const lp_plan *plan, lp_handle handle)
{
    return handle < lp_checkpoint_count(plan->catalogue) ? lp_checkpoint_at(plan->catalogue, handle)->name : NULL;
}

lp_name_use lp_plan_use(const lp_plan *plan, lp_handle handle)
{
    if (handle >= lp_checkpoint_count(plan->catalogue) || plan->entry_of[handle] == LP_NONE)
        return LP_USE_NONE;
    return (lp_name_use)plan->entry[plan->entry_of[handle]].use;
}

const lp_rows *lp_plan_rows(const lp_plan *plan)
{
    return plan->rows;
}

int64_t lp_plan_epoch(const lp_plan *plan)
{
    return plan->epoch;
}

void *lp_plan_address(const lp_plan *plan, uint32_t dest)
{
    return dest < plan->rows->ndest ? plan->address[dest] : NULL;
}

lp_status lp_plan_entry_ranges(const lp_plan *plan, const lp_entry *entry, lp_ranges *ranges, lp_error *err)
{
    for (uint32_t i = 0; i < entry->step_count; i++) {
        const lp_step *step = &plan->step[entry->first_step + i];
        if (step->kind == LP_KIND_FILL)
            continue;
        const lp_status status = lp_ranges_add_map(ranges, step->map, step->src_off, err);
        if (status == LP_E_LIMIT) {
            const char *name = lp_checkpoint_at(plan->catalogue, entry->name)->name;
            return lp_fail_at(err, LP_E_LIMIT, name, -1, "more than %d ranges of '%s' are read", LP_RANGES_MAX, name);
        }
        if (status != LP_OK)
            return status;
    }
    lp_ranges_normalise(ranges);
    return LP_OK;
}

lp_status lp_plan_reads(const lp_plan *plan, lp_handle handle, int (*range)(void *context, int64_t lo, int64_t hi),
                        void *context, lp_error *err)
{
    if (handle >= lp_checkpoint_count(plan->catalogue))
        return lp_fail(err, LP_E_UNKNOWN_NAME, "there is no name with the handle %u", handle);
    if (plan->entry_of[handle] == LP_NONE)
        return LP_OK;
    lp_ranges ranges;
    lp_ranges_init(&ranges, plan->platform.alloc);
    const lp_status status = lp_plan_entry_ranges(plan, &plan->entry[plan->entry_of[handle]], &ranges, err);
    for (int64_t i = 0; status == LP_OK && i < ranges.count; i++)
        if (range(context, ranges.item[i].lo, ranges.item[i].hi) != 0)
            break;
    lp_ranges_free(&ranges);
    return status;
}
