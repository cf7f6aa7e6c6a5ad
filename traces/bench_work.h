/* SPDX-License-Identifier: Apache-2.0 */
/* The benches of this room, one file for each kind of work; trace_bench_cli.c has their table. */
#ifndef LOADPLAN_BENCH_WORK_H
#define LOADPLAN_BENCH_WORK_H

#include "traces/bench_cli.h"

#define LP_BENCH_MEASURING "measuring.lpt"

lp_status lp_bench_open_trace(const lp_bench_bed *bed, const char *name, lp_trace **out, lp_error *err);
lp_status lp_bench_count_records(const lp_trace *t, int64_t *count, lp_error *err); /* of all ranks; expands them */

lp_status lp_bench_prepare_diff(const lp_bench_bed *bed, lp_bench_result *unused, lp_error *err);
lp_status lp_bench_run_diff(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);
lp_status lp_bench_run_diff_equal(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);
lp_status lp_bench_run_unstructured(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);
lp_status lp_bench_prepare_index(const lp_bench_bed *bed, lp_bench_result *unused, lp_error *err);
lp_status lp_bench_run_index(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);

#endif
