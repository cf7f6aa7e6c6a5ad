/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of computed values. An element of a result depends on one place of each operand, or on one group of consecutive
 * elements where it is reduced, so a view of the result is the same expression over views of what it reads.
 */
#include "recorder/record_private.h"

enum { NODES_MAX = 256 }; /* visited for one view; more are refused */

typedef struct viewed_node {
    uint32_t node, made;
    int reductions; /* on the way from the root: each one changes the view */
} viewed_node;

typedef struct viewing {
    lp_recorder *r;
    lp_error *err;
    viewed_node seen[NODES_MAX];
    int count;
} viewing;

/* `view` is of elements of one byte; the same for elements of `dtype`. */
static lp_view of_dtype(const lp_view *view, lp_dtype dtype)
{
    const int64_t bytes = lp_dtype_bits(dtype) / 8;
    lp_view v = *view;
    v.dtype = dtype;
    v.offset_bits *= bytes;
    for (int i = 0; i < v.nmode; i++)
        v.mode[i].stride_bits *= bytes;
    return v;
}

static lp_status view_input(viewing *g, uint32_t at, const lp_view *view, rec_value *made)
{
    const lp_alloc *alloc = g->r->platform.alloc;
    const rec_value *input = &g->r->value[at];
    const int64_t element = lp_dtype_bits(input->dtype) / 8, count = lp_view_count(view);
    const lp_view from = of_dtype(view, input->dtype);
    const lp_map *gather = NULL, *through = NULL;
    lp_view dense;
    LP_TRY(lp_view_contiguous(&dense, input->dtype, view->ndim, view->size, g->err));
    LP_TRY(lp_map_copy(&gather, &dense, count * element, &from, input->node.count * element, alloc, g->err));
    const lp_status status = lp_map_compose(&through, gather, input->map, alloc, g->err);
    lp_map_free(gather, alloc);
    LP_TRY(status);
    *made = *input;
    made->node.count = count;
    return rec_keep(g->r, through, &made->map, g->err);
}

/* The view of a reduction's operand: each element becomes its group. */
static lp_status view_groups(const lp_view *view, int64_t group, lp_view *out, lp_error *err)
{
    *out = *view;
    if (view->ndim >= LP_VIEW_DIMS || view->nmode >= LP_VIEW_MODES)
        return lp_fail(err, LP_E_LIMIT, "a view of too many dimensions");
    out->offset_bits *= group;
    for (int i = 0; i < out->nmode; i++)
        out->mode[i].stride_bits *= group;
    out->size[out->ndim] = group;
    if (group > 1)
        out->mode[out->nmode++] = (lp_view_mode){.extent = group, .stride_bits = 8};
    out->first[++out->ndim] = out->nmode;
    return LP_OK;
}

/* The node `at` seen through `view`, in *made: an earlier node, or a new one. */
static lp_status view_node(viewing *g, uint32_t at, const lp_view *view, int reductions, uint32_t *made)
{
    for (int i = 0; i < g->count; i++) {
        if (g->seen[i].node == at && g->seen[i].reductions == reductions) {
            *made = g->seen[i].made;
            return LP_OK;
        }
    }
    if (g->count == NODES_MAX)
        return lp_fail(g->err, LP_E_LIMIT, "more than %d operations", NODES_MAX);
    const int slot = g->count++;
    g->seen[slot] = (viewed_node){.node = at, .reductions = -1}; /* not found before it is done */
    rec_value value = g->r->value[at];
    const lp_op op = (lp_op)value.node.op;
    if (op == LP_OP_INPUT) {
        LP_TRY(view_input(g, at, view, &value));
    } else {
        const bool reduces = op == LP_OP_MAX || op == LP_OP_MIN || op == LP_OP_SUM;
        lp_view groups;
        if (reduces)
            LP_TRY(view_groups(view, (int64_t)value.node.bits, &groups, g->err));
        for (int a = 0; a < lp_op_arity(op); a++) {
            if (g->r->value[value.node.arg[a]].node.count > 1) /* one element serves all */
                LP_TRY(view_node(g, value.node.arg[a], reduces ? &groups : view, reductions + reduces,
                                 &value.node.arg[a]));
        }
        value.node.count = lp_view_count(view);
    }
    const int64_t node = rec_add_value(g->r, &value);
    if (node < 0)
        return lp_fail_memory(g->err);
    g->seen[slot] = (viewed_node){.node = at, .made = (uint32_t)node, .reductions = reductions};
    *made = (uint32_t)node;
    return LP_OK;
}

lp_status rec_view_value(lp_recorder *r, lp_tensor t, uint32_t *made, lp_error *err)
{
    const lp_node *root = &r->value[t.base].node;
    if (t.view.dtype != (lp_dtype)root->dtype)
        return lp_fail(err, LP_E_UNSUPPORTED, "other bytes of a computed value");
    if (root->count <= 1)
        return lp_fail(err, LP_E_UNSUPPORTED, "repeats a computed value of one element");
    const int64_t bytes = lp_dtype_bits(t.view.dtype) / 8;
    lp_view view = t.view;
    view.offset_bits /= bytes;
    for (int i = 0; i < view.nmode; i++)
        view.mode[i].stride_bits /= bytes;
    viewing g = {.r = r, .err = err};
    return view_node(&g, t.base, &view, 0, made);
}
