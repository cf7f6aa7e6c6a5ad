/* SPDX-License-Identifier: Apache-2.0 */
/* What a load costs by family of names, or by layer. */
#include "replayer/explain.h"
#include "traces/family.h"

#include <stdio.h>
#include <stdlib.h>

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
    lp_reads_memo m = {.slot = {{NULL, 0, 0}}};
    *kinds = lp_allocate_zero(plan->platform.alloc, (plan->entry_count + 1) * sizeof **kinds);
    if (*kinds == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const lp_entry *e = &plan->entry[i];
        int64_t index, bytes, ranges;
        if (e->use != LP_USE_LOADED)
            continue;
        LP_TRY(family_of(f, key, lp_checkpoint_at(plan->catalogue, e->name)->name, &index, err));
        LP_TRY(lp_count_reads(plan, e, &m, &bytes, &ranges, err));
        f->cost[index].names++;
        f->cost[index].bytes_read += bytes;
        f->cost[index].ranges_read += ranges;
        f->cost[index].bytes_written += lp_count_written(plan, e);
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
    LP_TRY(lp_explain_bind(trace, scope_index, &plan, err));
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
