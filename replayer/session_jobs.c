/* SPDX-License-Identifier: Apache-2.0 */
/* What a complete name sets off: derives whose inputs are all there, and through them other derives. */
#include "replayer/derive_eval.h"
#include "replayer/session.h"

static void release_stages(lp_session *s, const lp_job *job)
{
    for (uint32_t k = job->first_stage; k < job->first_stage + job->stage_count; k++) {
        if (s->stage[k] == NULL)
            continue;
        lp_release(s->alloc, s->stage[k]);
        s->stage[k] = NULL;
        s->staging_used -= s->plan->stage[k].bytes;
    }
}

/* Dense arrays of all inputs: staged ones are there, regions of destinations are gathered. */
static lp_status gather(const lp_session *s, const lp_job *job, void **input, lp_error *err)
{
    const lp_derive *derive = job->derive;
    uint32_t stage = job->first_stage;
    for (uint32_t i = 0; i < derive->ninput; i++) {
        const lp_derive_input *in = &derive->input[i];
        if (in->staged) {
            input[i] = s->stage[stage++];
            if (input[i] == NULL)
                return lp_fail(err, LP_E_INTERNAL, "a staged input has no bytes");
            continue;
        }
        int64_t bytes;
        if (!lp_mul(in->count, lp_dtype_bits(in->dtype) / 8, &bytes) || in->map->dst_hi > bytes)
            return lp_fail(err, LP_E_CORRUPT, "a derive gathers more than its input holds");
        input[i] = lp_allocate_zero(s->alloc, (size_t)bytes);
        if (input[i] == NULL)
            return lp_fail_memory(err);
        lp_exec_map(in->map, input[i], lp_session_place(s, in->index));
    }
    return LP_OK;
}

static void note_failure(lp_session *s, uint32_t number, const lp_derive_check *check)
{
    /* The first in the order of the plan, so that the text does not depend on the order of pushes. */
    if (!check->failed || s->failed_job <= number)
        return;
    s->failed_job = number;
    s->failed = *check;
}

static lp_status evaluate(lp_session *s, uint32_t number, lp_error *err)
{
    const lp_job *job = &s->plan->job[number];
    const lp_derive *derive = job->derive;
    lp_status status = LP_OK;
    void *result = NULL;
    lp_derive_check check;
    void **input = lp_allocate_zero(s->alloc, derive->ninput * sizeof *input);
    if (input == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(gather(s, job, input, err), release);
    LP_TRY_GOTO(lp_derive_evaluate(derive, (const void *const *)input, s->alloc, &result, &check, err), release);
    if (derive->dest == LP_NONE)
        note_failure(s, number, &check);
    else
        s->report.bytes_written += lp_exec_map(derive->map, lp_session_place(s, derive->dest), result);
release:
    for (uint32_t i = 0; i < derive->ninput; i++)
        if (!derive->input[i].staged)
            lp_release(s->alloc, input[i]);
    lp_release(s->alloc, (void *)input);
    lp_release(s->alloc, result);
    return status;
}

static void one_less(lp_session *s, uint32_t number)
{
    lp_job_state *state = &s->job[number];
    if (state->will_run && --state->waiting == 0)
        s->ready[s->ready_count++] = number;
}

lp_status lp_session_run_ready(lp_session *s, lp_error *err)
{
    const lp_plan *plan = s->plan;
    while (s->ready_count > 0) {
        const uint32_t number = s->ready[--s->ready_count];
        const lp_job *job = &plan->job[number];
        if (s->mode != LP_META)
            LP_TRY(evaluate(s, number, err));
        s->job[number].is_done = true;
        s->report.derives_run++;
        release_stages(s, job);
        for (uint32_t i = 0; i < job->next_count; i++)
            one_less(s, plan->job_next[job->first_next + i]);
        if (job->group != LP_NONE)
            lp_layers_less(s, job->group);
    }
    return LP_OK;
}

lp_status lp_session_complete(lp_session *s, uint32_t entry, lp_error *err)
{
    const lp_plan *plan = s->plan;
    const lp_entry *e = &plan->entry[entry];
    s->track[entry].is_complete = true;
    s->report.names_loaded += e->use == LP_USE_LOADED;
    for (uint32_t i = 0; i < e->job_count; i++)
        one_less(s, plan->entry_job[e->first_job + i]);
    LP_TRY(lp_session_run_ready(s, err));
    lp_layers_entry_done(s, entry);
    return LP_OK;
}
