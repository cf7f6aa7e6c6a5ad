/* SPDX-License-Identifier: Apache-2.0 */
/* How check and diff collect what they find: one finding a family, the first member as its witness. Private. */
#ifndef LOADPLAN_FINDINGS_H
#define LOADPLAN_FINDINGS_H

#include "traces/number_set.h"

/* Places in the rule table; findings of one level come in this order. */
typedef enum lp_rule_number {
    LP_RULE_DEST_UNCOVERED,
    LP_RULE_DEST_OVERLAP,
    LP_RULE_DEST_ALIAS,
    LP_RULE_DERIVE_CYCLE,
    LP_RULE_DERIVE_NOT_IDEMPOTENT,
    LP_RULE_NAME_NOT_IN_CHECKPOINT,
    LP_RULE_SHAPE_MISMATCH,
    LP_RULE_UNDECIDED,
    LP_RULE_NON_VIEW_OP,
    LP_RULE_ORDER_DEPENDENT,
    LP_RULE_IMPLICIT_CAST,
    LP_RULE_CHECKPOINT_NAME_UNUSED,
    LP_RULE_CHECKPOINT_BYTES_UNUSED,
    LP_RULE_MATERIALISES,
    LP_RULE_COPY_BECAME_REFUSAL,
    LP_RULE_NEW_REFUSAL,
    LP_RULE_MAP_CHANGED,
    LP_RULE_KIND_CHANGED,
    LP_RULE_DERIVE_CHANGED,
    LP_RULE_DEST_TYPE_CHANGED,
    LP_RULE_LAYOUT_CHANGED,
    LP_RULE_DEST_MOVED,
    LP_RULE_DEST_VANISHED,
    LP_RULE_NEW_ORDER_DEPENDENCE,
    LP_RULE_DEST_ADDED,
    LP_RULE_MORE_BYTES_READ,
    LP_RULE_MORE_BYTES_STAGED,
    LP_RULE_FILL_ADDED,
    LP_RULE_FAMILY_RENAMED,
    LP_RULE_REFUSAL_BECAME_COPY,
    LP_RULE_COUNT
} lp_rule_number;

/* One member of a finding. Members say the same, and share a finding, when rule, family, `what` and the place in the
 * loader are equal. Strings are copied. */
typedef struct lp_note {
    lp_rule_number rule;
    const char *tensor;
    const char *what;         /* tells findings of one rule and family apart; NULL: "" */
    int32_t rank;             /* -1: not about one */
    int64_t byte_lo, byte_hi; /* in the destination, -1: not about bytes */
    const char *file;         /* NULL: unknown */
    int32_t line;
    const lp_map *map; /* the byte map concerned, for the fingerprint; NULL: none */
} lp_note;

/* What the first line says besides the findings themselves. */
typedef struct lp_tally {
    bool of_diff;
    int64_t scopes, derives; /* check: of all scopes */
    int64_t changed_scopes;  /* diff: those with other plan digests */
    lp_scope was, is;        /* diff: sizes of the parallel layouts; ranks say nothing */
} lp_tally;

lp_status lp_findings_new(lp_findings **out, const lp_alloc *alloc, lp_error *err);

/* Of which tensors findings tell. A zero struct chooses all. */
typedef struct lp_tensor_choice {
    const char *glob;          /* names that match (glob.h); NULL: all */
    const lp_number_set *rows; /* what these rows of each rank speak of (row_choice.h), of NEW in a diff; NULL: all */
} lp_tensor_choice;

/* From now on members of other tensors are passed over. The glob has to outlive `f`. */
lp_status lp_findings_only(lp_findings *f, const lp_trace *t, const lp_tensor_choice *choice, lp_error *err);

/* lp_check_against and lp_diff, told only of chosen tensors. */
lp_status lp_check_only(lp_findings **out, const lp_trace *t, const lp_checkpoint *checkpoint,
                        const lp_tensor_choice *choice, lp_error *err);
lp_status lp_diff_only(lp_findings **out, const lp_trace *base, const lp_trace *changed, const lp_tensor_choice *choice,
                       lp_error *err);

/* Adds a member. *is_first: it opens a finding, which wants a text (and perhaps a hint) from the calls below. */
lp_status lp_findings_note(lp_findings *f, const lp_note *note, bool *is_first, lp_error *err);
lp_status lp_findings_text(lp_findings *f, lp_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
lp_status lp_findings_hint(lp_findings *f, const char *hint, lp_error *err);

/* Sorts and writes the first line; nothing is added afterwards. */
lp_status lp_findings_seal(lp_findings *f, const lp_tally *tally, lp_error *err);

/* Another level for a rule; sorts and sums up again. */
lp_status lp_findings_set_level(lp_findings *f, const lp_rule *rule, lp_level level, lp_error *err);

/* The number of the family of the finding at `index`, which exists; and what all these numbers are less than. */
int64_t lp_findings_family(const lp_findings *f, int64_t index);
int64_t lp_findings_families(const lp_findings *f);

/* What to do instead of an operation that was refused, by its name; or "". */
const char *lp_refusal_hint(const char *operation);

#endif
