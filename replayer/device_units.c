/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units and items of a plan on a device.
 *
 * Nothing stands beside the live tensors there, so a derive reads what is live: the groups of the regions that it reads
 * become live together with that of its result. A unit waits for every name of which it takes bytes and for every name
 * that one of its derives waits for; then it is pushed, and its derives run.
 */
#include "replayer/device_session.h"

#include <stdlib.h>

typedef struct pair {
    uint32_t key, value;
} pair;

typedef struct pairs {
    pair *item;
    int64_t count, capacity;
} pairs;

static int by_key(const void *a, const void *b)
{
    const pair *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static lp_status add_pair(const lp_device_side *side, pairs *list, uint32_t key, uint32_t value, lp_error *err)
{
    if (!lp_grow(side->alloc, (void **)&list->item, &list->capacity, list->count + 1, sizeof *list->item))
        return lp_fail_memory(err);
    list->item[list->count++] = (pair){key, value};
    return LP_OK;
}

/* Sorts, and drops what is there twice. */
static lp_status tidy(pairs *list, lp_error *err)
{
    int64_t kept = 0;
    if (list->count > 0)
        qsort(list->item, (size_t)list->count, sizeof *list->item, by_key);
    for (int64_t i = 0; i < list->count; i++)
        if (kept == 0 || by_key(&list->item[kept - 1], &list->item[i]) != 0)
            list->item[kept++] = list->item[i];
    list->count = kept;
    return kept < LP_NONE ? LP_OK : lp_fail(err, LP_E_LIMIT, "too many names and commit groups in one scope");
}

/* ---- units ---- */

static uint32_t group_of(const lp_plan *plan, uint32_t dest)
{
    return plan->storage[plan->storage_of[dest]].group;
}

static uint32_t find_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

static lp_status number_units(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    const size_t groups = (size_t)plan->group_count + 1;
    uint32_t *parent = lp_allocate(side->alloc, groups * sizeof *parent);
    side->unit_of_group = lp_allocate(side->alloc, groups * sizeof *side->unit_of_group);
    side->unit = lp_allocate_zero(side->alloc, groups * sizeof *side->unit);
    if (parent == NULL || side->unit_of_group == NULL || side->unit == NULL) {
        lp_release(side->alloc, parent);
        return lp_fail_memory(err);
    }
    for (uint32_t g = 0; g < plan->group_count; g++)
        parent[g] = g;
    for (uint32_t j = 0; j < plan->job_count; j++) {
        const lp_job *job = &plan->job[j];
        for (uint32_t i = 0; job->group != LP_NONE && i < job->derive->ninput; i++)
            if (!job->derive->input[i].staged)
                parent[find_root(parent, group_of(plan, job->derive->input[i].index))] = find_root(parent, job->group);
    }
    for (uint32_t g = 0; g < plan->group_count; g++)
        side->unit_of_group[g] = LP_NONE;
    for (uint32_t g = 0; g < plan->group_count; g++) { /* a root may stand behind: number it when it is first met */
        const uint32_t root = find_root(parent, g);
        if (side->unit_of_group[root] == LP_NONE) {
            side->unit[side->unit_count].group = g;
            side->unit_of_group[root] = side->unit_count++;
        }
        side->unit_of_group[g] = side->unit_of_group[root];
    }
    lp_release(side->alloc, parent);
    return LP_OK;
}

/* ---- items ---- */

static uint32_t unit_of_step(const lp_plan *plan, const lp_device_side *side, const lp_step *step)
{
    return step->stage != LP_NONE ? LP_NONE : side->unit_of_group[group_of(plan, step->dest)];
}

static void add_step(const lp_plan *plan, lp_device_side *side, const lp_step *step, uint32_t *used)
{
    lp_device_item *item = &side->item[side->item_count - 1];
    uint8_t *to = step->stage != LP_NONE ? side->stage[step->stage] : plan->address[step->dest];
    side->step[(*used)++] = (lp_item_step){step, to};
    item->step_count++;
    item->bytes += step->stage != LP_NONE ? 0 : step->map->dst_bytes;
}

/* The steps of one entry by unit; what derives stage comes last. `order` has room for them. */
static void add_entry(const lp_plan *plan, lp_device_side *side, uint32_t e, pair *order, uint32_t *used)
{
    const lp_entry *entry = &plan->entry[e];
    uint32_t count = 0;
    for (uint32_t i = 0; i < entry->step_count; i++) {
        const lp_step *step = &plan->step[entry->first_step + i];
        if (step->map->nbox > 0)
            order[count++] = (pair){unit_of_step(plan, side, step), entry->first_step + i};
    }
    if (count > 1)
        qsort(order, count, sizeof *order, by_key);
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || order[i].key != order[i - 1].key)
            side->item[side->item_count++] = (lp_device_item){.entry = e, .unit = order[i].key, .first_step = *used};
        add_step(plan, side, &plan->step[order[i].value], used);
    }
}

