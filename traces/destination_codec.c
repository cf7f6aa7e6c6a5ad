/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Destination rows inside a frame of a trace file. What follows from other columns is stored as the difference to it:
 * strides that are row-major, a storage that has the destination's own name, its size, a group that is a prefix of the
 * name.
 */
#include "traces/row_codec.h"

#include "traces/trace_private.h"

/* Bits of the form column. */
enum { FORM_STRIDED = 1, FORM_SHARED_STORAGE = 2, FORM_OWN_GROUP = 4, FORM_ALL = 7 };

/* Bytes of a compact tensor, modulo 2^64: only a prediction. */
static int64_t compact_bytes(lp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    uint64_t bits = (uint64_t)lp_dtype_bits(dtype);
    for (int32_t d = 0; d < ndim; d++)
        bits *= (uint64_t)shape[d];
    return (int64_t)(bits / 8);
}

static int64_t form_of(const lp_destination *d)
{
    int64_t form = 0, compact[LP_DEST_DIMS_MAX];
    if (!lp_destination_strides(d->dtype, d->ndim, d->shape, compact) ||
        (d->ndim > 0 && memcmp(compact, d->stride, (size_t)d->ndim * sizeof *compact) != 0))
        form |= FORM_STRIDED;
    if (strcmp(d->storage, d->name) != 0)
        form |= FORM_SHARED_STORAGE;
    if (strncmp(d->group, d->name, strlen(d->group)) != 0)
        form |= FORM_OWN_GROUP;
    return form;
}

lp_status lp_pack_destinations(lp_text *out, const lp_destination *dest, int64_t count, const lp_alloc *alloc,
                               lp_error *err)
{
    lp_status status;
    lp_column c = {.alloc = alloc};
    lp_strings layouts;
    lp_strings_init(&layouts, alloc);
    const char **text = lp_allocate(alloc, (size_t)count * sizeof *text);
    if (text == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int64_t i = 0; i < count; i++)
        text[i] = dest[i].name;
    LP_TRY_GOTO(lp_pack_names(out, text, count, alloc, err), release);

#define COLUMN(expression)                                                                                             \
    do {                                                                                                               \
        for (int64_t i = 0; i < count; i++)                                                                            \
            lp_column_push(&c, (int64_t)(expression));                                                                 \
        lp_column_flush(&c, out);                                                                                      \
    } while (0)
    COLUMN(dest[i].dtype);
    COLUMN(dest[i].ndim);
    COLUMN(form_of(&dest[i]));
    for (int64_t i = 0; i < count; i++)
        for (int32_t d = 0; d < dest[i].ndim; d++)
            lp_column_push(&c, dest[i].shape[d]);
    lp_column_flush(&c, out);
    for (int64_t i = 0; i < count; i++)
        for (int32_t d = 0; d < dest[i].ndim && (form_of(&dest[i]) & FORM_STRIDED); d++)
            lp_column_push(&c, dest[i].stride[d]);
    lp_column_flush(&c, out);

    int64_t shared = 0;
    for (int64_t i = 0; i < count; i++)
        if (form_of(&dest[i]) & FORM_SHARED_STORAGE)
            text[shared++] = dest[i].storage;
    LP_TRY_GOTO(lp_pack_names(out, text, shared, alloc, err), release);
    COLUMN((uint64_t)dest[i].storage_bytes - (uint64_t)compact_bytes(dest[i].dtype, dest[i].ndim, dest[i].shape));
    COLUMN(dest[i].offset);

    for (int64_t i = 0; i < count; i++)
        if (lp_strings_add(&layouts, dest[i].layout, strlen(dest[i].layout)) < 0)
            out->failed = true;
    lp_pack_u64(out, (uint64_t)layouts.count);
    for (int64_t i = 0; i < layouts.count; i++)
        lp_pack_text(out, layouts.text[i]);
    COLUMN(lp_strings_find(&layouts, dest[i].layout, strlen(dest[i].layout)));
    COLUMN(dest[i].layout_version);

    COLUMN(form_of(&dest[i]) & FORM_OWN_GROUP ? 0 : (int64_t)strlen(dest[i].group));
    int64_t own = 0;
    for (int64_t i = 0; i < count; i++)
        if (form_of(&dest[i]) & FORM_OWN_GROUP)
            text[own++] = dest[i].group;
    LP_TRY_GOTO(lp_pack_names(out, text, own, alloc, err), release);
    COLUMN(dest[i].flags);
    COLUMN(dest[i].dummy_bits);
    COLUMN(dest[i].slot_dim);
    COLUMN(dest[i].slot_count);
#undef COLUMN
    status = out->failed ? lp_fail_memory(err) : LP_OK;
release:
    lp_release(alloc, c.value);
    lp_release(alloc, text);
    lp_strings_free(&layouts);
    return status;
}

