/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The expression that is computed in place: "copy, then x = -exp(x)" reads the region that it writes. Replayed as it
 * stands it would read its own last output at the next load, so the region is replaced by what the copy before had put
 * there, and the two become one derive of the checkpoint tensor.
 */
#include "recorder/record_private.h"

static bool is_identity(const lp_map *map, int64_t bytes)
{
    return map->nbox == 1 && map->box[0].rank == 0 && map->box[0].src_off == 0 && map->box[0].dst_off == 0 &&
           map->box[0].run == bytes;
}

/* Whether two maps share a destination byte. */
static lp_status meets(lp_recorder *r, const lp_map *a, const lp_map *b, bool *out, lp_error *err)
{
    const lp_map *common = NULL;
    *out = false;
    if (a->dst_lo >= b->dst_hi || b->dst_lo >= a->dst_hi)
        return LP_OK;
    LP_TRY(lp_map_intersect(&common, a, b, 0, r->platform.alloc, err));
    *out = common->nbox > 0;
    lp_map_free(common, r->platform.alloc);
    return LP_OK;
}

lp_status rec_read_piece(lp_recorder *r, rec_value *at, const rec_piece *piece, lp_error *err)
{
    at->staged = true;
    at->index = piece->name;
    at->map = piece->map;
    if (piece->src_dtype == 0)
        return LP_OK;
    /* The copy cast: read the source as it is, and cast in the expression. */
    rec_value source = *at;
    LP_TRY(rec_map_as_bytes(r, piece->map, piece->map->src_elem, &source.map, err));
    source.dtype = (lp_dtype)piece->src_dtype;
    source.node.dtype = piece->src_dtype;
    const lp_node cast = {.op = LP_OP_CAST, .dtype = at->node.dtype, .count = at->node.count};
    const int64_t input = rec_add_value(r, &source);
    if (input < 0)
        return lp_fail_memory(err);
    *at = (rec_value){.node = cast};
    at->node.arg[0] = (uint32_t)input;
    return LP_OK;
}

/* Makes node `at`, an input that reads what one copy had written, an input that reads the copy's source. */
static lp_status read_through_copy(lp_recorder *r, uint32_t at, const rec_write *w, lp_error *err)
{
    const lp_map *copied = NULL, *through = NULL;
    LP_TRY(lp_map_shift(&copied, w->map, w->src_off, w->dst_off, r->platform.alloc, err));
    const lp_status status = lp_map_compose(&through, r->value[at].map, copied, r->platform.alloc, err);
    lp_map_free(copied, r->platform.alloc);
    if (status != LP_OK)
        return status;
    rec_piece piece = {.name = w->name, .src_dtype = w->src_dtype};
    LP_TRY(rec_keep(r, through, &piece.map, err));
    rec_value value = r->value[at]; /* a cast adds a node, which may move the array */
    LP_TRY(rec_read_piece(r, &value, &piece, err));
    r->value[at] = value;
    return LP_OK;
}

/* The same where several copies of one name had written. */
static lp_status read_through_copies(lp_recorder *r, uint32_t at, uint32_t dest, lp_error *err)
{
    bool computed;
    const int64_t held = rec_written(r, dest, &computed);
    if (held < 0)
        return lp_recorder_status(r, err);
    rec_value value = r->value[at];
    rec_piece piece = {0};
    lp_status status = rec_through_pieces(r, held, value.map, &piece, err);
    if (status == LP_OK)
        status = rec_read_piece(r, &value, &piece, err);
    if (status == LP_E_MEMORY)
        return status;
    if (status != LP_OK) /* what the copies before cannot say, no derive can */
        return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on bytes of several names");
    r->value[at] = value;
    return LP_OK;
}

/* Makes node `at`, an input that reads the whole result of a derive, that result. */
static lp_status read_through_derive(lp_recorder *r, uint32_t at, const rec_derive *d, lp_error *err)
{
    const lp_map *through = NULL;
    LP_TRY(lp_map_compose(&through, r->value[at].map, d->map, r->platform.alloc, err));
    const rec_value *root = &r->value[d->root];
    const bool same = is_identity(through, root->node.count * (lp_dtype_bits((lp_dtype)root->node.dtype) / 8)) &&
                      root->node.dtype == r->value[at].node.dtype && root->node.count == r->value[at].node.count;
    lp_map_free(through, r->platform.alloc);
    if (!same)
        return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on another view of a computed value");
    r->value[at] = *root;
    return LP_OK;
}

