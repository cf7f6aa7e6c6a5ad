/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zeroes what a cold start leaves as it finds it. Clearing all memory first would take the device's memory away from
 * the first copies for as long as it takes to write it once; so a storage of which the load writes every byte, which is
 * most of them, is not cleared. That is proved by the sweep that checks traces, and where it cannot be, it is.
 */
#include "replayer/device_cold_pipe.h"
#include "traces/cover.h"

/* Of pieces: some tens of milliseconds at worst, while readers read. 18 GB of fused experts take 12,000 visits. */
enum { PROOF_VISITS = 1 << 22 };

typedef struct writers {
    const lp_plan *plan;
    lp_cover_item *item; /* of all storages, one after the other */
    int64_t *first;      /* by storage, and one more */
} writers;

/* The number of the storage that a step of the load writes to; LP_NONE: it writes to none. */
static uint32_t storage_of(const lp_plan *plan, const lp_step *step, bool is_fill)
{
    const bool is_loaded = is_fill || plan->entry[plan->entry_of[step->name]].use == LP_USE_LOADED;
    return is_loaded && step->stage == LP_NONE ? plan->storage_of[step->dest] : LP_NONE;
}

static const lp_step *step_at(const lp_plan *plan, int64_t i)
{
    return i < plan->step_count ? &plan->step[i] : &plan->fill[i - plan->step_count];
}

static lp_status list_writers(writers *w, lp_error *err)
{
    const lp_plan *plan = w->plan;
    const int64_t steps = plan->step_count + plan->fill_count;
    w->item = lp_allocate(plan->platform.alloc, ((size_t)steps + 1) * sizeof *w->item);
    w->first = lp_allocate_zero(plan->platform.alloc, ((size_t)plan->storage_count + 2) * sizeof *w->first);
    if (w->item == NULL || w->first == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < steps; i++) {
        const uint32_t s = storage_of(plan, step_at(plan, i), i >= plan->step_count);
        if (s != LP_NONE)
            w->first[s + 2]++;
    }
    for (uint32_t s = 0; s < plan->storage_count; s++)
        w->first[s + 2] += w->first[s + 1];
    for (int64_t i = 0; i < steps; i++) {
        const lp_step *step = step_at(plan, i);
        const uint32_t s = storage_of(plan, step, i >= plan->step_count);
        if (s != LP_NONE) /* first[s + 1] ends up where the next one begins */
            w->item[w->first[s + 1]++] =
                (lp_cover_item){.map = step->map,
                                .dst_off = step->dst_off + (plan->address[step->dest] - plan->storage[s].base),
                                .tag = (uint32_t)i};
    }
    return LP_OK;
}

/* Whether every byte is written; what cannot be decided is not. */
static bool is_covered(const writers *w, uint32_t s, lp_cover_memo *memo)
{
    const lp_alloc *alloc = w->plan->platform.alloc;
    const int64_t bytes = w->plan->storage[s].bytes;
    const lp_box box = {.run = bytes};
    const lp_map whole = {
        .src_elem = 1, .dst_elem = 1, .nbox = 1, .box = &box, .dst_bytes = bytes, .src_hi = bytes, .dst_hi = bytes};
    lp_cover_report r;
    lp_error none;
    if (lp_cover(&r, &whole, w->item + w->first[s], w->first[s + 1] - w->first[s], memo, alloc, &none) != LP_OK)
        return false;
    const bool is = !r.undecided && r.uncovered_bytes == 0;
    lp_cover_report_free(&r, alloc);
    return is;
}

static lp_status clear_rest(const writers *w, const lp_cold_device *d, void *lane, lp_error *err)
{
    const lp_plan *plan = w->plan;
    lp_cover_memo *memo;
    int code = 0;
    LP_TRY(lp_cover_memo_new(&memo, plan->platform.alloc, err));
    lp_cover_memo_limit(memo, PROOF_VISITS);
    for (uint32_t s = 0; s < plan->storage_count && code == 0; s++)
        if (plan->storage[s].bytes > 0 && !is_covered(w, s, memo))
            code = d->clear(d->context, lane, plan->storage[s].base, plan->storage[s].bytes);
    lp_cover_memo_free(memo);
    return lp_cold_check(d, code, "clear device memory", err);
}

lp_status lp_cold_clear(const lp_cold_device *device, const lp_plan *plan, void *lane, lp_error *err)
{
    writers w = {.plan = plan};
    lp_status status = list_writers(&w, err);
    if (status == LP_OK)
        status = clear_rest(&w, device, lane, err);
    lp_release(plan->platform.alloc, w.item);
    lp_release(plan->platform.alloc, w.first);
    return status;
}
