/* SPDX-License-Identifier: Apache-2.0 */
/* Changes to what is loaded, through the same steps as a load. */
#include "replayer/session_patch.h"

#include "replayer/device_patch.h"
#include "replayer/device_session.h"
#include "replayer/session.h"
#include "replayer/sync_change.h"

enum { SHORT = 256 /* bytes of a change to which finding the steps' parts would be most of the work */ };

/* Where short changes of a name go. Those of one name come one behind the other, so the last one's are kept. */
struct lp_patch_places {
    uint32_t entry;
    int elem;
    int count; /* -1: through the steps */
    lp_change_target target[LP_PATCH_TARGETS];
};

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

static lp_status take_places(lp_session *s, uint32_t name, uint32_t entry, lp_error *err)
{
    const lp_plan *plan = s->plan;
    if (!lp_patch_is_possible(plan, name) || s->on != NULL || s->mode != LP_DIRECT)
        return lp_fail_at(err, LP_E_REFUSED, lp_checkpoint_at(plan->catalogue, name)->name, -1, "'%s' takes no changes",
                          lp_checkpoint_at(plan->catalogue, name)->name);
    if (s->patch == NULL)
        s->patch = lp_allocate(s->alloc, sizeof *s->patch);
    if (s->patch == NULL)
        return lp_fail_memory(err);
    s->patch->entry = entry;
    s->patch->elem = lp_change_elem(lp_checkpoint_at(plan->catalogue, name)->dtype);
    if (!lp_device_patch_targets(plan, name, s->patch->target, &s->patch->count))
        s->patch->count = -1;
    return LP_OK;
}

/* The place of byte `off`, and how many bytes from there on lie behind it; NULL: the target takes others. */
static uint8_t *place_of(const lp_change_target *t, int64_t off, int64_t *bytes)
{
    uint8_t *to = t->to;
    int64_t at = off - t->lo;
    for (uint32_t m = 0; m < t->modes && at >= 0; m++) {
        const int64_t step = at / t->src_stride[m];
        if (step >= t->extent[m])
            return NULL;
        at -= step * t->src_stride[m];
        to += step * t->dst_stride[m];
    }
    *bytes = t->run - at;
    return at < 0 || at >= t->run ? NULL : to + at;
}

/* Returns what was written. */
static int64_t place(const lp_change_target *t, int64_t off, const uint8_t *data, int64_t bytes, int64_t elem)
{
    int64_t written = 0;
    for (int64_t at = 0, part; at < bytes; at += part) {
        uint8_t *to = place_of(t, off + at, &part);
        if (to == NULL) {
            part = elem;
            continue;
        }
        part = part < bytes - at ? part : bytes - at;
        lp_change_copy(to, data + at, part);
        written += part;
    }
    return written;
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
    if (!track->is_expected || track->is_complete)
        return lp_fail_at(err, LP_E_REFUSED, tensor->name, -1, "'%s' takes no changes", tensor->name);
    if (s->patch == NULL || s->patch->entry != entry)
        LP_TRY(take_places(s, name, entry, err));
    if (!track->is_seen) {
        LP_TRY(lp_session_reserve(s, entry, 0, 0, err));
        lp_session_start_writing(s);
        lp_session_first_touch(s, entry);
    }
    s->report.bytes_pushed += bytes;
    if (s->patch->count >= 0 && bytes <= SHORT) {
        for (int i = 0; i < s->patch->count; i++)
            s->report.bytes_written += place(&s->patch->target[i], off, data, bytes, s->patch->elem);
        return LP_OK;
    }
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
