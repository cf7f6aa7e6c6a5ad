/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that only move bytes: each result is a temporary, put together from views of the operands. */
#include "recorder/record_private.h"

/* A temporary of that shape; contents undefined. */
static lp_tensor new_tensor(const char *file, int line, lp_recorder *r, lp_dtype dtype, int ndim, const int64_t *shape)
{
    lp_error err;
    lp_tensor t = {.recorder = r, .kind = LP_TENSOR_TEMPORARY};
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    if (lp_view_contiguous(&t.view, dtype, ndim, shape, &err) != LP_OK)
        return rec_misuse_error(file, line, r, &err);
    const int64_t bits = lp_view_count(&t.view) * lp_dtype_bits(dtype);
    if (bits % 8 != 0)
        return rec_misuse(file, line, r, LP_E_UNSUPPORTED, "a temporary that is not whole bytes");
    const int64_t index = rec_new_temporary(r, bits / 8);
    if (index < 0)
        return rec_invalid(r);
    t.base = (uint32_t)index;
    return t;
}

lp_tensor lp_empty_at(const char *file, int line, lp_recorder *r, lp_dtype dtype, int ndim, const int64_t *shape)
{
    return new_tensor(file, line, r, dtype, ndim, shape);
}

lp_tensor lp_clone_at(const char *file, int line, lp_tensor t)
{
    lp_recorder *r = t.recorder;
    if (!lp_is_valid(t) || !rec_usable(file, line, r, &t))
        return t;
    if (t.kind == LP_TENSOR_VALUE) { /* a result is a buffer of its own already */
        t.flags |= LP_PROV_MATERIALISES;
        return t;
    }
    lp_tensor made = new_tensor(file, line, r, lp_dtype_of(t), t.view.ndim, t.view.size);
    if (!lp_is_valid(made))
        return made;
    lp_copy_at(file, line, made, t);
    made.flags = t.flags | LP_PROV_MATERIALISES;
    return made;
}

lp_tensor lp_contiguous_at(const char *file, int line, lp_tensor t)
{
    return lp_is_valid(t) && !lp_view_is_contiguous(&t.view) ? lp_clone_at(file, line, t) : t;
}

/* Whether part i fits the others in every dimension but `dim`. */
static bool part_fits(lp_tensor first, lp_tensor part, int dim)
{
    bool fits = lp_is_valid(part) && part.view.ndim == first.view.ndim && lp_dtype_of(part) == lp_dtype_of(first);
    for (int d = 0; fits && d < first.view.ndim; d++)
        fits = d == dim || part.view.size[d] == first.view.size[d];
    return fits;
}

lp_tensor lp_cat_at(const char *file, int line, int count, const lp_tensor *parts, int dim)
{
    if (count < 1)
        return (lp_tensor){0};
    lp_recorder *r = parts[0].recorder;
    for (int i = 0; i < count; i++) {
        if (!lp_is_valid(parts[i]) || !rec_usable(file, line, r, &parts[i]))
            return rec_invalid(r);
    }
    const int ndim = parts[0].view.ndim, along = dim < 0 ? dim + ndim : dim;
    if (along < 0 || along >= ndim)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "cat along dimension %d of %d", dim, ndim);
    int64_t shape[LP_VIEW_DIMS];
    memcpy(shape, parts[0].view.size, sizeof shape);
    shape[along] = 0;
    for (int i = 0; i < count; i++) {
        if (!part_fits(parts[0], parts[i], along) || !lp_add(shape[along], parts[i].view.size[along], &shape[along]))
            return rec_misuse(file, line, r, LP_E_ARGUMENT, "cat: part %d does not fit the first one", i);
    }
    lp_tensor made = new_tensor(file, line, r, lp_dtype_of(parts[0]), ndim, shape);
    if (!lp_is_valid(made))
        return made;
    r->temporary[made.base].is_disjoint = true;
    int64_t start = 0;
    uint8_t flags = LP_PROV_MATERIALISES;
    for (int i = 0; i < count; i++) {
        const int64_t length = parts[i].view.size[along];
        lp_copy_at(file, line, lp_narrow_at(file, line, made, along, start, length), parts[i]);
        start += length;
        flags |= parts[i].flags;
    }
    r->temporary[made.base].is_disjoint = false;
    made.flags = flags;
    return made;
}

