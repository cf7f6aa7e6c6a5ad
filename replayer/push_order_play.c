/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An order of pushes played through by the rules of layerwise sessions, on a device and on the host: the staging that
 * is in use after each push, and the peaks.
 */
#include "replayer/push_order.h"

/* ---- what it takes on a device ---- */

/* Staging that a name takes while it waits. */
static int64_t bytes_to_keep(const lp_plan *plan, uint32_t entry)
{
    return plan->entry[entry].reads ? lp_slot_bytes(&plan->entry[entry]) : 0;
}

/* A unit is complete by `entry`: staging of the other names that waited for it alone. */
static int64_t leave_unit(const lp_plan *plan, const lp_device_side *side, uint32_t unit, uint32_t entry,
                          uint32_t *name_left)
{
    const lp_device_unit *u = &side->unit[unit];
    int64_t bytes = 0;
    for (uint32_t n = u->first_entry; n < u->first_entry + u->entry_count; n++) {
        const uint32_t other = side->unit_entry[n];
        if (other != entry && name_left[other] > 0 && --name_left[other] == 0)
            bytes += bytes_to_keep(plan, other);
    }
    return bytes;
}

static lp_status play_device(const lp_plan *plan, const lp_device_side *side, lp_push_order *o, lp_error *err)
{
    uint32_t *unit_left, *name_left;
    int64_t used = 0, most = 0, largest = 0;
    LP_TRY(lp_push_order_take(o, side->unit_count, sizeof *unit_left, &unit_left, err));
    lp_status status = lp_push_order_take(o, plan->entry_count, sizeof *name_left, &name_left, err);
    for (uint32_t u = 0; status == LP_OK && u < side->unit_count; u++)
        for (uint32_t k = side->unit[u].first_entry; k < side->unit[u].first_entry + side->unit[u].entry_count; k++)
            unit_left[u] += plan->entry[side->unit_entry[k]].use == LP_USE_LOADED;
    for (int64_t i = 0; status == LP_OK && i < o->count; i++) {
        const uint32_t entry = plan->entry_of[o->step[i].handle];
        const uint32_t first = side->entry_first_unit[entry], end = side->entry_first_unit[entry + 1];
        const int64_t bytes = bytes_to_keep(plan, entry);
        largest = bytes > largest ? bytes : largest;
        for (uint32_t k = first; k < end; k++)
            name_left[entry] += --unit_left[side->entry_unit[k]] > 0;
        used += name_left[entry] > 0 ? bytes : 0; /* else everything that waited for it is complete */
        most = used > most ? used : most;
        for (uint32_t k = first; k < end; k++)
            if (unit_left[side->entry_unit[k]] == 0)
                used -= leave_unit(plan, side, side->entry_unit[k], entry, name_left);
        o->step[i].device_staging = used;
    }
    o->device_peak = most + largest; /* a session keeps room for one name aside */
    for (uint32_t k = 0; k < plan->stage_count; k++)
        o->device_peak += (plan->stage[k].bytes + LP_SLOT_ALIGN - 1) / LP_SLOT_ALIGN * LP_SLOT_ALIGN;
    lp_release(o->alloc, unit_left);
    lp_release(o->alloc, name_left);
    return status;
}

/* ---- what it takes on the host ---- */

typedef struct host_play {
    const lp_plan *plan;
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
    const lp_plan *plan = h->plan;
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
        h->used += h->plan->group[group].bytes;
    h->is_open[group] = true;
}

static void leave_group(host_play *h, uint32_t group)
{
    if (--h->group_left[group] == 0)
        h->used -= h->plan->group[group].bytes;
}

/* Scratch of staged inputs is there until their derive has run. */
static void finish_jobs(host_play *h, uint32_t entry)
{
    const lp_plan *plan = h->plan;
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
    const lp_plan *plan = h->plan;
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

static lp_status play_host(const lp_plan *plan, lp_push_order *o, lp_error *err)
{
    host_play h = {.plan = plan};
    lp_status status = lp_push_order_take(o, plan->group_count, sizeof *h.group_left, &h.group_left, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->group_count, sizeof *h.is_open, &h.is_open, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->group_count, sizeof *h.group_stamp, &h.group_stamp, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->job_count, sizeof *h.job_left, &h.job_left, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->job_count, sizeof *h.job_stamp, &h.job_stamp, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->job_count, sizeof *h.stack, &h.stack, err);
    if (status == LP_OK)
        status = lp_push_order_take(o, plan->stage_count, sizeof *h.has_stage, &h.has_stage, err);
    if (status == LP_OK)
        play_steps(&h, o);
    lp_release(o->alloc, h.group_left);
    lp_release(o->alloc, h.is_open);
    lp_release(o->alloc, h.group_stamp);
    lp_release(o->alloc, h.job_left);
    lp_release(o->alloc, h.job_stamp);
    lp_release(o->alloc, h.stack);
    lp_release(o->alloc, h.has_stage);
    return status;
}

lp_status lp_push_order_play(lp_push_order *o, const lp_plan *plan, const lp_device_side *side, lp_error *err)
{
    LP_TRY(play_device(plan, side, o, err));
    return play_host(plan, o, err);
}
