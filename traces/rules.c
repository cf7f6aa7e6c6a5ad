/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of rules, for check and diff alike; docs/check.md and docs/diff.md explain each. */
#include "traces/findings.h"

static const lp_rule rules[LP_RULE_COUNT] = {
    [LP_RULE_DEST_UNCOVERED] = {"dest_uncovered",
                                "bytes of a destination are written by nothing: no copy, fill, derive "
                                "or fallback reaches them",
                                LP_DENY, false},
    [LP_RULE_DEST_OVERLAP] = {"dest_overlap",
                              "two writers share bytes of a destination and no order between them is "
                              "recorded, or a record writes what no loader may write",
                              LP_DENY, false},
    [LP_RULE_DEST_ALIAS] = {"dest_alias", "two destinations share bytes of one storage and neither declares the tie",
                            LP_DENY, false},
    [LP_RULE_DERIVE_CYCLE] = {"derive_cycle",
                              "derives read what they write, directly or through each other, so that "
                              "none can run first",
                              LP_DENY, false},
    [LP_RULE_DERIVE_NOT_IDEMPOTENT] = {"derive_not_idempotent",
                                       "a derive reads bytes that it, or another derive after "
                                       "a copy, overwrites, so that a second run gives "
                                       "something else",
                                       LP_DENY, false},
    [LP_RULE_NAME_NOT_IN_CHECKPOINT] = {"name_not_in_checkpoint",
                                        "the trace reads a name that the checkpoint does not "
                                        "have",
                                        LP_DENY, false},
    [LP_RULE_SHAPE_MISMATCH] = {"shape_mismatch",
                                "a tensor is not what the trace was recorded for, or a record writes "
                                "beyond the logical bytes of its destination",
                                LP_DENY, false},
    [LP_RULE_UNDECIDED] = {"undecided", "a proof would exceed the stated work limit, so nothing is claimed", LP_DENY,
                           false},
    [LP_RULE_NON_VIEW_OP] = {"non_view_op",
                             "the loader did something to a tensor that is not views and copies: the name "
                             "is a fallback",
                             LP_WARN, false},
    [LP_RULE_ORDER_DEPENDENT] = {"order_dependent",
                                 "two names write the same bytes and the last one wins: the recorded "
                                 "order has to be kept",
                                 LP_WARN, false},
    [LP_RULE_IMPLICIT_CAST] = {"implicit_cast", "a copy changed the dtype by itself, without a cast in the loader",
                               LP_WARN, false},
    [LP_RULE_CHECKPOINT_NAME_UNUSED] = {"checkpoint_name_unused",
                                        "a family of the checkpoint is neither loaded, derived "
                                        "from, refused nor declined in any scope",
                                        LP_WARN, false},
    [LP_RULE_CHECKPOINT_BYTES_UNUSED] = {"checkpoint_bytes_unused",
                                         "parts of a checkpoint tensor are loaded, and bytes beside them on no rank",
                                         LP_WARN, false},
    [LP_RULE_MATERIALISES] = {"materialises", "the loader makes a temporary copy on the way; the plan does not need it",
                              LP_WARN, false},
    [LP_RULE_COPY_BECAME_REFUSAL] = {"copy_became_refusal",
                                     "a name that was loaded by the plan now falls back to the "
                                     "engine",
                                     LP_DENY, true},
    [LP_RULE_NEW_REFUSAL] = {"new_refusal", "a name that the plan did not load before is now refused", LP_DENY, true},
    [LP_RULE_MAP_CHANGED] = {"map_changed", "other source bytes come to the same place, or the same bytes go elsewhere",
                             LP_DENY, true},
    [LP_RULE_KIND_CHANGED] = {"kind_changed", "a copy, cast, replicate or fill became another of these", LP_DENY, true},
    [LP_RULE_DERIVE_CHANGED] = {"derive_changed", "post-load processing computes something else", LP_DENY, true},
    [LP_RULE_DEST_TYPE_CHANGED] = {"dest_type_changed",
                                   "a destination has another dtype, shape, strides or declaration", LP_DENY, true},
    [LP_RULE_LAYOUT_CHANGED] = {"layout_changed", "a destination has another layout id or version", LP_DENY, true},
    [LP_RULE_DEST_MOVED] = {"dest_moved", "a destination lies in another storage or at another offset", LP_DENY, true},
    [LP_RULE_DEST_VANISHED] = {"dest_vanished", "a destination is no longer there", LP_DENY, true},
    [LP_RULE_NEW_ORDER_DEPENDENCE] = {"new_order_dependence",
                                      "writes that could come in any order now have to keep one", LP_DENY, true},
    [LP_RULE_DEST_ADDED] = {"dest_added", "a destination is there that was not there before", LP_WARN, true},
    [LP_RULE_MORE_BYTES_READ] = {"more_bytes_read", "more bytes of a checkpoint tensor are read", LP_WARN, true},
    [LP_RULE_MORE_BYTES_STAGED] = {"more_bytes_staged", "derives stage more bytes of a checkpoint tensor", LP_WARN,
                                   true},
    [LP_RULE_FILL_ADDED] = {"fill_added", "a region that was left alone is now filled with a constant", LP_ALLOW, true},
    [LP_RULE_FAMILY_RENAMED] = {"family_renamed", "tensors have other names and the same content", LP_ALLOW, true},
    [LP_RULE_REFUSAL_BECAME_COPY] = {"refusal_became_copy", "a fallback is now loaded by the plan", LP_ALLOW, true},
};

int lp_rule_count(void)
{
    return LP_RULE_COUNT;
}

const lp_rule *lp_rule_at(int index)
{
    return index >= 0 && index < LP_RULE_COUNT ? &rules[index] : NULL;
}

const lp_rule *lp_rule_find(const char *id)
{
    for (int i = 0; i < LP_RULE_COUNT; i++)
        if (strcmp(rules[i].id, id) == 0)
            return &rules[i];
    return NULL;
}

const char *lp_refusal_hint(const char *operation)
{
    static const struct {
        const char *part, *hint;
    } hints[] = {
        {"max", "write each value into its own slot and let a derive take the maximum"},
        {"min", "write each value into its own slot and let a derive take the minimum"},
        {"item", "keep the value on the device: declare a derive of it"},
        {"reciprocal", "declare a derive with the reciprocal"},
        {"div", "declare a derive with the division"},
        {"mul", "declare a derive with the product"},
        {"exp", "declare a derive with the exponential"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof hints[0]; i++)
        if (strstr(operation, hints[i].part) != NULL)
            return hints[i].hint;
    return "say it with views and a copy, or declare a derive";
}
