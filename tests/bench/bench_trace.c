/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measuring trace: 60 layers x 384 experts x 3 projections in NVFP4 (weight, block scales, weight_scale_2,
 * input_scale), EP 32, all ranks: 276,480 names, 944,640 copies. Times record, save, open, rows of one rank, explain,
 * check and diff, and the peak of memory, against the bars of docs/performance.md.
 *
 *   bench_trace [layers] [experts] [ranks]
 */
#include "recorder/recorder.h"
#include "replayer/replayer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void must(lp_status status, const lp_error *err)
{
    if (status == LP_OK)
        return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void add(lp_checkpoint *c, const char *name, lp_dtype dtype, int ndim, int64_t rows, int64_t columns)
{
    lp_error err;
    const int64_t shape[] = {rows, columns};
    must(lp_checkpoint_add(c,
                           &(lp_checkpoint_tensor){
                               .name = name, .dtype = dtype, .ndim = ndim, .shape = shape, .file = -1, .file_off = -1},
                           &err),
         &err);
}

static lp_checkpoint *make_catalogue(int layers, int experts)
{
    static const char *const projection[] = {"gate_proj", "up_proj", "down_proj"};
    const int64_t hidden = 7168, intermediate = 3072;
    lp_checkpoint *c;
    lp_error err;
    must(lp_checkpoint_new(&c, NULL, &err), &err);
    for (int layer = 0; layer < layers; layer++)
        for (int expert = 0; expert < experts; expert++)
            for (int p = 0; p < 3; p++) {
                const int64_t rows = p < 2 ? intermediate : hidden, columns = p < 2 ? hidden : intermediate;
                char name[128];
                const int stem =
                    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.", layer, expert, projection[p]);
                char *tail = name + stem;
                const size_t room = sizeof name - (size_t)stem;
                snprintf(tail, room, "weight");
                add(c, name, LP_U8, 2, rows, columns / 2);
                snprintf(tail, room, "weight_scale");
                add(c, name, LP_F8_E4M3, 2, rows, columns / 16);
                snprintf(tail, room, "weight_scale_2");
                add(c, name, LP_F32, 0, 0, 0);
                snprintf(tail, room, "input_scale");
                add(c, name, LP_F32, 0, 0, 0);
            }
    must(lp_checkpoint_seal(c, &err), &err);
    return c;
}

static double peak_gib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / (1 << 20);
}

static void line(const char *what, double seconds, double bar)
{
    printf("%-32s %9.3f s   bar %5.2f  %s   peak %.2f GiB\n", what, seconds, bar, seconds <= bar ? "ok " : "LOW",
           peak_gib());
}

int main(int argc, char **argv)
{
    const int layers = argc > 1 ? atoi(argv[1]) : 60, experts = argc > 2 ? atoi(argv[2]) : 384,
              ranks = argc > 3 ? atoi(argv[3]) : 32;
    const char *path = "/tmp/measuring.lpt";
    lp_error err;
    char config[256];
    snprintf(config, sizeof config,
             "{\"model_type\":\"megamoe\",\"hidden_size\":7168,\"moe_intermediate_size\":3072,\"num_hidden_layers\":%d,"
             "\"num_experts\":%d,\"n_routed_experts\":%d,\"num_attention_heads\":64}",
             layers, experts, experts);
    double t = now_seconds();
    lp_checkpoint *c = make_catalogue(layers, experts);
    printf("catalogue of %" PRId64 " names: %.3f s\n", lp_checkpoint_count(c), now_seconds() - t);

    t = now_seconds();
    lp_trace *trace;
    must(lp_load_checkpoint(&trace, c,
                            &(lp_loader_options){.loader = "megamoe",
                                                 .layout = {.dp = ranks, .expert_parallel = true},
                                                 .config = config,
                                                 .config_bytes = (int64_t)strlen(config)},
                            &err),
         &err);
    const double recorded = now_seconds() - t;
    t = now_seconds();
    must(lp_trace_save(trace, path, true, &err), &err);
    line("record", recorded, 2);
    line("record + save", recorded + now_seconds() - t, 2);
    int64_t records = 0;
    for (int32_t i = 0; i < lp_trace_scope_count(trace); i++) {
        const lp_rows *rows;
        must(lp_trace_rows(trace, i, &rows, &err), &err);
        records += rows->nrecord;
    }
    lp_trace_close(trace);
    struct stat s;
    stat(path, &s);
    printf("%" PRId64 " records in %" PRId64 " bytes: %.3f bytes a record (bar 4)\n", records, (int64_t)s.st_size,
           (double)s.st_size / (double)records);

    t = now_seconds();
    must(lp_trace_open(&trace, path, &err), &err);
    line("open", now_seconds() - t, 0.05);
    t = now_seconds();
    lp_explanation explanation;
    must(lp_explain(&explanation, trace, 3 % ranks, &err), &err);
    line("explain one rank", now_seconds() - t, 0.05);
    lp_trace_close(trace);

    t = now_seconds();
    must(lp_trace_open(&trace, path, &err), &err);
    lp_findings *findings;
    must(lp_check(&findings, trace, &err), &err);
    line("open + check", now_seconds() - t, 2);
    printf("%s\n", lp_findings_summary(findings));
    lp_findings_free(findings);
    lp_trace_close(trace);

    lp_trace *other;
    t = now_seconds();
    must(lp_trace_open(&trace, path, &err), &err);
    must(lp_trace_open(&other, path, &err), &err);
    must(lp_diff(&findings, trace, other, &err), &err);
    line("open both + diff", now_seconds() - t, 2);
    printf("%s\n", lp_findings_summary(findings));
    lp_findings_free(findings);
    lp_trace_close(trace);
    lp_trace_close(other);
    lp_checkpoint_close(c);
    return 0;
}
