/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Temporaries: the dense buffers that a loader would allocate for clone, cat and the like. One is a list of pieces,
 * each saying which of its bytes come from which checkpoint tensor. Nothing is ever stored in it.
 */
#include "recorder/record_private.h"

int64_t rec_new_temporary(lp_recorder *r, int64_t bytes)
{
    if (r->temporary_count >= LP_NONE || !lp_grow(r->platform.alloc, (void **)&r->temporary, &r->temporary_capacity,
                                                  r->temporary_count + 1, sizeof *r->temporary)) {
        rec_no_memory(r);
        return -1;
    }
    r->temporary[r->temporary_count] = (rec_temporary){.bytes = bytes, .shadow_of = LP_NONE};
    return r->temporary_count++;
}

static bool intervals_meet(const lp_map *a, const lp_map *b)
{
    return a->dst_lo < b->dst_hi && b->dst_lo < a->dst_hi;
}

/* Takes the bytes of `cut` out of the earlier pieces; pieces that lose everything disappear. */
static lp_status trim_pieces(lp_recorder *r, rec_temporary *t, const lp_map *cut, lp_error *err)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < t->count; i++) {
        rec_piece piece = t->piece[i];
        if (intervals_meet(piece.map, cut)) {
            const lp_map *rest = NULL;
            LP_TRY(lp_map_subtract(&rest, piece.map, cut, 0, r->platform.alloc, err));
            piece.map = rec_own(r, rest);
            if (piece.map == NULL)
                return lp_fail_memory(err);
        }
        if (piece.map->nbox > 0)
            t->piece[kept++] = piece;
    }
    t->count = kept;
    return LP_OK;
}

lp_status rec_write_piece(lp_recorder *r, int64_t temporary, const rec_piece *piece, lp_error *err)
{
    rec_temporary *t = &r->temporary[temporary];
    if (!t->is_disjoint)
        LP_TRY(trim_pieces(r, t, piece->map, err));
    if (t->count >= REC_PIECES_MAX)
        return lp_fail(err, LP_E_LIMIT, "a temporary of more than %d pieces", REC_PIECES_MAX);
    if (!lp_grow(r->platform.alloc, (void **)&t->piece, &t->capacity, t->count + 1, sizeof *t->piece))
        return lp_fail_memory(err);
    t->piece[t->count++] = *piece;
    return LP_OK;
}

/* One box of `bytes` bytes, each from the same place. */
static lp_status identity_map(lp_recorder *r, int64_t bytes, const lp_map **out, lp_error *err)
{
    const lp_box box = {.run = bytes};
    const lp_map *map = NULL;
    LP_TRY(lp_map_from_boxes(&map, 1, 1, bytes > 0 ? 1 : 0, &box, r->platform.alloc, err));
    *out = rec_own(r, map);
    return *out != NULL ? LP_OK : lp_fail_memory(err);
}

lp_status rec_hold_value(lp_recorder *r, int64_t temporary, uint32_t node, lp_error *err)
{
    rec_piece whole = {.name = node, .is_value = true};
    LP_TRY(identity_map(r, r->temporary[temporary].bytes, &whole.map, err));
    return rec_write_piece(r, temporary, &whole, err);
}

bool rec_mark_name(lp_recorder *r, uint32_t name, uint8_t flag)
{
    if (r->name_flags[name] == 0) {
        if (!lp_grow(r->platform.alloc, (void **)&r->marked, &r->marked_capacity, r->marked_count + 1,
                     sizeof *r->marked))
            return false;
        r->marked[r->marked_count++] = name;
    }
    r->name_flags[name] |= flag;
    return true;
}

int64_t rec_shadow(lp_recorder *r, uint32_t name, bool make)
{
    if (r->name_flags[name] & REC_NAME_SHADOWED) {
        for (int64_t i = 0; i < r->temporary_count; i++) {
            if (r->temporary[i].shadow_of == name)
                return i;
        }
    }
    if (!make)
        return -1;
    const int64_t bytes = lp_checkpoint_at(r->checkpoint, name)->bytes;
    const int64_t index = rec_new_temporary(r, bytes);
    if (index < 0)
        return -1;
    lp_error err;
    rec_piece whole = {.name = name};
    if (!rec_mark_name(r, name, REC_NAME_SHADOWED) || identity_map(r, bytes, &whole.map, &err) != LP_OK ||
        (bytes > 0 && rec_write_piece(r, index, &whole, &err) != LP_OK)) {
        rec_no_memory(r);
        return -1;
    }
    r->temporary[index].shadow_of = name;
    return index;
}

/* Writes are listed newest first; pieces must be put in oldest first, so that later ones trim earlier ones. */
static lp_status replay_writes(lp_recorder *r, int64_t temporary, uint32_t dest, lp_error *err)
{
    uint32_t *order = NULL;
    int64_t count = 0, capacity = 0;
    lp_status status = LP_OK;
    for (uint32_t w = r->dest[dest].last_write; w != LP_NONE; w = r->write[w].previous) {
        if (r->write[w].kind != REC_BYTES)
            continue;
        if (!lp_grow(r->platform.alloc, (void **)&order, &capacity, count + 1, sizeof *order)) {
            status = lp_fail_memory(err);
            goto done;
        }
        order[count++] = w;
    }
    while (count > 0) {
        const rec_write *w = &r->write[order[--count]];
        rec_piece piece = {.fill_bits = w->fill_bits,
                           .name = w->name,
                           .src_dtype = w->src_dtype,
                           .dst_dtype = w->dst_dtype,
                           .is_fill = w->map->src_elem == 0};
        const lp_map *moved = NULL;
        LP_TRY_GOTO(lp_map_shift(&moved, w->map, w->src_off, w->dst_off, r->platform.alloc, err), done);
        piece.map = rec_own(r, moved);
        if (piece.map == NULL) {
            status = lp_fail_memory(err);
            goto done;
        }
        LP_TRY_GOTO(rec_write_piece(r, temporary, &piece, err), done);
    }
done:
    lp_release(r->platform.alloc, order);
    return status;
}

int64_t rec_written(lp_recorder *r, uint32_t dest, bool *computed)
{
    *computed = false;
    for (uint32_t w = r->dest[dest].last_write; w != LP_NONE; w = r->write[w].previous)
        *computed = *computed || r->write[w].kind == REC_DERIVE;
    const int64_t index = rec_new_temporary(r, r->dest[dest].bytes);
    if (index < 0)
        return -1;
    lp_error err;
    if (replay_writes(r, index, dest, &err) != LP_OK) {
        rec_misuse_error(__FILE__, __LINE__, r, &err);
        return -1;
    }
    return index;
}

/* ---- operations that make temporaries ---- */

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
