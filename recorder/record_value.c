/* SPDX-License-Identifier: Apache-2.0 */
/* Value operations: nodes of expressions, in IEEE single. Nothing is computed here; the nodes end in a derive, or
 * nowhere. */
#include "recorder/record_private.h"

int64_t rec_add_value(lp_recorder *r, const rec_value *value)
{
    if (r->value_count >= LP_NONE ||
        !lp_grow(r->platform.alloc, (void **)&r->value, &r->value_capacity, r->value_count + 1, sizeof *r->value)) {
        rec_no_memory(r);
        return -1;
    }
    r->value[r->value_count] = *value;
    rec_note_reader(r, (uint32_t)r->value_count);
    return r->value_count++;
}

static int64_t add_node(lp_recorder *r, lp_op op, lp_dtype dtype, int64_t count, int64_t a, int64_t b, int64_t c,
                        uint64_t bits)
{
    const rec_value value = {.node = {.op = (uint16_t)op,
                                      .dtype = (uint16_t)dtype,
                                      .arg = {(uint32_t)a, (uint32_t)b, (uint32_t)c},
                                      .bits = bits,
                                      .count = count}};
    return rec_add_value(r, &value);
}

int64_t rec_cast_value(lp_recorder *r, int64_t node, lp_dtype to)
{
    const lp_node *operand = &r->value[node].node;
    if (operand->dtype == to)
        return node;
    return add_node(r, LP_OP_CAST, to, operand->count, node, 0, 0, 0);
}

/* An input node: the view gathered into a dense array. */
static int64_t add_input(const char *file, int line, lp_tensor t)
{
    lp_recorder *r = t.recorder;
    const int64_t count = lp_view_count(&t.view);
    const lp_map *gather = NULL, *owned = NULL;
    lp_view dense;
    lp_error err;
    int64_t temporary = t.kind == LP_TENSOR_TEMPORARY ? (int64_t)t.base
                        : t.kind == LP_TENSOR_SOURCE  ? rec_shadow(r, t.base, false)
                                                      : -1;
    if (count < 1) {
        rec_misuse(file, line, r, LP_E_ARGUMENT, "computes on a tensor without elements");
        return -1;
    }
    lp_status status = lp_view_contiguous(&dense, t.view.dtype, t.view.ndim, t.view.size, &err);
    const int64_t dense_bytes = count * (lp_dtype_bits(t.view.dtype) / 8);
    if (status == LP_OK)
        status = lp_map_copy(&gather, &dense, dense_bytes, &t.view, rec_memory_bytes(r, &t), r->platform.alloc, &err);
    if (status != LP_OK) {
        rec_copy_failed(file, line, rec_invalid(r), t, &err);
        return -1;
    }
    owned = rec_own(r, gather);
    if (owned == NULL)
        return -1;
    rec_value input = {
        .node = {.op = LP_OP_INPUT, .dtype = (uint16_t)t.view.dtype, .count = count},
        .staged = t.kind != LP_TENSOR_DEST,
        .index = t.base,
        .dtype = t.view.dtype,
        .map = owned,
        .written_before = r->write_count,
    };
    if (temporary >= 0) {
        rec_piece piece = {0};
        status = rec_through_pieces(r, temporary, owned, &piece, &err);
        if (status == LP_OK)
            status = rec_read_piece(r, &input, &piece, &err);
        if (status != LP_OK) {
            rec_copy_failed(file, line, rec_invalid(r), t, &err);
            return -1;
        }
    }
    return rec_add_value(r, &input);
}

int64_t rec_value_of(const char *file, int line, lp_tensor t)
{
    lp_recorder *r = t.recorder;
    int64_t node;
    if (t.kind == LP_TENSOR_VALUE) {
        const lp_node *base = &r->value[t.base].node;
        node = t.base;
        if (!lp_view_is_contiguous(&t.view) || t.view.offset_bits != 0 || t.view.dtype != base->dtype ||
            lp_view_count(&t.view) != base->count) {
            uint32_t viewed;
            lp_error err;
            const lp_status status = rec_view_value(r, t, &viewed, &err);
            if (status != LP_OK) {
                rec_copy_failed(file, line, rec_invalid(r), t, &err);
                return -1;
            }
            node = viewed;
        }
    } else {
        node = add_input(file, line, t);
    }
    if (node >= 0 && t.cast_to != 0)
        node = rec_cast_value(r, node, (lp_dtype)t.cast_to);
    return node;
}

lp_tensor rec_value_tensor(const char *file, int line, lp_recorder *r, int64_t node, int ndim, const int64_t *shape)
{
    if (node < 0)
        return rec_invalid(r);
    lp_tensor t = {.recorder = r, .base = (uint32_t)node, .kind = LP_TENSOR_VALUE};
    lp_error err;
    if (lp_view_contiguous(&t.view, (lp_dtype)r->value[node].node.dtype, ndim, shape, &err) != LP_OK)
        return rec_misuse_error(file, line, r, &err);
    return t;
}

