/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a report: destinations that are filled alike. Two are when everything but their indices, ranks and the places
 * that they read from is the same. */
#include "replayer/report.h"
#include "traces/family.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEMPLATE_MAX = 4200 };

/* ---- digests of maps, once for each map ---- */

typedef struct map_digests {
    const lp_alloc *alloc;
    struct {
        const lp_map *map;
        uint8_t digest[32];
    } * slot;
    int64_t count, size;
} map_digests;

static uint64_t mix(const void *pointer)
{
    const uint64_t x = (uint64_t)(uintptr_t)pointer * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static bool grow_digests(map_digests *m)
{
    const int64_t size = m->size > 0 ? m->size * 2 : 256;
    map_digests bigger = {.alloc = m->alloc, .count = m->count, .size = size};
    bigger.slot = lp_allocate_zero(m->alloc, (size_t)size * sizeof *bigger.slot);
    if (bigger.slot == NULL)
        return false;
    for (int64_t i = 0; i < m->size; i++) {
        if (m->slot[i].map == NULL)
            continue;
        int64_t at = (int64_t)(mix(m->slot[i].map) & (uint64_t)(size - 1));
        while (bigger.slot[at].map != NULL)
            at = (at + 1) & (size - 1);
        bigger.slot[at] = m->slot[i];
    }
    lp_release(m->alloc, m->slot);
    *m = bigger;
    return true;
}

static const uint8_t *digest_of(map_digests *m, const lp_map *map)
{
    if ((m->count + 1) * 2 > m->size && !grow_digests(m))
        return NULL;
    int64_t at = (int64_t)(mix(map) & (uint64_t)(m->size - 1));
    while (m->slot[at].map != NULL && m->slot[at].map != map)
        at = (at + 1) & (m->size - 1);
    if (m->slot[at].map == NULL) {
        m->slot[at].map = map;
        m->count++;
        lp_map_digest(map, m->slot[at].digest);
    }
    return m->slot[at].digest;
}

/* ---- families ---- */

static int64_t family_of(lp_strings *families, const char *name)
{
    char text[TEMPLATE_MAX];
    const size_t length = lp_family_template(name, text, sizeof text);
    return lp_strings_add(families, text, length < sizeof text ? length : sizeof text - 1);
}

static lp_status name_families(lp_report_rows *r, lp_error *err)
{
    const lp_checkpoint *c = lp_trace_checkpoint(r->trace);
    const int64_t count = lp_checkpoint_count(c);
    r->name_family = lp_allocate(r->alloc, (size_t)count * sizeof *r->name_family);
    if (r->name_family == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < count; i++) {
        r->name_family[i] = family_of(&r->family, lp_checkpoint_at(c, i)->name);
        if (r->name_family[i] < 0)
            return lp_fail_memory(err);
    }
    return LP_OK;
}

/* ---- records by destination ---- */

typedef struct placed {
    uint32_t dest, record;
    int64_t off;
} placed;

static int by_place(const void *pa, const void *pb)
{
    const placed *a = pa, *b = pb;
    if (a->dest != b->dest)
        return a->dest < b->dest ? -1 : 1;
    if (a->off != b->off)
        return a->off < b->off ? -1 : 1;
    return (a->record > b->record) - (a->record < b->record);
}

static lp_status index_records(lp_report_scope *s, const lp_alloc *alloc, lp_error *err)
{
    const lp_rows *rows = s->rows;
    placed *list = lp_allocate(alloc, rows->nrecord * sizeof *list);
    s->record = lp_allocate(alloc, rows->nrecord * sizeof *s->record);
    s->first = lp_allocate_zero(alloc, ((size_t)rows->ndest + 1) * sizeof *s->first);
    if (list == NULL || s->record == NULL || s->first == NULL) {
        lp_release(alloc, list);
        return lp_fail_memory(err);
    }
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        list[i] = (placed){rows->record[i].dest, i, rows->record[i].dst_off};
        s->first[rows->record[i].dest + 1]++;
    }
    if (rows->nrecord > 0)
        qsort(list, rows->nrecord, sizeof *list, by_place);
    for (uint32_t i = 0; i < rows->nrecord; i++)
        s->record[i] = list[i].record;
    for (uint32_t d = 0; d < rows->ndest; d++)
        s->first[d + 1] += s->first[d];
    lp_release(alloc, list);
    return LP_OK;
}

const uint32_t *lp_report_records(const lp_report_rows *r, int32_t scope, uint32_t index, uint32_t *count)
{
    const lp_report_scope *s = &r->scope[scope];
    *count = s->first[index + 1] - s->first[index];
    return s->record + s->first[index];
}

/* ---- destinations that share storage ---- */