lp_tensor lp_stack_at(const char *file, int line, int count, const lp_tensor *parts, int dim)
{
    if (count < 1)
        return (lp_tensor){0};
    lp_recorder *r = parts[0].recorder;
    const size_t bytes = (size_t)count * sizeof *parts;
    lp_tensor *raised = lp_allocate(r->platform.alloc, bytes);
    if (raised == NULL)
        return rec_no_memory(r);
    for (int i = 0; i < count; i++)
        raised[i] = lp_unsqueeze_at(file, line, parts[i], dim);
    const lp_tensor made = lp_cat_at(file, line, count, raised, dim);
    lp_release(r->platform.alloc, raised);
    return made;
}

/* Where a run of indices in arithmetic progression ends, which one slice can say. */
static int64_t end_of_slice(const int64_t *index, int64_t start, int64_t count)
{
    int64_t end = start + 1;
    if (end == count || index[end] == index[start])
        return end;
    const int64_t step = index[end] - index[start];
    while (end < count && index[end] - index[end - 1] == step)
        end++;
    return end;
}

lp_tensor lp_index_select_at(const char *file, int line, lp_tensor t, int dim, int64_t count, const int64_t *index)
{
    lp_recorder *r = t.recorder;
    if (!lp_is_valid(t) || !rec_usable(file, line, r, &t))
        return t;
    const int ndim = t.view.ndim, along = dim < 0 ? dim + ndim : dim;
    if (along < 0 || along >= ndim || count < 0)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "index_select along dimension %d of %d", dim, ndim);
    const int64_t extent = t.view.size[along];
    for (int64_t i = 0; i < count; i++) {
        if (index[i] < 0 || index[i] >= extent)
            return rec_misuse(file, line, r, LP_E_ARGUMENT, "index_select: index %lld of %lld", (long long)index[i],
                              (long long)extent);
    }
    int64_t shape[LP_VIEW_DIMS];
    memcpy(shape, t.view.size, sizeof shape);
    shape[along] = count;
    lp_tensor made = new_tensor(file, line, r, lp_dtype_of(t), ndim, shape);
    if (!lp_is_valid(made))
        return made;
    made.flags = t.flags | LP_PROV_MATERIALISES;
    int64_t slices = 0;
    for (int64_t start = 0; start < count; start = end_of_slice(index, start, count))
        slices++;
    if (slices > REC_PIECES_MAX) {
        rec_refuse_tensor(
            file, line, t, made, "index_select",
            lp_name(r, "selects %lld separate slices; %d are possible", (long long)slices, REC_PIECES_MAX));
        return made;
    }
    r->temporary[made.base].is_disjoint = true;
    for (int64_t start = 0, end; start < count; start = end) {
        end = end_of_slice(index, start, count);
        const int64_t last = index[end - 1], step = end - start > 1 ? index[start + 1] - index[start] : 1;
        const int64_t stop = step > 0 ? last + 1 : last == 0 ? LP_SLICE_END : last - 1;
        lp_copy_at(file, line, lp_narrow_at(file, line, made, along, start, end - start),
                   lp_slice_at(file, line, t, along, index[start], stop, step));
    }
    r->temporary[made.base].is_disjoint = false;
    return made;
}

/* Repetition is a dimension of stride 0, which the reshape keeps: no temporary is needed. */
static lp_tensor repeat_view(const char *file, int line, lp_tensor t, int dim, int64_t times, bool inside)
{
    if (!lp_is_valid(t))
        return t;
    lp_recorder *r = t.recorder;
    const int ndim = t.view.ndim, along = dim < 0 ? dim + ndim : dim;
    if (along < 0 || along >= ndim || times < 1 || ndim >= LP_VIEW_DIMS)
        return rec_misuse(file, line, r, LP_E_ARGUMENT, "repeat of dimension %d of %d, %lld times", dim, ndim,
                          (long long)times);
    int64_t shape[LP_VIEW_DIMS + 1];
    const int fresh = inside ? along + 1 : along;
    for (int d = 0; d <= ndim; d++)
        shape[d] = d == fresh ? times : -1;
    t = lp_unsqueeze_at(file, line, t, fresh);
    t = lp_expand_at(file, line, t, ndim + 1, shape);
    t = lp_flatten_at(file, line, t, along, along + 1);
    t.flags |= LP_PROV_MATERIALISES;
    return t;
}

lp_tensor lp_repeat_interleave_at(const char *file, int line, lp_tensor t, int dim, int64_t times)
{
    return repeat_view(file, line, t, dim, times, true);
}

lp_tensor lp_repeat_at(const char *file, int line, lp_tensor t, int dim, int64_t times)
{
    return repeat_view(file, line, t, dim, times, false);
}
