/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of pushes that keeps the staging of layerwise sessions small: commit group by commit group, one that
 * shares a name with those before it first; inside a group the largest name last, because what completes a group need
 * not wait. Then the order is played through by the rules of both kinds of sessions, which gives the peaks.
 */
#include "replayer/push_order.h"

#include <stdlib.h>

struct lp_push_order {
    const lp_alloc *alloc;
    lp_push_step *step;
    int64_t count;
    int64_t host_peak, device_peak;
};

typedef struct work {
    const lp_plan *plan;
    const lp_alloc *alloc;
    lp_device_side side;
    bool *is_listed;  /* by entry */
    bool *is_touched; /* by unit: some of its names are listed, or all */
    uint32_t *touched, touched_count;
} work;

static lp_status take(const work *w, size_t count, size_t bytes, void *out, lp_error *err)
{
    void *memory = lp_allocate_zero(w->alloc, (count + 1) * bytes);
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
    LP_TRY(take(w, plan->entry_count, sizeof *list, &list, err));
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

/* ---- what it takes on a device ---- */

static lp_status play_device(const work *w, lp_push_order *o, lp_error *err)
{
    const lp_plan *plan = w->plan;
    const lp_device_side *side = &w->side;
    uint32_t *unit_left, *name_left;
    int64_t used = 0, most = 0, largest = 0;
    LP_TRY(take(w, side->unit_count, sizeof *unit_left, &unit_left, err));
    lp_status status = take(w, plan->entry_count, sizeof *name_left, &name_left, err);
    for (uint32_t u = 0; status == LP_OK && u < side->unit_count; u++)
        for (uint32_t k = side->unit[u].first_entry; k < side->unit[u].first_entry + side->unit[u].entry_count; k++)
            unit_left[u] += plan->entry[side->unit_entry[k]].use == LP_USE_LOADED;
    for (int64_t i = 0; status == LP_OK && i < o->count; i++) {
        const uint32_t entry = plan->entry_of[o->step[i].handle];
        const uint32_t first = side->entry_first_unit[entry], end = side->entry_first_unit[entry + 1];
        const int64_t bytes = plan->entry[entry].reads ? lp_slot_bytes(&plan->entry[entry]) : 0;
        largest = bytes > largest ? bytes : largest;
        for (uint32_t k = first; k < end; k++)
            name_left[entry] += --unit_left[side->entry_unit[k]] > 0;
        used += name_left[entry] > 0 ? bytes : 0; /* else everything that waited for it is complete */
        most = used > most ? used : most;
        for (uint32_t k = first; k < end; k++) {
            const uint32_t u = side->entry_unit[k];
            if (unit_left[u] > 0)
                continue;
            for (uint32_t n = side->unit[u].first_entry; n < side->unit[u].first_entry + side->unit[u].entry_count;
                 n++) {
                const uint32_t other = side->unit_entry[n];
                if (other != entry && name_left[other] > 0 && --name_left[other] == 0)
                    used -= plan->entry[other].reads ? lp_slot_bytes(&plan->entry[other]) : 0;
            }
        }
        o->step[i].device_staging = used;
    }
    o->device_peak = most + largest; /* a session keeps room for one name aside */
    for (uint32_t k = 0; k < plan->stage_count; k++)
        o->device_peak += (plan->stage[k].bytes + LP_SLOT_ALIGN - 1) / LP_SLOT_ALIGN * LP_SLOT_ALIGN;
    lp_release(w->alloc, unit_left);
    lp_release(w->alloc, name_left);
    return status;
}

/* ---- what it takes on the host ---- */

typedef struct host_play {
    const work *w;
    uint32_t *group_left; /* by group: names that it waits for */
    bool *is_open;
    uint32_t *job_left, *group_stamp, *job_stamp, *stack;
    bool *has_stage;
    uint32_t stamp;
    int64_t used;
} host_play;

typedef void (*group_fn)(host_play *h, uint32_t group);

static void visit(host_play *h, uint32_t group, group_fn fn)
{
    if (group == LP_NONE || h->group_stamp[group] == h->stamp)
        return;
    h->group_stamp[group] = h->stamp;
    fn(h, group);
}

/* Groups that the entry writes, and those of every derive that waits for it, directly or not. */
static void visit_groups(host_play *h, uint32_t entry, group_fn fn)
{
    const lp_plan *plan = h->w->plan;
    const lp_entry *e = &plan->entry[entry];
    uint32_t depth = 0;
    h->stamp++;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (plan->step[i].dest != LP_NONE)
            visit(h, plan->storage[plan->storage_of[plan->step[i].dest]].group, fn);
    for (uint32_t i = 0; i < e->job_count; i++)
        h->stack[depth++] = plan->entry_job[e->first_job + i];
    for (uint32_t i = 0; i < depth; i++)
        h->job_stamp[h->stack[i]] = h->stamp;
    while (depth > 0) {
        const lp_job *job = &plan->job[h->stack[--depth]];
        visit(h, job->group, fn);
        for (uint32_t i = 0; i < job->next_count; i++) {
            const uint32_t next = plan->job_next[job->first_next + i];
            if (h->job_stamp[next] != h->stamp)
                h->stack[depth++] = next;
            h->job_stamp[next] = h->stamp;
        }
    }
}

static void count_group(host_play *h, uint32_t group)
{
    h->group_left[group]++;
}

static void open_group(host_play *h, uint32_t group)
{
    if (!h->is_open[group])
        h->used += h->w->plan->group[group].bytes;
    h->is_open[group] = true;
}

static void leave_group(host_play *h, uint32_t group)
{
    if (--h->group_left[group] == 0)
        h->used -= h->w->plan->group[group].bytes;
}

/* Scratch of staged inputs is there until their derive has run. */
static void finish_jobs(host_play *h, uint32_t entry)
{
    const lp_plan *plan = h->w->plan;
    const lp_entry *e = &plan->entry[entry];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < e->job_count; i++) {
        const uint32_t job = plan->entry_job[e->first_job + i];
        if (--h->job_left[job] == 0)
            h->stack[depth++] = job;
    }
    while (depth > 0) {
        const lp_job *job = &plan->job[h->stack[--depth]];
        for (uint32_t k = job->first_stage; k < job->first_stage + job->stage_count; k++)
            h->used -= h->has_stage[k] ? plan->stage[k].bytes : 0;
        for (uint32_t i = 0; i < job->next_count; i++)
            if (--h->job_left[plan->job_next[job->first_next + i]] == 0)
                h->stack[depth++] = plan->job_next[job->first_next + i];
    }
}

