/* SPDX-License-Identifier: Apache-2.0 */
/* Binding, the first half: is the memory at hand the memory that the trace was recorded for? Everything is compared
 * before anything is kept, and every mismatch is counted. Then storages and commit groups are numbered. */
#include "replayer/plan.h"

#include <stdio.h>
#include <stdlib.h>

/* Mismatches: the text of the first, the names of the others as far as they fit. */
typedef struct mismatches {
    char first[384];
    char others[200];
    char subject[256];
    int64_t count;
} mismatches;

static void note(mismatches *m, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void note(mismatches *m, const char *name, const char *format, ...)
{
    if (m->count++ == 0) {
        va_list args;
        va_start(args, format);
        vsnprintf(m->first, sizeof m->first, format, args);
        va_end(args);
        snprintf(m->subject, sizeof m->subject, "%s", name);
        return;
    }
    const size_t used = strlen(m->others);
    if (used + strlen(name) + 5 < sizeof m->others)
        snprintf(m->others + used, sizeof m->others - used, "%s'%s'", used > 0 ? ", " : "", name);
}

static const char *list_text(char *buffer, size_t buffer_bytes, int32_t count, const int64_t *value)
{
    size_t used = (size_t)snprintf(buffer, buffer_bytes, "[");
    for (int32_t i = 0; i < count && used + 24 < buffer_bytes; i++)
        used += (size_t)snprintf(buffer + used, buffer_bytes - used, "%s%lld", i > 0 ? ", " : "", (long long)value[i]);
    snprintf(buffer + used, buffer_bytes - used, "]");
    return buffer;
}

/* Strides of dimensions with at most one step mean nothing, nor those of a tensor without elements. */
static bool same_strides(const lp_destination *dest, const int64_t *stride)
{
    int64_t dense = 1;
    if (lp_destination_payload(dest) == 0 || lp_dtype_bits(dest->dtype) < 8)
        return true;
    dense = lp_dtype_bits(dest->dtype) / 8;
    for (int32_t i = dest->ndim - 1; i >= 0; i--) {
        if (dest->shape[i] > 1 && dest->stride[i] != (stride == NULL ? dense : stride[i]))
            return false;
        dense *= dest->shape[i];
    }
    return true;
}

static void compare_type(mismatches *m, const lp_destination *dest, const lp_destination_memory *have)
{
    char mine[160], theirs[160];
    if (have->dtype != dest->dtype || have->ndim != dest->ndim ||
        (dest->ndim > 0 && memcmp(have->shape, dest->shape, (size_t)dest->ndim * sizeof *dest->shape) != 0))
        note(m, dest->name, "'%s' is %s %s, the plan needs %s %s", dest->name, lp_dtype_name(have->dtype),
             list_text(theirs, sizeof theirs, have->ndim, have->shape), lp_dtype_name(dest->dtype),
             list_text(mine, sizeof mine, dest->ndim, dest->shape));
    else if (!same_strides(dest, have->stride))
        note(m, dest->name, "'%s' has byte strides %s, the plan needs %s", dest->name,
             have->stride == NULL ? "of a row-major tensor"
                                  : list_text(theirs, sizeof theirs, have->ndim, have->stride),
             list_text(mine, sizeof mine, dest->ndim, dest->stride));
    else if (have->layout != NULL &&
             (strcmp(have->layout, dest->layout) != 0 || have->layout_version != dest->layout_version))
        note(m, dest->name, "'%s' has layout '%s' version %d, the plan needs '%s' version %d", dest->name, have->layout,
             have->layout_version, dest->layout, dest->layout_version);
}

/* Where the storage begins, by what the caller says. */
static uint8_t *storage_base(const lp_destination *dest, const lp_destination_memory *have)
{
    if (have->storage != NULL)
        return have->storage;
    return have->data == NULL ? NULL : (uint8_t *)((uintptr_t)have->data - (uintptr_t)dest->offset);
}

static void compare_place(const lp_plan *plan, mismatches *m, const lp_destination *dest,
                          const lp_destination_memory *have, lp_storage *storage)
{
    uint8_t *base = storage_base(dest, have);
    if (dest->storage_bytes == 0 || (plan->is_meta && base == NULL))
        return;
    if (base == NULL || have->data == NULL)
        note(m, dest->name, "'%s' has no memory", dest->name);
    else if ((uintptr_t)have->data - (uintptr_t)base != (uintptr_t)dest->offset)
        note(m, dest->name, "'%s' lies at byte %lld of its storage, the plan needs %lld", dest->name,
             (long long)((intptr_t)have->data - (intptr_t)base), (long long)dest->offset);
    else if (have->storage_bytes != 0 && have->storage_bytes < dest->storage_bytes)
        note(m, dest->name, "'%s' has a storage of %lld bytes, the plan needs %lld", dest->name,
             (long long)have->storage_bytes, (long long)dest->storage_bytes);
    else if (storage->base != NULL && storage->base != base)
        note(m, dest->name, "'%s' lies in another storage than the other destinations of storage '%s'", dest->name,
             dest->storage);
    else
        storage->base = base;
}

static int by_base(const void *a, const void *b)
{
    const lp_storage *const *x = a, *const *y = b;
    const uintptr_t p = (uintptr_t)(*x)->base, q = (uintptr_t)(*y)->base;
    return p < q ? -1 : p > q;
}

/* Two storages that share memory would make the result depend on the order of writes. */
static lp_status compare_storages(const lp_plan *plan, mismatches *m, lp_error *err)
{
    const lp_storage **sorted = lp_allocate(plan->platform.alloc, plan->storage_count * sizeof *sorted);
    uint32_t count = 0;
    if (sorted == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < plan->storage_count; i++)
        if (plan->storage[i].base != NULL && plan->storage[i].bytes > 0)
            sorted[count++] = &plan->storage[i];
    if (count > 0)
        qsort(sorted, count, sizeof *sorted, by_base);
    for (uint32_t i = 1; i < count; i++)
        if ((uintptr_t)sorted[i]->base - (uintptr_t)sorted[i - 1]->base < (uintptr_t)sorted[i - 1]->bytes)
            note(m, sorted[i]->name, "the storages '%s' and '%s' share memory", sorted[i - 1]->name, sorted[i]->name);
    lp_release(plan->platform.alloc, sorted);
    return LP_OK;
}

static lp_status number_storages(lp_plan *plan, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    lp_status status = LP_OK;
    lp_strings names;
    lp_strings_init(&names, plan->platform.alloc);
    plan->storage_of = lp_arena_get(&plan->arena, (rows->ndest + 1) * sizeof *plan->storage_of);
    plan->storage = lp_arena_get(&plan->arena, (rows->ndest + 1) * sizeof *plan->storage);
    plan->address = lp_arena_get(&plan->arena, (rows->ndest + 1) * sizeof *plan->address);
    if (plan->storage_of == NULL || plan->storage == NULL || plan->address == NULL) {
        status = lp_fail_memory(err);
        goto free_names;
    }
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const lp_destination *dest = &rows->dest[i];
        const int64_t number = lp_strings_add(&names, dest->storage, strlen(dest->storage));
        if (number < 0) {
            status = lp_fail_memory(err);
            goto free_names;
        }
        if (number == plan->storage_count)
            plan->storage[plan->storage_count++] = (lp_storage){.name = dest->storage};
        if (plan->storage[number].bytes < dest->storage_bytes)
            plan->storage[number].bytes = dest->storage_bytes;
        plan->storage_of[i] = (uint32_t)number;
    }
free_names:
    lp_strings_free(&names);
    return status;
}

