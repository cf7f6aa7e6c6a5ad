/* SPDX-License-Identifier: Apache-2.0 */
/* What a load costs: the scope is bound to meta tensors, and the plan that comes out is counted. */
#include "replayer/explain.h"
#include "replayer/plan.h"
#include "replayer/push_order.h"
#include "replayer/source_ranges.h"
#include "traces/family.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a plan without memory ---- */

static lp_status bind_meta(const lp_trace *trace, int32_t scope_index, lp_plan **plan, lp_error *err)
{
    lp_destinations *d;
    int64_t count;
    if (scope_index < 0 || scope_index >= lp_trace_scope_count(trace))
        return lp_fail(err, LP_E_ARGUMENT, "there is no scope %d", scope_index);
    const lp_scope *scope = lp_trace_scope_at(trace, scope_index);
    LP_TRY(lp_destinations_allocate(&d, trace, scope, true, NULL, err));
    const lp_destination_memory *memory = lp_destinations_list(d, &count);
    const lp_status status = lp_bind(plan, trace, scope, memory, count, NULL, err);
    lp_destinations_free(d);
    return status;
}

/* ---- what is read ---- */

enum { MEMO_SLOTS = 256 };

/* Experts share maps: what one map reads by itself is counted once. */
typedef struct memo {
    struct {
        const lp_map *map;
        int64_t bytes, ranges;
    } slot[MEMO_SLOTS];
} memo;

static lp_status count_reads(const lp_plan *plan, const lp_entry *e, memo *m, int64_t *bytes, int64_t *ranges,
                             lp_error *err)
{
    const lp_map *only = NULL;
    int reading = 0;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (plan->step[i].kind != LP_KIND_FILL && plan->step[i].map->nbox > 0) {
            only = plan->step[i].map;
            reading++;
        }
    *bytes = *ranges = 0;
    if (reading == 0)
        return LP_OK;
    const size_t at = ((uintptr_t)only >> 4) % MEMO_SLOTS;
    if (reading == 1 && m->slot[at].map == only) {
        *bytes = m->slot[at].bytes;
        *ranges = m->slot[at].ranges;
        return LP_OK;
    }
    lp_ranges list;
    lp_ranges_init(&list, plan->platform.alloc);
    const lp_status status = lp_plan_entry_ranges(plan, e, &list, err);
    *bytes = list.bytes;
    *ranges = list.count;
    lp_ranges_free(&list);
    if (status == LP_OK && reading == 1) {
        m->slot[at].map = only;
        m->slot[at].bytes = *bytes;
        m->slot[at].ranges = *ranges;
    }
    return status;
}

static int64_t bytes_written(const lp_plan *plan, const lp_entry *e)
{
    int64_t bytes = 0;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        bytes += plan->step[i].dest == LP_NONE ? 0 : plan->step[i].map->dst_bytes;
    return bytes;
}

/* ---- the whole scope ---- */

static lp_status count_entries(const lp_plan *plan, lp_explanation *out, lp_error *err)
{
    memo m = {.slot = {{NULL, 0, 0}}};
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const lp_entry *e = &plan->entry[i];
        int64_t bytes, ranges;
        LP_TRY(count_reads(plan, e, &m, &bytes, &ranges, err));
        out->bytes_read += bytes;
        out->ranges_read += ranges;
        out->names_read += bytes > 0;
        out->bytes_written += bytes_written(plan, e);
        out->fallbacks += e->use == LP_USE_FALLBACK;
    }
    out->names_unused = lp_checkpoint_count(plan->catalogue) - plan->entry_count;
    return LP_OK;
}

static void count_records(const lp_plan *plan, lp_explanation *out)
{
    const lp_rows *rows = plan->rows;
    out->records = rows->nrecord;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        out->fills += rows->record[i].kind == LP_KIND_FILL;
        out->casts += rows->record[i].kind == LP_KIND_CAST;
        out->replicates += rows->record[i].kind == LP_KIND_REPLICATE;
        out->order_dependent += rows->record[i].seq != 0;
    }
    out->derives = rows->nderive;
    for (uint32_t d = 0; d < rows->nderive; d++) {
        bool is_own = false;
        for (uint32_t n = 0; n < rows->derive[d].nnode; n++)
            is_own = is_own || lp_op_is_own((lp_op)rows->derive[d].node[n].op);
        out->derives_own += is_own;
        out->bytes_written += rows->derive[d].map == NULL ? 0 : rows->derive[d].map->dst_bytes;
    }
    for (int64_t i = 0; i < plan->fill_count; i++)
        out->bytes_written += plan->fill[i].map->dst_bytes;
}

