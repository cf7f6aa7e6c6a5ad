/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Common numbers for the names and destinations of two traces. Equal names share one. Of the rest, a name that only the
 * base has and a name that only the changed trace has are taken for one renamed tensor where everything that the rows
 * say about them is alike. A wrong guess hides nothing: whatever shares a number is compared in full.
 */
#include "traces/diff_private.h"
#include "traces/family.h"

#include <stdlib.h>

/* ---- checkpoint names ---- */

lp_status lp_diff_align_names(lp_differ *d, lp_error *err)
{
    const int64_t n[2] = {lp_checkpoint_count(d->checkpoint[0]), lp_checkpoint_count(d->checkpoint[1])};
    for (int side = 0; side < 2; side++) {
        d->name[side] = lp_allocate(d->alloc, (size_t)n[side] * sizeof *d->name[side]);
        if (d->name[side] == NULL)
            return lp_fail_memory(err);
    }
    for (int64_t i = 0, j = 0; i < n[0] || j < n[1]; d->names++) {
        int order = i == n[0] ? 1 : j == n[1] ? -1 : 0;
        if (order == 0)
            order = strcmp(lp_checkpoint_at(d->checkpoint[0], i)->name, lp_checkpoint_at(d->checkpoint[1], j)->name);
        if (order <= 0)
            d->name[0][i++] = d->names;
        if (order >= 0)
            d->name[1][j++] = d->names;
    }
    d->state = lp_allocate(d->alloc, d->names);
    for (int side = 0; side < 2; side++) {
        d->read[side] = lp_allocate(d->alloc, d->names * sizeof *d->read[side]);
        d->staged[side] = lp_allocate(d->alloc, d->names * sizeof *d->staged[side]);
        if (d->read[side] == NULL || d->staged[side] == NULL)
            return lp_fail_memory(err);
    }
    return d->state != NULL ? LP_OK : lp_fail_memory(err);
}

/* ---- likeness ---- */

/* A tensor of one side without a partner, and a hash of all that is said about it. */
typedef struct lone {
    uint64_t likeness;
    uint32_t index;
} lone;