/* What the reading of one set shares. `form` and `text` hold one entry a row. */
typedef struct reader {
    lp_unpacker *in;
    lp_arena *arena;
    int64_t *budget;
    lp_destination *dest;
    int64_t count;
    int64_t *form;
    const char **text;
    lp_column column;
    lp_error *err;
} reader;

/* The next column into r->column, every value in [least, most]. */
static lp_status read_column(reader *r, int64_t count, int64_t least, int64_t most)
{
    if (!lp_column_read(&r->column, r->in, count))
        return lp_fail_memory(r->err);
    for (int64_t i = 0; i < count && !r->in->failed; i++)
        if (r->column.value[i] < least || r->column.value[i] > most)
            r->in->failed = true;
    return LP_OK;
}

static lp_status read_geometry(reader *r)
{
    const int64_t n = r->count;
    int64_t dims = 0, strided = 0;
    LP_TRY(read_column(r, n, 1, LP_DTYPE_COUNT - 1));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].dtype = (lp_dtype)r->column.value[i];
    LP_TRY(read_column(r, n, 0, LP_DEST_DIMS_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++) {
        r->dest[i].ndim = (int32_t)r->column.value[i];
        dims += r->dest[i].ndim;
    }
    LP_TRY(read_column(r, n, 0, FORM_ALL));
    if (r->in->failed)
        return LP_OK;
    memcpy(r->form, r->column.value, (size_t)n * sizeof *r->form);
    int64_t *extent = lp_arena_get(r->arena, 2 * (size_t)dims * sizeof *extent);
    if (extent == NULL)
        return lp_fail_memory(r->err);
    int64_t *stride = extent + dims;
    LP_TRY(read_column(r, dims, INT64_MIN, INT64_MAX));
    if (r->in->failed)
        return LP_OK;
    memcpy(extent, r->column.value, (size_t)dims * sizeof *extent);
    for (int64_t i = 0; i < n; i++)
        strided += (r->form[i] & FORM_STRIDED) ? r->dest[i].ndim : 0;
    LP_TRY(read_column(r, strided, INT64_MIN, INT64_MAX));
    strided = 0;
    for (int64_t i = 0; i < n && !r->in->failed; i++) {
        lp_destination *d = &r->dest[i];
        if (r->form[i] & FORM_STRIDED) {
            if (d->ndim > 0)
                memcpy(stride, r->column.value + strided, (size_t)d->ndim * sizeof *stride);
            strided += d->ndim;
        } else if (!lp_destination_strides(d->dtype, d->ndim, extent, stride)) {
            r->in->failed = true;
        }
        d->shape = extent;
        d->stride = stride;
        extent += d->ndim;
        stride += d->ndim;
    }
    return LP_OK;
}

