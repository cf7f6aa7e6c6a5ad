/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle of the view tests: a view as an explicit array of element addresses (in bits) in row-major order, and
 * torch's operations done on it by moving array entries one by one. Operations return LP_OK or LP_E_ARGUMENT.
 */
#ifndef LOADPLAN_TEST_VIEW_ORACLE_H
#define LOADPLAN_TEST_VIEW_ORACLE_H

#include "map_oracle.h"

enum { MODEL_DIMS = 12, MODEL_ELEMENTS = 4096 };

typedef struct model {
    lp_dtype dtype;
    int ndim;
    int64_t size[MODEL_DIMS];
    int64_t count;
    int64_t at[MODEL_ELEMENTS];
} model;

static inline int64_t model_count(int ndim, const int64_t *size)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= size[d];
    return count;
}

static inline void model_contiguous(model *m, lp_dtype dtype, int ndim, const int64_t *size)
{
    m->dtype = dtype;
    m->ndim = ndim;
    memcpy(m->size, size, (size_t)ndim * sizeof *size);
    m->count = model_count(ndim, size);
    for (int64_t i = 0; i < m->count; i++)
        m->at[i] = i * lp_dtype_bits(dtype);
}

static inline void index_of(const model *m, int64_t number, int64_t *index)
{
    for (int d = m->ndim - 1; d >= 0; d--) {
        index[d] = number % m->size[d];
        number /= m->size[d];
    }
}

static inline int64_t address(const model *m, const int64_t *index)
{
    int64_t number = 0;
    for (int d = 0; d < m->ndim; d++)
        number = number * m->size[d] + index[d];
    return m->at[number];
}

static inline void model_shape(model *m, int ndim, const int64_t *size)
{
    m->ndim = ndim;
    memcpy(m->size, size, (size_t)ndim * sizeof *size);
    m->count = model_count(ndim, size);
}

/* The indices start, start + step, ... of a dimension. */
static inline void model_pick(model *m, int dim, int64_t start, int64_t step, int64_t count)
{
    static model out;
    out = *m;
    out.size[dim] = count;
    out.count = model_count(out.ndim, out.size);
    for (int64_t i = 0; i < out.count; i++) {
        int64_t index[MODEL_DIMS];
        index_of(&out, i, index);
        index[dim] = start + index[dim] * step;
        out.at[i] = address(m, index);
    }
    *m = out;
}

static inline void model_remove_dim(model *m, int dim)
{
    m->ndim--;
    memmove(m->size + dim, m->size + dim + 1, (size_t)(m->ndim - dim) * sizeof *m->size);
}

static inline void model_insert_dim(model *m, int dim, int64_t size)
{
    memmove(m->size + dim + 1, m->size + dim, (size_t)(m->ndim - dim) * sizeof *m->size);
    m->size[dim] = size;
    m->ndim++;
}

static inline void model_permute(model *m, const int *dims)
{
    static model out;
    out = *m;
    for (int d = 0; d < m->ndim; d++)
        out.size[d] = m->size[dims[d]];
    for (int64_t i = 0; i < out.count; i++) {
        int64_t index[MODEL_DIMS], old[MODEL_DIMS];
        index_of(&out, i, index);
        for (int d = 0; d < m->ndim; d++)
            old[dims[d]] = index[d];
        out.at[i] = address(m, old);
    }
    *m = out;
}

/* To `size`, of the same rank: extents of 1 repeat. */
static inline void model_expand(model *m, const int64_t *size)
{
    static model out;
    out = *m;
    memcpy(out.size, size, (size_t)m->ndim * sizeof *size);
    out.count = model_count(m->ndim, size);
    for (int64_t i = 0; i < out.count; i++) {
        int64_t index[MODEL_DIMS];
        index_of(&out, i, index);
        for (int d = 0; d < m->ndim; d++)
            if (m->size[d] == 1)
                index[d] = 0;
        out.at[i] = address(m, index);
    }
    *m = out;
}

