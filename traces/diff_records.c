/* SPDX-License-Identifier: Apache-2.0 */
/* diff, records: for each pair of checkpoint name and destination, what is written where and from which bytes. */
#include "traces/diff_private.h"

#include <inttypes.h>
#include <stdlib.h>

/* A record under its natural key. */
typedef struct keyed {
    uint64_t key; /* common number of the name << 32 | of the destination */
    uint32_t index;
} keyed;

static int by_key(const void *pa, const void *pb)
{
    const keyed *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

/* Rows are in order already unless something was renamed. */
static lp_status list_keys(const lp_differ *d, int side, keyed **out, lp_error *err)
{
    const lp_rows *rows = d->rows[side];
    keyed *list = lp_allocate(d->alloc, rows->nrecord * sizeof *list);
    if (list == NULL)
        return lp_fail_memory(err);
    bool sorted = true;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        list[i] = (keyed){(uint64_t)lp_diff_name(d, side, r->name) << 32 | d->dest[side][r->dest], i};
        sorted = sorted && (i == 0 || by_key(&list[i - 1], &list[i]) < 0);
    }
    if (!sorted)
        qsort(list, rows->nrecord, sizeof *list, by_key);
    *out = list;
    return LP_OK;
}

/* ---- one pair of records ---- */

static const char *tensor_of(const lp_differ *d, int side, const lp_record *r)
{
    return r->name == LP_NAME_BEGIN ? d->rows[side]->dest[r->dest].name : lp_diff_name_text(d, side, r->name);
}

static const char *dest_of(const lp_differ *d, int side, const lp_record *r)
{
    return d->rows[side]->dest[r->dest].name;
}

/* Source bytes that a record reads; bytes that one map reads again are counted once. */
static int64_t bytes_read(const lp_record *r)
{
    int64_t total = 0;
    for (int32_t b = 0; b < r->map->nbox; b++) {
        const lp_box *box = &r->map->box[b];
        int64_t bytes = box->run * r->map->src_elem;
        for (int32_t k = 0; k < box->rank; k++)
            bytes *= box->mode[k].src_stride != 0 ? box->mode[k].extent : 1;
        total += bytes;
    }
    const int64_t reach = r->map->src_hi - r->map->src_lo;
    return total < reach ? total : reach;
}

static void count_read(lp_differ *d, int side, const lp_record *r)
{
    if (r->name != LP_NAME_BEGIN)
        d->read[side][d->name[side][r->name]] += bytes_read(r);
}

/* A note about the destination bytes of a record of the given side. */
static lp_status note_record(lp_differ *d, lp_rule_number rule, const char *what, int side, const lp_record *r,
                             bool *first, lp_error *err)
{
    lp_note note = lp_diff_note(d, rule, tensor_of(d, side, r), what);
    note.byte_lo = r->dst_off + r->map->dst_lo;
    note.byte_hi = r->dst_off + r->map->dst_hi;
    note.map = r->map;
    if (side == 1)
        lp_diff_place(d, &note, r->provenance);
    return lp_findings_note(d->findings, &note, first, err);
}

static lp_status note_kind(lp_differ *d, const lp_record *a, const lp_record *b, lp_error *err)
{
    bool first;
    LP_TRY(note_record(d, LP_RULE_KIND_CHANGED, "", 1, b, &first, err));
    if (!first)
        return LP_OK;
    const char *tensor = tensor_of(d, 1, b);
    if (a->kind != LP_KIND_CAST && b->kind != LP_KIND_CAST)
        return lp_findings_text(d->findings, err, "'%s' into '%s' is a %s, was a %s", tensor, dest_of(d, 1, b),
                                lp_kind_name((lp_kind)b->kind), lp_kind_name((lp_kind)a->kind));
    const lp_record *cast = b->kind == LP_KIND_CAST ? b : a;
    return lp_findings_text(d->findings, err, "'%s' into '%s' is a %s, was a %s (%s cast from %s to %s)", tensor,
                            dest_of(d, 1, b), lp_kind_name((lp_kind)b->kind), lp_kind_name((lp_kind)a->kind),
                            b->kind == LP_KIND_CAST ? "now" : "no longer", lp_dtype_name((lp_dtype)cast->src_dtype),
                            lp_dtype_name((lp_dtype)cast->dst_dtype));
}