static lp_status read_storage(reader *r)
{
    const int64_t n = r->count;
    int64_t shared = 0;
    for (int64_t i = 0; i < n; i++)
        shared += (r->form[i] & FORM_SHARED_STORAGE) != 0;
    LP_TRY(lp_unpack_names(r->in, r->text, shared, false, r->budget, r->arena, r->err));
    shared = 0;
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].storage = r->form[i] & FORM_SHARED_STORAGE ? r->text[shared++] : r->dest[i].name;
    LP_TRY(read_column(r, n, INT64_MIN, INT64_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++) {
        const lp_destination *d = &r->dest[i];
        r->dest[i].storage_bytes =
            (int64_t)((uint64_t)r->column.value[i] + (uint64_t)compact_bytes(d->dtype, d->ndim, d->shape));
    }
    LP_TRY(read_column(r, n, 0, INT64_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].offset = r->column.value[i];
    return LP_OK;
}

static lp_status read_layouts(reader *r)
{
    const int64_t n = r->count;
    bool out_of_memory = false;
    const int64_t layouts = (int64_t)(lp_unpack_u64(r->in) & INT64_MAX);
    if (layouts > n)
        r->in->failed = true;
    for (int64_t i = 0; i < layouts && !r->in->failed; i++) {
        r->text[i] = lp_unpack_text_copy(r->in, r->arena, &out_of_memory);
        if (out_of_memory)
            return lp_fail_memory(r->err);
    }
    LP_TRY(read_column(r, n, 0, layouts - 1));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].layout = r->text[r->column.value[i]];
    LP_TRY(read_column(r, n, INT32_MIN, INT32_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].layout_version = (int32_t)r->column.value[i];
    return LP_OK;
}

static lp_status read_groups(reader *r)
{
    const int64_t n = r->count;
    int64_t own = 0;
    LP_TRY(read_column(r, n, 0, LP_NAME_BYTES_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++) {
        const int64_t bytes = r->column.value[i];
        if (bytes > (int64_t)strlen(r->dest[i].name)) {
            r->in->failed = true;
            break;
        }
        const bool again = i > 0 && r->dest[i - 1].group != NULL && (int64_t)strlen(r->dest[i - 1].group) == bytes &&
                           memcmp(r->dest[i - 1].group, r->dest[i].name, (size_t)bytes) == 0;
        r->dest[i].group = again ? r->dest[i - 1].group : lp_arena_text(r->arena, r->dest[i].name, (size_t)bytes);
        if (r->dest[i].group == NULL)
            return lp_fail_memory(r->err);
        own += (r->form[i] & FORM_OWN_GROUP) != 0;
    }
    if (r->in->failed)
        return LP_OK;
    LP_TRY(lp_unpack_names(r->in, r->text, own, false, r->budget, r->arena, r->err));
    own = 0;
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        if (r->form[i] & FORM_OWN_GROUP)
            r->dest[i].group = r->text[own++];
    return LP_OK;
}

static lp_status read_rest(reader *r)
{
    const int64_t n = r->count;
    LP_TRY(read_column(r, n, 0, UINT32_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].flags = (uint32_t)r->column.value[i];
    LP_TRY(read_column(r, n, INT64_MIN, INT64_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].dummy_bits = (uint64_t)r->column.value[i];
    LP_TRY(read_column(r, n, -1, INT32_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].slot_dim = (int32_t)r->column.value[i];
    LP_TRY(read_column(r, n, INT32_MIN, INT32_MAX));
    for (int64_t i = 0; i < n && !r->in->failed; i++)
        r->dest[i].slot_count = (int32_t)r->column.value[i];
    return LP_OK;
}

lp_status lp_unpack_destinations(lp_unpacker *in, int64_t count, int64_t *budget, lp_arena *arena, lp_destination **out,
                                 lp_error *err)
{
    lp_status status;
    const lp_alloc *alloc = arena->alloc;
    /* Names that rise need a byte each: more rows than bytes are a lie, found before anything is allocated. */
    if (count < 0 || count > in->end - in->at) {
        in->failed = true;
        return LP_OK;
    }
    reader r = {.in = in, .arena = arena, .budget = budget, .count = count, .column = {.alloc = alloc}, .err = err};
    r.dest = lp_arena_get(arena, (size_t)count * sizeof *r.dest);
    r.form = lp_allocate(alloc, (size_t)count * sizeof *r.form);
    r.text = lp_allocate(alloc, (size_t)count * sizeof *r.text);
    if (r.dest == NULL || r.form == NULL || r.text == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    memset(r.dest, 0, (size_t)count * sizeof *r.dest);
    LP_TRY_GOTO(lp_unpack_names(in, r.text, count, true, budget, arena, err), release);
    for (int64_t i = 0; i < count && !in->failed; i++)
        r.dest[i].name = r.text[i];
    lp_status (*const part[])(reader *) = {read_geometry, read_storage, read_layouts, read_groups, read_rest};
    for (size_t p = 0; p < sizeof part / sizeof part[0] && !in->failed; p++)
        LP_TRY_GOTO(part[p](&r), release);
    *out = r.dest;
release:
    lp_release(alloc, r.form);
    lp_release(alloc, r.text);
    lp_release(alloc, r.column.value);
    return status;
}
