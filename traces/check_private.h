/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of check share: one state for the whole trace, filled scope by scope. */
#ifndef LOADPLAN_CHECK_PRIVATE_H
#define LOADPLAN_CHECK_PRIVATE_H

#include "traces/cover.h"
#include "traces/findings.h"
#include "traces/trace_private.h"

/* What is known of a name. */
enum { LP_USED = 1, LP_USED_WHOLE = 2, LP_USED_REFUSED = 4 };

/* Bytes of a checkpoint tensor, of which no one read has all. */
typedef struct lp_read {
    uint32_t name;
    int64_t lo, hi;
} lp_read;

typedef struct lp_checker {
    const lp_trace *t;
    const lp_checkpoint *checkpoint; /* of the trace */
    const lp_alloc *alloc;
    lp_findings *findings;
    lp_cover_memo *memo;
    uint8_t *used; /* per name: some scope reads or refuses it (LP_USED_...) */
    lp_read *read; /* of names that are not read whole, as far as that was known */
    int64_t reads, read_capacity;
    bool is_out_of_memory; /* while reads were noted */
    lp_tally tally;
    /* the scope at hand */
    const lp_rows *rows;
    int32_t rank;
    bool *derive_meets_record; /* per derive: its output shares bytes with a record's */
} lp_checker;

/* Coverage, overlaps, aliases and order of the scope at hand: check_cover.c. */
lp_status lp_check_cover(lp_checker *c, lp_error *err);
/* Cycles and idempotence of its derives: check_derives.c. */
lp_status lp_check_derives(lp_checker *c, lp_error *err);
/* Refusals and what provenance says: check_loader.c. */
lp_status lp_check_loader(lp_checker *c, lp_error *err);
/* Over all scopes: families that nobody took up, and the names of another checkpoint (may be NULL): check_names.c. */
lp_status lp_check_names(lp_checker *c, const lp_checkpoint *other, lp_error *err);
/* Notes what a record or a staged input of the scope at hand reads; and over all scopes, bytes of checkpoint tensors
 * that no rank reads: check_reads.c. */
void lp_check_read(lp_checker *c, uint32_t name, const lp_map *map, int64_t off);
lp_status lp_check_reads(lp_checker *c, lp_error *err);

/* Name of a checkpoint tensor, "begin" for LP_NAME_BEGIN. */
const char *lp_check_name(const lp_checker *c, uint32_t name);

/* A note about a tensor of the scope at hand, with no bytes and no place. */
lp_note lp_check_note(const lp_checker *c, lp_rule_number rule, const char *tensor, const char *what);

/* Fills file and line. */
void lp_check_place(const lp_checker *c, lp_note *note, uint32_t provenance);

#endif
