/* SPDX-License-Identifier: Apache-2.0 */
/* Computations of a mirror, refusals, and destinations that a loader replaces. */
#include "recorder/record_mirror.h"

enum { OPERANDS_MAX = 64 };

static bool is_comparison(lp_op op)
{
    return op == LP_OP_GREATER || op == LP_OP_EQUAL;
}

static lp_tensor reduce(const char *file, int line, lp_op op, lp_tensor t, uint32_t dims)
{
    const int ndim = lp_dim(t);
    if (dims == 0)
        return lp_unary_at(file, line, op, t);
    for (int d = ndim - 1; d >= 0; d--) {
        if (dims & (UINT32_C(1) << d))
            t = lp_reduce_at(file, line, op, t, d);
    }
    return t;
}

static lp_tensor apply(const char *file, int line, lp_op op, int count, const lp_tensor *t, uint32_t dims)
{
    if (op == LP_OP_MAX || op == LP_OP_MIN || op == LP_OP_SUM)
        return reduce(file, line, op, t[0], dims);
    switch (count) {
    case 1:
        return lp_unary_at(file, line, op, t[0]);
    case 2:
        return lp_binary_at(file, line, op, t[0], t[1]);
    case 3:
        return lp_where_at(file, line, t[0], t[1], t[2]);
    default:
        return rec_misuse(file, line, t[0].recorder, LP_E_ARGUMENT, "an operation of %d operands", count);
    }
}

/* Names that are known to be refused hold their places in a result that nobody can compute. */
static void hold_result(const char *file, int line, lp_mirror *m, const lp_strided *dst, int count, const lp_tensor *t,
                        const char *operation, const char *reason)
{
    lp_recorder *r = m->recorder;
    if (dst != NULL && m->storage[dst->storage].kind != MIRROR_DESTINATION &&
        m->storage[dst->storage].kind != MIRROR_SOURCE && m->storage[dst->storage].kind != MIRROR_TEMPORARY &&
        !mirror_make_temporary(m, dst->storage)) {
        rec_no_memory(r);
        return;
    }
    const lp_tensor to = dst != NULL ? mirror_tensor(file, line, m, dst) : rec_invalid(r);
    for (int i = 0; i < count; i++) {
        if (lp_is_valid(t[i]) && t[i].kind != LP_TENSOR_INVALID)
            rec_refuse_tensor(file, line, t[i], to.kind == LP_TENSOR_SOURCE ? rec_invalid(r) : to, operation, reason);
        /* An operand that reads no name has nothing to refuse. */
        if (r->misuse.code != LP_E_MEMORY)
            r->misuse.code = LP_OK;
    }
}

lp_status lp_mirror_compute(lp_mirror *m, const char *file, int line, lp_op op, const lp_strided *dst, int count,
                            const lp_strided *const *arg, const double *constant, uint32_t dims, lp_error *err)
{
    lp_recorder *r = m->recorder;
    lp_tensor t[3], was[3];
    if (count < 1 || count > 3 || dst->storage < 0 || dst->storage >= m->storages)
        return lp_fail(err, LP_E_ARGUMENT, "an operation of %d operands", count);
    if (!mirror_is_whole(m, dst))
        return lp_fail(err, LP_E_ARGUMENT, "a result that is not row-major");
    const int64_t refusals = r->refusal_count;
    for (int i = 0; i < count; i++) {
        t[i] = arg[i] != NULL ? mirror_tensor(file, line, m, arg[i]) : lp_constant(r, (float)constant[i]);
        was[i] = t[i];
    }
    const lp_dtype to = is_comparison(op) ? LP_F32 : (lp_dtype)dst->dtype;
    lp_tensor result = rec_invalid(r);
    if (r->misuse.code == LP_OK)
        result = apply(file, line, op, count, t, dims);
    if (lp_is_valid(result))
        result = lp_to_at(file, line, result, to);
    const int64_t node = lp_is_valid(result) && r->misuse.code == LP_OK ? rec_value_of(file, line, result) : -1;
    if (node >= 0 && r->misuse.code == LP_OK) {
        m->storage[dst->storage].kind = MIRROR_VALUE;
        m->storage[dst->storage].base = (uint32_t)node;
        m->storage[dst->storage].is_condition = is_comparison(op);
        return r->refusal_count > refusals ? LP_E_REFUSED : LP_OK;
    }
    const lp_status status = mirror_settle(file, line, m, count, was, rec_invalid(r), lp_op_name(op), refusals, err);
    if (status == LP_E_MEMORY || status == LP_E_INTERNAL)
        return status;
    hold_result(file, line, m, dst, count, was, lp_op_name(op), "computes on what is refused");
    return r->misuse.code == LP_OK ? LP_E_REFUSED : lp_recorder_status(r, err);
}

