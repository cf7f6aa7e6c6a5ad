/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving whole experts between slots and ranks, a slice of all moving experts at a time: read the slice of every
 * source, then write it to every target. So a cycle needs no order, memory is bounded whatever the maps are, and moves
 * between ranks are the same as moves on one, with somebody else filling the buffer.
 */
#include "replayer/device_session.h"
#include "replayer/expert_device.h"
#include "replayer/expert_slots.h"

enum { STAGING_DEFAULT = 64 << 20, SLICE_ALIGN = 64 };

struct lp_rebalance {
    const lp_alloc *alloc;
    const lp_expert_device *device; /* NULL: the host */
    lp_expert_device *own_device;   /* to be closed, or NULL */
    void *lane;
    lp_plan *plan, *next; /* next: bound to the same memory by the new map */
    lp_expert_move *move;
    int64_t move_count, slots;
    int32_t rank;
    lp_expert_form form;
    int64_t slice, slices; /* bytes of an expert at a time, and how often */
    uint8_t *staging;      /* by move */
    int64_t at;            /* the slice that comes next */
    bool is_gathered, has_written, is_done;
};

/* ---- copies ---- */

typedef struct copying {
    const lp_rebalance *rebalance;
    uint8_t *dense;
    bool into_slot;
} copying;

static lp_status copy_part_on_device(void *context, const lp_expert_part *part, lp_error *err)
{
    const copying *c = context;
    const lp_expert_device *d = c->rebalance->device;
    uint8_t *dense = c->dense + part->dense;
    const int code = c->into_slot ? d->move(d->table.context, c->rebalance->lane, part->at, part->pitch, dense,
                                            part->bytes, part->bytes, part->rows)
                                  : d->move(d->table.context, c->rebalance->lane, dense, part->bytes, part->at,
                                            part->pitch, part->bytes, part->rows);
    return lp_cold_check(&d->table, code, "move experts", err);
}

static lp_status copy_part(void *context, const lp_expert_part *part, lp_error *err)
{
    const copying *c = context;
    (void)err;
    for (int64_t row = 0; row < part->rows; row++) {
        uint8_t *in_slot = part->at + row * part->pitch, *dense = c->dense + part->dense + row * part->bytes;
        memcpy(c->into_slot ? in_slot : dense, c->into_slot ? dense : in_slot, (size_t)part->bytes);
    }
    return LP_OK;
}

static lp_status copy_slice(const lp_rebalance *r, int64_t slice, int64_t slot, uint8_t *dense, bool into_slot,
                            lp_error *err)
{
    copying c = {.rebalance = r, .dense = dense, .into_slot = into_slot};
    const int64_t lo = slice * r->slice, hi = lo + lp_rebalance_slice_bytes(r, slice);
    const lp_expert_part_fn part = r->device == NULL ? copy_part : copy_part_on_device;
    return r->plan->is_meta ? LP_OK : lp_expert_form_walk(&r->form, slot, lo, hi, part, &c, err);
}

/* Until the copies of this slice are done, so that others may read or write what they concern. */
static lp_status wait(const lp_rebalance *r, lp_error *err)
{
    const lp_cold_device *d = r->device == NULL ? NULL : &r->device->table;
    return d == NULL ? LP_OK : lp_cold_check(d, d->lane_wait(d->context, r->lane), "move experts", err);
}

/* ---- begin ---- */

static lp_status may_move(const lp_plan *plan, lp_error *err)
{
    if (plan->is_open)
        return lp_fail(err, LP_E_MISUSE, "the plan has an open session");
    if (plan->epoch_now != NULL && *plan->epoch_now != plan->epoch)
        return lp_fail(err, LP_E_STALE, "the plan is of expert map %lld, the weights lie by map %lld",
                       (long long)plan->epoch, (long long)*plan->epoch_now);
    bool is_dirty = plan->is_all_dirty;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        is_dirty = is_dirty || plan->entry[e].is_dirty;
    return is_dirty ? lp_fail(err, LP_E_POISONED, "the weights hold bytes of a load that did not finish") : LP_OK;
}