/* Destinations are in order of name; false when none is called so. */
static bool find_destination(const lp_rows *rows, const char *name, uint32_t *index)
{
    uint32_t lo = 0, hi = rows->ndest;
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (strcmp(rows->dest[middle].name, name) < 0)
            lo = middle + 1;
        else
            hi = middle;
    }
    *index = lo;
    return lo < rows->ndest && strcmp(rows->dest[lo].name, name) == 0;
}

/* Those that lie in storage of another name, and the owner of that name. */
static lp_status list_shared(lp_report_scope *s, const lp_alloc *alloc, lp_error *err)
{
    const lp_rows *rows = s->rows;
    bool *is_shared = lp_allocate_zero(alloc, rows->ndest * sizeof *is_shared);
    lp_status status = LP_OK;
    if (is_shared == NULL)
        return lp_fail_memory(err);
    for (uint32_t d = 0; d < rows->ndest; d++) {
        uint32_t owner;
        if (strcmp(rows->dest[d].storage, rows->dest[d].name) == 0)
            continue;
        is_shared[d] = true;
        if (find_destination(rows, rows->dest[d].storage, &owner))
            is_shared[owner] = true;
    }
    for (uint32_t d = 0; d < rows->ndest; d++)
        s->shared_count += is_shared[d];
    s->shared = lp_allocate(alloc, s->shared_count * sizeof *s->shared);
    if (s->shared == NULL)
        status = lp_fail_memory(err);
    for (uint32_t d = 0, n = 0; status == LP_OK && d < rows->ndest; d++)
        if (is_shared[d])
            s->shared[n++] = d;
    lp_release(alloc, is_shared);
    return status;
}

/* ---- digests of destinations ---- */

typedef struct hashing {
    lp_report_rows *r;
    map_digests *maps;
    bool failed;
} hashing;

static void add_map(hashing *h, lp_sha256 *a, lp_sha256 *b, const lp_map *map)
{
    static const uint8_t none[32] = {0};
    const uint8_t *digest = map == NULL ? none : digest_of(h->maps, map);
    h->failed = h->failed || digest == NULL;
    if (digest == NULL)
        return;
    lp_sha256_add(a, digest, sizeof none);
    lp_sha256_add(b, digest, sizeof none);
}

static void add_number(lp_sha256 *a, lp_sha256 *b, int64_t value)
{
    lp_sha256_i64(a, value);
    lp_sha256_i64(b, value);
}

static void add_destination(lp_sha256 *a, lp_sha256 *b, const lp_destination *d)
{
    add_number(a, b, d->dtype);
    add_number(a, b, d->ndim);
    for (int32_t i = 0; i < d->ndim; i++) {
        add_number(a, b, d->shape[i]);
        add_number(a, b, d->stride[i]);
    }
    lp_sha256_text(a, d->layout);
    lp_sha256_text(b, d->layout);
}

/* *alike leaves out names' indices and source places; *exact is for comparing one destination with its older self. */
static void hash_destination(hashing *h, const lp_report_scope *s, uint32_t index, uint8_t alike[32], uint8_t exact[32])
{
    const lp_rows *rows = s->rows;
    const lp_checkpoint *c = lp_trace_checkpoint(h->r->trace);
    lp_sha256 a, b;
    lp_sha256_begin(&a);
    lp_sha256_begin(&b);
    add_destination(&a, &b, &rows->dest[index]);
    for (uint32_t i = s->first[index]; i < s->first[index + 1]; i++) {
        const lp_record *x = &rows->record[s->record[i]];
        const bool is_begin = x->name == LP_NAME_BEGIN;
        lp_sha256_text(&a, is_begin ? "" : h->r->family.text[h->r->name_family[x->name]]);
        lp_sha256_text(&b, is_begin ? "" : lp_checkpoint_at(c, x->name)->name);
        lp_sha256_i64(&b, x->src_off);
        add_number(&a, &b, x->kind | x->src_dtype << 8 | x->dst_dtype << 16);
        add_number(&a, &b, x->dst_off);
        add_number(&a, &b, x->seq > 0);
        add_number(&a, &b, (int64_t)x->fill_bits);
        add_map(h, &a, &b, x->map);
    }
    h->failed = !lp_sha256_end(&a, alike) || h->failed;
    h->failed = !lp_sha256_end(&b, exact) || h->failed;
}

/* Derives and refusals are few: their digests are chained into those of the destinations that they write. */
static void chain(hashing *h, uint8_t digest[32], const char *what, const lp_map *map)
{
    lp_sha256 a, b;
    uint8_t other[32];
    lp_sha256_begin(&a);
    lp_sha256_begin(&b);
    lp_sha256_add(&a, digest, 32);
    lp_sha256_text(&a, what);
    add_map(h, &a, &b, map);
    h->failed = !lp_sha256_end(&a, digest) || h->failed;
    h->failed = !lp_sha256_end(&b, other) || h->failed;
}

