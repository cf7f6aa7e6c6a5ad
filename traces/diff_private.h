/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of diff share. Names and destinations of both sides get common numbers, so that natural keys can be
 * compared as integers; a renamed tensor has the number of the old one. Side 0 is the base, side 1 what changed.
 */
#ifndef LOADPLAN_DIFF_PRIVATE_H
#define LOADPLAN_DIFF_PRIVATE_H

#include "traces/findings.h"
#include "traces/trace_private.h"

/* What a scope does with a checkpoint name. */
enum { LP_DIFF_REFUSED = 1, LP_DIFF_LOADED = 4 }; /* shifted left by the side */

typedef struct lp_differ {
    const lp_trace *t[2];
    const lp_checkpoint *checkpoint[2];
    const lp_alloc *alloc;
    lp_findings *findings;
    lp_tally tally;

    uint32_t names;    /* common numbers of checkpoint names, < names */
    uint32_t *name[2]; /* by catalogue index */

    /* the pair of scopes at hand */
    const lp_rows *rows[2];
    int32_t rank;
    uint32_t dests;
    uint32_t *dest[2];    /* common number by destination index */
    uint32_t *dest_at[2]; /* destination index by common number, or LP_NONE */
    uint8_t *state;       /* per name: LP_DIFF_* */
    int64_t *read[2];     /* per name: bytes read by what is not the same on both sides */
    int64_t *staged[2];   /* per name: likewise for derives */

    const lp_map **equal; /* by pooled number of a base map: the changed map that it was last found equal to */
    int64_t equal_count;
    int64_t runs_left; /* that may still be compared one by one */
} lp_differ;

/* Common numbers: diff_align.c. lp_diff_align_dests also pairs renamed names and destinations of the scopes at hand. */
lp_status lp_diff_align_names(lp_differ *d, lp_error *err);
lp_status lp_diff_align_dests(lp_differ *d, lp_error *err);

/* Each compares one part of the scopes at hand. */
lp_status lp_diff_dests(lp_differ *d, lp_error *err);
lp_status lp_diff_records(lp_differ *d, lp_error *err);
lp_status lp_diff_derives(lp_differ *d, lp_error *err);
lp_status lp_diff_refusals(lp_differ *d, lp_error *err);

/* A scope that only `side` has. */
lp_status lp_diff_lone_scope(lp_differ *d, int side, const lp_rows *rows, lp_error *err);

/* Whether the maps of two records, with their offsets, do the same to the same bytes. Equal forms are; unequal forms
 * are not, except beyond the work bound of the canonical form: there the runs are compared one by one. *known is false
 * where even these are too many. */
lp_status lp_diff_same_bytes(lp_differ *d, const lp_record *a, const lp_record *b, bool *same, bool *known,
                             lp_error *err);

enum { LP_DIFF_RUNS_MAX = 1 << 26 };

/* Common number of a record's name; LP_NAME_BEGIN keeps its own. */
static inline uint32_t lp_diff_name(const lp_differ *d, int side, uint32_t name)
{
    return name == LP_NAME_BEGIN ? name : d->name[side][name];
}

static inline const char *lp_diff_name_text(const lp_differ *d, int side, uint32_t name)
{
    return lp_checkpoint_at(d->checkpoint[side], name)->name;
}

/* A note about a tensor of the scopes at hand. */
lp_note lp_diff_note(const lp_differ *d, lp_rule_number rule, const char *tensor, const char *what);
/* Fills file and line from the provenance of the changed side. */
void lp_diff_place(const lp_differ *d, lp_note *note, uint32_t provenance);

#endif
