/* SPDX-License-Identifier: Apache-2.0 */
/* Benches of this room on the measuring trace, which the recorder's bench leaves behind; and the room's table. */
#include "traces/bench_work.h"

#include "traces/base.h"

#include <stdio.h>

lp_status lp_bench_open_trace(const lp_bench_bed *bed, const char *name, lp_trace **out, lp_error *err)
{
    char path[512];
    lp_bench_path(bed, name, path);
    return lp_trace_open_with(out, path, bed->platform, err);
}

lp_status lp_bench_count_records(const lp_trace *t, int64_t *count, lp_error *err)
{
    const lp_rows *rows;
    *count = 0;
    for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
        LP_TRY(lp_trace_rows(t, s, &rows, err));
        *count += rows->nrecord;
    }
    return LP_OK;
}

/* ---- open, expand, check ---- */

static lp_status run_open(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    for (int i = 0; i < bed->rounds; i++) {
        lp_trace *t;
        const lp_bench_clock started = lp_bench_start();
        LP_TRY(lp_bench_open_trace(bed, LP_BENCH_MEASURING, &t, err));
        lp_bench_stop(r, started);
        r->size = lp_checkpoint_count(lp_trace_checkpoint(t));
        lp_trace_close(t);
    }
    r->value = lp_bench_seconds(r) * 1e3;
    return LP_OK;
}

static lp_status check_once(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    lp_trace *t = NULL;
    lp_findings *findings = NULL;
    lp_status status;
    const lp_bench_clock started = lp_bench_start();
    LP_TRY(lp_bench_open_trace(bed, LP_BENCH_MEASURING, &t, err));
    LP_TRY_GOTO(lp_check(&findings, t, err), close_trace);
    lp_bench_stop(r, started);
    r->wrong += lp_findings_count(findings) > 0; /* the measuring trace is sound */
    LP_TRY_GOTO(lp_bench_count_records(t, &r->size, err), close_trace);
close_trace:
    lp_findings_free(findings);
    lp_trace_close(t);
    return status;
}

static lp_status run_check(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    for (int i = 0; i < bed->rounds; i++)
        LP_TRY(check_once(bed, r, err));
    r->value = lp_bench_seconds(r);
    return LP_OK;
}

static lp_status expand_once(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    lp_trace *t;
    const lp_bench_clock started = lp_bench_start();
    LP_TRY(lp_bench_open_trace(bed, LP_BENCH_MEASURING, &t, err));
    const lp_status status = lp_bench_count_records(t, &r->size, err);
    lp_bench_stop(r, started);
    lp_trace_close(t);
    return status;
}

static lp_status run_expand(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    char path[512];
    for (int i = 0; i < bed->rounds; i++)
        LP_TRY(expand_once(bed, r, err));
    lp_bench_path(bed, LP_BENCH_MEASURING, path);
    LP_TRY(lp_bench_file_bytes(path, &r->value, err));
    r->value /= (double)r->size;
    return LP_OK;
}

/* ---- the table ---- */

static const lp_bench BENCHES[] = {
    {.name = "trace.open",
     .summary = "open the measuring trace: catalogue and scopes, no rows",
     .size_unit = "names",
     .unit = "ms",
     .sense = LP_BENCH_AT_MOST,
     .bar = 50,
     .needs = "trace.save",
     .run = run_open},
    {.name = "trace.check",
     .summary = "open and check the measuring trace, all ranks",
     .size_unit = "records",
     .unit = "s",
     .sense = LP_BENCH_AT_MOST,
     .bar = 2,
     .peak_bar = (int64_t)1 << 30,
     .needs = "trace.save",
     .run = run_check},
    {.name = "trace.diff",
     .summary = "open and compare the measuring trace and one that confuses gate and up",
     .size_unit = "records",
     .unit = "s",
     .sense = LP_BENCH_AT_MOST,
     .bar = 2,
     .peak_bar = (int64_t)1 << 30,
     .needs = "trace.save",
     .prepare = lp_bench_prepare_diff,
     .run = lp_bench_run_diff},
    {.name = "trace.diff_equal",
     .summary = "open and compare two equal measuring traces",
     .size_unit = "records",
     .unit = "s",
     .sense = LP_BENCH_AT_MOST,
     .bar = 2,
     .peak_bar = (int64_t)1 << 30,
     .needs = "trace.save",
     .run = lp_bench_run_diff_equal},
    {.name = "trace.bytes_per_record",
     .summary = "open and expand the measuring trace; bytes of the file",
     .size_unit = "records",
     .unit = "bytes",
     .sense = LP_BENCH_AT_MOST,
     .bar = 4,
     .needs = "trace.save",
     .run = run_expand},
    {.name = "trace.unstructured_bytes_per_record",
     .summary = "save a trace in which nothing is shared; bytes of the file",
     .size_unit = "records",
     .unit = "bytes",
     .sense = LP_BENCH_AT_MOST,
     .bar = 60,
     .run = lp_bench_run_unstructured},
    {.name = "checkpoint.index",
     .summary = "open a checkpoint of 10^6 names: its index and 64 headers",
     .size_unit = "names",
     .unit = "s",
     .sense = LP_BENCH_AT_MOST,
     .bar = 2,
     .peak_bar = (int64_t)1 << 30,
     .prepare = lp_bench_prepare_index,
     .run = lp_bench_run_index},
};

const lp_bench_table lp_trace_benches = {BENCHES, sizeof BENCHES / sizeof BENCHES[0]};