static void chain_others(hashing *h, const lp_rows *rows, uint8_t (*alike)[32], uint8_t (*exact)[32])
{
    for (uint32_t i = 0; i < rows->nderive; i++) {
        const lp_derive *d = &rows->derive[i];
        char what[64];
        if (d->dest == LP_NONE)
            continue;
        size_t n = 0;
        for (uint32_t k = 0; k < d->nnode && n < sizeof what - 16; k++)
            n += (size_t)snprintf(what + n, sizeof what - n, "%x.", (unsigned)d->node[k].op & 0xffff);
        what[n] = '\0';
        chain(h, alike[d->dest], what, d->map);
        chain(h, exact[d->dest], what, d->map);
    }
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        const lp_refusal *x = &rows->refusal[i];
        if (x->dest == LP_NONE)
            continue;
        chain(h, alike[x->dest], x->operation, x->map);
        chain(h, exact[x->dest], x->operation, x->map);
    }
}

/* ---- rows ---- */

int64_t lp_report_span(const lp_destination *d)
{
    int64_t last = (lp_dtype_bits(d->dtype) + 7) / 8;
    for (int32_t i = 0; i < d->ndim; i++) {
        int64_t reach;
        if (d->shape[i] == 0)
            return 0;
        if (!lp_mul(d->shape[i] - 1, d->stride[i], &reach) || !lp_add(last, reach, &last))
            return 0; /* an opened trace has no such destination */
    }
    return last;
}

static uint64_t head_of(const uint8_t digest[32], int64_t family)
{
    uint64_t head;
    memcpy(&head, digest, sizeof head);
    return head ^ (uint64_t)family * UINT64_C(0x9e3779b97f4a7c15);
}

typedef struct row_table {
    uint32_t *at; /* index + 1 */
    int64_t size;
    int64_t *family; /* per row */
    int64_t family_capacity;
} row_table;

static bool grow_rows(const lp_report_rows *r, row_table *t)
{
    const int64_t size = t->size > 0 ? t->size * 2 : 1024;
    uint32_t *at = lp_allocate_zero(r->alloc, (size_t)size * sizeof *at);
    if (at == NULL)
        return false;
    assert(r->count == 0 || t->family != NULL);
    for (int64_t i = 0; i < r->count; i++) {
        uint64_t k = head_of(r->item[i].digest, t->family[i]) & (uint64_t)(size - 1);
        while (at[k] != 0)
            k = (k + 1) & (uint64_t)(size - 1);
        at[k] = (uint32_t)i + 1;
    }
    lp_release(r->alloc, t->at);
    t->at = at;
    t->size = size;
    return true;
}

static lp_status add_member(lp_report_rows *r, row_table *t, int32_t scope, uint32_t index, const uint8_t digest[32],
                            lp_error *err)
{
    const lp_destination *dest = &r->scope[scope].rows->dest[index];
    const int64_t family = family_of(&r->family, dest->name);
    if (family < 0 || ((t->at == NULL || (r->count + 1) * 2 > t->size) && !grow_rows(r, t)))
        return lp_fail_memory(err);
    uint64_t k = head_of(digest, family) & (uint64_t)(t->size - 1);
    while (t->at[k] != 0 &&
           (t->family[t->at[k] - 1] != family || memcmp(r->item[t->at[k] - 1].digest, digest, 32) != 0))
        k = (k + 1) & (uint64_t)(t->size - 1);
    if (t->at[k] == 0) {
        if (!lp_grow(r->alloc, (void **)&r->item, &r->capacity, r->count + 1, sizeof *r->item) ||
            !lp_grow(r->alloc, (void **)&t->family, &t->family_capacity, r->count + 1, sizeof *t->family))
            return lp_fail_memory(err);
        lp_report_row *row = &r->item[r->count];
        *row = (lp_report_row){
            .dest = dest, .scope = scope, .index = index, .bytes = lp_report_span(dest), .last_scope = -1};
        row->family = r->family.text[family];
        row->born = r->count;
        memcpy(row->digest, digest, 32);
        t->family[r->count++] = family;
        t->at[k] = (uint32_t)r->count;
    }
    lp_report_row *row = &r->item[t->at[k] - 1];
    row->members++;
    row->ranks += row->last_scope != scope;
    row->last_scope = scope;
    r->scope[scope].row[index] = (uint32_t)row->born;
    return LP_OK;
}