static lp_status note_map(lp_differ *d, const lp_record *a, const lp_record *b, bool known, lp_error *err)
{
    bool first;
    LP_TRY(note_record(d, LP_RULE_MAP_CHANGED, known ? "" : "unknown", 1, b, &first, err));
    if (!first)
        return LP_OK;
    const char *tensor = tensor_of(d, 1, b), *dest = dest_of(d, 1, b);
    if (!known)
        return lp_findings_text(d->findings, err,
                                "'%s' into '%s' has another form, too large to be shown to write the same bytes",
                                tensor, dest);
    if (b->kind == LP_KIND_FILL && a->fill_bits != b->fill_bits)
        return lp_findings_text(d->findings, err, "'%s' is filled with 0x%" PRIx64 ", was 0x%" PRIx64, dest,
                                b->fill_bits, a->fill_bits);
    if (a->dst_off != b->dst_off && lp_map_equal(a->map, b->map))
        return lp_findings_text(d->findings, err, "'%s' goes to byte %" PRId64 " of '%s' and on, went to byte %" PRId64,
                                tensor, b->dst_off, dest, a->dst_off);
    if (lp_map_equal(a->map, b->map))
        return lp_findings_text(d->findings, err,
                                "byte %" PRId64 " of '%s' and on come from byte %" PRId64
                                " of '%s', came from byte %" PRId64,
                                b->dst_off, dest, b->src_off, tensor, a->src_off);
    char is[160], was[160];
    lp_map_text(b->map, is, sizeof is);
    lp_map_text(a->map, was, sizeof was);
    return lp_findings_text(d->findings, err,
                            "'%s' from byte %" PRId64 " to byte %" PRId64 " of '%s' by %s, was from %" PRId64
                            " to %" PRId64 " by %s",
                            tensor, b->src_off, b->dst_off, dest, is, a->src_off, a->dst_off, was);
}

static lp_status compare_order(lp_differ *d, const lp_record *a, const lp_record *b, lp_error *err)
{
    bool first;
    if (a->seq == b->seq || b->seq == 0)
        return LP_OK;
    if (a->seq == 0) {
        LP_TRY(note_record(d, LP_RULE_NEW_ORDER_DEPENDENCE, "", 1, b, &first, err));
        return first ? lp_findings_text(d->findings, err,
                                        "'%s' now shares bytes of '%s' with other names, so their order matters",
                                        tensor_of(d, 1, b), dest_of(d, 1, b))
                     : LP_OK;
    }
    LP_TRY(note_record(d, LP_RULE_MAP_CHANGED, "order", 1, b, &first, err));
    return first ? lp_findings_text(d->findings, err,
                                    "'%s' is number %" PRIu32
                                    " of the names that write the same bytes of '%s', was %" PRIu32,
                                    tensor_of(d, 1, b), b->seq, dest_of(d, 1, b), a->seq)
                 : LP_OK;
}

static lp_status compare_records(lp_differ *d, const lp_record *a, const lp_record *b, lp_error *err)
{
    bool same, known;
    LP_TRY(compare_order(d, a, b, err));
    LP_TRY(lp_diff_same_bytes(d, a, b, &same, &known, err));
    if (same && a->src_dtype == b->src_dtype && a->dst_dtype == b->dst_dtype && a->fill_bits == b->fill_bits)
        return LP_OK;
    count_read(d, 0, a);
    count_read(d, 1, b);
    if (a->kind != b->kind || a->src_dtype != b->src_dtype || a->dst_dtype != b->dst_dtype)
        return note_kind(d, a, b, err);
    return note_map(d, a, b, known, err);
}

/* ---- records of one side only ---- */

static bool has_partner_dest(const lp_differ *d, int side, const lp_record *r)
{
    return d->dest_at[!side][d->dest[side][r->dest]] != LP_NONE;
}

static bool is_refused_on(const lp_differ *d, int side, int other, const lp_record *r)
{
    return r->name != LP_NAME_BEGIN && (d->state[d->name[side][r->name]] & (LP_DIFF_REFUSED << other)) != 0;
}

