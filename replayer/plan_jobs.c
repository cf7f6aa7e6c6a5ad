/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for whom. A derive waits for every name and every other derive that writes bytes which it reads, and for
 * those that write into its output, so that a record never lands on a result. Regions are compared in storage
 * coordinates: a destination may alias another one.
 */
#include "replayer/plan.h"

#include <assert.h>
#include <stdlib.h>

/* Bytes of a storage that a derive reads or writes. */
typedef struct region {
    const lp_map *map; /* its destination bytes + off; NULL: take the interval */
    int64_t off, lo, hi;
    uint32_t storage;
} region;

/* A record as bytes of its storage, or a fallback's region, or a derive's output. */
typedef struct writer {
    const lp_map *map; /* NULL: the interval */
    int64_t off, lo, hi;
    uint32_t storage;
    uint32_t entry; /* LP_NONE for a derive */
    uint32_t derive;
} writer;

typedef struct edge {
    uint32_t from, to;
} edge;

typedef struct edges {
    edge *item;
    int64_t count, capacity;
} edges;

/* Far more than any model has; each costs 8 bytes. */
enum { EDGES_MAX = 1 << 24 };

typedef struct work {
    lp_plan *plan;
    const lp_alloc *alloc;
    writer *writer; /* by storage, then lo */
    int64_t writer_count;
    uint32_t *first; /* by storage: its writers */
    int64_t
        *reach; /* a tree of maxima over the ends of the writers: node n is over 2 n and 2 n + 1, leaves come last */
    int64_t leaves;
    edges names, jobs;
    bool *needs_fallback; /* by derive */
} work;

static lp_status add_edge(const work *w, edges *list, uint32_t from, uint32_t to, lp_error *err)
{
    void *items = list->item;
    if (list->count >= EDGES_MAX)
        return lp_fail(err, LP_E_LIMIT, "derives wait for more than %d writes of what they read", EDGES_MAX);
    if (!lp_grow(w->alloc, &items, &list->capacity, list->count + 1, sizeof *list->item))
        return lp_fail_memory(err);
    list->item = items;
    list->item[list->count++] = (edge){from, to};
    return LP_OK;
}

/* ---- writers ---- */

