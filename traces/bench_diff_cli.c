/* SPDX-License-Identifier: Apache-2.0 */
/* Benches of diff: the measuring trace against one whose loader confused gate and up, and against itself. */
#include "traces/bench_work.h"

#include "traces/base.h"

#include <inttypes.h>
#include <stdio.h>

static const char CHANGED[] = "changed.lpt";

/* The name in which gate_proj and up_proj have changed places; the index itself when it has neither. */
static uint32_t other_name(const lp_checkpoint *c, uint32_t index)
{
    static const char gate[] = ".gate_proj.", up[] = ".up_proj.";
    const char *name = lp_checkpoint_at(c, index)->name, *at = strstr(name, gate);
    char other[256];
    const bool is_gate = at != NULL;
    if (!is_gate)
        at = strstr(name, up);
    if (at == NULL)
        return index;
    snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, is_gate ? up : gate,
             at + (is_gate ? sizeof gate : sizeof up) - 1);
    const int64_t found = lp_checkpoint_find(c, other);
    return found >= 0 ? (uint32_t)found : index;
}

static lp_status copy_changed_scope(lp_trace *to, const lp_trace *from, int32_t scope, lp_error *err)
{
    const lp_checkpoint *c = lp_trace_checkpoint(from);
    const lp_rows *rows;
    LP_TRY(lp_trace_rows(from, scope, &rows, err));
    LP_TRY(lp_trace_begin_scope(to, &rows->scope, err));
    for (uint32_t d = 0; d < rows->ndest; d++)
        LP_TRY(lp_trace_add_destination(to, &rows->dest[d], NULL, err));
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        lp_record record = rows->record[i];
        const lp_map *map;
        LP_TRY(lp_map_shift(&map, record.map, record.src_off, record.dst_off, NULL, err));
        record.map = map;
        record.name = other_name(c, record.name);
        record.provenance = LP_NONE;
        const lp_status status = lp_trace_add_record(to, &record, err);
        lp_map_free(map, NULL);
        LP_TRY(status);
    }
    for (uint32_t i = 0; i < rows->nderive; i++) {
        lp_derive derive = rows->derive[i];
        derive.provenance = LP_NONE;
        LP_TRY(lp_trace_add_derive(to, &derive, err));
    }
    return LP_OK;
}

/* A trace of another loader, which confuses gate and up in every expert. */
lp_status lp_bench_prepare_diff(const lp_bench_bed *bed, lp_bench_result *unused, lp_error *err)
{
    lp_trace *from = NULL, *to = NULL;
    char path[512];
    lp_status status;
    (void)unused;
    LP_TRY_GOTO(lp_bench_open_trace(bed, LP_BENCH_MEASURING, &from, err), close_traces);
    LP_TRY_GOTO(lp_trace_new(&to, lp_trace_checkpoint(from), lp_trace_header_of(from), bed->platform, err),
                close_traces);
    for (int32_t s = 0; s < lp_trace_scope_count(from); s++)
        LP_TRY_GOTO(copy_changed_scope(to, from, s, err), close_traces);
    LP_TRY_GOTO(lp_trace_seal(to, err), close_traces);
    lp_bench_path(bed, CHANGED, path);
    status = lp_trace_save(to, path, true, err);
close_traces:
    lp_trace_close(to);
    lp_trace_close(from);
    return status;
}

static lp_status diff_once(const lp_bench_bed *bed, const char *name, bool is_equal, lp_bench_result *r, lp_error *err)
{
    lp_trace *base = NULL, *changed = NULL;
    lp_findings *findings = NULL;
    lp_status status;
    const lp_bench_clock started = lp_bench_start();
    LP_TRY_GOTO(lp_bench_open_trace(bed, LP_BENCH_MEASURING, &base, err), close_traces);
    LP_TRY_GOTO(lp_bench_open_trace(bed, name, &changed, err), close_traces);
    LP_TRY_GOTO(lp_diff(&findings, base, changed, err), close_traces);
    lp_bench_stop(r, started);
    r->wrong += is_equal ? lp_findings_count(findings) > 0 : lp_findings_worst(findings) != LP_DENY;
    LP_TRY_GOTO(lp_bench_count_records(base, &r->size, err), close_traces);
close_traces:
    lp_findings_free(findings);
    lp_trace_close(base);
    lp_trace_close(changed);
    return status;
}

lp_status lp_bench_run_diff(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    for (int i = 0; i < bed->rounds; i++)
        LP_TRY(diff_once(bed, CHANGED, false, r, err));
    r->value = lp_bench_seconds(r);
    snprintf(r->note, sizeof r->note, "gate and up of every expert changed places");
    return LP_OK;
}

lp_status lp_bench_run_diff_equal(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    for (int i = 0; i < bed->rounds; i++)
        LP_TRY(diff_once(bed, LP_BENCH_MEASURING, true, r, err));
    r->value = lp_bench_seconds(r);
    return LP_OK;
}