static lp_status add_scope(lp_report_rows *r, row_table *t, map_digests *maps, int32_t scope, lp_error *err)
{
    lp_report_scope *s = &r->scope[scope];
    LP_TRY(lp_trace_rows(r->trace, scope, &s->rows, err));
    LP_TRY(index_records(s, r->alloc, err));
    LP_TRY(list_shared(s, r->alloc, err));
    const size_t bytes = ((size_t)s->rows->ndest + 1) * sizeof *s->digest;
    uint8_t(*alike)[32] = lp_allocate(r->alloc, bytes);
    s->digest = lp_allocate(r->alloc, bytes);
    s->row = lp_allocate(r->alloc, ((size_t)s->rows->ndest + 1) * sizeof *s->row);
    if (alike == NULL || s->digest == NULL || s->row == NULL) {
        lp_release(r->alloc, alike);
        return lp_fail_memory(err);
    }
    hashing h = {.r = r, .maps = maps};
    for (uint32_t d = 0; d < s->rows->ndest; d++)
        hash_destination(&h, s, d, alike[d], s->digest[d]);
    chain_others(&h, s->rows, alike, s->digest);
    lp_status status = h.failed ? lp_fail_memory(err) : LP_OK;
    for (uint32_t d = 0; status == LP_OK && d < s->rows->ndest; d++)
        status = add_member(r, t, scope, d, alike[d], err);
    lp_release(r->alloc, alike);
    return status;
}

static int by_bytes(const void *pa, const void *pb)
{
    const lp_report_row *a = pa, *b = pb;
    const double x = (double)a->bytes * (double)a->members, y = (double)b->bytes * (double)b->members;
    if (x != y)
        return x > y ? -1 : 1;
    const int order = lp_family_compare(a->family, b->family);
    if (order != 0)
        return order;
    if (a->scope != b->scope)
        return a->scope < b->scope ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

lp_status lp_report_rows_make(lp_report_rows *r, const lp_trace *trace, const lp_platform *platform, lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    row_table t = {.at = NULL};
    map_digests maps = {.alloc = p.alloc};
    lp_status status = LP_OK;
    *r = (lp_report_rows){.trace = trace, .alloc = p.alloc};
    lp_strings_init(&r->family, r->alloc);
    r->scope_count = lp_trace_scope_count(trace);
    r->scope = lp_allocate_zero(r->alloc, (size_t)r->scope_count * sizeof *r->scope);
    if (r->scope == NULL)
        return lp_fail_memory(err);
    LP_TRY(name_families(r, err));
    for (int32_t i = 0; status == LP_OK && i < r->scope_count; i++)
        status = add_scope(r, &t, &maps, i, err);
    if (status == LP_OK && r->count > 1)
        qsort(r->item, (size_t)r->count, sizeof *r->item, by_bytes);
    lp_release(r->alloc, t.at);
    lp_release(r->alloc, t.family);
    lp_release(r->alloc, maps.slot);
    return status;
}

void lp_report_rows_free(lp_report_rows *r)
{
    for (int32_t i = 0; r->scope != NULL && i < r->scope_count; i++) {
        lp_release(r->alloc, r->scope[i].record);
        lp_release(r->alloc, r->scope[i].first);
        lp_release(r->alloc, r->scope[i].digest);
        lp_release(r->alloc, r->scope[i].row);
        lp_release(r->alloc, r->scope[i].shared);
    }
    lp_release(r->alloc, r->scope);
    lp_release(r->alloc, r->item);
    lp_release(r->alloc, r->name_family);
    lp_strings_free(&r->family);
}

/* ---- two traces ---- */

bool lp_report_rows_find(const lp_report_rows *r, int32_t rank, const char *name, int32_t *scope, uint32_t *index)
{
    *scope = lp_trace_scope_find(r->trace, rank);
    if (*scope < 0)
        return false;
    return find_destination(r->scope[*scope].rows, name, index);
}

lp_status lp_report_rows_compare(lp_report_rows *r, const lp_report_rows *base, lp_error *err)
{
    int64_t *at = lp_allocate(r->alloc, (size_t)r->count * sizeof *at);
    if (at == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < r->count; i++)
        at[r->item[i].born] = i;
    for (int32_t s = 0; s < r->scope_count; s++) {
        const lp_rows *rows = r->scope[s].rows;
        const int32_t rank = lp_scope_rank(&rows->scope);
        for (uint32_t d = 0; d < rows->ndest; d++) {
            int32_t scope;
            uint32_t index;
            const bool is_there = lp_report_rows_find(base, rank, rows->dest[d].name, &scope, &index);
            if (!is_there || memcmp(base->scope[scope].digest[index], r->scope[s].digest[d], 32) != 0)
                r->item[at[r->scope[s].row[d]]].changed++;
        }
    }
    lp_release(r->alloc, at);
    return LP_OK;
}
