/* SPDX-License-Identifier: Apache-2.0 */
/* Where the expert slots of a plan lie, and one expert as rows of bytes over all destinations. */
#include "replayer/expert_slots.h"

#include <stdlib.h>

enum { OVERLAPS_MAX = 64 };

lp_status lp_slots_of(const lp_destination *dest, lp_slots *out, lp_error *err)
{
    const int32_t d = dest->slot_dim;
    if (d >= dest->ndim || dest->slot_count < 1 || dest->shape[d] != dest->slot_count || dest->stride[d] < 1 ||
        lp_dtype_bits(dest->dtype) < 8)
        return lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, -1, "'%s' has no expert slots that can be moved",
                          dest->name);
    *out = (lp_slots){.dest = dest, .stride = dest->stride[d], .count = dest->slot_count};
    /* Dimensions inside a slot stay inside it, those outside step over all slots. */
    int64_t inside = lp_dtype_bits(dest->dtype) / 8;
    for (int32_t i = 0; i < dest->ndim; i++) {
        if (i == d || dest->shape[i] <= 1)
            continue;
        if (dest->stride[i] < out->stride)
            inside += (dest->shape[i] - 1) * dest->stride[i];
        else if (dest->stride[i] % (out->stride * out->count) != 0)
            inside = INT64_MAX / 2;
    }
    if (inside > out->stride)
        return lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, -1, "the expert slots of '%s' are interleaved",
                          dest->name);
    return LP_OK;
}

lp_status lp_slots_region(const lp_slots *s, int64_t slot, const lp_map **out, const lp_alloc *alloc, lp_error *err)
{
    const lp_destination *dest = s->dest;
    lp_view view;
    uint64_t reduced;
    LP_TRY(lp_view_strided(&view, dest->dtype, dest->ndim, dest->shape, dest->stride, 0, err));
    LP_TRY(lp_view_narrow(&view, dest->slot_dim, slot, 1, err));
    return lp_map_fill(out, &reduced, &view, dest->storage_bytes - dest->offset, 0, lp_dtype_bits(dest->dtype) / 8,
                       alloc, err);
}

lp_status lp_experts_of(const lp_plan *plan, const lp_expert_map *map, lp_experts *out, lp_error *err)
{
    const lp_scope *scope = &plan->rows->scope;
    *out = (lp_experts){.map = map, .slots = -1};
    for (uint32_t i = 0; i < plan->rows->ndest; i++) {
        const lp_destination *dest = &plan->rows->dest[i];
        if (dest->slot_dim < 0)
            continue;
        if (out->slots >= 0 && out->slots != dest->slot_count)
            return lp_fail_at(err, LP_E_UNSUPPORTED, dest->name, -1,
                              "'%s' has %d expert slots, other destinations have %lld", dest->name, dest->slot_count,
                              (long long)out->slots);
        out->slots = dest->slot_count;
    }
    if (out->slots < 0)
        return lp_fail(err, LP_E_ARGUMENT, "an expert map is given, but no destination has expert slots");
    const int64_t ranks = lp_scope_experts_size(scope);
    if (map != NULL && map->count != out->slots * ranks)
        return lp_fail(err, LP_E_ARGUMENT, "the expert map has %lld slots, the plan has %lld on each of %lld ranks",
                       (long long)map->count, (long long)out->slots, (long long)ranks);
    for (int64_t i = 0; map != NULL && i < map->count; i++)
        if (map->logical[i] < 0 || map->logical[i] >= map->count)
            return lp_fail(err, LP_E_ARGUMENT, "slot %lld of the expert map holds expert %d, which has no default slot",
                           (long long)i, map->logical[i]);
    out->ranks = (int32_t)ranks;
    out->rank = lp_scope_experts_rank(scope);
    out->base = scope->expert_parallel ? scope->pp_rank * scope->dp * scope->tp : lp_scope_rank(scope);
    out->rank_step = scope->expert_parallel ? 1 : 0;
    return LP_OK;
}

/* ---- the dense form of an expert ---- */

/* A destination with slots, for finding those that share bytes. */
typedef struct place {
    uint32_t dest;
    uintptr_t first, end;
    const lp_map *all; /* its bytes */
} place;

static int by_address(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->dest < y->dest ? -1 : x->dest > y->dest;
}

