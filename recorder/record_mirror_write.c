/* SPDX-License-Identifier: Apache-2.0 */
/* Writes of a mirror: copies, casts, fills, and elements moved one by one. */
#include "recorder/record_mirror.h"

static lp_status check_storage(const lp_mirror *m, const lp_strided *g, lp_error *err)
{
    if (g->storage < 0 || g->storage >= m->storages)
        return lp_fail(err, LP_E_ARGUMENT, "there is no storage number %lld", (long long)g->storage);
    return LP_OK;
}

static bool is_computed(const lp_mirror *m, int64_t storage)
{
    return m->storage[storage].kind == MIRROR_VALUE || m->storage[storage].kind == MIRROR_CAST;
}

/* What is written to must be memory: a value or a cast that is overwritten as a whole becomes a fresh temporary. */
static bool make_writable(const char *file, int line, lp_mirror *m, const lp_strided *dst)
{
    if (!is_computed(m, dst->storage))
        return true;
    if (m->storage[dst->storage].kind == MIRROR_CAST && !mirror_is_whole(m, dst)) {
        mirror_tensor(file, line, m, dst);
        if (m->storage[dst->storage].kind == MIRROR_CAST) {
            /* whole in bytes, other dtype: the cast is done when it is looked at so */
            rec_misuse(file, line, m->recorder, LP_E_UNSUPPORTED, "overwrites part of a cast");
            return false;
        }
        return true;
    }
    if (mirror_is_whole(m, dst)) {
        if (mirror_make_temporary(m, dst->storage))
            return true;
        rec_no_memory(m->recorder);
        return false;
    }
    if (m->storage[dst->storage].is_condition) {
        rec_misuse(file, line, m->recorder, LP_E_UNSUPPORTED, "overwrites part of a comparison");
        return false;
    }
    const uint32_t node = m->storage[dst->storage].base;
    lp_error err;
    if (!mirror_make_temporary(m, dst->storage)) {
        rec_no_memory(m->recorder);
        return false;
    }
    if (rec_hold_value(m->recorder, m->storage[dst->storage].base, node, &err) != LP_OK) {
        rec_misuse_error(file, line, m->recorder, &err);
        return false;
    }
    return true;
}

/* A value seen through a view has to have the destination's dtype before it is placed. */
static lp_tensor value_of_dtype(lp_tensor value, lp_dtype to)
{
    lp_recorder *r = value.recorder;
    const lp_dtype from = value.view.dtype;
    if (value.kind != LP_TENSOR_VALUE || value.cast_to != 0 || from == to ||
        lp_cast_kind_of(from, to) != LP_CAST_VALUES || lp_view_is_contiguous(&value.view))
        return value;
    const rec_value cast = {.node = {.op = LP_OP_CAST,
                                     .dtype = (uint16_t)to,
                                     .arg = {value.base, 0, 0},
                                     .count = r->value[value.base].node.count}};
    const int64_t at = rec_add_value(r, &cast);
    if (at < 0)
        return rec_invalid(r);
    const int64_t was = lp_dtype_bits(from), is = lp_dtype_bits(to);
    value.base = (uint32_t)at;
    value.view.dtype = to;
    value.view.offset_bits = value.view.offset_bits / was * is;
    for (int i = 0; i < value.view.nmode; i++)
        value.view.mode[i].stride_bits = value.view.mode[i].stride_bits / was * is;
    value.flags |= LP_PROV_IMPLICIT_CAST;
    return value;
}

