/* SPDX-License-Identifier: Apache-2.0 */
/* Random view operations, each done by the library and by the model. */
#ifndef LOADPLAN_TEST_VIEW_STEPS_H
#define LOADPLAN_TEST_VIEW_STEPS_H

#include "view_oracle.h"

/* One step on both; *m is changed only where the operation is legal. Returns what torch would say. `cuts`: the library
 * may say LP_E_UNSUPPORTED, because the result need not be a view. */
typedef struct step {
    lp_status want, got;
    bool cuts;
} step;

static inline int random_dim(rng *r, const model *m)
{
    if (m->ndim == 0)
        return (int)rng_between(r, -1, 1);
    return (int)rng_between(r, -m->ndim - (rng_chance(r, 5) ? 1 : 0), m->ndim - 1 + (rng_chance(r, 5) ? 1 : 0));
}

static inline bool resolve(const model *m, int dim, int *out)
{
    const int count = m->ndim > 0 ? m->ndim : 1;
    *out = dim < 0 ? dim + count : dim;
    return dim >= -count && dim < count;
}

/* A random shape of `count` elements. */
static inline int random_factors(rng *r, int64_t count, int64_t *size, int most)
{
    int ndim = 0;
    if (count == 0) {
        size[0] = 0;
        return 1;
    }
    while (ndim < most && (count > 1 || rng_chance(r, 20))) {
        int64_t factor = rng_between(r, 1, count < 12 ? count : 12);
        while (count % factor != 0)
            factor--;
        size[ndim++] = factor;
        count /= factor;
    }
    if (count > 1 || ndim == 0)
        size[ndim++] = count;
    return ndim;
}

static inline step step_pick(rng *r, lp_view *v, model *m)
{
    step s = {.cuts = true};
    int d = 0;
    const int dim = random_dim(r, m);
    const bool legal_dim = m->ndim > 0 && resolve(m, dim, &d);
    const int64_t size = legal_dim ? m->size[d] : 1;
    const int64_t a = rng_between(r, -size - 1, size + 1), b = rng_between(r, -1, size + 1);
    int64_t start, length;
    lp_error err;
    s.want = LP_E_ARGUMENT;
    switch (rng_between(r, 0, 4)) {
    case 0:
        s.got = lp_view_narrow(v, dim, a, b, &err);
        start = a < 0 ? a + size : a;
        if (legal_dim && start >= 0 && b >= 0 && start + b <= size) {
            model_pick(m, d, start, 1, b);
            s.want = LP_OK;
        }
        break;
    case 1:
        s.got = lp_view_select(v, dim, a, &err);
        start = a < 0 ? a + size : a;
        if (legal_dim && start >= 0 && start < size) {
            model_pick(m, d, start, 1, 1);
            model_remove_dim(m, d);
            s.want = LP_OK;
        }
        break;
    case 2: {
        const int64_t by = rng_chance(r, 10) ? 0 : rng_between(r, 1, 3) * (rng_chance(r, 40) ? -1 : 1);
        const int64_t from = rng_chance(r, 30) ? LP_SLICE_END : a, to = rng_chance(r, 30) ? LP_SLICE_END : b;
        s.got = lp_view_slice(v, dim, from, to, by, &err);
        if (!legal_dim || by == 0)
            break;
        /* walk it as Python's range does */
        int64_t i = from == LP_SLICE_END ? (by > 0 ? 0 : size - 1) : from < 0 ? from + size : from;
        int64_t end = to == LP_SLICE_END ? (by > 0 ? size : -1) : to < 0 ? to + size : to;
        const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
        i = i < low ? low : i > high ? high : i;
        end = end < low ? low : end > high ? high : end;
        length = 0;
        for (int64_t k = i; by > 0 ? k < end : k > end; k += by)
            length++;
        model_pick(m, d, i, by, length);
        s.want = LP_OK;
        break;
    }
    case 3: {
        const int64_t part = rng_between(r, -1, size + 1), index = rng_between(r, -1, 3);
        s.got = lp_view_split(v, dim, part, index, &err);
        if (!legal_dim || part < 0 || (part == 0 && size != 0))
            break;
        const int64_t parts = size == 0 ? 1 : (size + part - 1) / part;
        if (index < 0 || index >= parts)
            break;
        start = index * part;
        model_pick(m, d, start, 1, start + part > size ? size - start : part);
        s.want = LP_OK;
        break;
    }
    default: {
        const int64_t chunks = rng_between(r, 0, 4), index = rng_between(r, -1, 3);
        s.got = lp_view_chunk(v, dim, chunks, index, &err);
        if (!legal_dim || chunks < 1)
            break;
        const int64_t part = (size + chunks - 1) / chunks;
        const int64_t parts = size == 0 ? chunks : (size + part - 1) / part;
        if (index < 0 || index >= parts)
            break;
        start = index * part;
        model_pick(m, d, start, 1, start + part > size ? size - start : part);
        s.want = LP_OK;
        break;
    }
    }
    return s;
}

