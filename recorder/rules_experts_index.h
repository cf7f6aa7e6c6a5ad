/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which checkpoint tensor is which part of which expert: every name is read once, for all ranks. Private to recorder/.
 */
#ifndef LOADPLAN_RULES_EXPERTS_INDEX_H
#define LOADPLAN_RULES_EXPERTS_INDEX_H

#include "recorder/rule_sets.h"

enum { EXPERT_GATE = 0, EXPERT_UP = 1, EXPERT_DOWN = 2, EXPERT_PROJECTIONS = 3 };

/* Kinds of tensors of one projection. Those that the kernel layouts of MegaMoE have come first. */
enum {
    EXPERT_WEIGHT = 0, /* `weight` or `weight_packed` */
    EXPERT_SCALE,
    EXPERT_SCALE_2,
    EXPERT_INPUT_SCALE,
    EXPERT_GLOBAL_SCALE,
    EXPERT_INPUT_GLOBAL_SCALE,
    EXPERT_MEGAMOE_KINDS,
    EXPERT_SCALE_INV = EXPERT_MEGAMOE_KINDS,
    EXPERT_BIAS,
    EXPERT_WEIGHT_SHAPE,
    EXPERT_KINDS
};
extern const char *const EXPERT_KIND[EXPERT_KINDS]; /* as they are called on disk; "weight" for both weights */

struct rules_experts {
    int64_t layers, experts; /* experts: of the layer that has most */
    int32_t *index;          /* [layer][expert][projection][kind]: catalogue index, or -1 */
    int64_t *of_layer;       /* experts of each layer; 0: a dense layer */
    const char *module;      /* what stands between the layer and "experts": "mlp"; NULL: no experts */
    bool packed;             /* weights are called `weight_packed` */
};

/* The index, made at first use; NULL after a failure. All names in it are taken up. */
const rules_experts *rules_experts_of(lp_rules *l);

/* How many experts a layer has; 0 after a failure. */
int64_t rules_experts_count(lp_rules *l, int64_t layer);

/* Fails unless the configuration says nothing of their number, or that. */
bool rules_expect_experts(lp_rules *l, int64_t layer, int64_t experts);

/* The module of a layer that has experts: "layers.3.mlp". */
const char *rules_experts_module(lp_rules *l, int64_t layer);

static inline int64_t rules_expert_tensor(const rules_experts *x, int64_t layer, int64_t expert, int projection,
                                          int kind)
{
    return x->index[((layer * x->experts + expert) * EXPERT_PROJECTIONS + projection) * EXPERT_KINDS + kind];
}

#endif
