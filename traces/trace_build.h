/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scope that is being built, and the steps that make it canonical. Private to trace_*.c of the builder.
 *
 * The steps, in order (docs/identities.md says what each one promises):
 *   trace_merge.c    writes of one name into one destination: later ones trim earlier ones, what is left is merged
 *   trace_refuse.c   a name with a refusal keeps nothing else; what it would have written becomes its refused regions
 *   trace_order.c    writes of different names that overlap get their seq; begin fills give way to everything
 *   trace_seal.c     sorts all rows, copies them into the scope's entry, computes the plan digest
 */
#ifndef LOADPLAN_TRACE_BUILD_H
#define LOADPLAN_TRACE_BUILD_H

#include "traces/cover.h"
#include "traces/trace_private.h"

struct lp_scope_build {
    bool is_open; /* between begin_scope and the next scope or seal */
    lp_scope scope;
    lp_arena arena;        /* shapes, nodes and maps of the rows below */
    lp_strings dest_names; /* number = index of the destination */
    lp_destination *dest;
    lp_record *record; /* in order of writes; maps are pooled */
    lp_derive *derive;
    lp_refusal *refusal;
    int64_t ndest, nrecord, nderive, nrefusal;
    int64_t dest_capacity, record_capacity, derive_capacity, refusal_capacity;
    lp_cover_memo *memo; /* for all scopes of the trace: they repeat each other */
};

/* One write while a scope is made canonical. `first` and `last` are positions in the order of writes: of one call, or
 * of the calls that were merged into it. */
typedef struct lp_write {
    lp_record record;
    int64_t first, last;
} lp_write;

typedef struct lp_writes {
    const lp_alloc *alloc;
    lp_write *item;
    int64_t count, capacity;
} lp_writes;

bool lp_writes_add(lp_writes *writes, const lp_write *write); /* false when out of memory */
void lp_writes_free(lp_writes *writes);

/* A view of the scope under construction as rows, for the checks. */
lp_rows lp_build_rows(const lp_scope_build *build);

/* Deep copies into `arena`; texts are interned in the trace. */
lp_status lp_derive_copy(const lp_trace *t, lp_arena *arena, const lp_derive *derive, lp_derive *out, lp_error *err);
lp_status lp_refusal_copy(const lp_trace *t, lp_arena *arena, const lp_refusal *refusal, lp_refusal *out,
                          lp_error *err);

/* Strides of extents 0 and 1, unused dummy bits and slots mean nothing: one form for all. `stride` is the row's own
 * stride array. */
void lp_destination_normalise(lp_destination *dest, int64_t *stride);

/* Kind, dtypes and fill bits from a pooled map and what the caller said. */
lp_status lp_record_normalise(lp_record *record, lp_error *err);

/* Turns build->record into writes by destination and name: later writes of a name trim its earlier ones. `pieces` get
 * what is left of every call, `merged` one write for all calls of (name, destination, what it does). Both are sorted by
 * (destination, name). LP_E_LIMIT: a name overwrites itself in more ways than LP_OVERWRITES_MAX. */
enum { LP_OVERWRITES_MAX = 4096 };
lp_status lp_build_merge(lp_trace *t, lp_writes *pieces, lp_writes *merged, lp_error *err);

/* Drops the writes of refused names and the derives that read one of them as a staged source. Adds the refusals that
 * follow: of the other staged sources of such a derive, and of every region that is no longer written. */
lp_status lp_build_refuse(lp_trace *t, lp_writes *pieces, lp_writes *merged, lp_error *err);

/* Gives writes of different names that overlap their seq, trims begin fills, and leaves all that remains in `out`. */
lp_status lp_build_order(lp_trace *t, const lp_writes *pieces, const lp_writes *merged, lp_writes *out, lp_error *err);

/* Merges writes [from, count) of one name and destination that are equal in kind, dtypes, fill bits, element sizes and
 * seq, each such set into one, unless together they have more than LP_MAP_BOXES_MAX boxes. In place. */
lp_status lp_writes_merge(lp_trace *t, lp_writes *writes, int64_t from, lp_error *err);

/* Cuts bytes out of a write: byte x of `cut` is byte x + cut_shift of the write's destination. *gone: nothing is left.
 */
lp_status lp_write_subtract(lp_trace *t, lp_write *write, const lp_map *cut, int64_t cut_shift, bool *gone,
                            lp_error *err);

/* The bytes that some writes into one destination touch, as a map like a refusal's region (a fill map of one-byte
 * elements, absolute). The writes must not overlap. Free with lp_map_free. LP_E_LIMIT: too many boxes. */
lp_status lp_writes_region(lp_trace *t, const lp_map **out, const lp_write *write, int64_t count, lp_error *err);

/* Sorts the rows of the open scope, moves them into a new entry, and closes the scope. */
lp_status lp_build_finish(lp_trace *t, lp_error *err);

/* Makes the open scope canonical and finishes it; on failure t->failed. Nothing to do when no scope is open. */
lp_status lp_build_close_scope(lp_trace *t, lp_error *err);

void lp_build_free(lp_scope_build *build); /* NULL is allowed */

/* A sort of (key, value) by key, stable; `spare` has room for count items. */
typedef struct lp_sort_item {
    uint64_t key;
    uint64_t value;
} lp_sort_item;

void lp_sort_by_key(lp_sort_item *item, lp_sort_item *spare, int64_t count);

#endif
