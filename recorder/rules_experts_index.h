/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoint tensor is which part of which expert: every name is read once, for all ranks. Private to recorder/.
 */
#ifndef LOADPLAN_RULES_EXPERTS_INDEX_H
#define LOADPLAN_RULES_EXPERTS_INDEX_H

#include "recorder/rule_sets.h"

enum { EXPERT_GATE = 0, EXPERT_UP = 1, EXPERT_DOWN = 2, EXPERT_PROJECTIONS = 3 };
enum { EXPERT_WEIGHT = 0, EXPERT_SCALE = 1, EXPERT_SCALE_2 = 2, EXPERT_INPUT_SCALE = 3, EXPERT_KINDS = 4 };

struct rules_experts {
    int64_t layers, experts; /* experts: of the layer that has most */
    int32_t *index;          /* [layer][expert][projection][kind]: catalogue index, or -1 */
    int64_t *of_layer;       /* experts of each layer; 0: a dense layer */
};

/* The index, made at first use; NULL after a failure. All names in it are taken up. */
const rules_experts *rules_experts_of(lp_rules *l);

static inline int64_t rules_expert_tensor(const rules_experts *x, int64_t layer, int64_t expert, int projection,
                                          int kind)
{
    return x->index[((layer * x->experts + expert) * EXPERT_PROJECTIONS + projection) * EXPERT_KINDS + kind];
}

#endif