/* A temporary that a value overwrites as a whole becomes that value. */
static bool becomes_value(const char *file, int line, lp_mirror *m, const lp_strided *dst, lp_tensor src)
{
    lp_recorder *r = m->recorder;
    if (m->storage[dst->storage].kind != MIRROR_TEMPORARY || src.kind != LP_TENSOR_VALUE || !mirror_is_whole(m, dst))
        return false;
    const lp_tensor cast = lp_to_at(file, line, src, (lp_dtype)dst->dtype);
    if (!lp_is_valid(cast) ||
        lp_count(cast) * (lp_dtype_bits((lp_dtype)dst->dtype) / 8) != m->storage[dst->storage].bytes)
        return false;
    const int64_t node = rec_value_of(file, line, cast);
    if (node < 0 || r->misuse.code != LP_OK)
        return false;
    m->storage[dst->storage].kind = MIRROR_VALUE;
    m->storage[dst->storage].base = (uint32_t)node;
    return true;
}

lp_status lp_mirror_copy(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                         bool meant, lp_error *err)
{
    lp_recorder *r = m->recorder;
    LP_TRY(check_storage(m, dst, err));
    LP_TRY(check_storage(m, src, err));
    const int64_t refusals = r->refusal_count;
    lp_tensor from = mirror_tensor(file, line, m, src), to = rec_invalid(r);
    if (lp_is_valid(from) && make_writable(file, line, m, dst))
        to = mirror_tensor(file, line, m, dst);
    if (lp_is_valid(to) && !becomes_value(file, line, m, dst, from)) {
        if (meant)
            from = lp_to_at(file, line, from, to.view.dtype);
        from = value_of_dtype(from, to.view.dtype);
        if (lp_is_valid(from))
            lp_copy_at(file, line, to, from);
    }
    m->storage[dst->storage].writes++;
    return mirror_settle(file, line, m, 1, &from, to, "copy_", refusals, err);
}

static bool keep_cast(lp_mirror *m, int64_t storage, lp_tensor cast, int64_t of)
{
    if (m->casts >= LP_NONE || !lp_grow(m->alloc, (void **)&m->cast, &m->cast_capacity, m->casts + 1, sizeof *m->cast))
        return false;
    m->cast[m->casts] = (mirror_cast){.tensor = cast, .storage = of, .writes = m->storage[of].writes};
    m->storage[storage].kind = MIRROR_CAST;
    m->storage[storage].base = (uint32_t)m->casts++;
    return true;
}

lp_status lp_mirror_cast(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                         lp_error *err)
{
    lp_recorder *r = m->recorder;
    LP_TRY(check_storage(m, dst, err));
    LP_TRY(check_storage(m, src, err));
    if (!mirror_is_whole(m, dst)) /* not row-major: the copy knows the order */
        return lp_mirror_copy(m, file, line, dst, src, true, err);
    const int64_t refusals = r->refusal_count;
    const lp_tensor from = mirror_tensor(file, line, m, src);
    lp_tensor to = rec_invalid(r);
    if (lp_is_valid(from)) {
        const lp_tensor cast = lp_to_at(file, line, from, (lp_dtype)dst->dtype);
        if (r->refusal_count > refusals)
            to = mirror_tensor(file, line, m, dst);
        if (lp_is_valid(to)) {
            lp_copy_at(file, line, to, from);
        } else if (cast.kind == LP_TENSOR_VALUE) {
            const int64_t node = rec_value_of(file, line, cast);
            if (node >= 0) {
                m->storage[dst->storage].kind = MIRROR_VALUE;
                m->storage[dst->storage].base = (uint32_t)node;
            }
        } else if (cast.cast_to == 0) { /* the same bytes */
            lp_copy_at(file, line, mirror_tensor(file, line, m, dst), cast);
        } else if (!keep_cast(m, dst->storage, cast, src->storage)) {
            rec_no_memory(r);
        }
    }
    if (!lp_is_valid(to) && m->storage[dst->storage].kind == MIRROR_TEMPORARY && r->misuse.code != LP_OK &&
        r->misuse.code != LP_E_MEMORY) {
        const lp_error said = r->misuse;
        r->misuse.code = LP_OK;
        to = mirror_tensor(file, line, m, dst);
        r->misuse = said;
    }
    return mirror_settle(file, line, m, 1, &from, to, "to", refusals, err);
}