/* The plan's own map; the default one is written out. */
static lp_status current_map(const lp_plan *plan, int64_t count, lp_expert_map *map, int32_t **own, lp_error *err)
{
    *map = (lp_expert_map){.logical = plan->expert_map, .count = count, .epoch = plan->epoch};
    if (plan->expert_map != NULL)
        return LP_OK;
    *own = lp_allocate(plan->platform.alloc, (size_t)count * sizeof **own);
    if (*own == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++)
        (*own)[i] = (int32_t)i;
    map->logical = *own;
    return LP_OK;
}

static lp_status list_moves(lp_rebalance *r, const lp_expert_map *to, lp_error *err)
{
    lp_expert_map from;
    int32_t *own = NULL;
    r->move = lp_allocate(r->alloc, (size_t)r->slots * sizeof *r->move);
    if (r->move == NULL)
        return lp_fail_memory(err);
    lp_status status = current_map(r->plan, to->count, &from, &own, err);
    if (status == LP_OK)
        status = lp_expert_moves(r->move, &r->move_count, &from, to, r->slots, r->rank, &r->plan->platform, err);
    lp_release(r->alloc, own);
    return status;
}

/* The same on every rank: experts have one form, and the slice depends on slots, not on moves. */
static lp_status plan_slices(lp_rebalance *r, int64_t staging, lp_error *err)
{
    r->slice = (staging == 0 ? STAGING_DEFAULT : staging) / r->slots;
    if (r->slice > SLICE_ALIGN)
        r->slice = r->slice / SLICE_ALIGN * SLICE_ALIGN;
    if (r->slice > r->form.bytes)
        r->slice = r->form.bytes;
    if (r->slice < 1 && r->form.bytes > 0)
        return lp_fail(err, LP_E_LIMIT, "staging of %lld bytes is less than one for each of %lld slots",
                       (long long)staging, (long long)r->slots);
    r->slices = r->form.bytes == 0 ? 0 : (r->form.bytes + r->slice - 1) / r->slice;
    const int64_t bytes = r->slice * r->move_count + 1;
    if (r->device != NULL && !r->plan->is_meta) {
        const lp_cold_device *d = &r->device->table;
        void *memory = NULL;
        LP_TRY(lp_cold_check(d, d->allocate(d->context, bytes, &memory), "take device memory", err));
        r->staging = memory;
        return lp_cold_check(d, d->lane_open(d->context, &r->lane), "make a stream", err);
    }
    r->staging = lp_allocate(r->alloc, (size_t)bytes);
    return r->staging == NULL ? lp_fail_memory(err) : LP_OK;
}