static lp_status make_items(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    const size_t steps = (size_t)plan->step_count + (size_t)plan->fill_count + 1;
    uint32_t used = 0;
    pair *order = lp_allocate(side->alloc, steps * sizeof *order);
    side->step = lp_allocate(side->alloc, steps * sizeof *side->step);
    side->item = lp_allocate(side->alloc, steps * sizeof *side->item);
    side->entry_item = lp_allocate(side->alloc, ((size_t)plan->entry_count + 1) * sizeof *side->entry_item);
    const bool is_whole = order != NULL && side->step != NULL && side->item != NULL && side->entry_item != NULL;
    for (uint32_t e = 0; is_whole && e < plan->entry_count; e++) {
        side->entry_item[e] = side->item_count;
        add_entry(plan, side, e, order, &used);
    }
    lp_release(side->alloc, order);
    if (!is_whole)
        return lp_fail_memory(err);
    side->entry_item[plan->entry_count] = side->item_count;
    side->fill_item = LP_NONE;
    if (plan->fill_count > 0) {
        side->fill_item = side->item_count++;
        side->item[side->fill_item] = (lp_device_item){.entry = LP_NONE, .unit = LP_NONE, .first_step = used};
        for (int64_t i = 0; i < plan->fill_count; i++)
            add_step(plan, side, &plan->fill[i], &used);
    }
    return LP_OK;
}

/* ---- who waits for whom ---- */

static uint32_t unit_of_job(const lp_plan *plan, const lp_device_side *side, uint32_t job)
{
    return plan->job[job].group == LP_NONE ? LP_NONE : side->unit_of_group[plan->job[job].group];
}

/* Pairs (unit, item) and (entry, unit). */
static lp_status list_waits(const lp_plan *plan, lp_device_side *side, pairs *items, pairs *waits, lp_error *err)
{
    for (uint32_t e = 0; e < plan->entry_count; e++) {
        uint32_t staged = LP_NONE;
        for (uint32_t i = side->entry_item[e]; i < side->entry_item[e + 1]; i++) {
            if (side->item[i].unit == LP_NONE) {
                staged = i;
                continue;
            }
            LP_TRY(add_pair(side, items, side->item[i].unit, i, err));
            LP_TRY(add_pair(side, waits, e, side->item[i].unit, err));
        }
        for (uint32_t k = 0; k < plan->entry[e].job_count; k++) {
            const uint32_t unit = unit_of_job(plan, side, plan->entry_job[plan->entry[e].first_job + k]);
            if (unit == LP_NONE)
                continue;
            LP_TRY(add_pair(side, waits, e, unit, err));
            if (staged != LP_NONE)
                LP_TRY(add_pair(side, items, unit, staged, err));
        }
    }
    return LP_OK;
}

static lp_status values_of(const lp_device_side *side, const pairs *list, uint32_t **out, lp_error *err)
{
    *out = lp_allocate(side->alloc, ((size_t)list->count + 1) * sizeof **out);
    if (*out == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < list->count; i++)
        (*out)[i] = list->item[i].value;
    return LP_OK;
}

static lp_status list_by_entry(const lp_plan *plan, lp_device_side *side, const pairs *waits, lp_error *err)
{
    LP_TRY(values_of(side, waits, &side->entry_unit, err));
    side->entry_first_unit = lp_allocate_zero(side->alloc, ((size_t)plan->entry_count + 2) * sizeof(uint32_t));
    if (side->entry_first_unit == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < waits->count; i++)
        side->entry_first_unit[waits->item[i].key + 1]++;
    for (uint32_t e = 0; e < plan->entry_count; e++)
        side->entry_first_unit[e + 1] += side->entry_first_unit[e];
    return LP_OK;
}

/* Turns (entry, unit) into (unit, entry) in place. */
static void turn(pairs *waits)
{
    for (int64_t i = 0; i < waits->count; i++)
        waits->item[i] = (pair){waits->item[i].value, waits->item[i].key};
    if (waits->count > 0)
        qsort(waits->item, (size_t)waits->count, sizeof *waits->item, by_key);
}