static int by_place(const void *a, const void *b)
{
    const writer *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static void add_writer(work *w, uint32_t dest, const lp_map *map, int64_t off, uint32_t entry, uint32_t derive)
{
    const lp_plan *plan = w->plan;
    const int64_t base = plan->rows->dest[dest].offset + off;
    writer *to = &w->writer[w->writer_count];
    *to = (writer){.map = map, .off = base, .storage = plan->storage_of[dest], .entry = entry, .derive = derive};
    to->lo = base + (map == NULL ? 0 : map->dst_lo);
    to->hi = base + (map == NULL ? lp_destination_span(&plan->rows->dest[dest]) : map->dst_hi);
    if (to->lo < to->hi)
        w->writer_count++;
}

static lp_status build_reach(work *w, lp_error *err)
{
    for (w->leaves = 1; w->leaves < w->writer_count;)
        w->leaves *= 2;
    w->reach = lp_allocate(w->alloc, (size_t)w->leaves * 2 * sizeof *w->reach);
    if (w->reach == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < w->leaves; i++)
        w->reach[w->leaves + i] = i < w->writer_count ? w->writer[i].hi : INT64_MIN;
    for (int64_t n = w->leaves - 1; n > 0; n--)
        w->reach[n] = w->reach[2 * n] > w->reach[2 * n + 1] ? w->reach[2 * n] : w->reach[2 * n + 1];
    return LP_OK;
}

/* The first writer from number i on, below `end`, that ends behind `lo`; or `end`. */
static int64_t next_behind(const work *w, int64_t i, int64_t end, int64_t lo)
{
    if (i >= end)
        return end;
    for (int64_t n = w->leaves + i; n > 0; n++) {
        if (w->reach[n] > lo) {
            while (n < w->leaves)
                n = w->reach[2 * n] > lo ? 2 * n : 2 * n + 1;
            return n - w->leaves < end ? n - w->leaves : end;
        }
        while (n % 2 == 1) /* nothing here: up to where something stands on the right */
            n /= 2;
        if (n == 0)
            break;
    }
    return end;
}

static lp_status list_writers(work *w, lp_error *err)
{
    lp_plan *plan = w->plan;
    const lp_rows *rows = plan->rows;
    const size_t most = (size_t)plan->step_count + rows->nrefusal + plan->job_count;
    w->writer = lp_allocate(w->alloc, most * sizeof *w->writer);
    w->first = lp_allocate_zero(w->alloc, (plan->storage_count + 1) * sizeof *w->first);
    if (w->writer == NULL || w->first == NULL)
        return lp_fail_memory(err);
    for (uint32_t e = 0; e < plan->entry_count; e++)
        for (uint32_t i = 0; i < plan->entry[e].step_count; i++) {
            const lp_step *step = &plan->step[plan->entry[e].first_step + i];
            if (step->dest != LP_NONE)
                add_writer(w, step->dest, step->map, step->dst_off, e, LP_NONE);
        }
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        if (rows->refusal[i].dest < rows->ndest)
            add_writer(w, rows->refusal[i].dest, rows->refusal[i].map, 0, plan->entry_of[rows->refusal[i].name],
                       LP_NONE);
    for (uint32_t d = 0; d < plan->job_count; d++)
        if (plan->derive[d].dest != LP_NONE) {
            add_writer(w, plan->derive[d].dest, plan->derive[d].map, 0, LP_NONE, d);
            plan->storage[plan->storage_of[plan->derive[d].dest]].is_written = true;
        }
    if (w->writer_count > 0)
        qsort(w->writer, (size_t)w->writer_count, sizeof *w->writer, by_place);
    for (int64_t i = 0; i < w->writer_count; i++)
        w->first[w->writer[i].storage + 1]++;
    for (uint32_t s = 0; s < plan->storage_count; s++)
        w->first[s + 1] += w->first[s];
    return build_reach(w, err);
}

/* ---- overlaps ---- */

static bool is_dense(const lp_map *map)
{
    return map == NULL || (map->nbox == 1 && map->box[0].rank == 0);
}

static bool overlaps(const work *w, const region *r, const writer *x)
{
    if (x->lo >= r->hi || x->hi <= r->lo)
        return false;
    /* The first byte of a map is one of its bytes, so next to a dense side it decides. */
    if ((is_dense(r->map) && x->lo >= r->lo) || (is_dense(x->map) && r->lo >= x->lo) || r->map == NULL ||
        x->map == NULL)
        return true;
    const lp_map *common;
    if (lp_map_intersect(&common, x->map, r->map, r->off - x->off, w->alloc, NULL) != LP_OK)
        return true; /* beyond the work bound: waiting for one name too many is safe */
    const bool result = common->nbox > 0;
    lp_map_free(common, w->alloc);
    return result;
}

/* Edges from everything that writes into `r` to derive d. */
static lp_status wait_for_writers(work *w, const region *r, uint32_t d, bool is_output, lp_error *err)
{
    const lp_plan *plan = w->plan;
    const int64_t end = w->first[r->storage + 1];
    for (int64_t i = next_behind(w, w->first[r->storage], end, r->lo); i < end && w->writer[i].lo < r->hi;
         i = next_behind(w, i + 1, end, r->lo)) {
        const writer *x = &w->writer[i];
        if (x->derive != LP_NONE && is_output && x->derive >= d)
            continue; /* of two that write one byte, the later one waits */
        if (!overlaps(w, r, x))
            continue;
        if (x->derive == d) {
            const char *name = plan->rows->dest[plan->derive[d].dest].name;
            return lp_fail_at(err, LP_E_UNSUPPORTED, name, -1, "the derive of '%s' reads its own result", name);
        }
        if (x->derive != LP_NONE) {
            LP_TRY(add_edge(w, &w->jobs, x->derive, d, err));
        } else {
            LP_TRY(add_edge(w, &w->names, x->entry, d, err));
            if (plan->entry[x->entry].use == LP_USE_FALLBACK && !is_output)
                w->needs_fallback[d] = true;
        }
    }
    return LP_OK;
}

static lp_status wait_for_input(work *w, const lp_derive_input *input, uint32_t d, lp_error *err)
{
    const lp_plan *plan = w->plan;
    if (input->staged) {
        const uint32_t entry = plan->entry_of[input->index];
        if (entry == LP_NONE)
            return lp_fail(err, LP_E_INTERNAL, "a staged input has no entry");
        if (plan->entry[entry].use == LP_USE_FALLBACK)
            w->needs_fallback[d] = true;
        return add_edge(w, &w->names, entry, d, err);
    }
    if (input->index >= plan->rows->ndest || input->map->src_elem != 1)
        return lp_fail(err, LP_E_CORRUPT, "a derive reads destination %u of %u", input->index, plan->rows->ndest);
    const lp_destination *dest = &plan->rows->dest[input->index];
    if (input->map->src_lo < 0 || input->map->src_hi > dest->storage_bytes - dest->offset || input->map->dst_lo < 0)
        return lp_fail_at(err, LP_E_CORRUPT, dest->name, -1, "a derive reads outside '%s'", dest->name);
    region r = {
        .off = dest->offset,
        .lo = dest->offset + input->map->src_lo,
        .hi = dest->offset + input->map->src_hi,
        .storage = plan->storage_of[input->index],
    };
    const lp_map *inverse = NULL;
    if (lp_map_inverse(&inverse, input->map, w->alloc, NULL) == LP_OK)
        r.map = inverse; /* else it reads a byte twice: the interval will do */
    const lp_status status = wait_for_writers(w, &r, d, false, err);
    lp_map_free(inverse, w->alloc);
    return status;
}

static lp_status wait_for_all(work *w, uint32_t d, lp_error *err)
{
    const lp_plan *plan = w->plan;
    const lp_derive *derive = &plan->derive[d];
    for (uint32_t i = 0; i < derive->ninput; i++)
        LP_TRY(wait_for_input(w, &derive->input[i], d, err));
    if (derive->dest == LP_NONE)
        return LP_OK;
    if (derive->dest >= plan->rows->ndest || derive->map == NULL || derive->map->src_elem != 1)
        return lp_fail(err, LP_E_CORRUPT, "a derive writes destination %u of %u", derive->dest, plan->rows->ndest);
    const lp_destination *dest = &plan->rows->dest[derive->dest];
    if (derive->map->dst_lo < 0 || derive->map->dst_hi > dest->storage_bytes - dest->offset)
        return lp_fail_at(err, LP_E_CORRUPT, dest->name, -1, "a derive writes outside '%s'", dest->name);
    const region r = {
        .map = derive->map,
        .off = dest->offset,
        .lo = dest->offset + derive->map->dst_lo,
        .hi = dest->offset + derive->map->dst_hi,
        .storage = plan->storage_of[derive->dest],
    };
    return wait_for_writers(w, &r, d, true, err);
}

/* ---- order ---- */

static int by_from(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

static void tidy(edges *list)
{
    int64_t kept = 0;
    if (list->count > 0)
        qsort(list->item, (size_t)list->count, sizeof *list->item, by_from);
    for (int64_t i = 0; i < list->count; i++)
        if (kept == 0 || by_from(&list->item[kept - 1], &list->item[i]) != 0)
            list->item[kept++] = list->item[i];
    list->count = kept;
}

/* Fills job_of so that each derive comes after those that it waits for. */
static lp_status put_in_order(work *w, uint32_t *job_of, lp_error *err)
{
    const uint32_t count = w->plan->job_count;
    uint32_t *first = lp_allocate_zero(w->alloc, (count + 2) * sizeof *first);
    uint32_t *waits = lp_allocate_zero(w->alloc, (count + 1) * sizeof *waits);
    uint32_t *queue = lp_allocate(w->alloc, (count + 1) * sizeof *queue);
    lp_status status = LP_OK;
    uint32_t head = 0, tail = 0;
    if (first == NULL || waits == NULL || queue == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int64_t i = 0; i < w->jobs.count; i++) {
        first[w->jobs.item[i].from + 1]++;
        waits[w->jobs.item[i].to]++;
    }
    for (uint32_t d = 0; d < count; d++)
        first[d + 1] += first[d];
    for (uint32_t d = 0; d < count; d++)
        if (waits[d] == 0)
            queue[tail++] = d;
    while (head < tail) {
        const uint32_t d = queue[head];
        job_of[d] = head++;
        assert(first[d] == first[d + 1] || w->jobs.item != NULL);
        for (uint32_t i = first[d]; i < first[d + 1]; i++)
            if (--waits[w->jobs.item[i].to] == 0)
                queue[tail++] = w->jobs.item[i].to;
    }
    for (uint32_t d = 0; status == LP_OK && tail != count && d < count; d++) {
        const uint32_t dest = w->plan->derive[d].dest;
        if (waits[d] > 0)
            status = lp_fail(err, LP_E_UNSUPPORTED, "derives wait for each other in a circle, such as that of '%s'",
                             dest == LP_NONE ? "a check" : w->plan->rows->dest[dest].name);
    }
release:
    lp_release(w->alloc, first);
    lp_release(w->alloc, waits);
    lp_release(w->alloc, queue);
    return status;
}

static lp_status store(work *w, lp_error *err)
{
    lp_plan *plan = w->plan;
    plan->job = lp_arena_get(&plan->arena, (plan->job_count + 1) * sizeof *plan->job);
    plan->job_of = lp_arena_get(&plan->arena, (plan->job_count + 1) * sizeof *plan->job_of);
    plan->job_next = lp_arena_get(&plan->arena, (size_t)(w->jobs.count + 1) * sizeof *plan->job_next);
    plan->entry_job = lp_arena_get(&plan->arena, (size_t)(w->names.count + 1) * sizeof *plan->entry_job);
    if (plan->job == NULL || plan->job_of == NULL || plan->job_next == NULL || plan->entry_job == NULL)
        return lp_fail_memory(err);
    LP_TRY(put_in_order(w, plan->job_of, err));
    for (uint32_t d = 0; d < plan->job_count; d++) {
        const lp_derive *derive = &plan->derive[d];
        lp_job *job = &plan->job[plan->job_of[d]];
        *job = (lp_job){.derive = derive, .needs_fallback = w->needs_fallback[d], .group = LP_NONE};
        if (derive->dest != LP_NONE)
            job->group = plan->storage[plan->storage_of[derive->dest]].group;
    }
    for (uint32_t s = plan->stage_count; s-- > 0;) {
        lp_job *job = &plan->job[plan->job_of[plan->stage[s].job]];
        plan->stage[s].job = (uint32_t)(job - plan->job);
        job->first_stage = s;
        job->stage_count++;
    }
    for (int64_t i = w->jobs.count; i-- > 0;) {
        lp_job *job = &plan->job[plan->job_of[w->jobs.item[i].from]];
        plan->job_next[i] = plan->job_of[w->jobs.item[i].to];
        job->first_next = (uint32_t)i;
        job->next_count++;
    }
    for (int64_t i = w->names.count; i-- > 0;) {
        lp_entry *entry = &plan->entry[w->names.item[i].from];
        plan->entry_job[i] = plan->job_of[w->names.item[i].to];
        entry->first_job = (uint32_t)i;
        entry->job_count++;
    }
    return LP_OK;
}

lp_status lp_plan_jobs(lp_plan *plan, lp_error *err)
{
    work w = {.plan = plan, .alloc = plan->platform.alloc};
    lp_status status = LP_OK;
    w.needs_fallback = lp_allocate_zero(w.alloc, plan->job_count + 1);
    if (w.needs_fallback == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(list_writers(&w, err), release);
    for (uint32_t d = 0; d < plan->job_count; d++)
        LP_TRY_GOTO(wait_for_all(&w, d, err), release);
    tidy(&w.names);
    tidy(&w.jobs);
    if (w.names.count >= LP_NONE || w.jobs.count >= LP_NONE)
        status = lp_fail(err, LP_E_LIMIT, "too many inputs of derives in one scope");
    else
        status = store(&w, err);
release:
    lp_release(w.alloc, w.needs_fallback);
    lp_release(w.alloc, w.writer);
    lp_release(w.alloc, w.first);
    lp_release(w.alloc, w.reach);
    lp_release(w.alloc, w.names.item);
    lp_release(w.alloc, w.jobs.item);
    return status;
}