static lp_status all_bytes(const lp_destination *dest, const lp_map **out, const lp_alloc *alloc, lp_error *err)
{
    lp_view view;
    uint64_t reduced;
    LP_TRY(lp_view_strided(&view, dest->dtype, dest->ndim, dest->shape, dest->stride, 0, err));
    return lp_map_fill(out, &reduced, &view, dest->storage_bytes - dest->offset, 0, lp_dtype_bits(dest->dtype) / 8,
                       alloc, err);
}

/* Two destinations whose spans meet: apart, or one and the same, whose bytes must not move twice. */
static lp_status compare(const lp_plan *plan, const place *a, const place *b, bool *is_same, lp_error *err)
{
    const lp_destination *x = &plan->rows->dest[a->dest], *y = &plan->rows->dest[b->dest];
    const lp_map *common;
    *is_same = a->first == b->first && lp_map_equal(a->all, b->all) && x->stride[x->slot_dim] == y->stride[y->slot_dim];
    if (*is_same)
        return LP_OK;
    LP_TRY(lp_map_intersect(&common, a->all, b->all, (int64_t)(b->first - a->first), plan->platform.alloc, err));
    const bool is_apart = common->nbox == 0;
    lp_map_free(common, plan->platform.alloc);
    return is_apart ? LP_OK
                    : lp_fail_at(err, LP_E_UNSUPPORTED, x->name, -1, "the experts of '%s' and '%s' share bytes",
                                 x->name, y->name);
}

/* Marks destinations that are the same bytes as another one. */
static lp_status find_aliases(const lp_plan *plan, place *list, uint32_t count, bool *is_alias, lp_error *err)
{
    uint32_t open[OVERLAPS_MAX], open_count = 0;
    if (count > 0)
        qsort(list, count, sizeof *list, by_address);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t kept = 0;
        for (uint32_t k = 0; k < open_count; k++) {
            const place *other = &list[open[k]];
            bool is_same = false;
            if (other->end <= list[i].first)
                continue;
            open[kept++] = open[k];
            if (!is_alias[other->dest])
                LP_TRY(compare(plan, other, &list[i], &is_same, err));
            is_alias[list[i].dest] = is_alias[list[i].dest] || is_same;
        }
        if (kept == OVERLAPS_MAX)
            return lp_fail(err, LP_E_LIMIT, "more than %d destinations with experts lie in one another", OVERLAPS_MAX);
        open[kept] = i;
        open_count = kept + 1;
    }
    return LP_OK;
}

static lp_status mark_aliases(const lp_plan *plan, bool *is_alias, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    lp_status status = LP_OK;
    uint32_t count = 0;
    place *list = lp_allocate_zero(alloc, ((size_t)plan->rows->ndest + 1) * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; status == LP_OK && i < plan->rows->ndest; i++) {
        const lp_destination *dest = &plan->rows->dest[i];
        if (dest->slot_dim < 0 || lp_destination_payload(dest) == 0)
            continue;
        place *p = &list[count];
        p->dest = i;
        p->first = (uintptr_t)plan->address[i];
        p->end = p->first + (uintptr_t)lp_destination_span(dest);
        status = all_bytes(dest, &p->all, alloc, err);
        count += status == LP_OK;
    }
    if (status == LP_OK && !plan->is_meta)
        status = find_aliases(plan, list, count, is_alias, err);
    for (uint32_t i = 0; i < count; i++)
        lp_map_free(list[i].all, alloc);
    lp_release(alloc, list);
    return status;
}

typedef struct adding {
    lp_expert_form *form;
    uint8_t *base;
    int64_t slot_stride;
    lp_error *err;
} adding;

static lp_status add_piece(const adding *a, int64_t off, int64_t bytes, int64_t pitch, int64_t rows)
{
    lp_expert_form *form = a->form;
    void *items = form->piece;
    int64_t dense;
    if (!lp_grow(form->alloc, &items, &form->capacity, form->count + 1, sizeof *form->piece))
        return lp_fail_memory(a->err);
    form->piece = items;
    if (!lp_mul(bytes, rows, &dense) || !lp_add(form->bytes, dense, &dense))
        return lp_fail(a->err, LP_E_LIMIT, "an expert has more bytes than can be counted");
    form->piece[form->count++] = (lp_expert_piece){.at = a->base == NULL ? NULL : a->base + off,
                                                   .slot_stride = a->slot_stride,
                                                   .pitch = pitch,
                                                   .bytes = bytes,
                                                   .rows = rows,
                                                   .dense = form->bytes};
    form->bytes = dense;
    return LP_OK;
}