static uint32_t find_root(uint32_t *parent, uint32_t i)
{
    while (parent[i] != i)
        i = parent[i] = parent[parent[i]];
    return i;
}

/* Work space of number_groups. */
typedef struct grouping {
    uint32_t *named;  /* by destination: number of its group's name */
    uint32_t *parent; /* by name: union-find */
    uint32_t *first;  /* by storage: a name of it; then by name: the group */
} grouping;

static void join_groups(lp_plan *plan, const grouping *g, int64_t name_count)
{
    const lp_rows *rows = plan->rows;
    for (int64_t i = 0; i < name_count; i++)
        g->parent[i] = (uint32_t)i;
    for (uint32_t i = 0; i < plan->storage_count; i++)
        g->first[i] = LP_NONE;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        uint32_t *first = &g->first[plan->storage_of[i]];
        if (*first == LP_NONE)
            *first = g->named[i];
        g->parent[find_root(g->parent, g->named[i])] = find_root(g->parent, *first);
    }
    uint32_t *number = g->first;
    for (int64_t i = 0; i < name_count; i++)
        number[i] = LP_NONE;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        const uint32_t root = find_root(g->parent, g->named[i]);
        if (number[root] == LP_NONE) {
            number[root] = plan->group_count;
            plan->group[plan->group_count++] = (lp_plan_group){.name = rows->dest[i].group};
        }
        plan->storage[plan->storage_of[i]].group = number[root];
    }
}

