/* SPDX-License-Identifier: Apache-2.0 */
/* Physical order and aliases of a rank's destinations. */
#include "replayer/rank_form.h"

#include <stdlib.h>

/* Falling strides; dimensions of one step say nothing and keep their place. */
static void order_dims(const lp_destination *dest, lp_rank_row *row)
{
    int32_t sorted[LP_FORM_DIMS], count = 0;
    lp_form logical;
    lp_destination_form(dest, &logical);
    row->form = logical;
    row->ndim = dest->ndim;
    row->bits = lp_dtype_bits(dest->dtype);
    for (int32_t i = 0; i < logical.ndim; i++) {
        if (logical.shape[i] == 1)
            continue;
        int32_t at = count++;
        for (; at > 0 && logical.stride[sorted[at - 1]] < logical.stride[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = i;
    }
    count = 0;
    for (int32_t i = 0; i < logical.ndim; i++)
        row->order[i] = logical.shape[i] == 1 ? i : sorted[count++];
    for (int32_t i = 0; i < logical.ndim; i++) {
        row->form.shape[i] = logical.shape[row->order[i]];
        row->form.stride[i] = logical.stride[row->order[i]];
        row->shape[i] = row->form.shape[i];
    }
    if (logical.ndim < dest->ndim) { /* rows of a sub-byte dtype keep their dimension */
        row->order[logical.ndim] = logical.ndim;
        row->shape[logical.ndim] = dest->shape[logical.ndim];
    }
}

static bool is_dense(const lp_form *form)
{
    return form->bytes == form->span;
}

typedef struct placed {
    const lp_destination *dest;
    int64_t row;
    uint32_t storage;
    int64_t lo, hi;
    bool is_dense;
} placed;

/* Within a storage by address, the larger first; of equal ones the one that gives the storage its name. */
static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    if (x->hi != y->hi)
        return x->hi > y->hi ? -1 : 1;
    const bool x_names = strcmp(x->dest->name, x->dest->storage) == 0;
    const bool y_names = strcmp(y->dest->name, y->dest->storage) == 0;
    if (x_names != y_names)
        return x_names ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* A destination inside a dense one of the same storage is an alias of it. */
static lp_status find_aliases(const lp_plan *plan, lp_rank_row *row, int64_t count, lp_error *err)
{
    placed *list = lp_allocate(plan->platform.alloc, (size_t)(count + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        const lp_destination *dest = &plan->rows->dest[row[i].dest];
        list[i] = (placed){dest,
                           i,
                           plan->storage_of[row[i].dest],
                           dest->offset,
                           dest->offset + row[i].form.span,
                           is_dense(&row[i].form)};
    }
    if (count > 0)
        qsort(list, (size_t)count, sizeof *list, by_place);
    const placed *holder = NULL;
    for (int64_t i = 0; i < count; i++) {
        const placed *p = &list[i];
        if (holder != NULL && holder->storage == p->storage && p->lo >= holder->lo && p->hi <= holder->hi &&
            p->hi > p->lo)
            row[p->row].owner = row[holder->row].dest;
        else if (p->is_dense && p->hi > p->lo)
            holder = p;
    }
    lp_release(plan->platform.alloc, list);
    return LP_OK;
}

lp_status lp_rank_rows(const lp_plan *plan, bool (*select)(void *context, const lp_destination *dest), void *context,
                       lp_rank_row **out, int64_t *count, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    lp_rank_row *row = lp_allocate_zero(plan->platform.alloc, (rows->ndest + 1) * sizeof *row);
    if (row == NULL)
        return lp_fail_memory(err);
    *count = 0;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        if ((rows->dest[i].flags & LP_DEST_NO_LOADER) != 0 || (select != NULL && !select(context, &rows->dest[i])))
            continue;
        lp_rank_row *r = &row[(*count)++];
        r->dest = r->owner = i;
        order_dims(&rows->dest[i], r);
    }
    const lp_status status = find_aliases(plan, row, *count, err);
    if (status != LP_OK) {
        lp_release(plan->platform.alloc, row);
        return status;
    }
    *out = row;
    return LP_OK;
}
