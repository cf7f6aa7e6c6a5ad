/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order, made free once: where records of different names overlap, the last write wins, so every byte belongs to the
 * record with the highest seq that writes it. Cutting that from all lower ones leaves disjoint records, and the result
 * no longer depends on the order in which their names arrive. Destinations of one storage count as one: a tied tensor
 * is written through either of its names.
 *
 * Elements of casts and fills are cut whole where that is possible. What a later write takes by parts of elements is
 * taken byte by byte: see plan_bytes.c.
 */
#include "replayer/plan_bytes.h"

#include <stdlib.h>

/* Cuts of one scope; a trace that needs more is refused. */
enum { CUTS_MAX = 1 << 20, PAIRS_MAX = 1 << 30 };

typedef struct ordered {
    const char *storage;
    int64_t step, base; /* of the destination in its storage */
    uint32_t seq;
} ordered;

static int by_storage_then_late(const void *a, const void *b)
{
    const ordered *x = a, *y = b;
    const int order = x->storage == y->storage ? 0 : strcmp(x->storage, y->storage);
    if (order != 0)
        return order;
    if (x->seq != y->seq)
        return x->seq > y->seq ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

static lp_status inseparable(const lp_rows *rows, uint32_t dest, lp_error *err)
{
    const char *name = rows->dest[dest].name;
    return lp_fail_at(err, LP_E_UNSUPPORTED, name, -1,
                      "records of '%s' that must be applied in order cannot be separated", name);
}

/* Takes from `low` what `high` writes, whose map lies `shift` bytes further on. */
static lp_status cut(lp_plan *plan, lp_step *low, const lp_map *high, int64_t shift, lp_error *err)
{
    const lp_map *rest;
    LP_TRY(lp_map_subtract(&rest, low->map, high, shift, plan->platform.alloc, err));
    LP_TRY(lp_plan_keep_map(plan, rest, err));
    low->map = rest;
    return LP_OK;
}

static bool may_overlap(const lp_map *low, const lp_map *high, int64_t shift)
{
    return low->nbox > 0 && high->nbox > 0 && low->dst_lo < shift + high->dst_hi && shift + high->dst_lo < low->dst_hi;
}

/* Takes from the pieces of one record what a later record writes, whose bytes begin at `high_off`, counted as the
 * pieces count theirs. */
static lp_status cut_pieces(lp_plan *plan, const lp_rows *rows, lp_pieces *low, const lp_map *high, int64_t high_off,
                            int64_t *cuts, lp_error *err)
{
    for (int i = 0; i < low->count; i++) {
        if (!may_overlap(low->piece[i].map, high, high_off - low->piece[i].dst_off))
            continue;
        if (++*cuts > CUTS_MAX)
            return lp_fail(err, LP_E_LIMIT, "more than %d overlapping records", CUTS_MAX);
        lp_status status = cut(plan, &low->piece[i], high, high_off - low->piece[i].dst_off, err);
        if (status == LP_E_UNSUPPORTED && low->is_whole && low->piece[i].map->dst_elem > 1) {
            LP_TRY(lp_pieces_by_bytes(plan, low, err));
            i = -1; /* all of them anew: there was one, and nothing was taken from it here */
            continue;
        }
        if (status == LP_E_UNSUPPORTED || status == LP_E_LIMIT || status == LP_E_ARGUMENT)
            return inseparable(rows, low->piece[i].dest, err);
        LP_TRY(status);
    }
    return LP_OK;
}

static bool is_empty(const lp_pieces *pieces)
{
    for (int i = 0; i < pieces->count; i++)
        if (pieces->piece[i].map->nbox > 0)
            return false;
    return true;
}

/* Takes from number `low` of the list what all later ones of its storage write, which begin at number `first`. */
static lp_status free_one(lp_plan *plan, const lp_rows *rows, lp_scope_steps *steps, const ordered *list, int64_t first,
                          int64_t low, int64_t work[2], lp_error *err)
{
    lp_pieces mine = {.piece = {steps->step[list[low].step]}, .count = 1, .is_whole = true};
    for (int64_t high = first; high < low && !is_empty(&mine); high++) { /* the latest takes the most */
        const lp_record *late = &rows->record[list[high].step];
        if (++work[0] > PAIRS_MAX) {
            const char *name = rows->dest[late->dest].name;
            return lp_fail_at(err, LP_E_LIMIT, name, -1, "too many records of '%s' must be applied in order", name);
        }
        if (list[high].seq != list[low].seq)
            LP_TRY(cut_pieces(plan, rows, &mine, late->map, list[high].base + late->dst_off - list[low].base, &work[1],
                              err));
    }
    return lp_pieces_keep(plan, &mine, steps, list[low].step, err);
}

/* The fills of begin come before everything, whatever a file says. */
static bool is_ordered(const lp_record *r)
{
    return r->seq != 0 && r->name != LP_NAME_BEGIN;
}

lp_status lp_plan_free_order(lp_plan *plan, const lp_rows *rows, lp_scope_steps *steps, lp_error *err)
{
    lp_status status = LP_OK;
    int64_t used = 0, work[2] = {0, 0};
    for (uint32_t i = 0; i < rows->nrecord; i++)
        used += is_ordered(&rows->record[i]);
    if (used == 0)
        return LP_OK;
    ordered *list = lp_allocate(plan->platform.alloc, (size_t)used * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    used = 0;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_destination *dest = &rows->dest[rows->record[i].dest];
        if (is_ordered(&rows->record[i]))
            list[used++] = (ordered){dest->storage, i, dest->offset, rows->record[i].seq};
    }
    qsort(list, (size_t)used, sizeof *list, by_storage_then_late);
    for (int64_t low = 1, first = 0; status == LP_OK && low < used; low++) {
        if (strcmp(list[low].storage, list[low - 1].storage) != 0)
            first = low;
        status = free_one(plan, rows, steps, list, first, low, work, err);
    }
    lp_release(plan->platform.alloc, list);
    return status;
}