lp_status lp_mirror_refuse(lp_mirror *m, const char *file, int line, const lp_strided *dst, int count,
                           const lp_strided *const *arg, const char *operation, const char *reason, lp_error *err)
{
    lp_recorder *r = m->recorder;
    lp_tensor t[OPERANDS_MAX];
    bool reads = false;
    if (count < 0 || (dst != NULL && (dst->storage < 0 || dst->storage >= m->storages)))
        return lp_fail(err, LP_E_ARGUMENT, "a refusal of %d operands", count);
    operation = lp_name(r, "%s", operation);
    reason = lp_name(r, "%s", reason);
    for (int done = 0; done < count; done += OPERANDS_MAX) {
        const int some = count - done < OPERANDS_MAX ? count - done : OPERANDS_MAX;
        for (int i = 0; i < some; i++) {
            t[i] = mirror_tensor(file, line, m, arg[done + i]);
            if (r->misuse.code != LP_E_MEMORY)
                r->misuse.code = LP_OK;
        }
        hold_result(file, line, m, dst, some, t, operation, reason);
        reads = reads || mirror_reads_names(r, some, t);
    }
    if (r->misuse.code != LP_OK)
        return lp_recorder_status(r, err);
    return reads ? LP_E_REFUSED : lp_fail(err, LP_E_UNSUPPORTED, "%s: %s", operation, reason);
}

lp_status lp_mirror_require_close(lp_mirror *m, const char *file, int line, const lp_strided *a, const lp_strided *b,
                                  double rtol, const char *text, lp_error *err)
{
    lp_recorder *r = m->recorder;
    const int64_t refusals = r->refusal_count;
    const lp_tensor t[2] = {mirror_tensor(file, line, m, a), mirror_tensor(file, line, m, b)};
    if (r->misuse.code == LP_OK)
        lp_require_close_at(file, line, r, t[0], t[1], rtol, text);
    return mirror_settle(file, line, m, 2, t, rec_invalid(r), "allclose", refusals, err);
}

/* ---- replaced destinations ---- */

/* As src lies in its own storage. */
static lp_status declare_again(lp_mirror *m, uint32_t dest, const lp_strided *src, lp_error *err)
{
    lp_recorder *r = m->recorder;
    rec_destination *d = &r->dest[dest];
    const int64_t element = lp_dtype_bits((lp_dtype)src->dtype) / 8, storage_bytes = m->storage[src->storage].bytes;
    int64_t *extent = lp_arena_get(&r->arena, (size_t)(2 * src->ndim + 1) * sizeof *extent);
    if (extent == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < src->ndim; i++) {
        extent[i] = src->extent[i];
        if (src->extent[src->ndim + i] < (src->extent[i] > 1) ||
            !lp_mul(src->extent[src->ndim + i], element, &extent[src->ndim + i]))
            return lp_fail(err, LP_E_UNSUPPORTED, "replaces '%s' by a tensor that repeats elements", d->row.name);
    }
    if (!lp_mul(src->offset, element, &d->row.offset) || d->row.offset > storage_bytes)
        return lp_fail(err, LP_E_LIMIT, "replaces '%s' by a tensor outside its storage", d->row.name);
    LP_TRY(lp_view_strided(&d->view, (lp_dtype)src->dtype, (int)src->ndim, extent, extent + src->ndim, 0, err));
    d->row.dtype = (lp_dtype)src->dtype;
    d->row.ndim = (int32_t)src->ndim;
    d->row.shape = extent;
    d->row.stride = extent + src->ndim;
    d->row.storage = d->row.name;
    d->row.storage_bytes = storage_bytes;
    d->row.flags &= ~(uint32_t)LP_DEST_TIED;
    d->bytes = storage_bytes - d->row.offset;
    d->last_write = LP_NONE;
    return LP_OK;
}

