/* SPDX-License-Identifier: Apache-2.0 */
/* Random MegaMoE problems: weights in checkpoint order and in the kernel's layouts, tokens, and routing of any shape.
 */
#ifndef MEGAMOE_PROBLEM_H
#define MEGAMOE_PROBLEM_H

#include "megamoe_reference.h"

typedef enum problem_routing {
    ROUTE_UNIFORM = 0, /* k different experts a token */
    ROUTE_HOT,         /* every token's first choice is expert 0, the others are masked */
    ROUTE_DUPLICATES,  /* any expert, the same one again and again */
    ROUTE_MASKED,      /* a third of the ids is -1 */
    ROUTE_ALL_MASKED,
    ROUTE_OTHER_RANKS, /* experts of other ranks among them: ids below, above and far beyond */
    ROUTE_HALF_EMPTY,  /* only the lower half of the experts */
    ROUTE_UNEVEN       /* three of four go to the lower half */
} problem_routing;

typedef enum problem_scales {
    SCALES_USUAL = 0,
    SCALES_EDGE, /* bytes 0, 1 and 254 among the scales, blocks of zero codes under the large ones */
    SCALES_NAN,  /* and NaN scales in the last expert's up and down */
    SCALES_WIDE  /* UE8M0 over 24 octaves in a row */
} problem_scales;

typedef struct moe_problem {
    lp_megamoe_shape shape;
    reference_weights weights; /* host */
    reference_input input;     /* host */
    uint64_t seed;
    /* In the order of lp_moe_slot, in the layouts of lp_megamoe_layout(.., family); host. */
    const char *layout[LP_MOE_SLOTS];
    void *packed[LP_MOE_SLOTS];
    int64_t packed_bytes[LP_MOE_SLOTS];
    struct moe_problem *shared; /* weights of the shared experts, or NULL */
    void *owned[64];
    int owned_count;
} moe_problem;

/* Fills weights and layouts; `n`: which of the format's layouts. LP_E_ARGUMENT where the format has no such. Shared
 * experts have usual scales and the first layouts of their format. */
lp_status problem_make(moe_problem *problem, const lp_megamoe_shape *shape, int32_t n, problem_scales scales,
                       uint64_t seed, lp_error *err);

/* Fills tokens and routing of `tokens` tokens; every `zero_every`-th row of x is zero (0: none). */
void problem_route(moe_problem *problem, int64_t tokens, problem_routing routing, int64_t zero_every, uint64_t seed);

void problem_free(moe_problem *problem);

/* Bytes of a checkpoint tensor of the format: [E, rows, columns] of codes, and of its scales. */
int64_t problem_code_bytes(lp_moe_format format, int64_t count);
int64_t problem_scale_bytes(lp_moe_format format, int64_t rows, int64_t columns);

#endif