static int by_likeness(const void *pa, const void *pb)
{
    const lone *a = pa, *b = pb;
    if (a->likeness != b->likeness)
        return a->likeness < b->likeness ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static void stir(uint64_t *h, uint64_t value)
{
    const uint64_t words[2] = {*h, value};
    *h = lp_table_hash(words, sizeof words);
}

static void stir_indices(uint64_t *h, const char *name)
{
    int64_t index[16];
    const int n = lp_family_indices(name, index, 16);
    stir(h, (uint64_t)n);
    for (int i = 0; i < n && i < 16; i++)
        stir(h, (uint64_t)index[i]);
}

/* A record without its name and destination. */
static bool stir_record(uint64_t *h, const lp_trace *t, const lp_record *r)
{
    const uint8_t *map = lp_map_pool_digest(&t->shared->maps, r->map);
    if (map == NULL)
        return false;
    stir(h, lp_table_hash(map, 32));
    stir(h, (uint64_t)r->kind | (uint64_t)r->src_dtype << 8 | (uint64_t)r->dst_dtype << 16 | (uint64_t)r->seq << 32);
    stir(h, (uint64_t)r->src_off);
    stir(h, (uint64_t)r->dst_off);
    stir(h, r->fill_bits);
    return true;
}

static void stir_shape(uint64_t *h, lp_dtype dtype, int32_t ndim, const int64_t *shape)
{
    stir(h, (uint64_t)dtype);
    stir(h, lp_table_hash(shape, (size_t)ndim * sizeof *shape));
}

/* Pairs those that are alike, where both sides have equally many of the kind: partner[side 1 index] = side 0 index. */
static void pair_alike(lone *a, int64_t na, lone *b, int64_t nb, uint32_t *partner)
{
    qsort(a, (size_t)na, sizeof *a, by_likeness);
    qsort(b, (size_t)nb, sizeof *b, by_likeness);
    for (int64_t i = 0, j = 0; i < na && j < nb;) {
        if (a[i].likeness != b[j].likeness) {
            a[i].likeness < b[j].likeness ? i++ : j++;
            continue;
        }
        int64_t x = i, y = j;
        while (x < na && a[x].likeness == a[i].likeness)
            x++;
        while (y < nb && b[y].likeness == b[j].likeness)
            y++;
        for (int64_t k = 0; x - i == y - j && k < x - i; k++)
            partner[b[j + k].index] = a[i + k].index;
        i = x;
        j = y;
    }
}

static lp_status note_renamed(lp_differ *d, const char *was, const char *is, lp_error *err)
{
    bool first;
    const lp_note note = lp_diff_note(d, LP_RULE_FAMILY_RENAMED, is, "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    return first ? lp_findings_text(d->findings, err, "'%s' is now called '%s'", was, is) : LP_OK;
}

/* ---- renamed checkpoint names ---- */

/* Names that only one side has and that this scope loads, with their likeness: what they are and where they go. */
static lp_status lone_names(lp_differ *d, int side, const uint8_t *sides, lone *out, int64_t *count, lp_error *err)
{
    const lp_rows *rows = d->rows[side];
    *count = 0;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        if (r->name == LP_NAME_BEGIN || sides[d->name[side][r->name]] == 3)
            continue;
        if (*count == 0 || out[*count - 1].index != r->name) {
            const lp_checkpoint_tensor *t = lp_checkpoint_at(d->checkpoint[side], r->name);
            lone *l = &out[(*count)++];
            *l = (lone){.index = r->name};
            stir_indices(&l->likeness, t->name);
            stir_shape(&l->likeness, t->dtype, t->ndim, t->shape);
        }
        lone *l = &out[*count - 1];
        const char *dest = rows->dest[r->dest].name;
        stir(&l->likeness, lp_table_hash(dest, strlen(dest)));
        if (!stir_record(&l->likeness, d->t[side], r))
            return lp_fail_memory(err);
    }
    return LP_OK;
}

static lp_status align_renamed_names(lp_differ *d, lp_error *err)
{
    uint8_t *sides = lp_allocate_zero(d->alloc, d->names);
    lone *list[2] = {NULL, NULL};
    uint32_t *partner = NULL;
    int64_t count[2] = {0, 0};
    lp_status status = LP_OK;
    if (sides == NULL)
        return lp_fail_memory(err);
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < lp_checkpoint_count(d->checkpoint[side]); i++)
            sides[d->name[side][i]] |= (uint8_t)(1 << side);
    const int64_t changed = lp_checkpoint_count(d->checkpoint[1]);
    for (int side = 0; side < 2; side++) {
        list[side] = lp_allocate(d->alloc, d->rows[side]->nrecord * sizeof *list[side]);
        if (list[side] == NULL) {
            status = lp_fail_memory(err);
            goto free_lists;
        }
        LP_TRY_GOTO(lone_names(d, side, sides, list[side], &count[side], err), free_lists);
    }
    if (count[0] == 0 || count[1] == 0)
        goto free_lists;
    partner = lp_allocate(d->alloc, (size_t)changed * sizeof *partner);
    if (partner == NULL) {
        status = lp_fail_memory(err);
        goto free_lists;
    }
    memset(partner, 0xff, (size_t)changed * sizeof *partner);
    pair_alike(list[0], count[0], list[1], count[1], partner);
    for (int64_t i = 0; i < changed && status == LP_OK; i++)
        if (partner[i] != LP_NONE) {
            d->name[1][i] = d->name[0][partner[i]];
            status = note_renamed(d, lp_diff_name_text(d, 0, partner[i]), lp_diff_name_text(d, 1, (uint32_t)i), err);
        }

free_lists:
    lp_release(d->alloc, partner);
    lp_release(d->alloc, list[0]);
    lp_release(d->alloc, list[1]);
    lp_release(d->alloc, sides);
    return status;
}

/* ---- destinations ---- */

static bool owns_storage(const lp_destination *dest)
{
    return strcmp(dest->name, dest->storage) == 0;
}

static void stir_destination(uint64_t *h, const lp_destination *dest)
{
    stir_indices(h, dest->name);
    stir_shape(h, dest->dtype, dest->ndim, dest->shape);
    stir_shape(h, dest->dtype, dest->ndim, dest->stride);
    stir(h, owns_storage(dest) ? 0 : lp_table_hash(dest->storage, strlen(dest->storage)));
    stir(h, (uint64_t)dest->offset);
    stir(h, lp_table_hash(dest->layout, strlen(dest->layout)));
    stir(h, (uint64_t)dest->layout_version << 32 | dest->flags);
}

