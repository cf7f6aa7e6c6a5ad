/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verdict of check by looking at every byte of every storage, one after the other. For traces of DESTS destinations
 * of two dimensions, each in a storage of STORAGE bytes that is its own or called "shared", and NAMES tensors.
 */
#ifndef LOADPLAN_CHECK_ORACLE_H
#define LOADPLAN_CHECK_ORACLE_H

#include "findings_testing.h"

enum { NAMES = 7, NAME_BYTES = 64, DESTS = 4, STORAGE = 112, WRITERS = 64 };

static const char *const names[NAMES] = {"a.0", "a.1", "b", "c.0", "c.1", "d", "e"};
static const char *const dests[DESTS] = {"w0", "w1", "w2", "w3"};

/* ---- what rows do to bytes ---- */

typedef enum writer_kind { BY_RECORD, BY_DERIVE, BY_REFUSAL } writer_kind;

/* What one row does to the bytes of the storages. */
typedef struct writer {
    writer_kind kind;
    uint32_t row, dest;
    bool writes[DESTS + 1][STORAGE]; /* by storage: that of each destination, and the shared one */
    int64_t value[STORAGE];          /* where the byte comes from, or -1 - byte of a fill; in its storage */
} writer;

typedef struct verdict {
    bool rule[LP_RULE_COUNT];
    bool uncovered[DESTS], outside[DESTS], unused[NAMES], unread[NAMES];
} verdict;

typedef struct oracle {
    const lp_rows *rows;
    int storage[DESTS];
    bool logical[DESTS][STORAGE];
    writer writer[WRITERS];
    int writers;
    bool used[NAMES], refused[NAMES], reads[NAMES], read[NAMES][NAME_BYTES]; /* over all ranks */
    verdict v;
} oracle;

typedef struct marking {
    writer *w;
    int storage;
    int64_t dst, src, src_elem, dst_elem;
    uint64_t fill;
} marking;

static inline int mark_run(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    const marking *m = context;
    for (int64_t i = 0; i < count * m->dst_elem; i++) {
        const int64_t at = m->dst + dst_off + i, element = i / m->dst_elem, byte = i % m->dst_elem;
        assert_true(at >= 0 && at < STORAGE);
        m->w->writes[m->storage][at] = true;
        m->w->value[at] = m->src_elem == 0 ? -1 - (int64_t)(m->fill >> 8 * byte & 0xff)
                                           : 8 * (m->src + src_off + element * m->src_elem) + byte;
    }
    return 0;
}

static inline writer *add_writer(oracle *o, writer_kind kind, uint32_t row, uint32_t dest)
{
    assert_true(o->writers < WRITERS);
    writer *w = &o->writer[o->writers++];
    memset(w, 0, sizeof *w);
    w->kind = kind;
    w->row = row;
    w->dest = dest;
    return w;
}

static inline void list_dests(oracle *o)
{
    memset(o->logical, 0, sizeof o->logical);
    for (int d = 0; d < DESTS; d++) {
        const lp_destination *x = &o->rows->dest[d];
        o->storage[d] = strcmp(x->storage, x->name) == 0 ? d : DESTS;
        for (int64_t i = 0; i < x->shape[0]; i++)
            for (int64_t j = 0; j < x->shape[1]; j++)
                memset(&o->logical[d][x->offset + i * x->stride[0] + j * x->stride[1]], true, 4);
    }
}

static inline void list_writers(oracle *o)
{
    const lp_rows *rows = o->rows;
    o->writers = 0;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *r = &rows->record[i];
        marking m = {.w = add_writer(o, BY_RECORD, i, r->dest),
                     .storage = o->storage[r->dest],
                     .dst = rows->dest[r->dest].offset + r->dst_off,
                     .src = r->src_off,
                     .src_elem = r->map->src_elem,
                     .dst_elem = r->map->dst_elem,
                     .fill = r->fill_bits};
        lp_map_walk(r->map, mark_run, &m);
    }
    for (uint32_t i = 0; i < rows->nderive; i++) {
        const lp_derive *x = &rows->derive[i];
        marking m = {.w = add_writer(o, BY_DERIVE, i, x->dest),
                     .storage = o->storage[x->dest],
                     .dst = rows->dest[x->dest].offset,
                     .dst_elem = x->map->dst_elem};
        lp_map_walk(x->map, mark_run, &m);
    }
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        const lp_refusal *x = &rows->refusal[i];
        if (x->dest == LP_NONE)
            continue;
        marking m = {.w = add_writer(o, BY_REFUSAL, i, x->dest),
                     .storage = o->storage[x->dest],
                     .dst = rows->dest[x->dest].offset,
                     .dst_elem = 1};
        if (x->map != NULL) {
            m.dst_elem = x->map->dst_elem;
            lp_map_walk(x->map, mark_run, &m);
        } else {
            memcpy(m.w->writes[m.storage], o->logical[x->dest], STORAGE);
        }
    }
}