/* Bound before a byte moves, so that whatever can be wrong with the new map is found now. */
static lp_status bind_next(lp_rebalance *r, const lp_expert_map *to, lp_error *err)
{
    const lp_plan *plan = r->plan;
    const lp_rows *rows = plan->rows;
    lp_destination_memory *list = lp_allocate_zero(r->alloc, ((size_t)rows->ndest + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const lp_storage *storage = &plan->storage[plan->storage_of[i]];
        list[i] = (lp_destination_memory){.name = dest->name,
                                          .dtype = dest->dtype,
                                          .ndim = dest->ndim,
                                          .shape = dest->shape,
                                          .stride = dest->stride,
                                          .data = plan->address[i],
                                          .storage = storage->base,
                                          .storage_bytes = storage->bytes};
    }
    const lp_device_side *side = plan->side;
    const bool is_named = side != NULL && side->owns_calls;
    const lp_bind_options o = {.staging = plan->staging,
                               .experts = to,
                               .platform = &plan->platform,
                               .threads = 1,
                               .experts_epoch_now = plan->epoch_now,
                               .device = is_named ? side->name : NULL,
                               .spill = side == NULL ? 0 : side->spill_bytes,
                               .captures = side != NULL && side->captures};
    const lp_device_calls *calls = side != NULL && !is_named ? &side->calls : NULL;
    const lp_status status = lp_bind_with(&r->next, plan->trace, &rows->scope, list, rows->ndest, &o, calls, err);
    lp_release(r->alloc, list);
    return status;
}

static lp_status prepare(lp_rebalance *r, const lp_expert_map *to, int64_t staging, lp_error *err)
{
    lp_experts experts;
    if (r->device != NULL)
        LP_TRY(
            lp_cold_check(&r->device->table, r->device->table.enter(r->device->table.context), "use the device", err));
    LP_TRY(lp_experts_of(r->plan, to, &experts, err));
    r->slots = experts.slots;
    r->rank = experts.rank;
    LP_TRY(list_moves(r, to, err));
    LP_TRY(bind_next(r, to, err));
    LP_TRY(lp_experts_derive(r->next, r->device, true, err));
    LP_TRY(lp_expert_form_make(&r->form, r->plan, err));
    return plan_slices(r, staging, err);
}

lp_status lp_rebalance_begin_with(lp_rebalance **out, lp_plan *plan, const lp_expert_map *to, int64_t staging,
                                  const lp_expert_device *device, lp_error *err)
{
    if (to == NULL || to->logical == NULL || to->count < 1 || staging < 0)
        return lp_fail(err, LP_E_ARGUMENT, "an argument of a rebalance is out of its range");
    LP_TRY(may_move(plan, err));
    lp_rebalance *r = lp_allocate_zero(plan->platform.alloc, sizeof *r);
    if (r == NULL)
        return lp_fail_memory(err);
    r->alloc = plan->platform.alloc;
    r->plan = plan;
    r->device = device;
    const lp_status status = prepare(r, to, staging, err);
    plan->is_open = true; /* close takes it back */
    if (status != LP_OK) {
        lp_rebalance_close(r);
        return status;
    }
    *out = r;
    return LP_OK;
}

lp_status lp_rebalance_begin(lp_rebalance **out, lp_plan *plan, const lp_expert_map *to, int64_t staging,
                             const char *device, lp_error *err)
{
    if (device == NULL && plan->side != NULL)
        device = plan->side->name;
    if (device == NULL || strcmp(device, "cpu") == 0)
        return lp_rebalance_begin_with(out, plan, to, staging, NULL, err);
    const lp_alloc *alloc = plan->platform.alloc;
    lp_expert_device *own = lp_allocate_zero(alloc, sizeof *own);
    if (own == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_expert_device_open(own, device, err);
    if (status == LP_OK) {
        status = lp_rebalance_begin_with(out, plan, to, staging, own, err);
        if (status != LP_OK)
            lp_expert_device_close(own);
    }
    if (status == LP_OK)
        (*out)->own_device = own;
    else
        lp_release(alloc, own);
    return status;
}

/* ---- slices ---- */

const lp_expert_move *lp_rebalance_moves(const lp_rebalance *r, int64_t *count)
{
    *count = r->move_count;
    return r->move;
}

int64_t lp_rebalance_slices(const lp_rebalance *r)
{
    return r->slices;
}

int64_t lp_rebalance_slice_bytes(const lp_rebalance *r, int64_t slice)
{
    const int64_t left = r->form.bytes - slice * r->slice;
    return slice < 0 || left <= 0 ? 0 : left < r->slice ? left : r->slice;
}

static lp_status check_slice(const lp_rebalance *r, int64_t slice, lp_error *err)
{
    if (r->is_done || slice != r->at || slice >= r->slices)
        return lp_fail(err, LP_E_MISUSE, "slice %lld of the experts is not the one that comes next", (long long)slice);
    return LP_OK;
}

lp_status lp_rebalance_gather(lp_rebalance *r, int64_t slice, lp_error *err)
{
    LP_TRY(check_slice(r, slice, err));
    for (int64_t i = 0; i < r->move_count; i++)
        if (r->move[i].from_rank == r->rank)
            LP_TRY(copy_slice(r, slice, r->move[i].from_slot, r->staging + i * r->slice, false, err));
    LP_TRY(wait(r, err));
    r->is_gathered = true;
    return LP_OK;
}

lp_status lp_rebalance_outgoing(const lp_rebalance *r, int64_t slice, int32_t slot, void *buffer, lp_error *err)
{
    LP_TRY(check_slice(r, slice, err));
    if (slot < 0 || slot >= r->slots)
        return lp_fail(err, LP_E_ARGUMENT, "the rank has no expert slot %d", slot);
    LP_TRY(copy_slice(r, slice, slot, buffer, false, err));
    return wait(r, err);
}

void *lp_rebalance_incoming(const lp_rebalance *r, int64_t move)
{
    return move < 0 || move >= r->move_count ? NULL : r->staging + move * r->slice;
}

lp_status lp_rebalance_scatter(lp_rebalance *r, int64_t slice, lp_error *err)
{
    LP_TRY(check_slice(r, slice, err));
    if (!r->is_gathered)
        return lp_fail(err, LP_E_MISUSE, "slice %lld of the experts has not been gathered", (long long)slice);
    r->has_written = true;
    for (int64_t i = 0; i < r->move_count; i++)
        LP_TRY(copy_slice(r, slice, r->move[i].to_slot, r->staging + i * r->slice, true, err));
    r->is_gathered = false;
    r->at++;
    return wait(r, err);
}

/* ---- end ---- */

/* The caller's handle to the plan stays, what it means becomes the new one. */
static void exchange(lp_rebalance *r)
{
    lp_plan old = *r->plan;
    *r->plan = *r->next;
    *r->next = old;
    lp_pool *pool = r->plan->pool;
    r->plan->pool = r->next->pool;
    r->next->pool = pool;
    r->plan->is_open = true;
    r->next->is_open = false;
    if (r->plan->epoch_now != NULL)
        *r->plan->epoch_now = r->plan->epoch;
}

lp_status lp_rebalance_finish(lp_rebalance *r, lp_error *err)
{
    if (r->is_done || r->at < r->slices)
        return lp_fail(err, LP_E_MISUSE, "the rebalance is over, or lacks %lld slices", (long long)(r->slices - r->at));
    const lp_status status = r->plan->is_meta ? LP_OK : lp_experts_derive(r->next, r->device, false, err);
    if (status != LP_OK && status != LP_E_VALUE)
        return status;
    exchange(r);
    r->is_done = true;
    return status;
}

void lp_rebalance_close(lp_rebalance *r)
{
    if (r == NULL)
        return;
    r->plan->is_open = false;
    if (!r->is_done && r->has_written)
        r->plan->is_all_dirty = true;
    lp_plan_close(r->next);
    lp_expert_form_free(&r->form);
    lp_release(r->alloc, r->move);
    if (r->device == NULL || r->plan->is_meta) {
        lp_release(r->alloc, r->staging);
    } else {
        r->device->table.lane_close(r->device->table.context, r->lane);
        r->device->table.release(r->device->table.context, r->staging);
    }
    if (r->own_device != NULL)
        lp_expert_device_close(r->own_device);
    lp_release(r->alloc, r->own_device);
    lp_release(r->alloc, r);
}

lp_status lp_plan_move_experts(lp_plan *plan, const lp_expert_map *to, int64_t staging, const char *device,
                               lp_error *err)
{
    lp_rebalance *r;
    LP_TRY(lp_rebalance_begin(&r, plan, to, staging, device, err));
    lp_status status = LP_OK;
    for (int64_t i = 0; status == LP_OK && i < r->move_count; i++)
        if (r->move[i].from_rank != r->rank)
            status = lp_fail(err, LP_E_UNSUPPORTED, "expert %d comes from rank %d: move slice by slice",
                             to->logical[r->rank * r->slots + r->move[i].to_slot], r->move[i].from_rank);
    for (int64_t i = 0; status == LP_OK && i < r->slices; i++) {
        status = lp_rebalance_gather(r, i, err);
        if (status == LP_OK)
            status = lp_rebalance_scatter(r, i, err);
    }
    if (status == LP_OK)
        status = lp_rebalance_finish(r, err);
    lp_rebalance_close(r);
    return status;
}
