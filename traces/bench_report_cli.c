/* SPDX-License-Identifier: Apache-2.0 */
/* The report of `loadplan bench`: a table whose columns docs/performance.md defines, or JSON. */
#include "traces/bench_report.h"

#include <inttypes.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <zstd.h>

/* ---- judging ---- */

static int by_time(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

lp_bench_line lp_bench_judge(const lp_bench *bench, const lp_bench_result *result, int64_t peak_bytes, bool is_small)
{
    lp_bench_line line = {.bench = bench, .result = *result, .peak_bytes = peak_bytes};
    qsort(line.result.ns, (size_t)line.result.rounds, sizeof line.result.ns[0], by_time);
    line.is_judged = bench->sense != LP_BENCH_NO_BAR && !is_small;
    if (!line.is_judged)
        return line;
    line.is_missed = (bench->sense == LP_BENCH_AT_MOST && !(result->value <= bench->bar)) ||
                     (bench->sense == LP_BENCH_AT_LEAST && !(result->value >= bench->bar)) ||
                     (bench->peak_bar > 0 && peak_bytes > bench->peak_bar);
    return line;
}

/* Nearest rank: the smallest time that at least `percent` of the rounds do not exceed. */
static int64_t percentile(const lp_bench_result *r, int percent)
{
    const int rank = (r->rounds * percent + 99) / 100;
    return r->rounds == 0 ? 0 : r->ns[rank > 0 ? rank - 1 : 0];
}

static double rate_of(const lp_bench_result *r)
{
    const int64_t ns = percentile(r, 0);
    return ns > 0 ? (double)r->size * 1e9 / (double)ns : 0;
}

static bool is_ok(const lp_bench_line *line)
{
    return !line->is_missed && line->result.wrong == 0;
}

static const char *sense_text(lp_bench_sense sense)
{
    return sense == LP_BENCH_AT_MOST ? "<=" : ">=";
}

static int cpus(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* ---- text ---- */

static void print_line(FILE *out, const lp_bench_line *line)
{
    const lp_bench *b = line->bench;
    const lp_bench_result *r = &line->result;
    char rate[32], bar[32] = "-";
    if (strcmp(b->size_unit, "bytes") == 0)
        snprintf(rate, sizeof rate, "%.2f GB/s", rate_of(r) / 1e9);
    else
        snprintf(rate, sizeof rate, "%.3g M/s", rate_of(r) / 1e6);
    if (line->is_judged)
        snprintf(bar, sizeof bar, "%s %g", sense_text(b->sense), b->bar);
    fprintf(out,
            "%-35s %11" PRId64 " %-7s %3d %9" PRId64 " %9" PRId64 " %9" PRId64 " %9" PRId64
            " %12s %8.3f %-6s %7s %6" PRId64 " %6" PRId64 "  %s%s%s%s\n",
            b->name, r->size, b->size_unit, r->rounds, percentile(r, 0) / 1000, percentile(r, 50) / 1000,
            percentile(r, 99) / 1000, r->cpu_ns / 1000, rate, r->value, b->unit, bar, line->peak_bytes >> 20, r->wrong,
            r->wrong > 0      ? "WRONG"
            : line->is_missed ? "LOW"
            : line->is_judged ? "ok"
                              : "-",
            r->note[0] != '\0' ? " (" : "", r->note, r->note[0] != '\0' ? ")" : "");
}

static void print_text(lp_cli *cli, const lp_bench_bed *bed, const lp_bench_line *line, int count)
{
    struct utsname system;
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    FILE *out = cli->out;
    fprintf(out, "# loadplan %s, SQLite %s, zstd %s, %s %s, %d cpus, %s sizes, best of %d rounds\n", lp_version(),
            sqlite3_libversion(), ZSTD_versionString(), system.sysname, system.machine, cpus(),
            bed->is_small ? "small" : "full", bed->rounds);
    fprintf(out, "#%-34s %11s %-7s %3s %9s %9s %9s %9s %12s %8s %-6s %7s %6s %6s\n", "", "", "", "", "min", "med",
            "p99", "cpu", "", "", "", "", "peak", "");
    fprintf(out, "#%-34s %11s %-7s %3s %9s %9s %9s %9s %12s %8s %-6s %7s %6s %6s\n", "name", "size", "of", "ops",
            "(us)", "(us)", "(us)", "(us)", "rate", "value", "unit", "bar", "(MiB)", "#wrong");
    for (int i = 0; i < count; i++)
        print_line(out, &line[i]);
}

/* ---- JSON ---- */

static json_t *bar_json(const lp_bench *b)
{
    return b->sense == LP_BENCH_NO_BAR ? json_null() : json_real(b->bar);
}

static json_t *sense_json(const lp_bench *b)
{
    return b->sense == LP_BENCH_NO_BAR ? json_null() : json_string(sense_text(b->sense));
}

static json_t *line_json(const lp_bench_line *line)
{
    const lp_bench *b = line->bench;
    const lp_bench_result *r = &line->result;
    return json_pack("{s:s, s:f, s:s, s:o, s:o, s:b, s:b, s:I, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}",
                     "name", b->name, "value", r->value, "unit", b->unit, "sense", sense_json(b), "bar", bar_json(b),
                     "judged", line->is_judged, "ok", is_ok(line), "size", (json_int_t)r->size, "size_unit",
                     b->size_unit, "rounds", r->rounds, "min_ns", (json_int_t)percentile(r, 0), "median_ns",
                     (json_int_t)percentile(r, 50), "p99_ns", (json_int_t)percentile(r, 99), "cpu_ns",
                     (json_int_t)r->cpu_ns, "peak_bytes", (json_int_t)line->peak_bytes, "peak_bar_bytes",
                     (json_int_t)b->peak_bar, "wrong", (json_int_t)r->wrong, "note", r->note);
}

static int print_json(lp_cli *cli, const lp_bench_bed *bed, const lp_bench_line *line, int count)
{
    struct utsname system;
    if (uname(&system) != 0)
        memset(&system, 0, sizeof system);
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list, line_json(&line[i]));
    json_t *root =
        json_pack("{s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:i, s:o}", "format", 1, "loadplan", lp_version(), "sqlite",
                  sqlite3_libversion(), "zstd", ZSTD_versionString(), "system", system.sysname, "machine",
                  system.machine, "cpus", cpus(), "small", bed->is_small, "rounds", bed->rounds, "benches", list);
    return lp_cli_json(cli, root) ? 0 : LP_EXIT_ENVIRONMENT;
}

int lp_bench_print(lp_cli *cli, const lp_bench_bed *bed, const lp_bench_line *line, int count, bool is_json)
{
    if (is_json)
        return print_json(cli, bed, line, count);
    print_text(cli, bed, line, count);
    return 0;
}

/* ---- what there is ---- */

static int print_list_json(lp_cli *cli, const lp_bench *const *bench, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:o, s:o, s:I}", "name", bench[i]->name, "summary",
                                        bench[i]->summary, "unit", bench[i]->unit, "sense", sense_json(bench[i]), "bar",
                                        bar_json(bench[i]), "peak_bar_bytes", (json_int_t)bench[i]->peak_bar));
    return lp_cli_json(cli, json_pack("{s:i, s:o}", "format", 1, "benches", list)) ? 0 : LP_EXIT_ENVIRONMENT;
}

int lp_bench_print_list(lp_cli *cli, const lp_bench *const *bench, int count, bool is_json)
{
    if (is_json)
        return print_list_json(cli, bench, count);
    fprintf(cli->out, "%-35s %-6s %7s  %s\n", "name", "unit", "bar", "what is timed");
    for (int i = 0; i < count; i++) {
        char bar[32] = "-";
        if (bench[i]->sense != LP_BENCH_NO_BAR)
            snprintf(bar, sizeof bar, "%s %g", sense_text(bench[i]->sense), bench[i]->bar);
        fprintf(cli->out, "%-35s %-6s %7s  %s\n", bench[i]->name, bench[i]->unit, bar, bench[i]->summary);
    }
    return 0;
}
