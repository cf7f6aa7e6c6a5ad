/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checkpoint's catalogue inside frames of a trace file. Offsets are not stored: tensors of a safetensors file lie
 * one behind the other, so an offset follows from the order in the file and the sizes; only gaps are stored, and the
 * one gap of a usual file is its header.
 */
#include "traces/row_codec.h"

#include "traces/checkpoint_catalogue.h"

/* ---- places ---- */

/* Tensors with a known offset, sorted by (file, offset, name), as indices. */
typedef struct placed {
    int64_t file, off, index;
} placed;

static bool before(const placed *a, const placed *b)
{
    if (a->file != b->file)
        return a->file < b->file;
    if (a->off != b->off)
        return a->off < b->off;
    return a->index < b->index;
}

/* Merge sort of runs that are in order already: a checkpoint is mostly in the order of its names. */
static void sort_placed(placed *item, placed *spare, int64_t count)
{
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t lo = 0; lo + width < count; lo += 2 * width) {
            const int64_t mid = lo + width, hi = mid + width < count ? mid + width : count;
            if (!before(&item[mid], &item[mid - 1]))
                continue;
            int64_t a = lo, b = mid;
            for (int64_t k = lo; k < hi; k++)
                spare[k] = b >= hi || (a < mid && !before(&item[b], &item[a])) ? item[a++] : item[b++];
            memcpy(item + lo, spare + lo, (size_t)(hi - lo) * sizeof *item);
        }
    }
}

lp_status lp_catalogue_places(const lp_checkpoint *c, lp_place *place, lp_error *err)
{
    const lp_alloc *alloc = c->platform.alloc;
    placed *item = lp_allocate(alloc, 2 * (size_t)c->count * sizeof *item);
    if (item == NULL)
        return lp_fail_memory(err);
    int64_t count = 0;
    for (int64_t i = 0; i < c->count; i++) {
        const lp_checkpoint_tensor *t = &c->tensor[i];
        place[i] = (lp_place){.position = -1, .gap = 0};
        if (t->file >= 0 && t->file_off >= 0)
            item[count++] = (placed){.file = t->file, .off = t->file_off, .index = i};
    }
    sort_placed(item, item + c->count, count);
    int64_t position = 0, end = 0;
    for (int64_t k = 0; k < count; k++) {
        if (k > 0 && item[k].file != item[k - 1].file)
            position = end = 0;
        place[item[k].index] = (lp_place){.position = position++, .gap = item[k].off - end};
        end = item[k].off + c->tensor[item[k].index].bytes;
    }
    lp_release(alloc, item);
    return LP_OK;
}

lp_status lp_catalogue_offsets(lp_checkpoint *c, const lp_place *place, bool *fits, lp_error *err)
{
    const lp_alloc *alloc = c->platform.alloc;
    *fits = false;
    lp_status status = LP_OK;
    /* first[f] .. first[f + 1]: the slots of file f, one for each of its placed tensors. */
    int64_t *first = lp_allocate_zero(alloc, ((size_t)c->file_count + 2) * sizeof *first);
    int64_t *slot = lp_allocate(alloc, (size_t)c->count * sizeof *slot);
    if (first == NULL || slot == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int64_t i = 0; i < c->count; i++)
        if (place[i].position >= 0)
            first[c->tensor[i].file + 1]++;
    for (int64_t f = 0; f < c->file_count; f++)
        first[f + 1] += first[f];
    memset(slot, 0xff, (size_t)c->count * sizeof *slot);
    for (int64_t i = 0; i < c->count; i++) {
        if (place[i].position < 0)
            continue;
        const int64_t at = first[c->tensor[i].file], room = first[c->tensor[i].file + 1] - at;
        if (place[i].position >= room || slot[at + place[i].position] >= 0)
            goto release;
        slot[at + place[i].position] = i;
    }
    for (int64_t f = 0; f < c->file_count; f++) {
        int64_t end = 0;
        for (int64_t k = first[f]; k < first[f + 1]; k++) {
            lp_checkpoint_tensor *t = &c->tensor[slot[k]];
            if (!lp_add(end, place[slot[k]].gap, &t->file_off) || t->file_off < 0 ||
                !lp_add(t->file_off, t->bytes, &end) || (c->file[f].size_bytes >= 0 && end > c->file[f].size_bytes))
                goto release;
        }
    }
    *fits = true;
release:
    lp_release(alloc, first);
    lp_release(alloc, slot);
    return status;
}

/* ---- frames ---- */

/* Equal shapes share a number inside a frame. The key is the shape's bytes. */
static int64_t shape_number(lp_strings *shapes, const lp_checkpoint_tensor *t)
{
    return lp_strings_add(shapes, (const char *)t->shape, (size_t)t->ndim * sizeof *t->shape);
}

