/* SPDX-License-Identifier: Apache-2.0 */
/* Begin: which names this round expects, which derives it will run, and whether it may start at all. */
#include "replayer/device_session.h"
#include "replayer/session.h"

#include "replayer/exec_fast.h"

#include <time.h>

int64_t lp_session_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static lp_status check_mode(const lp_plan *plan, const lp_session_options *o, lp_error *err)
{
    if (plan->is_open)
        return lp_fail(err, LP_E_MISUSE, "the plan has an open session");
    if ((int)o->mode < LP_COLD || o->mode > LP_META)
        return lp_fail(err, LP_E_ARGUMENT, "there is no mode %d", (int)o->mode);
    if (plan->is_meta != (o->mode == LP_META) && plan->is_meta)
        return lp_fail(err, LP_E_MISUSE, "the plan is bound to meta tensors, which take meta sessions only");
    if (plan->epoch_now != NULL && *plan->epoch_now != plan->epoch && (o->mode == LP_DIRECT || o->mode == LP_LAYERWISE))
        return lp_fail(err, LP_E_STALE, "the plan is of expert map %lld, the weights lie by map %lld",
                       (long long)plan->epoch, (long long)*plan->epoch_now);
    if (o->stream != NULL && plan->side == NULL && !plan->is_meta)
        return lp_fail(err, LP_E_UNSUPPORTED, "a stream is given, but the plan is bound to host memory");
    if (o->subset != NULL && (o->mode == LP_COLD || o->mode == LP_DUMMY))
        return lp_fail(err, LP_E_ARGUMENT, "a cold start loads everything: it takes no subset");
    if (o->subset_count < 0 || (o->subset_count > 0 && o->subset == NULL))
        return lp_fail(err, LP_E_ARGUMENT, "a subset of %lld names is not given", (long long)o->subset_count);
    return LP_OK;
}

static lp_status expect_names(lp_session *s, const lp_session_options *o, lp_error *err)
{
    const lp_plan *plan = s->plan;
    if (o->subset == NULL) { /* a dummy load waits for nobody */
        for (uint32_t e = 0; e < plan->entry_count; e++)
            s->track[e].is_expected = s->mode != LP_DUMMY;
        return LP_OK;
    }
    for (int64_t i = 0; i < o->subset_count; i++) {
        const lp_handle handle = lp_plan_handle(plan, o->subset[i]);
        const uint32_t entry = handle == LP_NONE ? LP_NONE : plan->entry_of[handle];
        if (entry == LP_NONE)
            return lp_fail_at(err, LP_E_UNKNOWN_NAME, o->subset[i], -1, "the plan does not load '%s' of the subset",
                              o->subset[i]);
        s->track[entry].is_expected = true;
    }
    for (uint32_t e = 0; e < plan->entry_count; e++) { /* all names together are no subset: nothing is kept */
        const char *name = lp_checkpoint_at(plan->catalogue, plan->entry[e].name)->name;
        s->is_subset = s->is_subset || !s->track[e].is_expected;
        if (s->track[e].is_expected || !(plan->entry[e].is_dirty || plan->is_all_dirty))
            continue;
        lp_fail_at(err, LP_E_POISONED, name, -1, "'%s' holds bytes of a load that did not finish", name);
        lp_hint(err, "load it too, or everything");
        return LP_E_POISONED;
    }
    return LP_OK;
}

static lp_status check_stages(const lp_session *s, uint32_t number, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const lp_derive *derive = plan->job[number].derive;
    for (uint32_t i = 0; i < derive->ninput; i++) {
        if (!derive->input[i].staged)
            continue;
        const uint32_t entry = plan->entry_of[derive->input[i].index];
        const char *name = lp_checkpoint_at(plan->catalogue, derive->input[i].index)->name;
        const char *dest = derive->dest == LP_NONE ? "a check" : plan->rows->dest[derive->dest].name;
        if (!s->track[entry].is_expected)
            return lp_fail_at(err, LP_E_ARGUMENT, name, -1,
                              "the subset leaves out '%s', which is needed with others of it for '%s'", name, dest);
        if (plan->entry[entry].use == LP_USE_FALLBACK)
            return lp_fail_at(err, LP_E_UNSUPPORTED, name, -1, "'%s' is a fallback, but '%s' is derived from it", name,
                              dest);
    }
    return LP_OK;
}

/* Jobs come in an order in which each stands behind those that it waits for. */
static lp_status expect_jobs(lp_session *s, lp_error *err)
{
    const lp_plan *plan = s->plan;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        for (uint32_t i = 0; s->track[e].is_expected && i < plan->entry[e].job_count; i++)
            s->job[plan->entry_job[plan->entry[e].first_job + i]].waiting++;
    for (uint32_t j = 0; j < plan->job_count; j++) {
        /* Without any name to wait for, a derive of constants: once in every full session. */
        s->job[j].will_run = s->job[j].waiting > 0 || !s->is_subset;
        if (s->mode == LP_DUMMY) /* staged inputs have no dummy values */
            s->job[j].will_run = plan->job[j].stage_count == 0;
        if (!s->job[j].will_run)
            continue;
        LP_TRY(check_stages(s, j, err));
        for (uint32_t i = 0; i < plan->job[j].next_count; i++)
            s->job[plan->job_next[plan->job[j].first_next + i]].waiting++;
    }
    for (uint32_t j = plan->job_count; j-- > 0;)
        if (s->job[j].will_run && s->job[j].waiting == 0)
            s->ready[s->ready_count++] = j;
    return LP_OK;
}