static lp_status count_tensors(const lp_plan *plan, lp_explanation *out, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    bool *is_written = lp_allocate_zero(plan->platform.alloc, rows->ndest + 1);
    if (is_written == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < plan->step_count; i++)
        if (plan->step[i].dest != LP_NONE)
            is_written[plan->step[i].dest] = true;
    for (int64_t i = 0; i < plan->fill_count; i++)
        is_written[plan->fill[i].dest] = true;
    for (uint32_t d = 0; d < rows->nderive; d++)
        if (rows->derive[d].dest != LP_NONE)
            is_written[rows->derive[d].dest] = true;
    for (uint32_t i = 0; i < rows->ndest; i++)
        out->tensors_written += is_written[i];
    lp_release(plan->platform.alloc, is_written);
    for (uint32_t i = 0; i < plan->storage_count; i++)
        out->bytes_storage += plan->storage[i].bytes;
    for (uint32_t i = 0; i < plan->stage_count; i++)
        out->bytes_staged += plan->stage[i].bytes;
    for (uint32_t g = 0; g < plan->group_count; g++) {
        out->groups += plan->group[g].bytes > 0;
        if (plan->group[g].bytes > out->bytes_layerwise)
            out->bytes_layerwise = plan->group[g].bytes;
    }
    return LP_OK;
}

lp_status lp_explain(lp_explanation *out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    lp_plan *plan;
    lp_explanation sum = {.bytes_read = 0};
    LP_TRY(bind_meta(trace, scope_index, &plan, err));
    lp_status status = count_entries(plan, &sum, err);
    if (status == LP_OK) {
        count_records(plan, &sum);
        status = count_tensors(plan, &sum, err);
    }
    lp_plan_close(plan);
    if (status == LP_OK)
        *out = sum;
    return status;
}

/* ---- by family, or by layer ---- */

/* The key of a name into buffer; returns its length, which may be more than the buffer holds. */
typedef size_t (*key_fn)(const char *name, char *buffer, size_t buffer_bytes);

static bool is_index(const char *part, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (part[i] < '0' || part[i] > '9')
            return false;
    return bytes > 0;
}

static size_t layer_key(const char *name, char *buffer, size_t buffer_bytes)
{
    for (const char *part = name;; part++) {
        const size_t bytes = strcspn(part, ".");
        if (is_index(part, bytes))
            return (size_t)snprintf(buffer, buffer_bytes, "%.*s", (int)(part + bytes - name), name);
        part += bytes;
        if (*part == '\0')
            return (size_t)snprintf(buffer, buffer_bytes, "root");
    }
}

struct lp_family_costs {
    lp_platform platform;
    lp_strings names;
    lp_family_cost *cost;
    int64_t count, capacity;
};

enum { KIND_STAGED = 5, KIND_COUNT = 6 };

/* "copy, fill" for a set of kinds. */
static const char *kinds_text(lp_arena *arena, uint32_t kinds)
{
    char text[64] = "";
    size_t used = 0;
    for (unsigned k = LP_KIND_COPY; k < KIND_COUNT; k++) {
        const char *name = k == KIND_STAGED ? "derive" : lp_kind_name((lp_kind)k);
        if ((kinds & 1u << k) != 0 && used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? ", " : "", name);
    }
    return lp_arena_text(arena, text, strlen(text));
}

static int by_bytes(const void *a, const void *b)
{
    const lp_family_cost *x = a, *y = b;
    if (x->bytes_read != y->bytes_read)
        return x->bytes_read > y->bytes_read ? -1 : 1;
    return strcmp(x->family, y->family);
}

static int by_layer(const void *a, const void *b)
{
    const lp_family_cost *x = a, *y = b;
    return lp_family_compare(x->family, y->family);
}