/* Vanished and new destinations, and refusals, are told by themselves. */
static lp_status note_removed(lp_differ *d, const lp_record *r, lp_error *err)
{
    count_read(d, 0, r);
    if (!has_partner_dest(d, 0, r) || is_refused_on(d, 0, 1, r))
        return LP_OK;
    bool first;
    LP_TRY(note_record(d, LP_RULE_MAP_CHANGED, "removed", 0, r, &first, err));
    return first
               ? lp_findings_text(d->findings, err, "%s '%s' no longer writes bytes [%" PRId64 ", %" PRId64 ") of '%s'",
                                  r->kind == LP_KIND_FILL ? "a fill of" : "the checkpoint's", tensor_of(d, 0, r),
                                  r->dst_off, r->dst_off + r->map->dst_hi, dest_of(d, 0, r))
               : LP_OK;
}

static lp_status note_added(lp_differ *d, const lp_record *r, lp_error *err)
{
    bool first;
    count_read(d, 1, r);
    if (!has_partner_dest(d, 1, r) || is_refused_on(d, 1, 0, r))
        return LP_OK;
    if (r->seq > 0) {
        const lp_record unordered = {.seq = 0};
        LP_TRY(compare_order(d, &unordered, r, err));
    }
    const bool is_fill = r->kind == LP_KIND_FILL;
    LP_TRY(
        note_record(d, is_fill ? LP_RULE_FILL_ADDED : LP_RULE_MAP_CHANGED, is_fill ? "" : "added", 1, r, &first, err));
    if (!first)
        return LP_OK;
    if (is_fill)
        return lp_findings_text(d->findings, err,
                                "bytes [%" PRId64 ", %" PRId64 ") of '%s' are now filled with 0x%" PRIx64, r->dst_off,
                                r->dst_off + r->map->dst_hi, dest_of(d, 1, r), r->fill_bits);
    return lp_findings_text(d->findings, err,
                            "'%s' now writes bytes [%" PRId64 ", %" PRId64 ") of '%s', which it did not before",
                            tensor_of(d, 1, r), r->dst_off, r->dst_off + r->map->dst_hi, dest_of(d, 1, r));
}

/* ---- the records of one key ---- */

static lp_status compare_key(lp_differ *d, const keyed *a, int64_t na, const keyed *b, int64_t nb, lp_error *err)
{
    const lp_record *base = d->rows[0]->record, *changed = d->rows[1]->record;
    if (na == nb) {
        for (int64_t i = 0; i < na; i++)
            LP_TRY(compare_records(d, &base[a[i].index], &changed[b[i].index], err));
        return LP_OK;
    }
    for (int64_t i = 0, j = 0; i < na || j < nb;) {
        const int64_t x = i < na ? base[a[i].index].dst_off : INT64_MAX;
        const int64_t y = j < nb ? changed[b[j].index].dst_off : INT64_MAX;
        if (i < na && j < nb && x == y)
            LP_TRY(compare_records(d, &base[a[i++].index], &changed[b[j++].index], err));
        else if (j == nb || (i < na && x < y))
            LP_TRY(note_removed(d, &base[a[i++].index], err));
        else
            LP_TRY(note_added(d, &changed[b[j++].index], err));
    }
    return LP_OK;
}

static int64_t end_of_key(const keyed *list, int64_t from, int64_t count, uint64_t key)
{
    while (from < count && list[from].key == key)
        from++;
    return from;
}

lp_status lp_diff_records(lp_differ *d, lp_error *err)
{
    keyed *list[2] = {NULL, NULL};
    const int64_t n[2] = {d->rows[0]->nrecord, d->rows[1]->nrecord};
    lp_status status;
    LP_TRY_GOTO(list_keys(d, 0, &list[0], err), free_lists);
    LP_TRY_GOTO(list_keys(d, 1, &list[1], err), free_lists);
    for (int64_t i = 0, j = 0; i < n[0] || j < n[1];) {
        const uint64_t x = i < n[0] ? list[0][i].key : UINT64_MAX, y = j < n[1] ? list[1][j].key : UINT64_MAX;
        const uint64_t key = x < y ? x : y;
        const int64_t a = end_of_key(list[0], i, n[0], key), b = end_of_key(list[1], j, n[1], key);
        LP_TRY_GOTO(compare_key(d, &list[0][i], a - i, &list[1][j], b - j, err), free_lists);
        i = a;
        j = b;
    }

free_lists:
    lp_release(d->alloc, list[0]);
    lp_release(d->alloc, list[1]);
    return status;
}
