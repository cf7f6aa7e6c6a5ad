/* SPDX-License-Identifier: Apache-2.0 */
/* The benches of the CPU executor (exec_bench_cli.c), for the room's table in replayer_bench_cli.c. */
#ifndef LOADPLAN_EXEC_BENCH_H
#define LOADPLAN_EXEC_BENCH_H

#include "traces/bench_cli.h"

lp_status lp_bench_run_long_runs(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);
lp_status lp_bench_run_words(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err);

#endif
