/* SPDX-License-Identifier: Apache-2.0 */
/* How the destinations of a rank stand in its file: dimensions in physical order, shared storage once. */
#ifndef LOADPLAN_RANK_FORM_H
#define LOADPLAN_RANK_FORM_H

#include "replayer/plan.h"

/* One destination of a rank file. */
typedef struct lp_rank_row {
    uint32_t dest;
    uint32_t owner;              /* destination whose bytes these are; itself when it stands in the file */
    lp_form form;                /* in physical order: strides fall */
    int32_t order[LP_FORM_DIMS]; /* physical dimension i is logical dimension order[i] */
    int64_t shape[LP_FORM_DIMS]; /* physical shape in elements */
    int32_t ndim, bits;          /* bits of an element */
    int64_t off;                 /* in the payload of the file */
} lp_rank_row;

/* Rows of all destinations that are selected and hold loaded bytes, by destination. The caller releases *out. */
lp_status lp_rank_rows(const lp_plan *plan, bool (*select)(void *context, const lp_destination *dest), void *context,
                       lp_rank_row **out, int64_t *count, lp_error *err);

#endif