lp_status lp_pack_catalogue(lp_text *out, const lp_checkpoint *c, const lp_place *place, int64_t first, int64_t count,
                            const lp_alloc *alloc, lp_error *err)
{
    lp_status status;
    lp_column column = {.alloc = alloc};
    lp_strings shapes;
    lp_strings_init(&shapes, alloc);
    const lp_checkpoint_tensor *tensor = c->tensor + first;
    const char **name = lp_allocate(alloc, (size_t)count * sizeof *name);
    if (name == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    for (int64_t i = 0; i < count; i++)
        name[i] = tensor[i].name;
    LP_TRY_GOTO(lp_pack_names(out, name, count, alloc, err), release);
    for (int64_t i = 0; i < count; i++)
        lp_column_push(&column, tensor[i].dtype);
    lp_column_flush(&column, out);
    for (int64_t i = 0; i < count; i++) {
        const int64_t number = shape_number(&shapes, &tensor[i]);
        if (number < 0) {
            status = lp_fail_memory(err);
            goto release;
        }
        lp_column_push(&column, number);
    }
    lp_column_flush(&column, out);
    lp_pack_u64(out, (uint64_t)shapes.count);
    for (int64_t s = 0; s < shapes.count; s++) {
        const int64_t ndim = shapes.bytes[s] / (int64_t)sizeof(int64_t);
        lp_pack_u64(out, (uint64_t)ndim);
        for (int64_t d = 0; d < ndim; d++) {
            int64_t extent;
            memcpy(&extent, shapes.text[s] + (size_t)d * sizeof extent, sizeof extent);
            lp_pack_u64(out, (uint64_t)extent);
        }
    }
    for (int64_t i = 0; i < count; i++)
        lp_column_push(&column, tensor[i].file);
    lp_column_flush(&column, out);
    for (int64_t i = 0; i < count; i++)
        lp_column_push(&column, place[first + i].position);
    lp_column_flush(&column, out);
    for (int64_t i = 0; i < count; i++)
        lp_column_push(&column, place[first + i].gap);
    lp_column_flush(&column, out);
    status = out->failed ? lp_fail_memory(err) : LP_OK;
release:
    lp_release(alloc, column.value);
    lp_release(alloc, name);
    lp_strings_free(&shapes);
    return status;
}

typedef struct shape {
    int32_t ndim;
    const int64_t *extent;
} shape;

/* The frame's table of shapes. Every extent takes a byte, so the numbers cannot outgrow the frame. */
static lp_status read_shapes(lp_unpacker *in, lp_arena *arena, lp_arena *scratch, shape **out, int64_t *count,
                             lp_error *err)
{
    const uint64_t shapes = lp_unpack_u64(in);
    if (in->failed || shapes > (uint64_t)(in->end - in->at)) {
        in->failed = true;
        return LP_OK;
    }
    shape *table = lp_arena_get(scratch, (size_t)shapes * sizeof *table);
    if (table == NULL)
        return lp_fail_memory(err);
    for (uint64_t s = 0; s < shapes; s++) {
        const uint64_t ndim = lp_unpack_u64(in);
        if (in->failed || ndim > (uint64_t)(in->end - in->at)) {
            in->failed = true;
            return LP_OK;
        }
        int64_t *extent = lp_arena_get(arena, (size_t)ndim * sizeof *extent);
        if (extent == NULL)
            return lp_fail_memory(err);
        for (uint64_t d = 0; d < ndim; d++) {
            const uint64_t value = lp_unpack_u64(in);
            in->failed = in->failed || value > INT64_MAX;
            extent[d] = (int64_t)(value & INT64_MAX);
        }
        table[s] = (shape){.ndim = (int32_t)ndim, .extent = extent};
    }
    *out = table;
    *count = (int64_t)shapes;
    return LP_OK;
}

static lp_status add_tensor(lp_checkpoint *c, lp_checkpoint_tensor *t, bool *bad, lp_error *err)
{
    *bad = true;
    if (lp_dtype_bits(t->dtype) == 0)
        return LP_OK;
    const lp_status status = lp_tensor_bytes(&t->bytes, t->name, t->dtype, t->ndim, (const uint64_t *)t->shape, err);
    if (status != LP_OK)
        return status;
    *bad = false;
    return lp_checkpoint_append(c, t, err);
}

lp_status lp_unpack_catalogue(lp_unpacker *in, int64_t count, int32_t file_count, int64_t *budget, lp_checkpoint *c,
                              lp_place *place, lp_error *err)
{
    enum { DTYPE, SHAPE, FILE_INDEX, POSITION, GAP, COLUMNS };
    lp_status status;
    const lp_alloc *alloc = c->platform.alloc;
    lp_column column[COLUMNS];
    lp_arena scratch;
    shape *shapes = NULL;
    int64_t shape_count = 0;
    if (count < 0 || count > in->end - in->at) {
        in->failed = true;
        return LP_OK;
    }
    for (int k = 0; k < COLUMNS; k++)
        column[k] = (lp_column){.alloc = alloc};
    lp_arena_init(&scratch, alloc);
    const char **name = lp_arena_get(&scratch, (size_t)count * sizeof *name);
    if (name == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    LP_TRY_GOTO(lp_unpack_names(in, name, count, true, budget, &c->arena, err), release);
    for (int k = 0; k < COLUMNS; k++) {
        if (k == FILE_INDEX)
            LP_TRY_GOTO(read_shapes(in, &c->arena, &scratch, &shapes, &shape_count, err), release);
        if (in->failed)
            goto release;
        if (!lp_column_read(&column[k], in, count)) {
            status = lp_fail_memory(err);
            goto release;
        }
    }
    for (int64_t i = 0; i < count && !in->failed; i++) {
        const int64_t s = column[SHAPE].value[i], file = column[FILE_INDEX].value[i], d = column[DTYPE].value[i];
        const int64_t position = column[POSITION].value[i];
        if (s < 0 || s >= shape_count || file < -1 || file >= file_count || d < 1 || d >= LP_DTYPE_COUNT ||
            position < -1 || (file < 0 && position >= 0)) {
            in->failed = true;
            break;
        }
        lp_checkpoint_tensor t = {.name = name[i],
                                  .dtype = (lp_dtype)d,
                                  .ndim = shapes[s].ndim,
                                  .shape = shapes[s].extent,
                                  .file = (int32_t)file,
                                  .file_off = -1};
        bool bad;
        LP_TRY_GOTO(add_tensor(c, &t, &bad, err), release);
        in->failed = in->failed || bad;
        place[i] = (lp_place){.position = position, .gap = column[GAP].value[i]};
    }
release:
    for (int k = 0; k < COLUMNS; k++)
        lp_release(alloc, column[k].value);
    lp_arena_free(&scratch);
    return status;
}
