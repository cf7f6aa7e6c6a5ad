/* SPDX-License-Identifier: Apache-2.0 */
/* Destination tensors: declaring them, and finding them by name. */
#include "recorder/record_private.h"

/* "layers.12" of "model.layers.12.mlp.down_proj.weight": up to the outermost index; "root" when there is none. */
static const char *default_group(lp_recorder *r, const char *name)
{
    static const char model[] = "model.";
    const char *start = strncmp(name, model, sizeof model - 1) == 0 ? name + sizeof model - 1 : name;
    for (const char *part = start; part != NULL;) {
        const char *dot = strchr(part, '.');
        const size_t bytes = dot != NULL ? (size_t)(dot - part) : strlen(part);
        if (bytes > 0 && strspn(part, "0123456789") == bytes && part != start)
            return lp_arena_text(&r->arena, start, (size_t)(part - start) + bytes);
        part = dot != NULL ? dot + 1 : NULL;
    }
    return "root";
}

/* Makes a span longer by the steps of one more dimension. */
static bool add_reach(int64_t extent, int64_t stride, int64_t *span)
{
    int64_t reach;
    return extent == 0 || (lp_mul(extent - 1, stride, &reach) && lp_add(*span, reach, span));
}

/* Strides in bytes, row-major where none are given, and the bytes from the first element to the end of the last one.
 * Elements that are not whole bytes are row-major in whole rows; their strides are rounded down. */
static lp_status fill_geometry(const lp_declaration *d, int64_t *stride, int64_t *span, lp_error *err)
{
    const int bits = lp_dtype_bits(d->dtype);
    const bool sub_byte = bits % 8 != 0;
    if (bits == 0)
        return lp_fail(err, LP_E_ARGUMENT, "destination '%s' has no dtype", d->name);
    if (sub_byte && d->stride != NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "destination '%s' of %s has strides: declare its bytes as U8", d->name,
                       lp_dtype_name(d->dtype));
    if (d->ndim < 0 || d->ndim > LP_VIEW_DIMS)
        return lp_fail(err, LP_E_LIMIT, "destination '%s' has %d dimensions, at most %d are possible", d->name, d->ndim,
                       LP_VIEW_DIMS);
    int64_t dense_bits = bits, last = bits / 8;
    bool empty = false, fits = true;
    for (int i = d->ndim - 1; i >= 0; i--) {
        if (d->shape[i] < 0)
            return lp_fail(err, LP_E_ARGUMENT, "destination '%s' has a negative extent", d->name);
        stride[i] = d->stride != NULL ? d->stride[i] : fits ? dense_bits / 8 : 0;
        if (stride[i] < 0)
            return lp_fail(err, LP_E_ARGUMENT, "destination '%s' has a negative stride", d->name);
        empty = empty || d->shape[i] == 0;
        fits = fits && lp_mul(dense_bits, d->shape[i] > 0 ? d->shape[i] : 1, &dense_bits) &&
               add_reach(d->shape[i], stride[i], &last);
        if (sub_byte && i == d->ndim - 1 && dense_bits % 8 != 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "destination '%s' has rows that are not whole bytes", d->name);
    }
    if (!fits)
        return lp_fail(err, LP_E_LIMIT, "destination '%s' is too large", d->name);
    *span = empty ? 0 : sub_byte ? dense_bits / 8 : last;
    return LP_OK;
}

static lp_status make_row(lp_recorder *r, const lp_declaration *d, rec_destination *out, lp_error *err)
{
    int64_t stride[LP_VIEW_DIMS], span = 0, need;
    LP_TRY(fill_geometry(d, stride, &span, err));
    if (d->offset < 0 || d->storage_bytes < 0)
        return lp_fail(err, LP_E_ARGUMENT, "destination '%s' has a negative offset or storage", d->name);
    if (!lp_add(d->offset, span, &need))
        return lp_fail(err, LP_E_LIMIT, "destination '%s' is too large", d->name);
    if (d->storage_bytes > 0 && need > d->storage_bytes)
        return lp_fail(err, LP_E_ARGUMENT, "destination '%s' needs %lld bytes of a storage of %lld", d->name,
                       (long long)need, (long long)d->storage_bytes);
    if (d->has_slots && (d->slot_dim < 0 || d->slot_dim >= d->ndim))
        return lp_fail(err, LP_E_ARGUMENT, "destination '%s' has no dimension %d to count slots", d->name, d->slot_dim);

    const size_t extents = (size_t)d->ndim * sizeof(int64_t);
    lp_arena *a = &r->arena;
    const char *name = lp_arena_text(a, d->name, strlen(d->name));
    const int64_t *shape = lp_arena_copy(a, d->shape, extents);
    const int64_t *strides = lp_arena_copy(a, stride, extents);
    const char *storage = d->storage != NULL ? lp_arena_text(a, d->storage, strlen(d->storage)) : name;
    const char *layout = d->layout != NULL ? lp_arena_text(a, d->layout, strlen(d->layout)) : "";
    const char *group = d->group != NULL ? lp_arena_text(a, d->group, strlen(d->group)) : default_group(r, d->name);
    if (name == NULL || shape == NULL || strides == NULL || storage == NULL || layout == NULL || group == NULL)
        return lp_fail_memory(err);

    out->row = (lp_destination){.name = name,
                                .dtype = d->dtype,
                                .ndim = d->ndim,
                                .shape = shape,
                                .stride = strides,
                                .storage = storage,
                                .storage_bytes = d->storage_bytes > 0 ? d->storage_bytes : need,
                                .offset = d->offset,
                                .layout = layout,
                                .layout_version = d->layout_version,
                                .group = group,
                                .flags = d->flags,
                                .dummy_bits = d->dummy_bits,
                                .slot_dim = d->has_slots ? d->slot_dim : -1,
                                .slot_count = 0};
    if (d->has_slots) {
        if (d->shape[d->slot_dim] > INT32_MAX)
            return lp_fail(err, LP_E_LIMIT, "destination '%s' has too many slots", d->name);
        out->row.slot_count = (int32_t)d->shape[d->slot_dim];
    }
    out->bytes = out->row.storage_bytes - out->row.offset;
    out->last_write = LP_NONE;
    out->is_computed = false;
    out->first_reader = LP_NONE;
    return lp_dtype_bits(d->dtype) % 8 != 0 ? lp_view_contiguous(&out->view, d->dtype, d->ndim, shape, err)
                                            : lp_view_strided(&out->view, d->dtype, d->ndim, shape, strides, 0, err);
}