static inline bool shares(const oracle *o, const writer *a, const writer *b)
{
    const int s = o->storage[a->dest];
    for (int i = 0; i < STORAGE && s == o->storage[b->dest]; i++)
        if (a->writes[s][i] && b->writes[s][i])
            return true;
    return false;
}

/* Two records of one name that say the same of every byte they share. */
static inline bool do_the_same(const oracle *o, const writer *a, const writer *b)
{
    const lp_record *x = &o->rows->record[a->row], *y = &o->rows->record[b->row];
    const int s = o->storage[a->dest];
    bool same =
        x->name == y->name && x->src_dtype == y->src_dtype && (x->kind == LP_KIND_FILL) == (y->kind == LP_KIND_FILL);
    for (int i = 0; i < STORAGE; i++)
        same = same && (!a->writes[s][i] || !b->writes[s][i] || a->value[i] == b->value[i]);
    return same;
}

static inline void judge_pair(oracle *o, const writer *a, const writer *b)
{
    if (a->kind == BY_REFUSAL || b->kind == BY_REFUSAL || !shares(o, a, b))
        return;
    if (a->kind == BY_DERIVE || b->kind == BY_DERIVE) {
        o->v.rule[LP_RULE_DEST_OVERLAP] = true;
        return;
    }
    const lp_record *x = &o->rows->record[a->row], *y = &o->rows->record[b->row];
    const bool of_begin = x->name == LP_NAME_BEGIN, is_ordered = x->seq > 0 && y->seq > 0 && x->seq != y->seq;
    if (of_begin != (y->name == LP_NAME_BEGIN) || do_the_same(o, a, b))
        return;
    if (of_begin || !is_ordered)
        o->v.rule[LP_RULE_DEST_OVERLAP] = true;
    else if (x->name != y->name)
        o->v.rule[LP_RULE_ORDER_DEPENDENT] = true;
}

static inline void judge_bytes(oracle *o)
{
    for (int d = 0; d < DESTS; d++) {
        const bool is_engines = (o->rows->dest[d].flags & LP_DEST_NO_LOADER) != 0;
        for (int i = 0; i < STORAGE; i++) {
            bool is_written = false;
            for (int w = 0; w < o->writers; w++) {
                const writer *x = &o->writer[w];
                const bool here = x->writes[o->storage[d]][i];
                is_written = is_written || here;
                if (x->kind == BY_REFUSAL || x->dest != (uint32_t)d || !here)
                    continue;
                o->v.rule[LP_RULE_DEST_OVERLAP] |= is_engines;
                o->v.outside[d] |= !is_engines && !o->logical[d][i];
            }
            o->v.uncovered[d] |= o->logical[d][i] && !is_written && !is_engines;
        }
        for (int e = 0; e < d; e++)
            for (int i = 0; i < STORAGE && o->storage[d] == o->storage[e]; i++)
                if (o->logical[d][i] && o->logical[e][i] &&
                    ((o->rows->dest[d].flags | o->rows->dest[e].flags) & LP_DEST_TIED) == 0)
                    o->v.rule[LP_RULE_DEST_ALIAS] = true;
    }
}

/* ---- derives: who reads what another writes ---- */

static inline int note_read(void *context, int64_t dst_off, int64_t src_off, int64_t count)
{
    (void)dst_off;
    memset((bool *)context + src_off, true, (size_t)count);
    return 0;
}

