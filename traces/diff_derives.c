/* SPDX-License-Identifier: Apache-2.0 */
/* diff, derives: post-load processing by what it writes (checks: by what they read first). Equal ones cancel by a
 * digest of their content under common numbers; what is left is described. */
#include "traces/diff_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct signed_derive {
    uint64_t key; /* written destination, or the first input of a check */
    uint8_t digest[32];
    uint32_t index;
} signed_derive;

static int by_content(const void *pa, const void *pb)
{
    const signed_derive *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    const int order = memcmp(a->digest, b->digest, sizeof a->digest);
    return order != 0 ? order : (a->index > b->index) - (a->index < b->index);
}

static int by_place(const void *pa, const void *pb)
{
    const signed_derive *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static uint32_t input_number(const lp_differ *d, int side, const lp_derive_input *input)
{
    return input->staged ? d->name[side][input->index] : d->dest[side][input->index];
}

static void add_map(lp_sha256 *h, const lp_map *map)
{
    uint8_t digest[32] = {0};
    if (map != NULL)
        lp_map_digest(map, digest);
    lp_sha256_add(h, digest, sizeof digest);
}

static lp_status sign(const lp_differ *d, int side, uint32_t index, signed_derive *out, lp_error *err)
{
    const lp_derive *v = &d->rows[side]->derive[index];
    lp_sha256 h;
    lp_sha256_begin(&h);
    for (uint32_t i = 0; i < v->nnode; i++) {
        const lp_node *n = &v->node[i];
        lp_sha256_i64(&h, n->op);
        lp_sha256_i64(&h, n->dtype);
        for (int k = 0; k < lp_op_arity((lp_op)n->op) || (k == 0 && n->op == LP_OP_INPUT); k++)
            lp_sha256_i64(&h, n->arg[k]);
        lp_sha256_i64(&h, (int64_t)n->bits);
        lp_sha256_i64(&h, n->count);
    }
    for (uint32_t i = 0; i < v->ninput; i++) {
        const lp_derive_input *in = &v->input[i];
        lp_sha256_i64(&h, in->staged);
        lp_sha256_i64(&h, input_number(d, side, in));
        lp_sha256_i64(&h, in->dtype);
        lp_sha256_i64(&h, in->count);
        add_map(&h, in->map);
    }
    add_map(&h, v->map);
    lp_sha256_text(&h, v->error_text);
    if (!lp_sha256_end(&h, out->digest))
        return lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
    out->index = index;
    if (v->dest != LP_NONE)
        out->key = d->dest[side][v->dest];
    else
        out->key =
            UINT64_C(1) << 62 |
            (v->ninput > 0 ? (uint64_t)input_number(d, side, &v->input[0]) << 1 | v->input[0].staged : UINT64_MAX >> 3);
    return LP_OK;
}

/* ---- findings ---- */

static const char *subject_of(const lp_differ *d, int side, const lp_derive *v)
{
    if (v->dest != LP_NONE)
        return d->rows[side]->dest[v->dest].name;
    if (v->ninput == 0)
        return "a check";
    return v->input[0].staged ? lp_diff_name_text(d, side, v->input[0].index)
                              : d->rows[side]->dest[v->input[0].index].name;
}

static float float_of(uint64_t bits)
{
    const uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

/* The first thing that is not alike. */
static void describe(const lp_derive *a, const lp_derive *b, char *text, size_t bytes)
{
    for (uint32_t i = 0; a->nnode == b->nnode && i < a->nnode; i++) {
        const lp_node *x = &a->node[i], *y = &b->node[i];
        if (x->op != y->op) {
            snprintf(text, bytes, "%s, was %s", lp_op_name((lp_op)y->op), lp_op_name((lp_op)x->op));
            return;
        }
        if (x->bits == y->bits)
            continue;
        if (x->op == LP_OP_CONST && x->dtype == LP_F32 && y->dtype == LP_F32)
            snprintf(text, bytes, "the constant %.9g, was %.9g", (double)float_of(y->bits), (double)float_of(x->bits));
        else if (x->op == LP_OP_ALL_CLOSE)
            snprintf(text, bytes, "the tolerance %.9g, was %.9g", (double)float_of(y->bits), (double)float_of(x->bits));
        else
            snprintf(text, bytes, "%s with 0x%" PRIx64 ", was 0x%" PRIx64, lp_op_name((lp_op)y->op), y->bits, x->bits);
        return;
    }
    if (strcmp(a->error_text, b->error_text) != 0)
        snprintf(text, bytes, "another error text");
    else if (a->nnode != b->nnode)
        snprintf(text, bytes, "%" PRIu32 " operations, were %" PRIu32, b->nnode, a->nnode);
    else
        snprintf(text, bytes, "other inputs or another place");
}

static lp_status note_changed(lp_differ *d, const lp_derive *a, const lp_derive *b, lp_error *err)
{
    const int side = b != NULL;
    const lp_derive *v = b != NULL ? b : a;
    const char *subject = subject_of(d, side, v);
    lp_note note = lp_diff_note(d, LP_RULE_DERIVE_CHANGED, subject, a == NULL ? "added" : b == NULL ? "removed" : "");
    if (v->map != NULL) {
        note.byte_lo = v->map->dst_lo;
        note.byte_hi = v->map->dst_hi;
        note.map = v->map;
    }
    if (b != NULL)
        lp_diff_place(d, &note, b->provenance);
    bool first;
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    const char *role = v->dest != LP_NONE ? "the derive of" : "the check of";
    if (a == NULL || b == NULL)
        return lp_findings_text(d->findings, err, "%s '%s' is %s", role, subject, a == NULL ? "new" : "gone");
    char text[256];
    describe(a, b, text, sizeof text);
    return lp_findings_text(d->findings, err, "%s '%s' has %s", role, subject, text);
}

static void count_staged(lp_differ *d, int side, const lp_derive *v)
{
    for (uint32_t i = 0; i < v->ninput; i++)
        if (v->input[i].staged) {
            const uint32_t n = d->name[side][v->input[i].index];
            const int64_t bytes = v->input[i].count * (lp_dtype_bits(v->input[i].dtype) / 8);
            d->staged[side][n] += bytes;
            d->read[side][n] += bytes;
        }
}

/* A derive of one side whose loss or gain is told otherwise: its destination came or went, or it depends on a name that
 * the other side refuses. */
static bool is_explained(const lp_differ *d, int side, const lp_derive *v)
{
    if (v->dest != LP_NONE && d->dest_at[!side][d->dest[side][v->dest]] == LP_NONE)
        return true;
    for (uint32_t i = 0; i < v->ninput; i++) {
        const uint32_t n = input_number(d, side, &v->input[i]);
        if (v->input[i].staged ? (d->state[n] & LP_DIFF_REFUSED << !side) != 0 : d->dest_at[!side][n] == LP_NONE)
            return true;
    }
    return false;
}

/* ---- matching ---- */

static lp_status list_signed(const lp_differ *d, int side, signed_derive **out, lp_error *err)
{
    const uint32_t n = d->rows[side]->nderive;
    *out = lp_allocate(d->alloc, n * sizeof **out);
    if (*out == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < n; i++)
        LP_TRY(sign(d, side, i, &(*out)[i], err));
    qsort(*out, n, sizeof **out, by_content);
    return LP_OK;
}

/* Drops what both lists have. */
static void cancel(signed_derive *a, int64_t *na, signed_derive *b, int64_t *nb)
{
    int64_t i = 0, j = 0, x = 0, y = 0;
    while (i < *na && j < *nb) {
        int order = a[i].key != b[j].key ? (a[i].key < b[j].key ? -1 : 1) : memcmp(a[i].digest, b[j].digest, 32);
        if (order == 0) {
            i++;
            j++;
        } else if (order < 0) {
            a[x++] = a[i++];
        } else {
            b[y++] = b[j++];
        }
    }
    while (i < *na)
        a[x++] = a[i++];
    while (j < *nb)
        b[y++] = b[j++];
    *na = x;
    *nb = y;
}

/* A derive that only one side has. */
static lp_status note_lone(lp_differ *d, int side, const lp_derive *v, lp_error *err)
{
    count_staged(d, side, v);
    if (is_explained(d, side, v))
        return LP_OK;
    return note_changed(d, side == 0 ? v : NULL, side == 0 ? NULL : v, err);
}

static lp_status note_rest(lp_differ *d, const signed_derive *a, int64_t na, const signed_derive *b, int64_t nb,
                           lp_error *err)
{
    int64_t i = 0, j = 0;
    while (i < na || j < nb) {
        if (j == nb || (i < na && a[i].key < b[j].key)) {
            LP_TRY(note_lone(d, 0, &d->rows[0]->derive[a[i++].index], err));
        } else if (i == na || b[j].key < a[i].key) {
            LP_TRY(note_lone(d, 1, &d->rows[1]->derive[b[j++].index], err));
        } else {
            const lp_derive *x = &d->rows[0]->derive[a[i++].index], *y = &d->rows[1]->derive[b[j++].index];
            count_staged(d, 0, x);
            count_staged(d, 1, y);
            LP_TRY(note_changed(d, x, y, err));
        }
    }
    return LP_OK;
}

lp_status lp_diff_derives(lp_differ *d, lp_error *err)
{
    signed_derive *list[2] = {NULL, NULL};
    int64_t n[2] = {d->rows[0]->nderive, d->rows[1]->nderive};
    lp_status status;
    LP_TRY_GOTO(list_signed(d, 0, &list[0], err), free_lists);
    LP_TRY_GOTO(list_signed(d, 1, &list[1], err), free_lists);
    cancel(list[0], &n[0], list[1], &n[1]);
    for (int side = 0; side < 2; side++)
        qsort(list[side], (size_t)n[side], sizeof *list[side], by_place);
    LP_TRY_GOTO(note_rest(d, list[0], n[0], list[1], n[1], err), free_lists);

free_lists:
    lp_release(d->alloc, list[0]);
    lp_release(d->alloc, list[1]);
    return status;
}