static lp_status family_of(lp_family_costs *f, key_fn key, const char *name, int64_t *index, lp_error *err)
{
    char buffer[1024];
    const size_t length = key(name, buffer, sizeof buffer);
    *index = lp_strings_add(&f->names, buffer, length < sizeof buffer ? length : sizeof buffer - 1);
    if (*index < 0)
        return lp_fail_memory(err);
    if (*index < f->count)
        return LP_OK;
    void *items = f->cost;
    if (!lp_grow(f->platform.alloc, &items, &f->capacity, f->count + 1, sizeof *f->cost))
        return lp_fail_memory(err);
    f->cost = items;
    f->cost[f->count++] = (lp_family_cost){.family = f->names.text[*index]};
    return LP_OK;
}

static lp_status add_families(lp_family_costs *f, const lp_plan *plan, key_fn key, uint32_t **kinds, lp_error *err)
{
    memo m = {.slot = {{NULL, 0, 0}}};
    *kinds = lp_allocate_zero(plan->platform.alloc, (plan->entry_count + 1) * sizeof **kinds);
    if (*kinds == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const lp_entry *e = &plan->entry[i];
        int64_t index, bytes, ranges;
        if (e->use != LP_USE_LOADED)
            continue;
        LP_TRY(family_of(f, key, lp_checkpoint_at(plan->catalogue, e->name)->name, &index, err));
        LP_TRY(count_reads(plan, e, &m, &bytes, &ranges, err));
        f->cost[index].names++;
        f->cost[index].bytes_read += bytes;
        f->cost[index].ranges_read += ranges;
        f->cost[index].bytes_written += bytes_written(plan, e);
        for (uint32_t k = e->first_step; k < e->first_step + e->step_count; k++)
            (*kinds)[index] |= 1u << (plan->step[k].stage != LP_NONE ? KIND_STAGED : plan->step[k].kind);
    }
    for (int64_t i = 0; i < f->count; i++) {
        f->cost[i].kinds = kinds_text(&f->names.arena, (*kinds)[i]);
        if (f->cost[i].kinds == NULL)
            return lp_fail_memory(err);
    }
    return LP_OK;
}

static lp_status explain_by(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, key_fn key,
                            int (*order)(const void *, const void *), lp_error *err)
{
    lp_plan *plan;
    uint32_t *kinds = NULL;
    const lp_platform p = lp_platform_resolve(NULL);
    LP_TRY(bind_meta(trace, scope_index, &plan, err));
    lp_family_costs *f = lp_allocate_zero(p.alloc, sizeof *f);
    lp_status status = LP_E_MEMORY;
    if (f != NULL) {
        f->platform = p;
        lp_strings_init(&f->names, p.alloc);
        status = add_families(f, plan, key, &kinds, err);
    } else {
        (void)lp_fail_memory(err);
    }
    lp_release(p.alloc, kinds);
    lp_plan_close(plan);
    if (status != LP_OK) {
        lp_family_costs_free(f);
        return status;
    }
    if (f->count > 0)
        qsort(f->cost, (size_t)f->count, sizeof *f->cost, order);
    *out = f;
    return LP_OK;
}

lp_status lp_explain_families(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    return explain_by(out, trace, scope_index, lp_family_template, by_bytes, err);
}

lp_status lp_explain_layers(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    return explain_by(out, trace, scope_index, layer_key, by_layer, err);
}

int64_t lp_family_costs_count(const lp_family_costs *f)
{
    return f->count;
}

const lp_family_cost *lp_family_costs_at(const lp_family_costs *f, int64_t index)
{
    return index >= 0 && index < f->count ? &f->cost[index] : NULL;
}

void lp_family_costs_free(lp_family_costs *f)
{
    if (f == NULL)
        return;
    lp_strings_free(&f->names);
    lp_release(f->platform.alloc, f->cost);
    lp_release(f->platform.alloc, f);
}

lp_status lp_push_order_make(lp_push_order **out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    lp_plan *plan;
    LP_TRY(bind_meta(trace, scope_index, &plan, err));
    const lp_status status = lp_push_order_of(out, plan, err); /* its names are the trace's */
    lp_plan_close(plan);
    return status;
}