static inline void judge_derives(oracle *o)
{
    enum { MOST = 16 };
    const lp_rows *rows = o->rows;
    bool reaches[MOST][MOST] = {{false}};
    assert_true(rows->nderive <= MOST);
    for (int w = 0; w < o->writers; w++) {
        const writer *x = &o->writer[w];
        bool is_copied = false;
        for (int k = 0; k < o->writers && x->kind == BY_DERIVE; k++)
            is_copied = is_copied || (o->writer[k].kind == BY_RECORD && shares(o, x, &o->writer[k]));
        for (uint32_t i = 0; i < rows->nderive && x->kind == BY_DERIVE; i++) {
            const lp_derive_input *in = &rows->derive[i].input[0];
            bool reads[2 * STORAGE] = {false}, meets = false;
            if (in->staged)
                continue;
            lp_map_walk(in->map, note_read, reads + rows->dest[in->index].offset);
            for (int k = 0; k < STORAGE && o->storage[in->index] == o->storage[x->dest]; k++)
                meets = meets || (reads[k] && x->writes[o->storage[x->dest]][k]);
            o->v.rule[LP_RULE_DERIVE_NOT_IDEMPOTENT] |= meets && (i == x->row || is_copied);
            reaches[i][x->row] |= meets && i != x->row;
        }
    }
    for (uint32_t k = 0; k < rows->nderive; k++)
        for (uint32_t i = 0; i < rows->nderive; i++)
            for (uint32_t j = 0; j < rows->nderive; j++)
                reaches[i][j] |= reaches[i][k] && reaches[k][j];
    for (uint32_t i = 0; i < rows->nderive; i++)
        o->v.rule[LP_RULE_DERIVE_CYCLE] |= reaches[i][i];
}

/* ---- the checkpoint ---- */

static inline void read_hull(oracle *o, uint32_t name, int64_t lo, int64_t hi)
{
    o->used[name] = o->reads[name] = true;
    memset(&o->read[name][lo], true, (size_t)(hi - lo));
}

static inline void list_reads(oracle *o)
{
    for (uint32_t i = 0; i < o->rows->nrecord; i++) {
        const lp_record *r = &o->rows->record[i];
        if (r->name == LP_NAME_BEGIN)
            continue;
        o->used[r->name] = true;
        if (r->kind != LP_KIND_FILL)
            read_hull(o, r->name, r->src_off + r->map->src_lo, r->src_off + r->map->src_hi);
    }
    for (uint32_t i = 0; i < o->rows->nderive; i++) {
        const lp_derive_input *in = &o->rows->derive[i].input[0];
        if (in->staged)
            read_hull(o, in->index, in->map->src_lo, in->map->src_hi);
    }
    for (uint32_t i = 0; i < o->rows->nrefusal; i++) {
        o->used[o->rows->refusal[i].name] = o->refused[o->rows->refusal[i].name] = true;
        o->v.rule[LP_RULE_NON_VIEW_OP] = true;
    }
}

static inline void judge_names(oracle *o, const lp_trace *t)
{
    const lp_trace_header *h = lp_trace_header_of(t);
    for (int i = 0; i < NAMES; i++) {
        char family[32], other[32];
        bool is_taken_up = strcmp(h->configuration, "") != 0 && names[i][0] == 'c';
        lp_family_template(names[i], family, sizeof family);
        for (int k = 0; k < NAMES; k++) {
            lp_family_template(names[k], other, sizeof other);
            is_taken_up = is_taken_up || (o->used[k] && strcmp(family, other) == 0);
        }
        o->v.unused[i] = !is_taken_up;
        const bool is_judged =
            o->reads[i] && !o->refused[i] && h->layout.tp > 1 && lp_trace_scope_count(t) == h->layout.tp;
        for (int b = 0; b < NAME_BYTES; b++)
            o->v.unread[i] |= is_judged && !o->read[i][b];
    }
}

static inline verdict judge(const lp_trace *t)
{
    oracle o = {.rows = NULL};
    for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
        assert_ok(lp_trace_rows(t, s, &o.rows, ERR));
        list_dests(&o);
        list_writers(&o);
        list_reads(&o);
        judge_bytes(&o);
        for (int a = 0; a < o.writers; a++)
            for (int b = 0; b < a; b++)
                judge_pair(&o, &o.writer[a], &o.writer[b]);
        judge_derives(&o);
    }
    judge_names(&o, t);
    return o.v;
}

#endif
