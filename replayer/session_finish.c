/* SPDX-License-Identifier: Apache-2.0 */
/* Finish: what is missing, what failed, what changed. */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include <stdio.h>

static bool is_missing(const lp_session *s, uint32_t entry)
{
    const lp_track *t = &s->track[entry];
    if (!t->is_expected || t->is_complete)
        return false;
    const bool is_fallback = s->plan->entry[entry].use == LP_USE_FALLBACK;
    return !is_fallback || !s->allow_fallbacks;
}

const char *lp_session_missing(const lp_session *s, int64_t *cursor)
{
    for (; *cursor < s->plan->entry_count; (*cursor)++)
        if (is_missing(s, (uint32_t)*cursor))
            return lp_checkpoint_at(s->plan->catalogue, s->plan->entry[(*cursor)++].name)->name;
    return NULL;
}

static void count(lp_session *s)
{
    const lp_plan *plan = s->plan;
    s->report.names_missing = s->report.fallbacks = s->report.derives_skipped = 0;
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        s->report.names_missing += is_missing(s, e);
        s->report.fallbacks += s->track[e].is_expected && plan->entry[e].use == LP_USE_FALLBACK;
    }
    for (uint32_t j = 0; j < plan->job_count; j++)
        s->report.derives_skipped += !s->is_subset && !s->job[j].is_done;
    s->report.nanoseconds = lp_session_clock() - s->begin_ns;
}

static lp_status incomplete(const lp_session *s, lp_error *err)
{
    char list[300] = "";
    size_t used = 0;
    int shown = 0;
    const char *first = NULL;
    for (uint32_t e = 0; e < s->plan->entry_count && shown < 3; e++) {
        if (!is_missing(s, e))
            continue;
        const char *name = lp_checkpoint_at(s->plan->catalogue, s->plan->entry[e].name)->name;
        first = first == NULL ? name : first;
        const char *part = s->plan->entry[e].use == LP_USE_FALLBACK ? " (a fallback)"
                           : s->track[e].is_seen                    ? " (in part)"
                                                                    : "";
        const int n = snprintf(list + used, sizeof list - used, "%s'%s'%s", shown > 0 ? ", " : "", name, part);
        if (n < 0 || (size_t)n >= sizeof list - used) {
            list[used] = '\0';
            break;
        }
        used += (size_t)n;
        shown++;
    }
    const int64_t missing = s->report.names_missing;
    return lp_fail_at(err, LP_E_INCOMPLETE, first, -1, "%lld name%s missing: %s%s", (long long)missing,
                      missing == 1 ? " is" : "s are", list, missing > shown ? ", ..." : "");
}

static lp_status compare_digests(lp_session *s, lp_error *err)
{
    const uint32_t tensors = s->plan->rows->ndest;
    if (s->before == NULL)
        return LP_OK;
    uint8_t(*after)[LP_VALUE_DIGEST_BYTES] = lp_allocate(s->alloc, (tensors + 1) * sizeof *after);
    if (after == NULL)
        return lp_fail_memory(err);
    const lp_status status = lp_session_take_digests(s, after, err);
    s->report.tensors_changed = 0;
    for (uint32_t i = 0; i < tensors && status == LP_OK; i++)
        s->report.tensors_changed += memcmp(s->before[i], after[i], sizeof after[i]) != 0;
    s->report.tensors_unchanged = status == LP_OK ? tensors - s->report.tensors_changed : 0;
    lp_release(s->alloc, after);
    return status;
}

static void forget_dirt(lp_session *s)
{
    lp_plan *plan = s->plan;
    if (!s->is_subset)
        plan->is_all_dirty = false;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (s->track[e].is_expected)
            plan->entry[e].is_dirty = false;
}

lp_status lp_session_check_failed(const lp_plan *plan, uint32_t job, const lp_derive_check *check, lp_error *err)
{
    char text[400];
    const lp_derive *derive = plan->job[job].derive;
    const char *subject = NULL; /* the tensor of the first input */
    if (derive->ninput > 0)
        subject = derive->input[0].staged ? lp_checkpoint_at(plan->catalogue, derive->input[0].index)->name
                                          : plan->rows->dest[derive->input[0].index].name;
    lp_derive_check_text(derive, check, text, sizeof text);
    return lp_fail_at(err, LP_E_VALUE, subject, -1, "%s", text);
}

static lp_status finish_on_host(lp_session *s, lp_error *err)
{
    lp_session_start_writing(s);
    const lp_status status = lp_session_run_ready(s, err);
    if (status != LP_OK)
        return lp_session_poison(s, status, err);
    lp_layers_commit_open(s); /* only those that wait for fallback names are still open */
    return s->failed_job == LP_NONE ? LP_OK : lp_session_check_failed(s->plan, s->failed_job, &s->failed, err);
}

static lp_status finish(lp_session *s, lp_error *err)
{
    LP_TRY(lp_session_usable(s, err));
    count(s);
    if (s->report.names_missing > 0)
        return incomplete(s, err);
    lp_error own = {.code = LP_OK};
    const lp_status loaded = s->on != NULL ? lp_device_finish(s, err) : finish_on_host(s, err);
    if (loaded != LP_OK && loaded != LP_E_VALUE)
        return loaded;
    forget_dirt(s);
    s->state = LP_SESSION_DONE;
    const lp_status compared = compare_digests(s, loaded == LP_OK ? err : &own);
    count(s);
    if (loaded == LP_E_VALUE)
        return lp_session_poison(s, loaded, err);
    return compared;
}

lp_status lp_finish(lp_session *s, lp_report *report, lp_error *err)
{
    lp_error own = {.code = LP_OK};
    const lp_status status = finish(s, err == NULL ? &own : err);
    if (report != NULL)
        *report = s->report;
    return status;
}

void lp_abort(lp_session *s, const char *reason)
{
    if (s->state == LP_SESSION_OPEN) {
        s->state = LP_SESSION_POISONED;
        snprintf(s->reason, sizeof s->reason, "%s", reason == NULL ? "given up" : reason);
    }
}

lp_status lp_mark_loaded(lp_session *s, const char *name, lp_error *err)
{
    const lp_plan *plan = s->plan;
    lp_error own = {.code = LP_OK};
    lp_error *e = err == NULL ? &own : err;
    LP_TRY(lp_session_usable(s, e));
    const lp_handle handle = lp_plan_handle(plan, name);
    const uint32_t entry = handle == LP_NONE ? LP_NONE : plan->entry_of[handle];
    if (handle == LP_NONE)
        return lp_fail_at(e, LP_E_UNKNOWN_NAME, name, -1, "the plan does not know '%s'", name);
    if (entry == LP_NONE || plan->entry[entry].use != LP_USE_FALLBACK)
        return lp_fail_at(e, LP_E_ARGUMENT, name, -1, "'%s' is no fallback: push it", name);
    if (!s->track[entry].is_expected)
        return lp_fail_at(e, LP_E_UNKNOWN_NAME, name, -1, "'%s' is not in the subset of this session", name);
    if (s->track[entry].is_complete)
        return lp_fail_at(e, LP_E_DUPLICATE, name, -1, "'%s' is marked as loaded already", name);
    if (s->on != NULL)
        return lp_device_mark(s, entry, e);
    lp_session_start_writing(s);
    LP_TRY(lp_session_reserve(s, entry, 0, 0, e)); /* groups of the derives that wait for it */
    lp_layers_refresh(s, entry);
    s->track[entry].is_seen = true;
    const lp_status status = lp_session_complete(s, entry, e);
    return status == LP_OK ? LP_OK : lp_session_poison(s, status, e);
}
