/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of lp_findings, for the two files that make it up. */
#ifndef LOADPLAN_FINDINGS_PRIVATE_H
#define LOADPLAN_FINDINGS_PRIVATE_H

#include "traces/family.h"
#include "traces/findings.h"

/* What happened to a tensor, for the counts of diff's first line. */
enum { LP_FATE_CHANGED = 1, LP_FATE_ADDED = 2, LP_FATE_REMOVED = 4, LP_FATE_REFUSED = 8 };

typedef struct lp_finding_group {
    lp_finding finding;
    const char *what;
    uint64_t hash;
    uint32_t family, witness; /* numbers of the family and of its first member in lp_findings.names */
    int64_t born;             /* place before sorting */
    lp_rule_number number;
} lp_finding_group;

struct lp_findings {
    const lp_alloc *alloc;
    lp_arena arena;
    lp_finding_group *item;
    int64_t count, capacity;
    uint32_t *table; /* index + 1, open addressing; free once sealed */
    int64_t table_size;
    lp_strings names; /* tensors, and families where they are called otherwise */
    uint8_t *fate;    /* per name */
    int64_t fate_capacity;
    uint64_t *member; /* (group + 1) << 32 | tensor, open addressing: tensors that are counted, but for witnesses */
    int64_t member_count, member_size;
    lp_tally tally;
    const char *only;      /* glob of the tensors that are judged; NULL: all */
    bool has_only_names;   /* and of these only what is named in */
    lp_strings only_names; /* this list */
    const char *summary;
};

/* Sorts, and writes the first line anew: findings_summary.c. */
lp_status lp_findings_arrange(lp_findings *f, lp_error *err);

#endif
