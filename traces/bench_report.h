/* SPDX-License-Identifier: Apache-2.0 */
/* What `loadplan bench` prints. Private to bench_*_cli.c. */
#ifndef LOADPLAN_BENCH_REPORT_H
#define LOADPLAN_BENCH_REPORT_H

#include "traces/bench_cli.h"

/* A bench that has run. */
typedef struct lp_bench_line {
    const lp_bench *bench;
    lp_bench_result result; /* rounds sorted, fastest first */
    int64_t peak_bytes;
    bool is_judged; /* it has a bar, and ran at full size */
    bool is_missed; /* the bar of its value or of its memory */
} lp_bench_line;

lp_bench_line lp_bench_judge(const lp_bench *bench, const lp_bench_result *result, int64_t peak_bytes, bool is_small);

/* Both return 0 or an exit code. */
int lp_bench_print(lp_cli *cli, const lp_bench_bed *bed, const lp_bench_line *line, int count, bool is_json);
int lp_bench_print_list(lp_cli *cli, const lp_bench *const *bench, int count, bool is_json);

#endif