/* An operand: F32, whatever it was. */
static int64_t operand(const char *file, int line, lp_tensor t)
{
    lp_recorder *r = t.recorder;
    const lp_dtype dtype = lp_dtype_of(t);
    if (dtype != LP_F32 && lp_cast_kind_of(dtype, LP_F32) != LP_CAST_VALUES) {
        rec_refuse_tensor(file, line, t, rec_invalid(r), "compute",
                          lp_name(r, "no cast from %s to F32", lp_dtype_name(dtype)));
        return -1;
    }
    const int64_t node = rec_value_of(file, line, t);
    return node >= 0 ? rec_cast_value(r, node, LP_F32) : -1;
}

static bool is_reduction(lp_op op)
{
    return op == LP_OP_MAX || op == LP_OP_MIN || op == LP_OP_SUM;
}

lp_tensor lp_unary_at(const char *file, int line, lp_op op, lp_tensor t)
{
    lp_recorder *r = t.recorder;
    if (!lp_is_valid(t) || !rec_usable(file, line, r, &t))
        return t;
    const int64_t a = operand(file, line, t);
    if (a < 0)
        return rec_refused_value(file, line, t, is_reduction(op) ? 0 : t.view.ndim, t.view.size);
    if (is_reduction(op))
        return rec_value_tensor(file, line, r, add_node(r, op, LP_F32, 1, a, 0, 0, 0), 0, NULL);
    const int64_t node = add_node(r, op, LP_F32, lp_view_count(&t.view), a, 0, 0, 0);
    return rec_value_tensor(file, line, r, node, t.view.ndim, t.view.size);
}

lp_tensor lp_reduce_at(const char *file, int line, lp_op op, lp_tensor t, int dim)
{
    lp_recorder *r = t.recorder;
    if (!lp_is_valid(t) || !rec_usable(file, line, r, &t))
        return t;
    const int ndim = t.view.ndim, along = dim < 0 ? dim + ndim : dim;
    if (along < 0 || along >= ndim)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "a reduction over dimension %d of %d", dim, ndim);
    /* The groups of a reduction are consecutive elements: the dimension goes last. */
    t = lp_movedim_at(file, line, t, along, ndim - 1);
    if (!lp_is_valid(t))
        return t;
    const int64_t group = t.view.size[ndim - 1];
    const int64_t a = operand(file, line, t);
    if (a < 0)
        return rec_refused_value(file, line, t, ndim - 1, t.view.size);
    const int64_t count = lp_view_count(&t.view) / group;
    return rec_value_tensor(file, line, r, add_node(r, op, LP_F32, count, a, 0, 0, (uint64_t)group), ndim - 1,
                            t.view.size);
}

/* The common shape of tensors, by torch's broadcasting rules. */
static bool broadcast(int n, const lp_tensor *t, int *ndim, int64_t *shape)
{
    *ndim = 0;
    for (int i = 0; i < n; i++)
        *ndim = t[i].view.ndim > *ndim ? t[i].view.ndim : *ndim;
    for (int d = 0; d < *ndim; d++) {
        shape[d] = 1;
        for (int i = 0; i < n; i++) {
            const int own = d - (*ndim - t[i].view.ndim);
            const int64_t size = own >= 0 ? t[i].view.size[own] : 1;
            if (size != 1 && shape[d] != 1 && size != shape[d])
                return false;
            if (size != 1)
                shape[d] = size;
        }
    }
    return true;
}

static lp_tensor elementwise(const char *file, int line, lp_op op, int n, lp_tensor *t)
{
    lp_recorder *r = t[0].recorder;
    for (int i = 0; i < n; i++) {
        if (!lp_is_valid(t[i]) || !rec_usable(file, line, r, &t[i]))
            return rec_invalid(r);
    }
    int ndim;
    int64_t shape[LP_VIEW_DIMS], count = 1, node[3] = {0, 0, 0};
    if (!broadcast(n, t, &ndim, shape))
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "operands whose shapes do not fit");
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    for (int i = 0; i < n; i++) {
        const int64_t own = lp_view_count(&t[i].view);
        if (own != 1 && own != count)
            t[i] = lp_expand_at(file, line, t[i], ndim, shape);
        if (!lp_is_valid(t[i]))
            return t[i];
        node[i] = operand(file, line, t[i]);
        if (node[i] < 0)
            return rec_refused_value(file, line, t[i], ndim, shape);
    }
    return rec_value_tensor(file, line, r, add_node(r, op, LP_F32, count, node[0], node[1], node[2], 0), ndim, shape);
}

lp_tensor lp_binary_at(const char *file, int line, lp_op op, lp_tensor a, lp_tensor b)
{
    lp_tensor t[2] = {a, b};
    return elementwise(file, line, op, 2, t);
}

lp_tensor lp_where_at(const char *file, int line, lp_tensor condition, lp_tensor yes, lp_tensor no)
{
    lp_tensor t[3] = {condition, yes, no};
    return elementwise(file, line, LP_OP_WHERE, 3, t);
}

lp_tensor lp_or_if_zero_at(const char *file, int line, lp_tensor t, float value)
{
    return lp_is_valid(t) ? lp_binary_at(file, line, LP_OP_OR_IF_ZERO, t, lp_constant(t.recorder, value)) : t;
}

lp_tensor lp_constant(lp_recorder *r, float value)
{
    return rec_value_tensor(__FILE__, __LINE__, r, add_node(r, LP_OP_CONST, LP_F32, 1, 0, 0, 0, lp_bits_f32(value)), 0,
                            NULL);
}
