/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to what is loaded, through the same steps as a load. */
#include "replayer/session_patch.h"

#include "replayer/device_patch.h"
#include "replayer/device_session.h"
#include "replayer/session.h"

bool lp_patch_is_possible(const lp_plan *plan, uint32_t name)
{
    const uint32_t entry = plan->entry_of[name];
    const int bits = lp_dtype_bits(lp_checkpoint_at(plan->catalogue, name)->dtype);
    if (entry == LP_NONE)
        return true;
    if (plan->side != NULL) {
        lp_change_target target[LP_PATCH_TARGETS];
        int count;
        return lp_device_patch_targets(plan, name, target, &count);
    }
    const lp_entry *e = &plan->entry[entry];
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++) {
        const lp_step *step = &plan->step[i];
        if (step->stage != LP_NONE)
            return false;
        if (step->kind == LP_KIND_CAST && lp_dtype_bits((lp_dtype)step->src_dtype) > bits)
            return false;
    }
    return e->use == LP_USE_LOADED;
}

bool lp_patch_is_stale(const lp_plan *plan)
{
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (plan->entry[e].is_dirty)
            return true;
    return plan->is_all_dirty;
}

static lp_status find(lp_session *s, uint32_t name, uint32_t *entry, lp_error *err)
{
    LP_TRY(lp_session_usable(s, err));
    if (name >= lp_checkpoint_count(s->plan->catalogue))
        return lp_fail(err, LP_E_UNKNOWN_NAME, "there is no name with the number %u", name);
    *entry = s->plan->entry_of[name];
    return LP_OK;
}

lp_status lp_session_patch(lp_session *s, uint32_t name, int64_t off, const void *data, int64_t bytes, lp_error *err)
{
    uint32_t entry = LP_NONE;
    LP_TRY(find(s, name, &entry, err));
    const lp_checkpoint_tensor *tensor = lp_checkpoint_at(s->plan->catalogue, name);
    if (entry == LP_NONE)
        return LP_OK;
    if (off < 0 || bytes < 0 || off > tensor->bytes || bytes > tensor->bytes - off)
        return lp_fail_at(err, LP_E_MISMATCH, tensor->name, off, "a change of %lld bytes lies outside of '%s'",
                          (long long)bytes, tensor->name);
    lp_track *track = &s->track[entry];
    if (!lp_patch_is_possible(s->plan, name) || s->on != NULL || s->mode != LP_DIRECT || !track->is_expected ||
        track->is_complete)
        return lp_fail_at(err, LP_E_REFUSED, tensor->name, -1, "'%s' takes no changes", tensor->name);
    if (!track->is_seen) {
        LP_TRY(lp_session_reserve(s, entry, 0, 0, err));
        lp_session_start_writing(s);
        lp_session_first_touch(s, entry);
    }
    s->report.bytes_pushed += bytes;
    s->report.bytes_written += lp_session_move(s, entry, off, data, bytes, s->plan->pool);
    if (s->plan->entry[entry].has_cast)
        lp_session_write_casts(s, entry, off, data, bytes);
    return LP_OK;
}

lp_status lp_session_keep(lp_session *s, uint32_t name, lp_error *err)
{
    uint32_t entry = LP_NONE;
    LP_TRY(find(s, name, &entry, err));
    if (entry == LP_NONE || s->track[entry].is_complete || s->plan->entry[entry].use != LP_USE_LOADED)
        return LP_OK;
    if (!lp_patch_is_possible(s->plan, name) || s->mode != LP_DIRECT || !s->track[entry].is_expected)
        return lp_fail(err, LP_E_REFUSED, "'%s' has to come whole", lp_checkpoint_at(s->plan->catalogue, name)->name);
    if (s->on != NULL) {
        lp_device_keep(s, entry);
        return LP_OK;
    }
    LP_TRY(lp_session_reserve(s, entry, 0, 0, err));
    lp_session_start_writing(s);
    lp_session_first_touch(s, entry);
    const lp_status status = lp_session_complete(s, entry, err);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, err);
}