/* Groups by name, joined where they share a storage: such groups can only become live together. */
static lp_status number_groups(lp_plan *plan, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    const lp_alloc *alloc = plan->platform.alloc;
    lp_status status = LP_OK;
    lp_strings names;
    grouping g;
    lp_strings_init(&names, alloc);
    g.named = lp_allocate(alloc, (rows->ndest + 1) * sizeof *g.named);
    g.parent = lp_allocate(alloc, (rows->ndest + 1) * sizeof *g.parent);
    g.first = lp_allocate(alloc, (rows->ndest + 1) * sizeof *g.first);
    plan->group = lp_arena_get(&plan->arena, (rows->ndest + 1) * sizeof *plan->group);
    if (g.named == NULL || g.parent == NULL || g.first == NULL || plan->group == NULL)
        status = lp_fail_memory(err);
    for (uint32_t i = 0; status == LP_OK && i < rows->ndest; i++) {
        const int64_t number = lp_strings_add(&names, rows->dest[i].group, strlen(rows->dest[i].group));
        if (number < 0)
            status = lp_fail_memory(err);
        else
            g.named[i] = (uint32_t)number;
    }
    if (status == LP_OK)
        join_groups(plan, &g, names.count);
    lp_release(alloc, g.named);
    lp_release(alloc, g.parent);
    lp_release(alloc, g.first);
    lp_strings_free(&names);
    return status;
}

void lp_plan_group_bytes(lp_plan *plan)
{
    for (uint32_t i = 0; i < plan->storage_count; i++)
        if (plan->storage[i].is_written)
            plan->group[plan->storage[i].group].bytes += plan->storage[i].bytes;
}

static int64_t find_destination(const lp_rows *rows, const char *name)
{
    uint32_t low = 0, high = rows->ndest;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = strcmp(rows->dest[middle].name, name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* A plan is of meta tensors when no destination has memory though some have bytes. */
static bool has_no_memory(const lp_plan *plan, const lp_destination_memory *dest, int64_t ndest)
{
    bool has_bytes = false;
    for (uint32_t i = 0; i < plan->storage_count; i++)
        has_bytes = has_bytes || plan->storage[i].bytes > 0;
    for (int64_t i = 0; i < ndest; i++)
        if (dest[i].data != NULL || dest[i].storage != NULL)
            return false;
    return has_bytes;
}

static lp_status report_mismatches(const mismatches *m, lp_error *err)
{
    if (m->count == 0)
        return LP_OK;
    if (m->count == 1)
        return lp_fail_at(err, LP_E_MISMATCH, m->subject, -1, "%s", m->first);
    lp_fail_at(err, LP_E_MISMATCH, m->subject, -1, "%s (and %lld more)", m->first, (long long)(m->count - 1));
    lp_hint(err, "also %s", m->others);
    return LP_E_MISMATCH;
}

static lp_status compare_all(lp_plan *plan, const lp_destination_memory *dest, int64_t ndest, bool *seen, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    mismatches m = {.count = 0};
    for (int64_t i = 0; i < ndest; i++) {
        if (dest[i].name == NULL)
            return lp_fail(err, LP_E_ARGUMENT, "destination %lld has no name", (long long)i);
        const int64_t index = find_destination(rows, dest[i].name);
        if (index < 0) {
            note(&m, dest[i].name, "'%s' is not a destination of the trace", dest[i].name);
        } else if (seen[index]) {
            note(&m, dest[i].name, "'%s' is given twice", dest[i].name);
        } else {
            const int64_t before = m.count;
            seen[index] = true;
            plan->address[index] = dest[i].data;
            compare_type(&m, &rows->dest[index], &dest[i]);
            if (m.count == before)
                compare_place(plan, &m, &rows->dest[index], &dest[i], &plan->storage[plan->storage_of[index]]);
        }
    }
    for (uint32_t i = 0; i < rows->ndest; i++)
        if (!seen[i])
            note(&m, rows->dest[i].name, "'%s' is missing among the destinations", rows->dest[i].name);
    if (m.count == 0)
        LP_TRY(compare_storages(plan, &m, err));
    return report_mismatches(&m, err);
}

lp_status lp_plan_places(lp_plan *plan, const lp_destination_memory *dest, int64_t ndest, lp_error *err)
{
    LP_TRY(number_storages(plan, err));
    bool *seen = lp_allocate_zero(plan->platform.alloc, plan->rows->ndest);
    if (seen == NULL)
        return lp_fail_memory(err);
    plan->is_meta = has_no_memory(plan, dest, ndest);
    const lp_status status = compare_all(plan, dest, ndest, seen, err);
    lp_release(plan->platform.alloc, seen);
    LP_TRY(status);
    return number_groups(plan, err);
}
