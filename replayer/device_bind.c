/* SPDX-License-Identifier: Apache-2.0 */
/* Binding to the memory of a device: everything that its sessions will ever take there is taken here. */
#include "replayer/device_session.h"

#include <stdio.h>

enum { PART_ALIGN = 256 };

static int64_t aligned(int64_t bytes)
{
    return (bytes + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

int64_t lp_plan_device_bytes(const lp_plan *plan)
{
    return plan->side == NULL ? 0 : plan->side->device_bytes;
}

lp_status lp_device_check(const lp_device_calls *calls, int code, const char *verb, lp_error *err)
{
    if (code == 0)
        return LP_OK;
    return lp_fail(err, LP_E_DEVICE, "cannot %s: %s", verb, calls->error_text(calls->context, code));
}

/* Bytes in host memory, or of another device, would be written by a kernel: that ends the process or worse. */
static lp_status check_places(const lp_plan *plan, const lp_device_side *side, lp_error *err)
{
    const lp_device_calls *c = &side->calls;
    for (uint32_t i = 0; i < plan->storage_count; i++) {
        bool is_ours = true;
        if (plan->storage[i].bytes == 0)
            continue;
        LP_TRY(lp_device_check(c, c->is_ours(c->context, plan->storage[i].base, &is_ours), "ask where a tensor lies",
                               err));
        if (!is_ours)
            return lp_fail_at(err, LP_E_MISMATCH, plan->storage[i].name, -1,
                              "the storage '%s' does not lie in the memory of '%s'", plan->storage[i].name, side->name);
    }
    return LP_OK;
}

/* ---- sizes ---- */

static lp_status add_bytes(int64_t *sum, int64_t bytes, lp_error *err)
{
    if (bytes > INT64_MAX - PART_ALIGN || !lp_add(*sum, aligned(bytes), sum))
        return lp_fail(err, LP_E_LIMIT, "the plan needs more device memory than can be counted");
    return LP_OK;
}

/* What a session in direct mode needs: two names under way. */
static lp_status choose_staging(const lp_plan *plan, lp_device_side *side, const lp_bind_options *o, lp_error *err)
{
    for (uint32_t k = 0; k < plan->stage_count; k++)
        LP_TRY(add_bytes(&side->stage_bytes, plan->stage[k].bytes, err));
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (plan->entry[e].reads && lp_slot_bytes(&plan->entry[e]) > side->largest)
            side->largest = lp_slot_bytes(&plan->entry[e]);
    if (o->staging > 0 && o->staging < side->stage_bytes)
        return lp_fail(err, LP_E_LIMIT, "derives stage %lld bytes, the staging budget is %lld",
                       (long long)side->stage_bytes, (long long)o->staging);
    if (o->staging > 0)
        side->staging_bytes = (o->staging - side->stage_bytes) / PART_ALIGN * PART_ALIGN;
    else if (!lp_mul(side->largest, 2, &side->staging_bytes))
        return lp_fail(err, LP_E_LIMIT, "the plan needs more device memory than can be counted");
    side->spill_bytes = o->spill / PART_ALIGN * PART_ALIGN;
    return LP_OK;
}

/* ---- memory ---- */

static lp_status take_memory(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    const lp_device_calls *c = &side->calls;
    const int64_t sums = aligned(((int64_t)plan->rows->ndest + 1) * (int64_t)sizeof(lp_value_sum));
    int64_t bytes = side->stage_bytes;
    void *block = NULL, *spill = NULL;
    LP_TRY(add_bytes(&bytes, sums, err));
    LP_TRY(add_bytes(&bytes, side->staging_bytes, err));
    const int code = c->take(c->context, bytes, &block);
    if (code != 0)
        return lp_fail(err, LP_E_DEVICE, "cannot take %lld bytes of device memory for staging: %s", (long long)bytes,
                       c->error_text(c->context, code));
    side->block = block;
    side->device_bytes = bytes;
    int64_t at = 0;
    side->stage = lp_allocate(side->alloc, ((size_t)plan->stage_count + 1) * sizeof *side->stage);
    if (side->stage == NULL)
        return lp_fail_memory(err);
    for (uint32_t k = 0; k < plan->stage_count; k++) {
        side->stage[k] = side->block + at;
        at += aligned(plan->stage[k].bytes);
    }
    side->sums = side->block + at;
    side->staging = side->block + at + sums;
    /* What no step writes of a staged input stays zero. */
    if (at > 0)
        LP_TRY(lp_device_check(c, c->clear(c->context, side->block, at, NULL), "clear device memory", err));
    LP_TRY(lp_device_check(c, c->wait(c->context, NULL), "clear device memory", err));
    if (side->spill_bytes > 0) {
        const int pinned = c->take_pinned(c->context, side->spill_bytes, &spill);
        if (pinned != 0)
            return lp_fail(err, LP_E_DEVICE, "cannot pin %lld bytes of host memory for the spill: %s",
                           (long long)side->spill_bytes, c->error_text(c->context, pinned));
        side->spill = spill;
    }
    return LP_OK;
}

/* ---- derives ---- */

static lp_status add_job(const lp_plan *plan, const lp_device_side *side, lp_derive_table *table, const lp_job *job,
                         uint64_t *region, lp_error *err)
{
    uint32_t stage = job->first_stage;
    for (uint32_t i = 0; i < job->derive->ninput; i++) {
        const lp_derive_input *in = &job->derive->input[i];
        region[i] = (uintptr_t)(in->staged ? side->stage[stage++] : plan->address[in->index]);
    }
    const uint64_t dest = job->derive->dest == LP_NONE ? 0 : (uintptr_t)plan->address[job->derive->dest];
    return lp_derive_table_add(table, job->derive, region, dest, err);
}

static lp_status make_derives(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    const lp_device_calls *c = &side->calls;
    lp_derive_table table = {.alloc = side->alloc};
    uint32_t inputs = 1;
    lp_status status = LP_OK;
    for (uint32_t j = 0; j < plan->job_count; j++) {
        inputs = plan->job[j].derive->ninput > inputs ? plan->job[j].derive->ninput : inputs;
        side->check_count += plan->job[j].derive->dest == LP_NONE;
    }
    uint64_t *region = lp_allocate(side->alloc, inputs * sizeof *region);
    side->check_job = lp_allocate(side->alloc, ((size_t)side->check_count + 1) * sizeof *side->check_job);
    side->outcome = lp_allocate(side->alloc, ((size_t)side->check_count + 1) * sizeof *side->outcome);
    if (region == NULL || side->check_job == NULL || side->outcome == NULL)
        status = lp_fail_memory(err);
    uint32_t check = 0;
    for (uint32_t j = 0; status == LP_OK && j < plan->job_count; j++) {
        if (plan->job[j].derive->dest == LP_NONE)
            side->check_job[check++] = j;
        status = add_job(plan, side, &table, &plan->job[j], region, err);
    }
    if (status == LP_OK && plan->job_count > 0)
        status = lp_device_check(c, c->derives_open(c->context, &side->derives, &table), "upload the derives", err);
    if (status == LP_OK && side->derives != NULL)
        side->device_bytes += c->derives_bytes(c->context, side->derives);
    lp_derive_table_free(&table);
    lp_release(side->alloc, region);
    return status;
}

/* ---- life ---- */

static lp_status bind_side(lp_plan *plan, const lp_bind_options *o, lp_error *err)
{
    lp_device_side *side = plan->side;
    const lp_device_calls *c = &side->calls;
    LP_TRY(check_places(plan, side, err));
    LP_TRY(choose_staging(plan, side, o, err));
    LP_TRY(take_memory(plan, side, err));
    LP_TRY(lp_device_units(plan, side, err));
    LP_TRY(c->program_open(c->context, &side->program, side, err));
    side->device_bytes += c->program_bytes(c->context, side->program);
    return make_derives(plan, side, err);
}

lp_status lp_device_bind(lp_plan *plan, const lp_bind_options *o, const lp_device_calls *calls, lp_error *err)
{
    int before;
    if (calls == NULL && o->device == NULL)
        return LP_OK;
    if (o->spill < 0)
        return lp_fail(err, LP_E_ARGUMENT, "a spill of %lld bytes is not possible", (long long)o->spill);
    lp_device_side *side = lp_allocate_zero(plan->platform.alloc, sizeof *side);
    if (side == NULL)
        return lp_fail_memory(err);
    side->alloc = plan->platform.alloc;
    snprintf(side->name, sizeof side->name, "%s", o->device == NULL ? "device" : o->device);
    lp_status status = LP_OK;
    if (calls == NULL)
        status = lp_cuda_calls(&side->calls, o->device, o->captures, err);
    else
        side->calls = *calls;
    side->owns_calls = calls == NULL;
    side->captures = o->captures;
    if (status != LP_OK || plan->is_meta) { /* meta plans have no memory anywhere */
        if (status == LP_OK && side->owns_calls)
            lp_cuda_calls_close(&side->calls);
        lp_release(side->alloc, side);
        return status;
    }
    plan->side = side;
    status = lp_device_check(&side->calls, side->calls.enter(side->calls.context, &before), "use the device", err);
    if (status == LP_OK) {
        status = bind_side(plan, o, err);
        side->calls.leave(side->calls.context, before);
    }
    return status; /* the plan is closed by who opened it */
}

void lp_device_unbind(lp_plan *plan)
{
    lp_device_side *side = plan->side;
    int before = 0;
    if (side == NULL)
        return;
    const lp_device_calls *c = &side->calls;
    const bool is_in = c->enter(c->context, &before) == 0;
    if (side->program != NULL)
        c->program_close(c->context, side->program);
    if (side->derives != NULL)
        c->derives_close(c->context, side->derives);
    c->give(c->context, side->block);
    c->give_pinned(c->context, side->spill);
    if (is_in)
        c->leave(c->context, before);
    lp_device_units_free(side);
    lp_release(side->alloc, (void *)side->stage);
    lp_release(side->alloc, side->check_job);
    lp_release(side->alloc, side->outcome);
    if (side->owns_calls)
        lp_cuda_calls_close(&side->calls);
    lp_release(side->alloc, side);
    plan->side = NULL;
}
