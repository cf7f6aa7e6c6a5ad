/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan layout --apply`: a safetensors file of checkpoint tensors to a file of one tensor in a layout, and back. */
#include "layouts/layout_cli.h"

/* ---- sizes from shapes ---- */

/* The size that an extent of this value implies; a constant extent must have that value. */
static bool solve(lp_extent extent, int64_t value, lp_layout_sizes *sizes)
{
    int64_t *const size[] = {[LP_SIZE_ONE] = NULL,
                             [LP_SIZE_E] = &sizes->experts,
                             [LP_SIZE_H] = &sizes->hidden,
                             [LP_SIZE_I] = &sizes->intermediate};
    int64_t product;
    if (extent.symbol == LP_SIZE_ONE)
        return value == extent.times;
    if (!lp_mul(value, extent.over, &product) || product % extent.times != 0)
        return false;
    *size[extent.symbol] = product / extent.times;
    return true;
}

/* All axes of a role as one extent: each role has at most one axis that is not constant. */
static lp_extent product_of(const lp_layout *layout, lp_axis_role role)
{
    lp_extent out = {LP_SIZE_ONE, 1, 1};
    for (int32_t a = 0; a < layout->axes; a++) {
        if (layout->axis[a].role != role)
            continue;
        const lp_extent e = layout->axis[a].extent;
        out.times *= e.times;
        out.over *= e.over;
        if (e.symbol != LP_SIZE_ONE)
            out.symbol = e.symbol;
    }
    return out;
}

static lp_status sizes_of_piece(const lp_layout *layout, const lp_layout_piece *p, lp_layout_sizes *sizes,
                                lp_error *err)
{
    char text[128];
    const int element_bits = lp_dtype_bits(layout->dtype);
    const int64_t rows = p->shape[p->ndim - 2], columns = p->shape[p->ndim - 1];
    int64_t bits;
    lp_extent row_extent = product_of(layout, LP_AXIS_ROW);
    if (p->shard == LP_SHARD_GATE_UP)
        row_extent.times *= 2;
    *sizes = (lp_layout_sizes){p->ndim == 3 ? p->shape[0] : 1, 0, 0};
    if (!solve(row_extent, rows, sizes) || !lp_mul(columns, lp_dtype_bits(p->dtype), &bits) ||
        bits % element_bits != 0 || !solve(product_of(layout, LP_AXIS_COLUMN), bits / element_bits, sizes))
        return lp_fail_at(err, LP_E_MISMATCH, p->name, -1, "tensor '%s' of shape %s does not fit layout '%s'", p->name,
                          lp_layout_list_text(text, sizeof text, p->ndim, p->shape), layout->id);
    return LP_OK;
}

/* Illegal sizes are the file's fault here, not the caller's. */
static lp_status check_sizes(const lp_layout *layout, const lp_layout_sizes *wanted, const lp_layout_sizes *found,
                             lp_error *err)
{
    const lp_status status = lp_layout_check(layout, found, err);
    if (status != LP_OK) {
        err->code = LP_E_MISMATCH;
        return LP_E_MISMATCH;
    }
    if (wanted != NULL && (wanted->experts != found->experts || wanted->hidden != found->hidden ||
                           wanted->intermediate != found->intermediate))
        return lp_fail(err, LP_E_MISMATCH, "the tensors have E=%lld,H=%lld,I=%lld, not E=%lld,H=%lld,I=%lld",
                       (long long)found->experts, (long long)found->hidden, (long long)found->intermediate,
                       (long long)wanted->experts, (long long)wanted->hidden, (long long)wanted->intermediate);
    return LP_OK;
}

/* ---- both ways ---- */

/* Finds w2, or w13, or w1 and w3, and checks their form; the bytes come later. */
static lp_status find_pieces(const lp_layout *layout, const lp_checkpoint *ck, lp_layout_piece pieces[LP_LAYOUT_PIECES],
                             int *count, lp_error *err)
{
    static const lp_layout_piece down[] = {{.name = "w2", .shard = LP_SHARD_DOWN}};
    static const lp_layout_piece fused[] = {{.name = "w13", .shard = LP_SHARD_GATE_UP}};
    static const lp_layout_piece halves[] = {{.name = "w1", .shard = LP_SHARD_GATE},
                                             {.name = "w3", .shard = LP_SHARD_UP}};
    const bool is_down = lp_layout_takes(layout, LP_SHARD_DOWN);
    const lp_layout_piece *const form = is_down ? down : lp_checkpoint_find(ck, "w13") >= 0 ? fused : halves;
    *count = form == halves ? 2 : 1;
    for (int i = 0; i < *count; i++) {
        lp_layout_piece *const p = &pieces[i];
        *p = form[i];
        const int64_t index = lp_checkpoint_find(ck, p->name);
        if (index < 0) {
            lp_fail_at(err, LP_E_UNKNOWN_NAME, p->name, -1, "no tensor '%s' in the file", p->name);
            lp_hint(err, "layout '%s' takes %s", layout->id, is_down ? "w2" : "w1 and w3, or w13");
            return LP_E_UNKNOWN_NAME;
        }
        const lp_checkpoint_tensor *const t = lp_checkpoint_at(ck, index);
        if (t->ndim != 2 && (t->ndim != 3 || layout->slot_dim < 0))
            return lp_fail_at(err, LP_E_MISMATCH, p->name, -1, "tensor '%s' has %d dimensions, layout '%s' takes %s",
                              p->name, (int)t->ndim, layout->id, layout->slot_dim < 0 ? "2" : "2 or 3");
        p->dtype = t->dtype;
        p->ndim = t->ndim;
        p->bytes = t->bytes;
        memcpy(p->shape, t->shape, (size_t)t->ndim * sizeof p->shape[0]);
        if (i > 0 && (p->dtype != pieces[0].dtype || p->ndim != pieces[0].ndim ||
                      memcmp(p->shape, pieces[0].shape, sizeof p->shape) != 0))
            return lp_fail_at(err, LP_E_MISMATCH, p->name, -1, "tensors '%s' and '%s' differ in dtype or shape",
                              pieces[0].name, p->name);
    }
    return LP_OK;
}

static lp_status apply(const lp_layout *layout, const lp_layout_sizes *wanted, const lp_checkpoint *ck,
                       const lp_platform *platform, lp_outfile *file, lp_error *err)
{
    lp_layout_piece pieces[LP_LAYOUT_PIECES];
    int count;
    lp_layout_sizes sizes;
    lp_layout_shape shape;
    int64_t source[2];
    LP_TRY(find_pieces(layout, ck, pieces, &count, err));
    LP_TRY(sizes_of_piece(layout, &pieces[0], &sizes, err));
    LP_TRY(check_sizes(layout, wanted, &sizes, err));
    LP_TRY(lp_layout_describe(layout, &sizes, &shape, err));
    if (lp_layout_source_shape(layout, &sizes, pieces[0].shard, pieces[0].dtype, source, err) != LP_OK) {
        if (err != NULL)
            err->code = LP_E_MISMATCH; /* the dtype is the file's */
        return LP_E_MISMATCH;
    }
    unsigned char *const out = lp_allocate(platform->alloc, (size_t)shape.bytes);
    if (out == NULL)
        return lp_fail_memory(err);
    lp_status status = LP_OK;
    for (int i = 0; i < count && status == LP_OK; i++) {
        unsigned char *in = NULL;
        status =
            lp_layout_read_tensor(ck, platform, lp_checkpoint_at(ck, lp_checkpoint_find(ck, pieces[i].name)), &in, err);
        if (status == LP_OK)
            status = lp_layout_apply(layout, &sizes, pieces[i].shard, -1, in, out, platform->alloc, err);
        lp_release(platform->alloc, in);
    }
    if (status == LP_OK)
        status = lp_layout_write(layout, &shape, pieces, count, out, file, err);
    lp_release(platform->alloc, out);
    return status;
}

/* Which checkpoint tensors to write: those that the file says it was made of, else the fused ones. */
static void choose_pieces(const lp_layout *layout, const lp_checkpoint *ck, lp_layout_piece pieces[LP_LAYOUT_PIECES],
                          int *count)
{
    const char *const made_of = lp_layout_metadata(ck, "loadplan.made_of");
    const char *const space = made_of == NULL ? NULL : strchr(made_of, ' ');
    const bool down = lp_layout_takes(layout, LP_SHARD_DOWN);
    const bool halves = !down && made_of != NULL && strncmp(made_of, "w1,w3 ", 6) == 0;
    lp_dtype dtype = layout->source[0];
    for (int i = 0; i < LP_LAYOUT_SOURCES && layout->source[i] != LP_DTYPE_NONE; i++)
        if (space != NULL && strcmp(space + 1, lp_dtype_name(layout->source[i])) == 0)
            dtype = layout->source[i];
    *count = halves ? 2 : 1;
    pieces[0] = (lp_layout_piece){.name = down ? "w2" : halves ? "w1" : "w13", .dtype = dtype};
    pieces[0].shard = down ? LP_SHARD_DOWN : halves ? LP_SHARD_GATE : LP_SHARD_GATE_UP;
    pieces[1] = (lp_layout_piece){.name = "w3", .shard = LP_SHARD_UP, .dtype = dtype};
}

static lp_status find_in_layout(const lp_layout *layout, const lp_layout_sizes *wanted, const lp_checkpoint *ck,
                                const lp_checkpoint_tensor **tensor, lp_layout_sizes *sizes, lp_error *err)
{
    char version[16];
    const char *const id = lp_layout_metadata(ck, "loadplan.layout"), *const seen = lp_layout_metadata(
                                                                          ck, "loadplan.layout_version");
    snprintf(version, sizeof version, "%d", (int)layout->version);
    if (id != NULL && strcmp(id, layout->id) != 0)
        return lp_fail(err, LP_E_MISMATCH, "the file is in layout '%s', not '%s'", id, layout->id);
    if (seen != NULL && strcmp(seen, version) != 0)
        return lp_fail(err, LP_E_VERSION, "the file is in version %s of layout '%s', this program knows version %s",
                       seen, layout->id, version);
    const int64_t index = lp_checkpoint_find(ck, layout->id);
    if (index < 0)
        return lp_fail_at(err, LP_E_UNKNOWN_NAME, layout->id, -1, "no tensor '%s' in the file", layout->id);
    const lp_checkpoint_tensor *const t = lp_checkpoint_at(ck, index);
    char text[128];
    bool fits = t->dtype == layout->dtype && t->ndim == layout->ndim;
    *sizes = (lp_layout_sizes){1, 0, 0};
    for (int32_t i = 0; i < layout->ndim && fits; i++)
        fits = solve(layout->dim[layout->dim_order[i]], t->shape[i], sizes);
    if (!fits)
        return lp_fail_at(err, LP_E_MISMATCH, t->name, -1, "tensor '%s', %s %s, is not in layout '%s'", t->name,
                          lp_dtype_name(t->dtype),
                          lp_layout_list_text(text, sizeof text, t->ndim < 8 ? t->ndim : 8, t->shape), layout->id);
    *tensor = t;
    return check_sizes(layout, wanted, sizes, err);
}

static lp_status undo(const lp_layout *layout, const lp_layout_sizes *wanted, const lp_checkpoint *ck,
                      const lp_platform *platform, lp_outfile *file, lp_error *err)
{
    const lp_checkpoint_tensor *t = NULL;
    lp_layout_sizes sizes;
    lp_layout_piece pieces[LP_LAYOUT_PIECES];
    int count;
    unsigned char *in = NULL;
    LP_TRY(find_in_layout(layout, wanted, ck, &t, &sizes, err));
    choose_pieces(layout, ck, pieces, &count);
    LP_TRY(lp_layout_read_tensor(ck, platform, t, &in, err));
    lp_status status = LP_OK;
    for (int i = 0; i < count && status == LP_OK; i++) {
        lp_layout_piece *const p = &pieces[i];
        int64_t shape[2];
        status = lp_layout_source_shape(layout, &sizes, p->shard, p->dtype, shape, err);
        if (status != LP_OK)
            break;
        p->ndim = layout->slot_dim < 0 ? 2 : 3;
        p->shape[0] = sizes.experts;
        memcpy(p->shape + p->ndim - 2, shape, sizeof shape);
        p->bytes = t->bytes / count;
        p->data = lp_allocate(platform->alloc, (size_t)p->bytes);
        status = p->data == NULL ? lp_fail_memory(err)
                                 : lp_layout_undo(layout, &sizes, p->shard, -1, in, p->data, platform->alloc, err);
    }
    if (status == LP_OK)
        status = lp_layout_write_pieces(pieces, count, file, err);
    for (int i = 0; i < count; i++)
        lp_release(platform->alloc, pieces[i].data);
    lp_release(platform->alloc, in);
    return status;
}

int lp_layout_transform_file(lp_cli *cli, const lp_layout *layout, const lp_layout_sizes *sizes, const char *in,
                             const char *out, bool overwrite, bool inverse)
{
    lp_layout_files f;
    lp_error err;
    lp_status status = lp_layout_open_files(&f, cli, in, out, overwrite, &err);
    if (status == LP_OK)
        status = (inverse ? undo : apply)(layout, sizes, f.ck, &f.platform, &f.file, &err);
    return lp_layout_close_files(&f, cli, layout->id, inverse, status, &err);
}
