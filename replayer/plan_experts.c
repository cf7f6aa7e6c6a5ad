/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another slot -> expert map. The trace knows the default one: slot s of expert rank r holds expert r * slots + s. For
 * each slot of this rank, the records of the expert that it is to hold are taken from the scope of the rank that owns
 * that expert by default, and moved by whole slots. Nothing is recorded again.
 * Records that keep to one slot are moved as they are, others are cut by slots first.
 */
#include "replayer/expert_slots.h"

/* The one slot that a map at dst_off keeps to, or -1. */
static int64_t only_slot(const lp_slots *s, const lp_map *map, int64_t dst_off)
{
    int64_t slot = -1;
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *box = &map->box[b];
        const int64_t off = dst_off + box->dst_off;
        const int64_t mine = off / s->stride % s->count;
        int64_t reach = box->run * map->dst_elem;
        for (int32_t i = 0; i < box->rank; i++)
            if (box->mode[i].dst_stride % (s->stride * s->count) != 0)
                reach += (box->mode[i].extent - 1) * box->mode[i].dst_stride;
        if (off % s->stride + reach > s->stride || (slot >= 0 && slot != mine))
            return -1;
        slot = mine;
    }
    return slot;
}

/* ---- the experts of this rank ---- */

/* Index of the destination of the owner's rows in this plan's rows, which must be of the same form. */
static lp_status same_destination(const lp_plan *plan, const lp_destination *theirs, uint32_t hint, uint32_t *index,
                                  lp_error *err)
{
    const lp_rows *rows = plan->rows;
    uint32_t i = hint;
    if (i >= rows->ndest || strcmp(rows->dest[i].name, theirs->name) != 0)
        for (i = 0; i < rows->ndest && strcmp(rows->dest[i].name, theirs->name) != 0; i++)
            ;
    if (i < rows->ndest && rows->dest[i].dtype == theirs->dtype && rows->dest[i].ndim == theirs->ndim &&
        rows->dest[i].slot_dim == theirs->slot_dim &&
        memcmp(rows->dest[i].shape, theirs->shape, (size_t)theirs->ndim * sizeof *theirs->shape) == 0 &&
        memcmp(rows->dest[i].stride, theirs->stride, (size_t)theirs->ndim * sizeof *theirs->stride) == 0) {
        *index = i;
        return LP_OK;
    }
    return lp_fail_at(err, LP_E_UNSUPPORTED, theirs->name, -1,
                      "'%s' has another form on the rank that owns an expert of this rank", theirs->name);
}

/* Puts the part of a step that lies in slot `from` into slot `to`. */
static lp_status add_moved(lp_plan *plan, const lp_slots *s, const lp_step *step, int64_t from, int64_t to,
                           bool is_whole, lp_error *err)
{
    lp_step moved = *step;
    moved.dst_off += (to - from) * s->stride;
    if (!is_whole) {
        const lp_map *region, *part;
        LP_TRY(lp_slots_region(s, from, &region, plan->platform.alloc, err));
        const lp_status status = lp_map_intersect(&part, step->map, region, -step->dst_off, plan->platform.alloc, err);
        lp_map_free(region, plan->platform.alloc);
        LP_TRY(status);
        LP_TRY(lp_plan_keep_map(plan, part, err));
        moved.map = part;
    }
    return moved.map->nbox == 0 ? LP_OK : lp_plan_add_step(plan, &moved, err);
}

/* Steps of one owner's scope into every slot of this rank that holds one of its experts. */
static lp_status add_from_owner(lp_plan *plan, const lp_experts *x, int32_t owner, const lp_rows *rows, lp_error *err)
{
    lp_status status = LP_OK;
    lp_scope_steps made;
    const int32_t *mine = x->map->logical + x->rank * x->slots;
    LP_TRY(lp_plan_scope_steps(plan, rows, &made, err));
    for (int64_t i = 0; i < made.count; i++) {
        lp_step *step = &made.step[i];
        const lp_destination *dest = &rows->dest[step->dest];
        lp_slots s = {.count = 0};
        if (dest->slot_dim < 0 || (step->map != NULL && step->map->nbox == 0))
            continue;
        if (step->map == NULL) {
            status = lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, -1,
                                "a cast into '%s' is overwritten by parts of elements, which no expert map can move",
                                dest->name);
            goto free_steps;
        }
        LP_TRY_GOTO(lp_slots_of(dest, &s, err), free_steps);
        LP_TRY_GOTO(same_destination(plan, dest, step->dest, &step->dest, err), free_steps);
        const int64_t only = only_slot(&s, step->map, step->dst_off);
        for (int64_t to = 0; to < x->slots; to++) {
            const int64_t from = mine[to] % x->slots;
            if (mine[to] / x->slots == owner && (only < 0 || only == from))
                LP_TRY_GOTO(add_moved(plan, &s, step, from, to, only >= 0, err), free_steps);
        }
    }
free_steps:
    lp_scope_steps_free(plan, &made);
    return status;
}

/* Derives that compute one slot from staged sources follow their expert; those of this rank alone can be told. */
static lp_status check_derives(const lp_plan *plan, lp_error *err)
{
    for (uint32_t d = 0; d < plan->job_count; d++) {
        const lp_derive *derive = &plan->derive[d];
        if (derive->dest == LP_NONE || plan->rows->dest[derive->dest].slot_dim < 0)
            continue;
        for (uint32_t i = 0; i < derive->ninput; i++)
            if (derive->input[i].staged)
                return lp_fail_at(err, LP_E_UNSUPPORTED, plan->rows->dest[derive->dest].name, -1,
                                  "'%s' is derived from staged checkpoint tensors, which no expert map can move",
                                  plan->rows->dest[derive->dest].name);
    }
    return LP_OK;
}

lp_status lp_plan_experts(lp_plan *plan, const lp_expert_map *map, lp_error *err)
{
    lp_experts x;
    LP_TRY(lp_experts_of(plan, map, &x, err));
    LP_TRY(check_derives(plan, err));
    const int32_t *mine = map->logical + x.rank * x.slots;
    for (int32_t owner = 0; owner < map->count / x.slots; owner++) {
        bool is_needed = false;
        for (int64_t s = 0; s < x.slots; s++)
            is_needed = is_needed || mine[s] / x.slots == owner;
        if (!is_needed)
            continue;
        const int32_t rank = x.base + owner * x.rank_step;
        const int32_t index = lp_trace_scope_find(plan->trace, rank);
        const lp_rows *rows;
        if (index < 0)
            return lp_fail(err, LP_E_UNKNOWN_NAME, "the trace lacks rank %d, which owns an expert of this rank", rank);
        LP_TRY(lp_trace_rows(plan->trace, index, &rows, err));
        LP_TRY(add_from_owner(plan, &x, owner, rows, err));
    }
    return LP_OK;
}