static inline step step_shape(rng *r, lp_view *v, model *m)
{
    step s = {.want = LP_E_ARGUMENT, .cuts = true};
    int64_t size[20];
    int d, e;
    switch (rng_between(r, 0, 2)) {
    case 0: {
        int ndim = m->count == 0 ? (int)rng_between(r, 1, 3) : random_factors(r, m->count, size, 7);
        for (int i = 0; m->count == 0 && i < ndim; i++)
            size[i] = i == 0 ? 0 : rng_between(r, 0, 3);
        if (m->count == 1 && rng_chance(r, 30))
            ndim = 0;
        bool legal = true;
        int64_t given[20];
        memcpy(given, size, sizeof given);
        if (ndim > 0 && rng_chance(r, 30)) {
            given[rng_between(r, 0, ndim - 1)] = -1;
            legal = m->count > 0;
        } else if (rng_chance(r, 5) && ndim > 0) {
            given[0] += 1;
            legal = model_count(ndim, given) == m->count;
            size[0] += 1;
        }
        s.got = lp_view_reshape(v, ndim, given, NULL);
        /* -1 beside a 0 has no answer; alone it is the size itself */
        if (!legal && m->count == 0) {
            int64_t known = 1;
            for (int i = 0; i < ndim; i++)
                known *= given[i] == -1 ? 1 : given[i];
            if (known > 0 && model_count(ndim, size) == 0) {
                for (int i = 0; i < ndim; i++)
                    size[i] = given[i] == -1 ? 0 : given[i];
                legal = true;
            }
        }
        if (legal) {
            model_shape(m, ndim, size);
            s.want = LP_OK;
        }
        break;
    }
    case 1: {
        const int a = random_dim(r, m), b = random_dim(r, m);
        s.got = lp_view_flatten(v, a, b, NULL);
        if (!resolve(m, a, &d) || !resolve(m, b, &e) || d > e)
            break;
        int ndim = 0;
        for (int i = 0; i < m->ndim; i++) {
            if (i <= d || i > e)
                size[ndim++] = m->size[i];
            else
                size[ndim - 1] *= m->size[i];
        }
        if (m->ndim == 0)
            size[ndim++] = 1;
        model_shape(m, ndim, size);
        s.want = LP_OK;
        break;
    }
    default: {
        const int a = random_dim(r, m);
        const bool legal = m->ndim > 0 && resolve(m, a, &d);
        const int64_t whole = legal ? m->size[d] : 6;
        int parts = random_factors(r, whole, size, 2);
        int64_t given[20];
        memcpy(given, size, sizeof given);
        if (rng_chance(r, 20) && whole > 0)
            given[rng_between(r, 0, parts - 1)] = -1;
        s.got = lp_view_unflatten(v, a, parts, given, NULL);
        if (!legal)
            break;
        int64_t shape[30];
        int ndim = 0;
        for (int i = 0; i < m->ndim; i++) {
            if (i != d)
                shape[ndim++] = m->size[i];
            for (int k = 0; i == d && k < parts; k++)
                shape[ndim++] = size[k];
        }
        model_shape(m, ndim, shape);
        s.want = LP_OK;
        break;
    }
    }
    return s;
}

static inline step step_dims(rng *r, lp_view *v, model *m)
{
    step s = {.want = LP_OK};
    int dims[MODEL_DIMS], d, e;
    const int a = random_dim(r, m), b = random_dim(r, m);
    for (int i = 0; i < m->ndim; i++)
        dims[i] = i;
    switch (rng_between(r, 0, 6)) {
    case 0:
        for (int i = m->ndim - 1; i > 0; i--) {
            const int k = (int)rng_between(r, 0, i), t = dims[i];
            dims[i] = dims[k];
            dims[k] = t;
        }
        s.got = lp_view_permute(v, m->ndim, dims, NULL);
        model_permute(m, dims);
        return s;
    case 1:
        s.got = lp_view_transpose(v, a, b, NULL);
        if (!resolve(m, a, &d) || !resolve(m, b, &e)) {
            s.want = LP_E_ARGUMENT;
        } else if (m->ndim > 0) {
            dims[d] = e;
            dims[e] = d;
            model_permute(m, dims);
        }
        return s;
    case 2: {
        const bool t = rng_chance(r, 50);
        s.got = t ? lp_view_t(v, NULL) : lp_view_reverse_dims(v, NULL);
        if (t && m->ndim > 2) {
            s.want = LP_E_ARGUMENT;
            return s;
        }
        for (int i = 0; i < m->ndim; i++)
            dims[i] = m->ndim - 1 - i;
        model_permute(m, dims);
        return s;
    }
    case 3: {
        s.got = lp_view_movedim(v, a, b, NULL);
        if (!resolve(m, a, &d) || !resolve(m, b, &e)) {
            s.want = LP_E_ARGUMENT;
            return s;
        }
        if (m->ndim == 0)
            return s;
        memmove(dims + d, dims + d + 1, (size_t)(m->ndim - 1 - d) * sizeof *dims);
        memmove(dims + e + 1, dims + e, (size_t)(m->ndim - 1 - e) * sizeof *dims);
        dims[e] = d;
        model_permute(m, dims);
        return s;
    }
    case 4:
        s.got = lp_view_squeeze(v, a, NULL);
        if (!resolve(m, a, &d))
            s.want = LP_E_ARGUMENT;
        else if (m->ndim > 0 && m->size[d] == 1)
            model_remove_dim(m, d);
        return s;
    case 5:
        s.got = lp_view_squeeze_all(v, NULL);
        for (int i = m->ndim - 1; i >= 0; i--)
            if (m->size[i] == 1)
                model_remove_dim(m, i);
        return s;
    default: {
        const int at = (int)rng_between(r, -m->ndim - 2, m->ndim + 1);
        s.got = lp_view_unsqueeze(v, at, NULL);
        if (at < -m->ndim - 1 || at > m->ndim)
            s.want = LP_E_ARGUMENT;
        else
            model_insert_dim(m, at < 0 ? at + m->ndim + 1 : at, 1);
        return s;
    }
    }
}