static void play_steps(host_play *h, lp_push_order *o)
{
    const lp_plan *plan = h->w->plan;
    for (uint32_t j = 0; j < plan->job_count; j++)
        for (uint32_t i = 0; i < plan->job[j].next_count; i++)
            h->job_left[plan->job_next[plan->job[j].first_next + i]]++;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        for (uint32_t i = 0; i < plan->entry[e].job_count; i++)
            h->job_left[plan->entry_job[plan->entry[e].first_job + i]]++;
    for (int64_t i = 0; i < o->count; i++)
        visit_groups(h, plan->entry_of[o->step[i].handle], count_group);
    for (int64_t i = 0; i < o->count; i++) {
        const uint32_t entry = plan->entry_of[o->step[i].handle];
        const lp_entry *e = &plan->entry[entry];
        visit_groups(h, entry, open_group);
        for (uint32_t k = e->first_step; k < e->first_step + e->step_count; k++) {
            const uint32_t stage = plan->step[k].stage;
            if (stage == LP_NONE || h->has_stage[stage])
                continue;
            h->has_stage[stage] = true;
            h->used += plan->stage[stage].bytes;
        }
        o->host_peak = h->used > o->host_peak ? h->used : o->host_peak;
        finish_jobs(h, entry);
        visit_groups(h, entry, leave_group);
        o->step[i].host_staging = h->used;
    }
}

static lp_status play_host(const work *w, lp_push_order *o, lp_error *err)
{
    const lp_plan *plan = w->plan;
    host_play h = {.w = w};
    lp_status status = take(w, plan->group_count, sizeof *h.group_left, &h.group_left, err);
    if (status == LP_OK)
        status = take(w, plan->group_count, sizeof *h.is_open, &h.is_open, err);
    if (status == LP_OK)
        status = take(w, plan->group_count, sizeof *h.group_stamp, &h.group_stamp, err);
    if (status == LP_OK)
        status = take(w, plan->job_count, sizeof *h.job_left, &h.job_left, err);
    if (status == LP_OK)
        status = take(w, plan->job_count, sizeof *h.job_stamp, &h.job_stamp, err);
    if (status == LP_OK)
        status = take(w, plan->job_count, sizeof *h.stack, &h.stack, err);
    if (status == LP_OK)
        status = take(w, plan->stage_count, sizeof *h.has_stage, &h.has_stage, err);
    if (status == LP_OK)
        play_steps(&h, o);
    lp_release(w->alloc, h.group_left);
    lp_release(w->alloc, h.is_open);
    lp_release(w->alloc, h.group_stamp);
    lp_release(w->alloc, h.job_left);
    lp_release(w->alloc, h.job_stamp);
    lp_release(w->alloc, h.stack);
    lp_release(w->alloc, h.has_stage);
    return status;
}

/* ---- all of it ---- */

static lp_status make(work *w, lp_push_order *o, lp_error *err)
{
    LP_TRY(take(w, w->plan->stage_count, sizeof *w->side.stage, &w->side.stage, err));
    LP_TRY(lp_device_units(w->plan, &w->side, err));
    LP_TRY(take(w, w->plan->entry_count, sizeof *w->is_listed, &w->is_listed, err));
    LP_TRY(take(w, w->side.unit_count, sizeof *w->is_touched, &w->is_touched, err));
    LP_TRY(take(w, w->side.unit_count, sizeof *w->touched, &w->touched, err));
    LP_TRY(take(w, w->plan->entry_count, sizeof *o->step, &o->step, err));
    LP_TRY(make_order(w, o, err));
    LP_TRY(play_device(w, o, err));
    return play_host(w, o, err);
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