lp_status lp_mirror_fill(lp_mirror *m, const char *file, int line, const lp_strided *dst, uint64_t bits,
                         int64_t trigger, lp_error *err)
{
    lp_recorder *r = m->recorder;
    LP_TRY(check_storage(m, dst, err));
    const int64_t refusals = r->refusal_count;
    lp_tensor to = rec_invalid(r);
    lp_tensor by = lp_at_begin(r);
    if (trigger >= 0)
        by = lp_source_index_at(file, line, r, trigger);
    if (make_writable(file, line, m, dst))
        to = mirror_tensor(file, line, m, dst);
    if (lp_is_valid(to))
        lp_fill_at(file, line, to, bits, by);
    m->storage[dst->storage].writes++;
    /* A fill of a source that no map can say refuses the source itself. */
    const lp_tensor concerned[2] = {to, by};
    return mirror_settle(file, line, m, 2, concerned, rec_invalid(r), "fill_", refusals, err);
}

/* ---- elements one by one ---- */

/* How many of the moves from i on go in steps of one size on both sides. */
static int64_t run_of_moves(const int64_t *to, const int64_t *from, int64_t i, int64_t count)
{
    int64_t n = 1;
    if (i + 1 == count || to[i + 1] <= to[i])
        return 1;
    const int64_t to_step = to[i + 1] - to[i], from_step = from[i + 1] - from[i];
    while (i + n < count && to[i + n] - to[i + n - 1] == to_step && from[i + n] - from[i + n - 1] == from_step)
        n++;
    return n;
}

static lp_tensor progression(const char *file, int line, lp_tensor flat, const int64_t *index, int64_t count)
{
    const int64_t step = count > 1 ? index[1] - index[0] : 1, last = index[count - 1];
    if (step == 0)
        return lp_expand_at(file, line, lp_narrow_at(file, line, flat, 0, index[0], 1), 1, &count);
    const int64_t stop = step > 0 ? last + 1 : last == 0 ? LP_SLICE_END : last - 1;
    return lp_slice_at(file, line, flat, 0, index[0], stop, step);
}

lp_status lp_mirror_move(lp_mirror *m, const char *file, int line, const lp_strided *dst, const lp_strided *src,
                         int64_t count, const int64_t *to, const int64_t *from, lp_error *err)
{
    lp_recorder *r = m->recorder;
    LP_TRY(check_storage(m, dst, err));
    LP_TRY(check_storage(m, src, err));
    const int64_t refusals = r->refusal_count;
    int64_t runs = 0;
    for (int64_t i = 0; i < count; i += run_of_moves(to, from, i, count))
        runs++;
    lp_tensor read = mirror_tensor(file, line, m, src), written = rec_invalid(r);
    if (lp_is_valid(read) && make_writable(file, line, m, dst))
        written = mirror_tensor(file, line, m, dst);
    if (lp_is_valid(written) && runs > REC_PIECES_MAX) {
        rec_misuse(file, line, r, LP_E_LIMIT, "moves %lld separate runs of elements; %d are possible", (long long)runs,
                   REC_PIECES_MAX);
    } else if (lp_is_valid(written)) {
        const int64_t in = lp_count(read), out = lp_count(written);
        const lp_tensor flat_read = lp_reshape_at(file, line, read, 1, &in);
        const lp_tensor flat_written = lp_reshape_at(file, line, written, 1, &out);
        for (int64_t i = 0, n; i < count && r->misuse.code == LP_OK; i += n) {
            n = run_of_moves(to, from, i, count);
            const lp_tensor source = progression(file, line, flat_read, from + i, n);
            lp_copy_at(file, line, progression(file, line, flat_written, to + i, n), source);
        }
    }
    m->storage[dst->storage].writes++;
    return mirror_settle(file, line, m, 1, &read, written, "move", refusals, err);
}
