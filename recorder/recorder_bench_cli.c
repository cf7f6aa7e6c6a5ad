/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Benches of recording, on the measuring trace: 60 layers x 384 experts x 3 projections in NVFP4 (weight, block scales,
 * weight_scale_2, input_scale), 32 expert-parallel ranks: 276,480 names and 944,640 records.
 */
#include "recorder/recorder.h"
#include "traces/bench_cli.h"

#include "traces/base.h"

#include <stdio.h>

typedef struct model {
    int layers, experts, ranks;
} model;

static const model FULL = {60, 384, 32}, SMALL = {2, 8, 2};
enum { HIDDEN = 7168, INTERMEDIATE = 3072 };

/* ---- its catalogue ---- */

static lp_status add_tensor(lp_checkpoint *c, const char *stem, const char *part, lp_dtype dtype, int ndim,
                            const int64_t *shape, lp_error *err)
{
    char name[160];
    snprintf(name, sizeof name, "%s.%s", stem, part);
    const lp_checkpoint_tensor tensor = {
        .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1};
    return lp_checkpoint_add(c, &tensor, err);
}

static lp_status add_projection(lp_checkpoint *c, const char *stem, int64_t rows, int64_t columns, lp_error *err)
{
    LP_TRY(add_tensor(c, stem, "weight", LP_U8, 2, (int64_t[]){rows, columns / 2}, err));
    LP_TRY(add_tensor(c, stem, "weight_scale", LP_F8_E4M3, 2, (int64_t[]){rows, columns / 16}, err));
    LP_TRY(add_tensor(c, stem, "weight_scale_2", LP_F32, 0, NULL, err));
    return add_tensor(c, stem, "input_scale", LP_F32, 0, NULL, err);
}

static lp_status add_experts(lp_checkpoint *c, const model *m, lp_error *err)
{
    static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    for (int layer = 0; layer < m->layers; layer++)
        for (int expert = 0; expert < m->experts; expert++)
            for (int p = 0; p < 3; p++) {
                char stem[128];
                snprintf(stem, sizeof stem, "model.layers.%d.mlp.experts.%d.%s", layer, expert, projection[p]);
                LP_TRY(add_projection(c, stem, p < 2 ? INTERMEDIATE : HIDDEN, p < 2 ? HIDDEN : INTERMEDIATE, err));
            }
    return lp_checkpoint_seal(c, err);
}

static lp_status make_catalogue(lp_checkpoint **out, const model *m, const lp_platform *platform, lp_error *err)
{
    LP_TRY(lp_checkpoint_new(out, platform, err));
    const lp_status status = add_experts(*out, m, err);
    if (status != LP_OK)
        lp_checkpoint_close(*out);
    return status;
}

/* ---- recording it ---- */

static lp_status record(lp_trace **out, const lp_checkpoint *c, const model *m, const lp_platform *platform,
                        lp_error *err)
{
    char config[256];
    snprintf(config, sizeof config,
             "{\"model_type\":\"megamoe\",\"hidden_size\":%d,\"moe_intermediate_size\":%d,\"num_hidden_layers\":%d,"
             "\"n_routed_experts\":%d,\"num_attention_heads\":64}",
             HIDDEN, INTERMEDIATE, m->layers, m->experts);
    const lp_loader_options options = {.loader = "megamoe",
                                       .layout = {.dp = m->ranks, .expert_parallel = true},
                                       .config = config,
                                       .config_bytes = (int64_t)strlen(config),
                                       .platform = platform};
    return lp_load_checkpoint(out, c, &options, err);
}

/* Each expert has 3 weights, 3 block scales and 3 global scales on its one rank, and an input scale on all. */
static int64_t wanted_records(const model *m)
{
    return (int64_t)m->layers * m->experts * (9 + m->ranks);
}

static lp_status count_records(const lp_trace *t, const model *m, lp_bench_result *r, lp_error *err)
{
    const lp_rows *rows;
    r->size = 0;
    for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
        LP_TRY(lp_trace_rows(t, s, &rows, err));
        r->size += rows->nrecord;
    }
    r->wrong += r->size != wanted_records(m);
    return LP_OK;
}

static lp_status record_once(const lp_checkpoint *c, const model *m, const char *path, const lp_platform *platform,
                             lp_bench_result *r, lp_error *err)
{
    lp_trace *t;
    const lp_bench_clock started = lp_bench_start();
    LP_TRY(record(&t, c, m, platform, err));
    lp_status status = lp_trace_save(t, path, true, err);
    lp_bench_stop(r, started);
    if (status == LP_OK)
        status = count_records(t, m, r, err);
    lp_trace_close(t);
    return status;
}

static lp_status run_record(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    const model *m = bed->is_small ? &SMALL : &FULL;
    lp_checkpoint *c;
    char path[512];
    lp_status status = LP_OK;
    lp_bench_path(bed, "recorded.lpt", path);
    LP_TRY(make_catalogue(&c, m, bed->platform, err));
    for (int i = 0; i < bed->rounds && status == LP_OK; i++)
        status = record_once(c, m, path, bed->platform, r, err);
    lp_checkpoint_close(c);
    r->value = lp_bench_seconds(r);
    return status;
}

static lp_status run_save(const lp_bench_bed *bed, lp_bench_result *r, lp_error *err)
{
    const model *m = bed->is_small ? &SMALL : &FULL;
    lp_checkpoint *c;
    lp_trace *t = NULL;
    char path[512];
    lp_status status;
    lp_bench_path(bed, "measuring.lpt", path);
    LP_TRY(make_catalogue(&c, m, bed->platform, err));
    LP_TRY_GOTO(record(&t, c, m, bed->platform, err), close_trace);
    LP_TRY_GOTO(count_records(t, m, r, err), close_trace);
    for (int i = 0; i < bed->rounds; i++) {
        const lp_bench_clock started = lp_bench_start();
        LP_TRY_GOTO(lp_trace_save(t, path, true, err), close_trace);
        lp_bench_stop(r, started);
    }
    r->value = lp_bench_seconds(r);
close_trace:
    lp_trace_close(t);
    lp_checkpoint_close(c);
    return status;
}

static const lp_bench BENCHES[] = {
    {.name = "trace.record",
     .summary = "record the measuring trace, all ranks, from its catalogue to its file",
     .size_unit = "records",
     .unit = "s",
     .sense = LP_BENCH_AT_MOST,
     .bar = 2,
     .peak_bar = (int64_t)1 << 30,
     .run = run_record},
    {.name = "trace.save", .summary = "save the measuring trace", .size_unit = "records", .unit = "s", .run = run_save},
};

const lp_bench_table lp_recorder_benches = {BENCHES, sizeof BENCHES / sizeof BENCHES[0]};