static inline step step_diagonal(rng *r, lp_view *v, model *m)
{
    step s = {.want = LP_E_ARGUMENT, .cuts = true};
    const int a = random_dim(r, m), b = random_dim(r, m);
    const int64_t offset = rng_between(r, -3, 3);
    int d, e;
    s.got = lp_view_diagonal(v, offset, a, b, NULL);
    if (m->ndim > 0 && resolve(m, a, &d) && resolve(m, b, &e) && d != e) {
        model_diagonal(m, offset, d, e);
        s.want = LP_OK;
    }
    return s;
}

static inline step step_expand(rng *r, lp_view *v, model *m)
{
    step s = {.want = LP_OK};
    int64_t given[MODEL_DIMS + 2], size[MODEL_DIMS + 2];
    const int lead = (int)rng_between(r, 0, m->ndim < 7 ? 1 : 0);
    int64_t count = 1;
    for (int d = 0; d < m->ndim + lead; d++) {
        const int64_t old = d < lead ? 1 : m->size[d - lead];
        size[d] = old == 1 && rng_chance(r, 60) ? rng_between(r, 0, 3) : old;
        given[d] = size[d] == old && d >= lead && rng_chance(r, 30) ? -1 : size[d];
        count *= size[d];
    }
    if (count > MODEL_ELEMENTS / 8) {
        s.got = LP_OK;
        return s;
    }
    if (rng_chance(r, 5) && m->ndim > 0 && m->size[0] > 1) {
        given[lead] = m->size[0] + 1;
        s.want = LP_E_ARGUMENT;
    }
    s.got = lp_view_expand(v, m->ndim + lead, given, NULL);
    if (s.want == LP_OK) {
        for (int i = 0; i < lead; i++)
            model_insert_dim(m, 0, 1);
        model_expand(m, size);
    }
    return s;
}

static inline step step_dtype(rng *r, lp_view *v, model *m)
{
    step s = {.want = LP_OK};
    const lp_dtype dtype = (lp_dtype)rng_between(r, LP_BOOL, LP_U64);
    if (m->count * lp_dtype_bits(m->dtype) / lp_dtype_bits(dtype) > MODEL_ELEMENTS / 2) {
        s.got = LP_OK;
        return s;
    }
    s.got = lp_view_dtype(v, dtype, NULL);
    if (model_dtype(m, dtype))
        return s;
    /* Both refuse; which of the two codes depends on why. */
    s.want = s.got == LP_E_UNSUPPORTED ? s.got : LP_E_ARGUMENT;
    return s;
}

static inline step step_as_strided(rng *r, lp_view *v, model *m, int64_t bytes)
{
    step s = {.want = LP_OK};
    int64_t size[4], stride[4], offset = rng_between(r, 0, 6), last = offset;
    const int ndim = (int)rng_between(r, 0, 4);
    for (int d = 0; d < ndim; d++) {
        size[d] = rng_between(r, 0, 9) == 0 ? 0 : rng_between(r, 1, 4);
        stride[d] = rng_between(r, 0, 9);
        last += size[d] > 0 ? (size[d] - 1) * stride[d] : 0;
    }
    if ((last + 1) * lp_dtype_bits(m->dtype) > bytes * 8) {
        s.got = LP_OK;
        return s;
    }
    s.got = lp_view_as_strided(v, ndim, size, stride, offset, NULL);
    model_shape(m, ndim, size);
    for (int64_t i = 0; i < m->count; i++) {
        int64_t index[MODEL_DIMS], at = offset;
        index_of(m, i, index);
        for (int d = 0; d < ndim; d++)
            at += index[d] * stride[d];
        m->at[i] = at * lp_dtype_bits(m->dtype);
    }
    return s;
}

#endif