static inline void model_diagonal(model *m, int64_t offset, int dim1, int dim2)
{
    static model out;
    int64_t row = offset < 0 ? -offset : 0, column = offset > 0 ? offset : 0;
    int64_t length = m->size[dim1] - row < m->size[dim2] - column ? m->size[dim1] - row : m->size[dim2] - column;
    if (length < 0)
        length = 0;
    out.dtype = m->dtype;
    out.ndim = 0;
    for (int d = 0; d < m->ndim; d++)
        if (d != dim1 && d != dim2)
            out.size[out.ndim++] = m->size[d];
    out.size[out.ndim++] = length;
    out.count = model_count(out.ndim, out.size);
    for (int64_t i = 0; i < out.count; i++) {
        int64_t index[MODEL_DIMS], old[MODEL_DIMS];
        index_of(&out, i, index);
        int next = 0;
        for (int d = 0; d < m->ndim; d++)
            old[d] = d == dim1 ? row + index[out.ndim - 1] : d == dim2 ? column + index[out.ndim - 1] : index[next++];
        out.at[i] = address(m, old);
    }
    *m = out;
}

/* view(dtype): false when there are no whole new elements, or they are not where such elements may be. */
static inline bool model_dtype(model *m, lp_dtype dtype)
{
    static model out;
    const int64_t old_bits = lp_dtype_bits(m->dtype), new_bits = lp_dtype_bits(dtype);
    out = *m;
    out.dtype = dtype;
    if (old_bits != new_bits) {
        if (m->ndim == 0)
            return false;
        const int64_t row = m->size[m->ndim - 1];
        if (row * old_bits % new_bits != 0)
            return false;
        const int64_t new_row = row * old_bits / new_bits, rows = row == 0 ? 0 : m->count / row;
        const int64_t align = old_bits % new_bits == 0 ? 1 : new_bits < 8 ? 8 : new_bits;
        out.size[m->ndim - 1] = new_row;
        out.count = model_count(m->ndim, out.size);
        if (out.count > MODEL_ELEMENTS)
            return false;
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t i = 0; i < new_row; i++) {
                /* bit by bit: the bits of a new element must lie side by side */
                int64_t first = 0;
                for (int64_t b = 0; b < new_bits; b++) {
                    const int64_t bit = i * new_bits + b;
                    const int64_t where = m->at[r * row + bit / old_bits] + bit % old_bits;
                    if (b == 0)
                        first = where;
                    else if (where != first + b)
                        return false;
                }
                /* where a row of side by side elements starts, it must be aligned */
                int64_t *const place = &out.at[r * new_row + i];
                if ((i == 0 || first != place[-1] + new_bits) && first % align != 0)
                    return false;
                *place = first;
            }
        }
    }
    *m = out;
    return true;
}

/* Whether the view says what the model says. */
static inline bool view_is(const lp_view *v, const model *m)
{
    if (v->dtype != m->dtype || v->ndim != m->ndim || lp_view_count(v) != m->count ||
        lp_view_is_empty(v) != (m->count == 0))
        return false;
    for (int d = 0; d < m->ndim; d++)
        if (v->size[d] != m->size[d])
            return false;
    bool contiguous = true;
    for (int64_t i = 0; i < m->count; i++) {
        int64_t index[MODEL_DIMS], at = v->offset_bits;
        index_of(m, i, index);
        for (int d = 0; d < m->ndim; d++) {
            int64_t rest = index[d];
            for (int k = v->first[d + 1] - 1; k >= v->first[d]; k--) {
                at += rest % v->mode[k].extent * v->mode[k].stride_bits;
                rest /= v->mode[k].extent;
            }
            if (rest != 0)
                return false;
        }
        if (at != m->at[i])
            return false;
        contiguous = contiguous && at == m->at[0] + i * lp_dtype_bits(m->dtype);
    }
    return lp_view_is_contiguous(v) == contiguous;
}

#endif