static lp_status lone_dests(lp_differ *d, int side, lone *out, int64_t *count, lp_error *err)
{
    const lp_rows *rows = d->rows[side];
    uint64_t *likeness = lp_allocate_zero(d->alloc, rows->ndest * sizeof *likeness);
    lp_status status = LP_OK;
    if (likeness == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < rows->nrecord && status == LP_OK; i++) {
        const lp_record *r = &rows->record[i];
        if (d->dest_at[!side][d->dest[side][r->dest]] != LP_NONE)
            continue;
        stir(&likeness[r->dest], lp_diff_name(d, side, r->name));
        if (!stir_record(&likeness[r->dest], d->t[side], r))
            status = lp_fail_memory(err);
    }
    *count = 0;
    for (uint32_t i = 0; i < rows->ndest; i++) {
        if (d->dest_at[!side][d->dest[side][i]] != LP_NONE)
            continue;
        stir_destination(&likeness[i], &rows->dest[i]);
        out[(*count)++] = (lone){likeness[i], i};
    }
    lp_release(d->alloc, likeness);
    return status;
}

static lp_status align_renamed_dests(lp_differ *d, lp_error *err)
{
    lone *list[2] = {NULL, NULL};
    int64_t count[2] = {0, 0};
    uint32_t *partner = lp_allocate(d->alloc, d->rows[1]->ndest * sizeof *partner);
    lp_status status = LP_OK;
    for (int side = 0; side < 2; side++)
        list[side] = lp_allocate(d->alloc, d->rows[side]->ndest * sizeof *list[side]);
    if (partner == NULL || list[0] == NULL || list[1] == NULL) {
        status = lp_fail_memory(err);
        goto free_lists;
    }
    for (int side = 0; side < 2; side++)
        LP_TRY_GOTO(lone_dests(d, side, list[side], &count[side], err), free_lists);
    memset(partner, 0xff, d->rows[1]->ndest * sizeof *partner);
    pair_alike(list[0], count[0], list[1], count[1], partner);
    for (uint32_t i = 0; i < d->rows[1]->ndest && status == LP_OK; i++) {
        if (partner[i] == LP_NONE)
            continue;
        const uint32_t number = d->dest[0][partner[i]];
        d->dest_at[1][d->dest[1][i]] = LP_NONE;
        d->dest[1][i] = number;
        d->dest_at[1][number] = i;
        status = note_renamed(d, d->rows[0]->dest[partner[i]].name, d->rows[1]->dest[i].name, err);
    }

free_lists:
    lp_release(d->alloc, partner);
    lp_release(d->alloc, list[0]);
    lp_release(d->alloc, list[1]);
    return status;
}

lp_status lp_diff_align_dests(lp_differ *d, lp_error *err)
{
    const uint32_t n[2] = {d->rows[0]->ndest, d->rows[1]->ndest};
    const size_t most = (size_t)n[0] + n[1];
    for (int side = 0; side < 2; side++) {
        d->dest[side] = lp_allocate(d->alloc, n[side] * sizeof *d->dest[side]);
        d->dest_at[side] = lp_allocate(d->alloc, most * sizeof *d->dest_at[side]);
        if (d->dest[side] == NULL || d->dest_at[side] == NULL)
            return lp_fail_memory(err);
        memset(d->dest_at[side], 0xff, most * sizeof *d->dest_at[side]);
    }
    d->dests = 0;
    for (uint32_t i = 0, j = 0; i < n[0] || j < n[1]; d->dests++) {
        int order = i == n[0] ? 1 : j == n[1] ? -1 : 0;
        if (order == 0)
            order = strcmp(d->rows[0]->dest[i].name, d->rows[1]->dest[j].name);
        if (order <= 0) {
            d->dest_at[0][d->dests] = i;
            d->dest[0][i++] = d->dests;
        }
        if (order >= 0) {
            d->dest_at[1][d->dests] = j;
            d->dest[1][j++] = d->dests;
        }
    }
    LP_TRY(align_renamed_names(d, err));
    return align_renamed_dests(d, err);
}
