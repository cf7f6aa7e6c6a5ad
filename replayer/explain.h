/* SPDX-License-Identifier: Apache-2.0 */
/* What a load costs, counted on a plan of meta tensors; by other keys than families too. Private. */
#ifndef LOADPLAN_EXPLAIN_H
#define LOADPLAN_EXPLAIN_H

#include "replayer/plan.h"

/* Like lp_explain_families, by layer: names up to their outermost index ("model.layers.12"), "root" for names without
 * one; in the order of the layers. */
lp_status lp_explain_layers(lp_family_costs **out, const lp_trace *trace, int32_t scope_index, lp_error *err);

/* The most launches that the move of one whole push takes on a device, whatever the number of tensors. */
enum { LP_DEVICE_LAUNCHES_MAX = 3 };

/* ---- explain.c: what explaining by families counts too ---- */

/* A plan of a scope without memory. LP_E_ARGUMENT: there is no such scope. */
lp_status lp_explain_bind(const lp_trace *trace, int32_t scope_index, lp_plan **plan, lp_error *err);

enum { LP_READS_MEMO = 256 };

/* Experts share maps: what one map reads by itself is counted once. Zeroed before its first use. */
typedef struct lp_reads_memo {
    struct {
        const lp_map *map;
        int64_t bytes, ranges;
    } slot[LP_READS_MEMO];
} lp_reads_memo;

/* Bytes of its tensor that an entry reads, each once, and in how many ranges. */
lp_status lp_count_reads(const lp_plan *plan, const lp_entry *e, lp_reads_memo *m, int64_t *bytes, int64_t *ranges,
                         lp_error *err);

/* Bytes of destinations that an entry writes by itself, without derives. */
int64_t lp_count_written(const lp_plan *plan, const lp_entry *e);

#endif
