/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of pushes that keeps the staging of layerwise sessions small: commit group by commit group, one that
 * shares a name with those before it first; inside a group the largest name last, because what completes a group need
 * not wait.
 */
#include "replayer/push_order.h"

#include <stdlib.h>

typedef struct work {
    const lp_plan *plan;
    const lp_alloc *alloc;
    lp_device_side side;
    bool *is_listed;  /* by entry */
    bool *is_touched; /* by unit: some of its names are listed, or all */
    uint32_t *touched, touched_count;
} work;

lp_status lp_push_order_take(const lp_push_order *o, size_t count, size_t bytes, void *out, lp_error *err)
{
    void *memory = lp_allocate_zero(o->alloc, (count + 1) * bytes);
    memcpy(out, &memory, sizeof memory);
    return memory == NULL ? lp_fail_memory(err) : LP_OK;
}

/* ---- the order ---- */

typedef struct sized {
    int64_t bytes;
    uint32_t entry;
} sized;

static int by_size(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void list_entry(work *w, lp_push_order *o, uint32_t entry, uint32_t unit)
{
    const lp_plan *plan = w->plan;
    const lp_device_side *side = &w->side;
    w->is_listed[entry] = true;
    o->step[o->count++] = (lp_push_step){.name = lp_checkpoint_at(plan->catalogue, plan->entry[entry].name)->name,
                                         .group = unit == LP_NONE ? "" : plan->group[side->unit[unit].group].name,
                                         .handle = plan->entry[entry].name};
    for (uint32_t k = side->entry_first_unit[entry]; k < side->entry_first_unit[entry + 1]; k++) {
        const uint32_t u = side->entry_unit[k];
        if (!w->is_touched[u])
            w->touched[w->touched_count++] = u;
        w->is_touched[u] = true;
    }
}

static void list_unit(work *w, lp_push_order *o, uint32_t unit, sized *list)
{
    const lp_device_unit *u = &w->side.unit[unit];
    size_t count = 0;
    for (uint32_t k = u->first_entry; k < u->first_entry + u->entry_count; k++) {
        const uint32_t entry = w->side.unit_entry[k];
        if (!w->is_listed[entry] && w->plan->entry[entry].use == LP_USE_LOADED)
            list[count++] = (sized){lp_slot_bytes(&w->plan->entry[entry]), entry};
    }
    if (count > 1)
        qsort(list, count, sizeof *list, by_size);
    for (size_t i = 0; i < count; i++)
        list_entry(w, o, list[i].entry, unit);
}

static lp_status make_order(work *w, lp_push_order *o, lp_error *err)
{
    const lp_plan *plan = w->plan;
    sized *list;
    LP_TRY(lp_push_order_take(o, plan->entry_count, sizeof *list, &list, err));
    for (uint32_t e = 0; e < plan->entry_count; e++) /* what only checks read waits for nobody */
        if (w->side.entry_first_unit[e] == w->side.entry_first_unit[e + 1] && plan->entry[e].use == LP_USE_LOADED)
            list_entry(w, o, e, LP_NONE);
    for (uint32_t u = 0; u < w->side.unit_count; u++) {
        if (!w->is_touched[u])
            list_unit(w, o, u, list);
        while (w->touched_count > 0)
            list_unit(w, o, w->touched[--w->touched_count], list);
    }
    lp_release(w->alloc, list);
    return LP_OK;
}

/* ---- all of it ---- */

static lp_status make(work *w, lp_push_order *o, lp_error *err)
{
    LP_TRY(lp_push_order_take(o, w->plan->stage_count, sizeof *w->side.stage, &w->side.stage, err));
    LP_TRY(lp_device_units(w->plan, &w->side, err));
    LP_TRY(lp_push_order_take(o, w->plan->entry_count, sizeof *w->is_listed, &w->is_listed, err));
    LP_TRY(lp_push_order_take(o, w->side.unit_count, sizeof *w->is_touched, &w->is_touched, err));
    LP_TRY(lp_push_order_take(o, w->side.unit_count, sizeof *w->touched, &w->touched, err));
    LP_TRY(lp_push_order_take(o, w->plan->entry_count, sizeof *o->step, &o->step, err));
    LP_TRY(make_order(w, o, err));
    return lp_push_order_play(o, w->plan, &w->side, err);
}

lp_status lp_push_order_of(lp_push_order **out, const lp_plan *plan, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    work w = {.plan = plan, .alloc = alloc, .side = {.alloc = alloc}};
    lp_push_order *o = lp_allocate_zero(alloc, sizeof *o);
    if (o == NULL)
        return lp_fail_memory(err);
    o->alloc = alloc;
    const lp_status status = make(&w, o, err);
    lp_device_units_free(&w.side);
    lp_release(alloc, (void *)w.side.stage);
    lp_release(alloc, w.is_listed);
    lp_release(alloc, w.is_touched);
    lp_release(alloc, w.touched);
    if (status == LP_OK)
        *out = o;
    else
        lp_push_order_free(o);
    return status;
}

int64_t lp_push_order_count(const lp_push_order *o)
{
    return o->count;
}

const lp_push_step *lp_push_order_at(const lp_push_order *o, int64_t index)
{
    return index >= 0 && index < o->count ? &o->step[index] : NULL;
}

void lp_push_order_peaks(const lp_push_order *o, int64_t *host, int64_t *device)
{
    *host = o->host_peak;
    *device = o->device_peak;
}

void lp_push_order_free(lp_push_order *o)
{
    if (o == NULL)
        return;
    lp_release(o->alloc, o->step);
    lp_release(o->alloc, o);
}
