/* SPDX-License-Identifier: Apache-2.0 */
/* Whole tensors in one call. All of them are judged before the first is written; where all lie in device memory, room
 * for those that must wait is taken for all or for none. */
#include "replayer/device_session_push.h"

/* Judges all; *all_on_device says whether none has to be copied from the host. */
static lp_status judge_all(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                           bool *all_on_device, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const int64_t names = lp_checkpoint_count(plan->catalogue);
    bool is_captured = false;
    LP_TRY(lp_push_ask_capture(s, &is_captured, err));
    *all_on_device = true;
    s->stamp++;
    for (int64_t i = 0; i < count; i++) {
        lp_device_push p = {.entry = LP_NONE, .data = data[i]};
        if (handle[i] < names) {
            const uint32_t e = plan->entry_of[handle[i]];
            p.bytes = e != LP_NONE ? plan->entry[e].bytes : lp_checkpoint_at(plan->catalogue, handle[i])->bytes;
        }
        LP_TRY(lp_session_judge(s, handle[i], 0, data[i], p.bytes, &p.entry, err));
        if (p.entry == LP_NONE)
            continue;
        if (s->entry_stamp[p.entry] == s->stamp) {
            const char *name = lp_checkpoint_at(plan->catalogue, handle[i])->name;
            return lp_fail_at(err, LP_E_DUPLICATE, name, 0, "'%s' is pushed twice in one call", name);
        }
        s->entry_stamp[p.entry] = s->stamp;
        LP_TRY(lp_push_locate(s, data[i], LP_SOURCE_ASK, &p.on_device, err));
        *all_on_device = *all_on_device && (p.on_device || p.bytes == 0);
        if (is_captured)
            LP_TRY(lp_push_check_capture(s, &p, is_captured, err));
    }
    return LP_OK;
}

/* unit_guess: what each unit would wait for after the call, for units whose unit_stamp is that of the call. */
static void guess_units(lp_session *s, const lp_handle *handle, int64_t count)
{
    lp_device_session *d = s->on;
    const lp_device_side *side = d->side;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t entry = s->plan->entry_of[handle[i]];
        if (entry == LP_NONE)
            continue;
        for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
            const uint32_t u = side->entry_unit[k];
            if (d->unit_stamp[u] != s->stamp)
                d->unit_guess[u] = d->unit_left[u];
            d->unit_stamp[u] = s->stamp;
            d->unit_guess[u]--;
        }
    }
}

static bool is_committed_by_call(const lp_session *s, uint32_t entry)
{
    const lp_device_session *d = s->on;
    for (uint32_t k = d->side->entry_first_unit[entry]; k < d->side->entry_first_unit[entry + 1]; k++)
        if (d->unit_guess[d->side->entry_unit[k]] > 0)
            return false;
    return true;
}

/* All in device memory: room for those that must wait is taken before the first is written, or for none of them. */
static lp_status push_straight(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                               lp_error *err)
{
    const bool is_layered = s->mode == LP_LAYERWISE;
    lp_status status = LP_OK;
    int64_t taken = 0;
    if (is_layered)
        guess_units(s, handle, count);
    for (; taken < count; taken++) {
        const uint32_t entry = s->plan->entry_of[handle[taken]];
        if (entry == LP_NONE)
            continue;
        const lp_device_push p = {
            .entry = entry, .bytes = s->plan->entry[entry].bytes, .data = data[taken], .on_device = true};
        status = lp_session_reserve_track(s, entry, 0, p.bytes, err);
        if (status == LP_OK && is_layered)
            status = lp_push_reserve(s, &p, is_committed_by_call(s, entry), err);
        if (status != LP_OK)
            break;
    }
    for (int64_t i = 0; status != LP_OK && i < taken; i++)
        if (s->plan->entry_of[handle[i]] != LP_NONE)
            lp_device_drop_slot(s, s->plan->entry_of[handle[i]]);
    LP_TRY(status);
    for (int64_t i = 0; i < count && status == LP_OK; i++) {
        const uint32_t entry = s->plan->entry_of[handle[i]];
        if (entry == LP_NONE) {
            s->report.names_ignored++;
            continue;
        }
        const lp_device_push p = {
            .entry = entry, .bytes = s->plan->entry[entry].bytes, .data = data[i], .on_device = true};
        status = lp_push_put(s, &p, is_layered && is_committed_by_call(s, entry), err);
    }
    if (status == LP_OK)
        status = lp_device_flush(s, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}

static lp_status push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                           lp_error *err)
{
    bool all_on_device;
    LP_TRY(judge_all(s, handle, data, count, &all_on_device, err));
    if (all_on_device)
        return push_straight(s, handle, data, count, err);
    lp_status status = LP_OK;
    for (int64_t i = 0; i < count && status == LP_OK; i++)
        status = lp_push_one(s, handle[i], NULL, 0, data[i], lp_checkpoint_at(s->plan->catalogue, handle[i])->bytes,
                             LP_SOURCE_ASK, s->mode == LP_LAYERWISE, err);
    return lp_push_flush_after(s, status, err);
}

lp_status lp_device_push_many(lp_session *s, const lp_handle *handle, const void *const *data, int64_t count,
                              lp_error *err)
{
    int before;
    LP_TRY(lp_push_enter(s, &before, err));
    const lp_status status = push_many(s, handle, data, count, err);
    lp_push_leave(s, before);
    return status;
}