static lp_status allocate(lp_session *s, lp_error *err)
{
    const lp_plan *plan = s->plan;
    s->track = lp_allocate_zero(s->alloc, (plan->entry_count + 1) * sizeof *s->track);
    s->entry_stamp = lp_allocate_zero(s->alloc, (plan->entry_count + 1) * sizeof *s->entry_stamp);
    s->job = lp_allocate_zero(s->alloc, (plan->job_count + 1) * sizeof *s->job);
    s->ready = lp_allocate(s->alloc, (plan->job_count + 1) * sizeof *s->ready);
    s->stage = lp_allocate_zero(s->alloc, (plan->stage_count + 1) * sizeof *s->stage);
    const bool is_whole =
        s->track != NULL && s->entry_stamp != NULL && s->job != NULL && s->ready != NULL && s->stage != NULL;
    return is_whole ? LP_OK : lp_fail_memory(err);
}

lp_status lp_session_digests(const lp_plan *plan, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err)
{
    for (uint32_t i = 0; i < plan->rows->ndest; i++)
        LP_TRY(lp_plan_value_digest(plan, i, digest[i], err));
    return LP_OK;
}

lp_status lp_session_take_digests(const lp_session *s, uint8_t (*digest)[LP_VALUE_DIGEST_BYTES], lp_error *err)
{
    if (s->on == NULL)
        return lp_session_digests(s->plan, digest, err);
    return lp_device_digests(s->plan, 0, s->plan->rows->ndest, digest, s->on->stream, err);
}

static lp_status take_digests(lp_session *s, lp_error *err)
{
    s->before = lp_allocate(s->alloc, (s->plan->rows->ndest + 1) * sizeof *s->before);
    return s->before == NULL ? lp_fail_memory(err) : lp_session_take_digests(s, s->before, err);
}

/* The only writes of begin: nothing may fail after it in a mode that does them. */
static void clear_memory(lp_session *s)
{
    lp_plan *plan = s->plan;
    if (s->mode != LP_COLD && s->mode != LP_DUMMY)
        return;
    lp_plan_start_over(plan);
    for (uint32_t i = 0; i < plan->storage_count; i++)
        if (plan->storage[i].bytes > 0)
            lp_exec_clear(plan->pool, plan->storage[i].base, plan->storage[i].bytes);
    if (s->mode == LP_DUMMY)
        for (uint32_t i = 0; i < plan->rows->ndest; i++)
            lp_dummy_fill(plan, i);
    lp_session_start_writing(s);
}

static lp_status start(lp_session *s, const lp_session_options *o, lp_error *err)
{
    LP_TRY(allocate(s, err));
    LP_TRY(expect_names(s, o, err));
    LP_TRY(expect_jobs(s, err));
    if (s->plan->side != NULL && s->mode != LP_META)
        LP_TRY(lp_device_begin(s, o, err));
    else
        LP_TRY(lp_layers_begin(s, err));
    if (o->digests && s->mode != LP_META)
        LP_TRY(take_digests(s, err));
    if (s->on != NULL)
        return lp_device_start(s, err);
    clear_memory(s);
    return LP_OK;
}

lp_status lp_begin(lp_session **out, lp_plan *plan, const lp_session_options *options, lp_error *err)
{
    const lp_session_options none = {.mode = LP_COLD};
    const lp_session_options *o = options == NULL ? &none : options;
    LP_TRY(check_mode(plan, o, err));
    lp_session *s = lp_allocate_zero(plan->platform.alloc, sizeof *s);
    if (s == NULL)
        return lp_fail_memory(err);
    s->plan = plan;
    s->alloc = plan->platform.alloc;
    s->mode = o->mode;
    s->allow_fallbacks = o->allow_fallbacks;
    s->staging_limit = plan->staging == 0 ? INT64_MAX : plan->staging;
    s->failed_job = LP_NONE;
    s->begin_ns = lp_session_clock();
    s->report.tensors = plan->rows->ndest;
    s->report.tensors_changed = s->report.tensors_unchanged = -1;
    const lp_status status = start(s, o, err);
    plan->is_open = true;
    if (status != LP_OK) {
        lp_session_close(s);
        return status;
    }
    *out = s;
    return LP_OK;
}

void lp_session_close(lp_session *s)
{
    if (s == NULL)
        return;
    for (uint32_t e = 0; s->track != NULL && e < s->plan->entry_count; e++)
        lp_track_free(&s->track[e], s->alloc);
    for (uint32_t i = 0; s->stage != NULL && i < s->plan->stage_count; i++)
        lp_release(s->alloc, s->stage[i]);
    lp_device_end(s);
    lp_layers_free(s);
    lp_release(s->alloc, s->track);
    lp_release(s->alloc, s->entry_stamp);
    lp_release(s->alloc, s->job);
    lp_release(s->alloc, s->ready);
    lp_release(s->alloc, (void *)s->stage);
    lp_release(s->alloc, s->before);
    lp_release(s->alloc, s->patch);
    s->plan->is_open = false;
    lp_release(s->alloc, s);
}
