/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert slots of a plan: where they lie, and one expert as a run of bytes over all destinations that have slots.
 * Private to the replayer.
 */
#ifndef LOADPLAN_EXPERT_SLOTS_H
#define LOADPLAN_EXPERT_SLOTS_H

#include "replayer/plan.h"

/* A slot is every byte whose logical coordinate in the slot dimension is s: with stride t and n slots, the addresses
 * whose (address / t) % n is s. */
typedef struct lp_slots {
    const lp_destination *dest;
    int64_t stride, count;
} lp_slots;

/* LP_E_UNSUPPORTED: slots that are interleaved, or of less than a byte. */
lp_status lp_slots_of(const lp_destination *dest, lp_slots *out, lp_error *err);
/* The bytes of one slot, as a fill map whose destination is the destination tensor. */
lp_status lp_slots_region(const lp_slots *s, int64_t slot, const lp_map **out, const lp_alloc *alloc, lp_error *err);

/* The experts of a plan's rank by a map. */
typedef struct lp_experts {
    const lp_expert_map *map;
    int64_t slots;     /* of a rank */
    int32_t ranks;     /* that share the experts */
    int32_t rank;      /* expert rank of this plan */
    int32_t base;      /* global rank of expert rank 0 of this pipeline stage */
    int32_t rank_step; /* from an expert rank to the next global rank; 0: experts are not split by rank */
} lp_experts;

/* LP_E_ARGUMENT: the map is not one for this plan. A map of NULL is not looked at. */
lp_status lp_experts_of(const lp_plan *plan, const lp_expert_map *map, lp_experts *out, lp_error *err);

/* `rows` rows of `bytes` in slot 0 of a destination; in slot s everything is s * slot_stride further on. In the dense
 * form of an expert the rows follow one another. */
typedef struct lp_expert_piece {
    uint8_t *at;
    int64_t slot_stride, pitch, bytes, rows;
    int64_t dense; /* where it begins in the dense form */
} lp_expert_piece;

typedef struct lp_expert_form {
    const lp_alloc *alloc;
    lp_expert_piece *piece; /* in the order of the dense form: destinations by name, bytes by address */
    int64_t count, capacity;
    int64_t bytes; /* of one expert */
} lp_expert_form;

lp_status lp_expert_form_make(lp_expert_form *form, const lp_plan *plan, lp_error *err);
void lp_expert_form_free(lp_expert_form *form);

/* A part of a piece, as one copy of rows. */
typedef struct lp_expert_part {
    uint8_t *at; /* in the slot */
    int64_t pitch, bytes, rows;
    int64_t dense; /* from the beginning of what was asked for */
} lp_expert_part;

/* Calls `part` for the bytes [lo, hi) of the dense form of the expert in `slot`, in order; stops at a failure. */
typedef lp_status (*lp_expert_part_fn)(void *context, const lp_expert_part *part, lp_error *err);
lp_status lp_expert_form_walk(const lp_expert_form *form, int64_t slot, int64_t lo, int64_t hi, lp_expert_part_fn part,
                              void *context, lp_error *err);

#endif
