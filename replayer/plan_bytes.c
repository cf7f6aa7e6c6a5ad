/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of which a later write takes parts of elements. A fill becomes one fill for each byte of its pattern. A cast
 * has no bytes to take before it was computed: it becomes a derive that stages its source elements, casts them, and
 * writes those bytes of the results that nobody takes.
 */
#include "replayer/plan_bytes.h"

#include "traces/map_parts.h"

#include <limits.h>

static lp_status fill_by_bytes(lp_plan *plan, lp_pieces *p, lp_error *err)
{
    const lp_step whole = p->piece[0];
    for (int k = 0; k < whole.map->dst_elem; k++) {
        p->piece[k] = whole;
        p->piece[k].fill_bits = whole.fill_bits >> (k * CHAR_BIT) & UCHAR_MAX;
        LP_TRY(lp_map_element_byte(&p->piece[k].map, whole.map, k, plan->platform.alloc, err));
        LP_TRY(lp_plan_keep_map(plan, p->piece[k].map, err));
    }
    p->count = whole.map->dst_elem;
    return LP_OK;
}

/* Numbers the elements of a cast as its map goes over them, and gives two byte maps: source bytes to a dense array of
 * source elements, and a dense array of results to the destination. Offsets of the step are in both. */
static lp_status through_results(lp_plan *plan, const lp_step *step, const lp_map **in, const lp_map **out,
                                 int64_t *count, lp_error *err)
{
    const lp_alloc *alloc = plan->platform.alloc;
    const lp_map *map = step->map;
    const int64_t src_elem = map->src_elem, dst_elem = map->dst_elem;
    lp_status status = LP_OK;
    lp_box *box = lp_allocate(alloc, (size_t)map->nbox * 2 * sizeof *box);
    lp_mode *mode = lp_allocate(alloc, (size_t)map->nmode * 2 * sizeof *mode);
    lp_mode *from = mode, *to = mode == NULL ? NULL : mode + map->nmode;
    *count = 0;
    if (box == NULL || mode == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int32_t b = 0; b < map->nbox; b++) {
        const lp_box *x = &map->box[b];
        box[b] = (lp_box){x->src_off + step->src_off, *count * src_elem, x->run * src_elem, x->rank, from};
        box[map->nbox + b] = (lp_box){*count * dst_elem, x->dst_off + step->dst_off, x->run * dst_elem, x->rank, to};
        int64_t inside = x->run;
        for (int32_t i = x->rank; i-- > 0; inside *= x->mode[i].extent) {
            from[i] = (lp_mode){x->mode[i].extent, x->mode[i].src_stride, inside * src_elem};
            to[i] = (lp_mode){x->mode[i].extent, inside * dst_elem, x->mode[i].dst_stride};
        }
        from += x->rank;
        to += x->rank;
        *count += inside;
    }
    LP_TRY_GOTO(lp_map_from_boxes(in, 1, 1, map->nbox, box, alloc, err), release);
    LP_TRY_GOTO(lp_plan_keep_map(plan, *in, err), release);
    LP_TRY_GOTO(lp_map_from_boxes(out, 1, 1, map->nbox, box + map->nbox, alloc, err), release);
    LP_TRY_GOTO(lp_plan_keep_map(plan, *out, err), release);
release:
    lp_release(alloc, box);
    lp_release(alloc, mode);
    return status;
}

static lp_status cast_by_bytes(lp_plan *plan, lp_pieces *p, lp_error *err)
{
    lp_step *step = &p->piece[0];
    LP_TRY(through_results(plan, step, &p->results, &step->map, &p->result_count, err));
    step->src_off = step->dst_off = 0;
    return LP_OK;
}

lp_status lp_pieces_by_bytes(lp_plan *plan, lp_pieces *pieces, lp_error *err)
{
    pieces->is_whole = false;
    return pieces->piece[0].kind == LP_KIND_FILL ? fill_by_bytes(plan, pieces, err) : cast_by_bytes(plan, pieces, err);
}

/* ---- what is kept ---- */

static lp_status keep_derive(lp_plan *plan, const lp_pieces *p, lp_scope_steps *steps, lp_error *err)
{
    const lp_step *step = &p->piece[0];
    const lp_derive_input input = {.staged = true,
                                   .index = step->name,
                                   .dtype = (lp_dtype)step->src_dtype,
                                   .count = p->result_count,
                                   .map = p->results};
    const lp_node node[2] = {{.op = LP_OP_INPUT, .dtype = step->src_dtype, .count = p->result_count},
                             {.op = LP_OP_CAST, .dtype = step->dst_dtype, .count = p->result_count}};
    const lp_derive derive = {.dest = step->dest,
                              .nnode = 2,
                              .ninput = 1,
                              .node = lp_arena_copy(&plan->arena, node, sizeof node),
                              .input = lp_arena_copy(&plan->arena, &input, sizeof input),
                              .map = step->map,
                              .error_text = "",
                              .provenance = LP_NONE};
    void *items = steps->derive;
    if (derive.node == NULL || derive.input == NULL ||
        !lp_grow(plan->platform.alloc, &items, &steps->derive_capacity, steps->derive_count + 1, sizeof derive))
        return lp_fail_memory(err);
    steps->derive = items;
    steps->derive[steps->derive_count++] = derive;
    return LP_OK;
}

lp_status lp_pieces_keep(lp_plan *plan, const lp_pieces *p, lp_scope_steps *steps, int64_t at, lp_error *err)
{
    if (p->results != NULL) {
        steps->step[at].map = NULL;
        return keep_derive(plan, p, steps, err);
    }
    steps->step[at] = p->piece[0];
    for (int i = 1; i < p->count; i++) {
        void *items = steps->step;
        if (!lp_grow(plan->platform.alloc, &items, &steps->capacity, steps->count + 1, sizeof *steps->step))
            return lp_fail_memory(err);
        steps->step = items;
        steps->step[steps->count++] = p->piece[i];
    }
    return LP_OK;
}