static bool lies_in(const lp_mirror *m, const mirror_storage *s, uint32_t dest)
{
    uint32_t i = s->base;
    while (i != LP_NONE && i != dest)
        i = m->next[i];
    return i == dest;
}

/* Everything that was written to the destination, out of the way: into a temporary that takes its storage's place. */
static lp_status set_aside(lp_mirror *m, const char *file, int line, uint32_t dest, lp_error *err)
{
    lp_recorder *r = m->recorder;
    bool computed;
    const int64_t held = rec_written(r, dest, &computed);
    if (held < 0)
        return lp_recorder_status(r, err);
    if (computed)
        return lp_fail(err, LP_E_UNSUPPORTED, "replaces a destination that was computed");
    for (int64_t i = 0; i < m->storages; i++) {
        mirror_storage *s = &m->storage[i];
        if (s->kind != MIRROR_DESTINATION || !lies_in(m, s, dest))
            continue;
        if (s->base != dest || m->next[dest] != LP_NONE)
            return lp_fail(err, LP_E_UNSUPPORTED, "replaces a destination that shares its storage");
        if (r->dest[dest].row.offset != 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "replaces a destination inside a larger storage");
        s->kind = MIRROR_TEMPORARY;
        s->base = (uint32_t)held;
    }
    LP_TRY(rec_leave_readers(file, line, r, dest, NULL, 0, err));
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous)
        r->write[i].kind = REC_DROPPED;
    return LP_OK;
}

static int64_t end_of(const lp_destination *row)
{
    int64_t end = row->offset + lp_dtype_bits(row->dtype) / 8;
    for (int32_t i = 0; i < row->ndim; i++) {
        if (row->shape[i] == 0)
            return row->offset;
        end += (row->shape[i] - 1) * row->stride[i];
    }
    return end;
}

/* Into the storage of another one. *tied: it lies inside that one, so that nothing is to be written twice. */
static lp_status join(lp_recorder *r, uint32_t dest, const char *with, bool *tied, lp_error *err)
{
    const int64_t owner = lp_strings_find(&r->dest_names, with, strlen(with));
    if (owner < 0)
        return lp_fail_at(err, LP_E_UNKNOWN_NAME, with, -1, "no destination '%s' is declared", with);
    lp_destination *row = &r->dest[dest].row, *other = &r->dest[owner].row;
    row->storage = other->storage;
    *tied = other->offset <= row->offset && end_of(row) <= end_of(other);
    if (*tied) {
        row->flags |= LP_DEST_TIED;
        other->flags |= LP_DEST_TIED;
    }
    return LP_OK;
}

lp_status lp_mirror_rebind(lp_mirror *m, const char *file, int line, const char *name, const lp_strided *src,
                           const char *with, lp_error *err)
{
    lp_recorder *r = m->recorder;
    const int64_t refusals = r->refusal_count;
    bool tied = false;
    const int64_t dest = lp_strings_find(&r->dest_names, name, strlen(name));
    if (dest < 0 || src->storage < 0 || src->storage >= m->storages)
        return lp_fail_at(err, LP_E_UNKNOWN_NAME, name, -1, "no destination '%s' is declared", name);
    lp_error said;
    lp_tensor to = rec_invalid(r);
    lp_status status = set_aside(m, file, line, (uint32_t)dest, &said);
    if (status == LP_OK)
        status = declare_again(m, (uint32_t)dest, src, &said);
    if (status == LP_OK && with != NULL)
        status = join(r, (uint32_t)dest, with, &tied, &said);
    const lp_tensor from = mirror_tensor(file, line, m, src);
    if (status != LP_OK) {
        rec_misuse_error(file, line, r, &said);
    } else if (!tied) {
        to = (lp_tensor){.recorder = r, .base = (uint32_t)dest, .kind = LP_TENSOR_DEST, .view = r->dest[dest].view};
        if (lp_is_valid(from))
            lp_copy_at(file, line, to, from);
    }
    return mirror_settle(file, line, m, 1, &from, to, "set", refusals, err);
}