/* Whether the bytes that an input reads are among those that `out` writes; an input that reads a byte twice is taken to
 * read all between its first and its last one. */
static lp_status reads_from(lp_recorder *r, const lp_map *gather, const lp_map *out, bool *reads, lp_error *err)
{
    const lp_map *region = NULL;
    *reads = gather->src_lo < out->dst_hi && out->dst_lo < gather->src_hi;
    if (!*reads)
        return LP_OK;
    const lp_status status = lp_map_inverse(&region, gather, r->platform.alloc, err);
    if (status == LP_E_UNSUPPORTED)
        return LP_OK;
    LP_TRY(status);
    const lp_status met = meets(r, region, out, reads, err);
    lp_map_free(region, r->platform.alloc);
    return met;
}

lp_status rec_resolve_input(lp_recorder *r, uint32_t at, uint32_t dest, const lp_map *out, bool *overwritten,
                            lp_error *err)
{
    const lp_map *gather = r->value[at].map;
    *overwritten = true;
    if (out != NULL)
        LP_TRY(reads_from(r, gather, out, overwritten, err));
    if (!*overwritten)
        return LP_OK;
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous) {
        const rec_write *w = &r->write[i];
        if (w->kind == REC_DROPPED || w->map->dst_lo + w->dst_off >= gather->src_hi ||
            gather->src_lo >= w->map->dst_hi + w->dst_off)
            continue;
        if (i >= r->value[at].written_before)
            return lp_fail(err, LP_E_UNSUPPORTED, "computes on bytes that were overwritten since");
        lp_status status = LP_OK;
        if (w->kind == REC_DERIVE)
            status = read_through_derive(r, at, &r->derive[w->name], err);
        else if (w->map->src_elem == 0)
            status = lp_fail(err, LP_E_UNSUPPORTED, "computes in place on a fill");
        else
            status = read_through_copy(r, at, w, err);
        return status != LP_E_ARGUMENT ? status : read_through_copies(r, at, dest, err);
    }
    return lp_fail(err, LP_E_UNSUPPORTED, "computes in place on bytes that nothing has written yet");
}

lp_status rec_resolve_inputs(lp_recorder *r, uint32_t root, uint32_t dest, const lp_map *out, bool in_place,
                             lp_error *err)
{
    rec_walk walk = {0};
    lp_status status = rec_walk_from(r, &walk, root) ? LP_OK : lp_fail_memory(err);
    for (int64_t i = 0; i < walk.count && status == LP_OK; i++) {
        rec_value *v = &r->value[walk.order[i]];
        bool overwritten;
        v->reads_last = v->reads_last || !in_place;
        if (v->is_lost)
            status = lp_fail(err, LP_E_UNSUPPORTED, "computes on bytes that were overwritten since");
        else if (in_place && v->node.op == LP_OP_INPUT && !v->staged && v->index == dest) {
            status = rec_resolve_input(r, walk.order[i], dest, out, &overwritten, err);
            if (status == LP_OK && overwritten)
                rec_note_reader(r, walk.order[i]); /* of the destination that it may read now */
        }
    }
    rec_end_walk(r, &walk);
    return status;
}

lp_status rec_trim_writes(lp_recorder *r, uint32_t dest, const lp_map *out, int64_t shift, bool derives_only,
                          lp_error *err)
{
    const int64_t lo = out->dst_lo + shift, hi = out->dst_hi + shift;
    for (uint32_t i = r->dest[dest].last_write; i != LP_NONE; i = r->write[i].previous) {
        rec_write *w = &r->write[i];
        const lp_map *rest = NULL;
        if (w->kind == REC_DROPPED || (derives_only && w->kind != REC_DERIVE) || w->map->dst_lo + w->dst_off >= hi ||
            lo >= w->map->dst_hi + w->dst_off)
            continue;
        LP_TRY(lp_map_subtract(&rest, w->map, out, shift - w->dst_off, r->platform.alloc, err));
        LP_TRY(rec_keep(r, rest, &rest, err));
        w->map = rest;
        if (w->kind == REC_DERIVE) {
            r->derive[w->name].map = rest;
            r->derive[w->name].dropped = rest->nbox == 0;
        }
        if (rest->nbox == 0)
            w->kind = REC_DROPPED;
    }
    return LP_OK;
}