static lp_status list_jobs(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    uint32_t *at = lp_allocate_zero(side->alloc, ((size_t)side->unit_count + 1) * sizeof *at);
    side->unit_job = lp_allocate(side->alloc, ((size_t)plan->job_count + 1) * sizeof *side->unit_job);
    if (at == NULL || side->unit_job == NULL) {
        lp_release(side->alloc, at);
        return lp_fail_memory(err);
    }
    for (uint32_t j = 0; j < plan->job_count; j++)
        if (unit_of_job(plan, side, j) != LP_NONE)
            side->unit[unit_of_job(plan, side, j)].job_count++;
    uint32_t first = 0;
    for (uint32_t u = 0; u < side->unit_count; u++) {
        at[u] = side->unit[u].first_job = first;
        first += side->unit[u].job_count;
    }
    for (uint32_t j = 0; j < plan->job_count; j++)
        if (unit_of_job(plan, side, j) != LP_NONE)
            side->unit_job[at[unit_of_job(plan, side, j)]++] = j;
    lp_release(side->alloc, at);
    return LP_OK;
}

typedef struct sized {
    int64_t bytes;
    uint32_t entry;
} sized;

static int by_falling_size(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Names of each unit, the largest first. */
static lp_status sort_by_size(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    sized *list = lp_allocate(side->alloc, ((size_t)plan->entry_count + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    for (uint32_t u = 0; u < side->unit_count; u++) {
        uint32_t *entry = &side->unit_entry[side->unit[u].first_entry];
        const uint32_t count = side->unit[u].entry_count;
        for (uint32_t k = 0; k < count; k++)
            list[k] = (sized){lp_slot_bytes(&plan->entry[entry[k]]), entry[k]};
        if (count > 1)
            qsort(list, count, sizeof *list, by_falling_size);
        for (uint32_t k = 0; k < count; k++)
            entry[k] = list[k].entry;
    }
    lp_release(side->alloc, list);
    return LP_OK;
}

static lp_status list_shared(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    side->shared = lp_allocate(side->alloc, ((size_t)plan->entry_count + 1) * sizeof *side->shared);
    if (side->shared == NULL)
        return lp_fail_memory(err);
    for (uint32_t e = 0; e < plan->entry_count; e++)
        if (side->entry_first_unit[e + 1] - side->entry_first_unit[e] > 1)
            side->shared[side->shared_count++] = e;
    return LP_OK;
}

static lp_status list_members(const lp_plan *plan, lp_device_side *side, pairs *items, pairs *waits, lp_error *err)
{
    LP_TRY(list_waits(plan, side, items, waits, err));
    LP_TRY(tidy(items, err));
    LP_TRY(tidy(waits, err));
    LP_TRY(list_by_entry(plan, side, waits, err));
    turn(waits);
    LP_TRY(values_of(side, items, &side->unit_item, err));
    LP_TRY(values_of(side, waits, &side->unit_entry, err));
    for (int64_t i = items->count; i-- > 0;) {
        side->unit[items->item[i].key].first_item = (uint32_t)i;
        side->unit[items->item[i].key].item_count++;
    }
    for (int64_t i = waits->count; i-- > 0;) {
        side->unit[waits->item[i].key].first_entry = (uint32_t)i;
        side->unit[waits->item[i].key].entry_count++;
    }
    LP_TRY(sort_by_size(plan, side, err));
    LP_TRY(list_shared(plan, side, err));
    return list_jobs(plan, side, err);
}

void lp_device_units_free(lp_device_side *side)
{
    void *const owned[] = {
        side->step,       side->item,     side->entry_item,       side->unit_of_group, side->unit,  side->unit_item,
        side->unit_entry, side->unit_job, side->entry_first_unit, side->entry_unit,    side->shared};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        lp_release(side->alloc, owned[i]);
}

lp_status lp_device_units(const lp_plan *plan, lp_device_side *side, lp_error *err)
{
    pairs items = {.count = 0}, waits = {.count = 0};
    LP_TRY(number_units(plan, side, err));
    LP_TRY(make_items(plan, side, err));
    const lp_status status = list_members(plan, side, &items, &waits, err);
    lp_release(side->alloc, items.item);
    lp_release(side->alloc, waits.item);
    return status;
}
