/* SPDX-License-Identifier: Apache-2.0 */
/* How the experts of a layer are spread over ranks: whole ones by --ep and --slots, else each by its rows. */
#include "recorder/rule_sets.h"

bool rules_split_experts(lp_rules *l, const char *stem, int64_t experts, rules_split *out)
{
    const lp_scope *at = &l->at;
    const int64_t ranks = lp_scope_experts_size(at);
    const char *what = lp_name(l->r, "experts of '%s%s'", l->prefix, stem);
    *out = (rules_split){.experts = experts,
                         .share = at->expert_parallel ? 1 : at->tp,
                         .share_rank = at->expert_parallel ? 0 : at->tp_rank};
    out->slots = l->slots > 0 ? l->slots : rules_share(l, what, experts, ranks);
    out->first = out->slots * lp_scope_experts_rank(at);
    if (out->slots * ranks < experts)
        rules_fail(l, LP_E_ARGUMENT, what,
                   "%" PRId64 " slots on each of %" PRId64 " ranks are too few for %" PRId64 " experts", out->slots,
                   ranks, experts);
    return !rules_failed(l);
}
