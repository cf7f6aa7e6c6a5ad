/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a copy that reads what one piece of a temporary wrote, as a map of its own. */
#include "recorder/record_private.h"

/* ---- cutting, run by run ---- */

/* Bytes of the temporary that a piece wrote, in order. */
typedef struct piece_run {
    int64_t off, bytes;
} piece_run;

typedef struct cutting {
    const lp_alloc *alloc;
    const lp_map *copy, *piece;
    piece_run *run;
    int64_t runs, run_capacity;
    lp_box *box;
    int64_t boxes, box_capacity;
    lp_status status;
} cutting;

static int collect_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    (void)src_off;
    cutting *c = context;
    if (c->runs >= REC_RUNS_MAX) {
        c->status = LP_E_LIMIT;
        return 1;
    }
    if (!lp_grow(c->alloc, (void **)&c->run, &c->run_capacity, c->runs + 1, sizeof *c->run)) {
        c->status = LP_E_MEMORY;
        return 1;
    }
    c->run[c->runs++] = (piece_run){.off = dst_off, .bytes = count * c->piece->dst_elem};
    return 0;
}

/* The first run that ends behind `off`. */
static int64_t first_run_behind(const cutting *c, int64_t off)
{
    int64_t lo = 0, hi = c->runs;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (c->run[mid].off + c->run[mid].bytes > off)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static int cut_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    cutting *c = context;
    const int64_t from = c->copy->src_elem, to = c->copy->dst_elem, end = src_off + count * from;
    for (int64_t i = first_run_behind(c, src_off); i < c->runs && c->run[i].off < end; i++) {
        const piece_run *p = &c->run[i];
        const int64_t lo = p->off > src_off ? p->off : src_off;
        const int64_t hi = p->off + p->bytes < end ? p->off + p->bytes : end;
        if ((lo - src_off) % from != 0 || (hi - lo) % from != 0)
            c->status = LP_E_UNSUPPORTED;
        else if (c->boxes >= REC_RUNS_MAX)
            c->status = LP_E_LIMIT;
        else if (!lp_grow(c->alloc, (void **)&c->box, &c->box_capacity, c->boxes + 1, sizeof *c->box))
            c->status = LP_E_MEMORY;
        if (c->status != LP_OK)
            return 1;
        c->box[c->boxes++] =
            (lp_box){.src_off = lo, .dst_off = dst_off + (lo - src_off) / from * to, .run = (hi - lo) / from};
    }
    return 0;
}

/* The way that always works, for as long as there are not too many runs: a copy that reads a byte twice has no inverse
 * to cut. */
static lp_status cut_by_runs(lp_recorder *r, const lp_map *copy, const lp_map *piece, const lp_map **out, lp_error *err)
{
    cutting c = {.alloc = r->platform.alloc, .copy = copy, .piece = piece};
    if (lp_map_walk(piece, collect_run, &c) == 0)
        lp_map_walk(copy, cut_run, &c);
    if (c.status == LP_OK)
        c.status = lp_map_from_boxes(out, copy->src_elem, copy->dst_elem, (int32_t)c.boxes, c.box, c.alloc, err);
    else if (c.status == LP_E_MEMORY)
        lp_fail_memory(err);
    else if (c.status == LP_E_LIMIT)
        lp_fail(err, LP_E_LIMIT, "a copy of more than %d runs out of a tensor that was put together", REC_RUNS_MAX);
    else
        lp_fail(err, c.status, "copies parts of elements of a tensor that was put together");
    lp_release(c.alloc, c.run);
    lp_release(c.alloc, c.box);
    return c.status;
}

/* Seen from the other side, the bytes that are read are destinations, and can be intersected with the piece's. */
static lp_status cut_by_inverse(lp_recorder *r, const lp_map *copy, const lp_map *piece, const lp_map **out,
                                lp_error *err)
{
    const lp_alloc *alloc = r->platform.alloc;
    const lp_map *back = NULL, *common = NULL;
    LP_TRY(lp_map_inverse(&back, copy, alloc, err));
    lp_status status = lp_map_intersect(&common, back, piece, 0, alloc, err);
    lp_map_free(back, alloc);
    if (status != LP_OK)
        return status;
    status = lp_map_inverse(out, common, alloc, err);
    lp_map_free(common, alloc);
    return status;
}

lp_status rec_cut_to_piece(lp_recorder *r, const lp_map *copy, const lp_map *piece, const lp_map **out, lp_error *err)
{
    const lp_map *part = NULL;
    *out = NULL;
    if (copy->src_lo >= piece->dst_hi || piece->dst_lo >= copy->src_hi)
        return LP_OK;
    const bool dense = piece->dst_bytes == piece->dst_hi - piece->dst_lo; /* no gaps: an interval decides */
    if (dense && copy->src_lo >= piece->dst_lo && copy->src_hi <= piece->dst_hi) {
        *out = copy;
        return LP_OK;
    }
    lp_status status = dense ? lp_map_source_range(&part, copy, piece->dst_lo, piece->dst_hi, r->platform.alloc, err)
                             : cut_by_inverse(r, copy, piece, &part, err);
    if (status == LP_E_UNSUPPORTED)
        status = cut_by_runs(r, copy, piece, &part, err);
    return status == LP_OK ? rec_keep(r, part, out, err) : status;
}