/* The innermost mode becomes the rows of a piece, the others are walked. */
static lp_status add_box(const adding *a, const lp_map *map, const lp_box *box, int32_t depth, int64_t off)
{
    const int64_t bytes = box->run * map->dst_elem;
    if (depth == box->rank)
        return add_piece(a, off, bytes, bytes, 1);
    const lp_mode *mode = &box->mode[depth];
    if (depth == box->rank - 1)
        return add_piece(a, off, bytes, mode->dst_stride, mode->extent);
    for (int64_t i = 0; i < mode->extent; i++)
        LP_TRY(add_box(a, map, box, depth + 1, off + i * mode->dst_stride));
    return LP_OK;
}

static lp_status add_destination(lp_expert_form *form, const lp_plan *plan, uint32_t index, lp_error *err)
{
    const lp_destination *dest = &plan->rows->dest[index];
    lp_slots slots;
    const lp_map *region;
    LP_TRY(lp_slots_of(dest, &slots, err));
    LP_TRY(lp_slots_region(&slots, 0, &region, form->alloc, err));
    const adding a = {.form = form, .base = plan->address[index], .slot_stride = slots.stride, .err = err};
    lp_status status = LP_OK;
    for (int32_t b = 0; status == LP_OK && b < region->nbox; b++)
        status = add_box(&a, region, &region->box[b], 0, region->box[b].dst_off);
    lp_map_free(region, form->alloc);
    return status;
}

lp_status lp_expert_form_make(lp_expert_form *form, const lp_plan *plan, lp_error *err)
{
    *form = (lp_expert_form){.alloc = plan->platform.alloc};
    bool *is_alias = lp_allocate_zero(form->alloc, (size_t)plan->rows->ndest + 1);
    if (is_alias == NULL)
        return lp_fail_memory(err);
    lp_status status = mark_aliases(plan, is_alias, err);
    for (uint32_t i = 0; status == LP_OK && i < plan->rows->ndest; i++)
        if (plan->rows->dest[i].slot_dim >= 0 && lp_destination_payload(&plan->rows->dest[i]) > 0 && !is_alias[i])
            status = add_destination(form, plan, i, err);
    lp_release(form->alloc, is_alias);
    if (status != LP_OK)
        lp_expert_form_free(form);
    return status;
}

void lp_expert_form_free(lp_expert_form *form)
{
    if (form->alloc != NULL)
        lp_release(form->alloc, form->piece);
    *form = (lp_expert_form){.alloc = NULL};
}

/* ---- parts of it ---- */

/* Index of the piece that holds dense byte `at`. */
static int64_t piece_at(const lp_expert_form *form, int64_t at)
{
    int64_t low = 0, high = form->count;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (form->piece[middle].dense <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Bytes [lo, hi) of a piece: the end of a row, whole rows, the beginning of a row. */
static lp_status walk_piece(const lp_expert_piece *p, int64_t shift, int64_t lo, int64_t hi, int64_t dense,
                            lp_expert_part_fn part, void *context, lp_error *err)
{
    while (lo < hi) {
        const int64_t row = lo / p->bytes, in_row = lo % p->bytes;
        lp_expert_part cut = {
            .at = p->at + shift + row * p->pitch + in_row, .pitch = p->pitch, .rows = 1, .dense = dense};
        if (in_row == 0 && hi - lo >= p->bytes) {
            cut.bytes = p->bytes;
            cut.rows = (hi - lo) / p->bytes;
        } else {
            cut.bytes = p->bytes - in_row < hi - lo ? p->bytes - in_row : hi - lo;
        }
        LP_TRY(part(context, &cut, err));
        lo += cut.bytes * cut.rows;
        dense += cut.bytes * cut.rows;
    }
    return LP_OK;
}

lp_status lp_expert_form_walk(const lp_expert_form *form, int64_t slot, int64_t lo, int64_t hi, lp_expert_part_fn part,
                              void *context, lp_error *err)
{
    for (int64_t i = form->count == 0 ? 0 : piece_at(form, lo); i < form->count && form->piece[i].dense < hi; i++) {
        const lp_expert_piece *p = &form->piece[i];
        const int64_t bytes = p->bytes * p->rows;
        const int64_t from = lo > p->dense ? lo - p->dense : 0, to = hi - p->dense < bytes ? hi - p->dense : bytes;
        LP_TRY(walk_piece(p, slot * p->slot_stride, from, to, p->dense + from - lo, part, context, err));
    }
    return LP_OK;
}