lp_tensor lp_declare_with_at(const char *file, int line, lp_recorder *r, const lp_declaration *d)
{
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    lp_error err;
    if (strlen(d->name) > LP_TEXT_BYTES_MAX)
        return rec_misuse(file, line, r, LP_E_LIMIT,
                          "the name of a destination has %zu bytes, more than %d: '%.100s...'", strlen(d->name),
                          LP_TEXT_BYTES_MAX, d->name);
    if (lp_strings_find(&r->dest_names, d->name, strlen(d->name)) >= 0)
        return rec_misuse(file, line, r, LP_E_DUPLICATE, "destination '%s' is declared twice", d->name);
    if (!lp_grow(r->platform.alloc, (void **)&r->dest, &r->dest_capacity, r->dest_names.count + 1, sizeof *r->dest))
        return rec_no_memory(r);
    rec_destination made;
    if (make_row(r, d, &made, &err) != LP_OK)
        return rec_misuse_error(file, line, r, &err);
    const int64_t index = lp_strings_add(&r->dest_names, d->name, strlen(d->name));
    if (index < 0)
        return rec_no_memory(r);
    r->dest[index] = made;
    return (lp_tensor){.recorder = r, .base = (uint32_t)index, .kind = LP_TENSOR_DEST, .view = made.view};
}

lp_tensor lp_declare_at(const char *file, int line, lp_recorder *r, const char *name, lp_dtype dtype, int ndim,
                        const int64_t *shape)
{
    const lp_declaration d = {.name = name, .dtype = dtype, .ndim = ndim, .shape = shape};
    return lp_declare_with_at(file, line, r, &d);
}

bool lp_has_dest(const lp_recorder *r, const char *name)
{
    return lp_strings_find(&r->dest_names, name, strlen(name)) >= 0;
}

lp_tensor lp_dest_at(const char *file, int line, lp_recorder *r, const char *name)
{
    if (r->misuse.code != LP_OK)
        return rec_invalid(r);
    const int64_t index = lp_strings_find(&r->dest_names, name, strlen(name));
    if (index < 0)
        return rec_misuse(file, line, r, LP_E_UNKNOWN_NAME, "no destination '%s' is declared", name);
    return (lp_tensor){.recorder = r, .base = (uint32_t)index, .kind = LP_TENSOR_DEST, .view = r->dest[index].view};
}

lp_tensor lp_declare_tied_at(const char *file, int line, lp_recorder *r, const char *name, const char *of)
{
    const lp_tensor owner = lp_dest_at(file, line, r, of);
    if (owner.kind == LP_TENSOR_INVALID)
        return owner;
    r->dest[owner.base].row.flags |= LP_DEST_TIED;
    const lp_destination *row = &r->dest[owner.base].row;
    const lp_declaration d = {.name = name,
                              .dtype = row->dtype,
                              .ndim = row->ndim,
                              .shape = row->shape,
                              .stride = lp_dtype_bits(row->dtype) % 8 == 0 ? row->stride : NULL,
                              .storage = row->storage,
                              .offset = row->offset,
                              .storage_bytes = row->storage_bytes,
                              .layout = row->layout,
                              .layout_version = row->layout_version,
                              .group = row->group,
                              .flags = row->flags,
                              .dummy_bits = row->dummy_bits,
                              .has_slots = row->slot_dim >= 0,
                              .slot_dim = row->slot_dim};
    return lp_declare_with_at(file, line, r, &d);
}
