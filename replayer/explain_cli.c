/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan explain`: what a load reads, writes, stages and derives, and what it should take. */
#include "replayer/explain.h"
#include "replayer/explain_cli.h"

#include <inttypes.h>
#include <stdlib.h>

enum { FAMILIES_DEFAULT = 10, FALLBACKS_SHOWN = 20 };

typedef struct explainer {
    lp_cli *cli;
    lp_cli_job *job;
    lp_cli_rates rates;
    int64_t families;
    const char *by; /* "family", "layer", or NULL */
} explainer;

/* ---- fallbacks, one line for each family, operation and place ---- */

typedef struct fallback_lines {
    lp_strings text;
    int64_t *count;
    int64_t capacity;
} fallback_lines;

static lp_status add_fallback(const explainer *x, fallback_lines *f, const lp_refusal *r, lp_error *err)
{
    const lp_provenance *at = lp_trace_provenance(x->job->trace, r->provenance);
    const char *name = lp_checkpoint_at(lp_trace_checkpoint(x->job->trace), r->name)->name;
    char family[512];
    lp_text line;
    lp_family_template(name, family, sizeof family);
    lp_text_init(&line, NULL);
    lp_text_format(&line, "%s: %s: %s", lp_cli_clean(family), lp_cli_clean(r->operation), lp_cli_clean(r->reason));
    if (at != NULL && at->file[0] != '\0')
        lp_text_format(&line, " at %s:%d", lp_cli_clean(at->file), at->line);
    const int64_t index = line.failed ? -1 : lp_strings_add(&f->text, line.data, (size_t)line.bytes);
    lp_text_free(&line);
    void *items = f->count;
    const int64_t old = f->capacity;
    if (index < 0 || !lp_grow(NULL, &items, &f->capacity, index + 1, sizeof *f->count))
        return lp_fail_memory(err);
    f->count = items;
    for (int64_t i = old; i < f->capacity; i++)
        f->count[i] = 0;
    f->count[index]++;
    return LP_OK;
}

static lp_status list_fallbacks(const explainer *x, const lp_rows *rows, fallback_lines *f, lp_error *err)
{
    *f = (fallback_lines){.count = NULL};
    lp_strings_init(&f->text, NULL);
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        LP_TRY(add_fallback(x, f, &rows->refusal[i], err));
    return LP_OK;
}

static void free_fallbacks(fallback_lines *f)
{
    lp_strings_free(&f->text);
    lp_release(NULL, f->count);
}

/* ---- text ---- */

static void print_families(const explainer *x, const lp_family_costs *families)
{
    char bytes[32], names[32], ranges[32];
    const int64_t count = lp_family_costs_count(families);
    const int64_t shown = count < x->families ? count : x->families;
    fprintf(x->cli->out, "  %-58s %9s %11s %12s  %s\n", x->by, "names", "read", "ranges", "kinds");
    for (int64_t i = 0; i < shown; i++) {
        const lp_family_cost *f = lp_family_costs_at(families, i);
        fprintf(x->cli->out, "  %-58s %9s %11s %12s  %s\n", lp_cli_clean(f->family), lp_format_count(names, f->names),
                lp_format_bytes(bytes, f->bytes_read), lp_format_count(ranges, f->ranges_read), f->kinds);
    }
    if (shown < count)
        fprintf(x->cli->out, "  ... and %" PRId64 " more\n", count - shown);
}

static void print_text(const explainer *x, int32_t rank, const lp_explanation *e, const lp_family_costs *families,
                       const fallback_lines *fallbacks)
{
    FILE *out = x->cli->out;
    char a[32], b[32], c[32];
    fprintf(out, "%s: rank %d\n", lp_cli_clean(x->cli->argument[0]), rank);
    fprintf(out, "  %-10s %s of %s names in %s ranges, exactly what is needed; %s names are not for this rank\n",
            "reads", lp_format_bytes(a, e->bytes_read), lp_format_count(b, e->names_read),
            lp_format_count(c, e->ranges_read), lp_format_count((char[32]){0}, e->names_unused));
    fprintf(out, "  %-10s %s in %s tensors, of %s of memory\n", "writes", lp_format_bytes(a, e->bytes_written),
            lp_format_count(b, e->tensors_written), lp_format_bytes(c, e->bytes_storage));
    fprintf(out, "  %-10s %s in direct mode; %s for the largest of %s groups in layerwise mode\n", "staging",
            lp_format_bytes(a, e->bytes_staged), lp_format_bytes(b, e->bytes_layerwise), lp_format_count(c, e->groups));
    fprintf(out, "  %-10s %s: %s fills, %s casts", "records", lp_format_count(a, e->records),
            lp_format_count(b, e->fills), lp_format_count(c, e->casts));
    fprintf(out, ", %s replicates, the rest copies\n", lp_format_count(a, e->replicates));
    fprintf(out, "  %-10s %s, %s of them within stated ulps of the engine\n", "derives", lp_format_count(a, e->derives),
            lp_format_count(b, e->derives_own));
    if (e->order_dependent == 0)
        fprintf(out, "  %-10s any order, any split\n", "order");
    else
        fprintf(out, "  %-10s %s %s with those of other names: the last write of the loader wins\n", "order",
                lp_format_count(a, e->order_dependent),
                e->order_dependent == 1 ? "record overlaps" : "records overlap");
    fprintf(out, "  %-10s %s%s\n", "fallbacks", lp_format_count(a, e->fallbacks),
            e->fallbacks > 0 ? "; families, with the number of names:" : "");
    for (int64_t i = 0; i < fallbacks->text.count && i < FALLBACKS_SHOWN; i++)
        fprintf(out, "    %s (%s)\n", fallbacks->text.text[i], lp_format_count(a, fallbacks->count[i]));
    if (fallbacks->text.count > FALLBACKS_SHOWN)
        fprintf(out, "    and %" PRId64 " more\n", fallbacks->text.count - FALLBACKS_SHOWN);
    fprintf(out, "  %-10s at most %d for a whole push on a device\n", "launches", LP_DEVICE_LAUNCHES_MAX);
    fprintf(out,
            "  %-10s cold from disk at %.3g GB/s: %s; from page cache at %.3g GB/s: %s; reload on a device at %.4g "
            "GB/s: %s\n",
            "estimates", (double)x->rates.disk / 1e9, lp_cli_duration(a, e->bytes_read, x->rates.disk),
            (double)x->rates.link / 1e9, lp_cli_duration(b, e->bytes_read, x->rates.link),
            (double)x->rates.device / 1e9, lp_cli_duration(c, e->bytes_written, x->rates.device));
    if (families != NULL)
        print_families(x, families);
}

/* ---- JSON ---- */

static json_t *families_json(const lp_family_costs *families, const char *key)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < lp_family_costs_count(families); i++) {
        const lp_family_cost *f = lp_family_costs_at(families, i);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:I, s:I, s:I, s:I}", key, f->family, "kinds", f->kinds, "names",
                                        (json_int_t)f->names, "bytes_read", (json_int_t)f->bytes_read, "ranges_read",
                                        (json_int_t)f->ranges_read, "bytes_written", (json_int_t)f->bytes_written));
    }
    return list;
}

static json_t *rank_json(const explainer *x, int32_t rank, const lp_explanation *e, const lp_family_costs *families,
                         const fallback_lines *fallbacks)
{
    const struct {
        const char *name;
        int64_t value;
    } number[] = {
        {"rank", rank},
        {"bytes_read", e->bytes_read},
        {"ranges_read", e->ranges_read},
        {"names_read", e->names_read},
        {"names_unused", e->names_unused},
        {"bytes_written", e->bytes_written},
        {"tensors_written", e->tensors_written},
        {"bytes_storage", e->bytes_storage},
        {"bytes_staged", e->bytes_staged},
        {"bytes_layerwise", e->bytes_layerwise},
        {"groups", e->groups},
        {"records", e->records},
        {"fills", e->fills},
        {"casts", e->casts},
        {"replicates", e->replicates},
        {"derives", e->derives},
        {"derives_own", e->derives_own},
        {"order_dependent", e->order_dependent},
        {"fallbacks", e->fallbacks},
        {"launches_at_most", LP_DEVICE_LAUNCHES_MAX},
        {"estimate_disk_ns", lp_cli_duration_ns(e->bytes_read, x->rates.disk)},
        {"estimate_link_ns", lp_cli_duration_ns(e->bytes_read, x->rates.link)},
        {"estimate_device_ns", lp_cli_duration_ns(e->bytes_written, x->rates.device)},
    };
    json_t *object = json_object(), *list = json_array();
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        json_object_set_new(object, number[i].name, json_integer(number[i].value));
    for (int64_t i = 0; i < fallbacks->text.count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:I}", "text", fallbacks->text.text[i], "names", (json_int_t)fallbacks->count[i]));
    json_object_set_new(object, "fallback_families", list);
    if (families != NULL)
        json_object_set_new(object, strcmp(x->by, "layer") == 0 ? "layers" : "families",
                            families_json(families, x->by));
    return object;
}

/* ---- the command ---- */

/* What the ranks differ by, once there are several. */
typedef struct balance {
    int64_t least, most, written, staged; /* read; the most that one writes and stages */
    int32_t least_rank, most_rank;
} balance;

static void weigh(balance *b, int32_t rank, const lp_explanation *e)
{
    if (b->most_rank < 0 || e->bytes_read < b->least) {
        b->least = e->bytes_read;
        b->least_rank = rank;
    }
    if (b->most_rank < 0 || e->bytes_read > b->most) {
        b->most = e->bytes_read;
        b->most_rank = rank;
    }
    b->written = e->bytes_written > b->written ? e->bytes_written : b->written;
    b->staged = e->bytes_staged > b->staged ? e->bytes_staged : b->staged;
}

static void print_balance(const explainer *x, const balance *b)
{
    char least[32], most[32], written[32], staged[32];
    FILE *out = x->cli->out;
    fprintf(out, "%" PRId32 " ranks: each reads %s", x->job->rank_count, lp_format_bytes(least, b->least));
    if (b->most != b->least)
        fprintf(out, " (rank %" PRId32 ") to %s (rank %" PRId32 ")", b->least_rank, lp_format_bytes(most, b->most),
                b->most_rank);
    fprintf(out, ", writes at most %s, stages at most %s\n", lp_format_bytes(written, b->written),
            lp_format_bytes(staged, b->staged));
}

static lp_status explain_rank(const explainer *x, int32_t rank, json_t *ranks, balance *b, lp_error *err)
{
    const int32_t index = lp_trace_scope_find(x->job->trace, rank);
    lp_explanation e;
    lp_family_costs *families = NULL;
    fallback_lines fallbacks = {.count = NULL};
    const lp_rows *rows;
    LP_TRY(lp_trace_rows(x->job->trace, index, &rows, err));
    lp_status status = list_fallbacks(x, rows, &fallbacks, err);
    if (status == LP_OK)
        status = lp_explain(&e, x->job->trace, index, err);
    if (status == LP_OK)
        weigh(b, rank, &e);
    if (status == LP_OK && x->by != NULL)
        status = strcmp(x->by, "layer") == 0 ? lp_explain_layers(&families, x->job->trace, index, err)
                                             : lp_explain_families(&families, x->job->trace, index, err);
    if (status == LP_OK && ranks != NULL)
        json_array_append_new(ranks, rank_json(x, rank, &e, families, &fallbacks));
    else if (status == LP_OK)
        print_text(x, rank, &e, families, &fallbacks);
    lp_family_costs_free(families);
    free_fallbacks(&fallbacks);
    return status;
}

static int explain_ranks(const explainer *x, bool is_json)
{
    lp_error err;
    json_t *ranks = is_json ? json_array() : NULL;
    balance b = {.most_rank = -1};
    for (int32_t i = 0; i < x->job->rank_count; i++) {
        if (explain_rank(x, x->job->rank[i], ranks, &b, &err) != LP_OK) {
            json_decref(ranks);
            return lp_cli_fail(x->cli, &err);
        }
    }
    if (!is_json && x->job->rank_count > 1)
        print_balance(x, &b);
    if (!is_json)
        return 0;
    json_t *object = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:o}", "format", 1, "command", "explain", "trace",
                               lp_cli_clean(x->cli->argument[0]), "disk_rate", (json_int_t)x->rates.disk, "link_rate",
                               (json_int_t)x->rates.link, "device_rate", (json_int_t)x->rates.device, "ranks", ranks);
    return lp_cli_json(x->cli, object) ? 0 : LP_EXIT_ENVIRONMENT;
}

int lp_cli_explain(lp_cli *cli)
{
    lp_cli_job job;
    const bool is_dry_run = strcmp(cli->command->name, "explain") != 0;
    const char *path = is_dry_run ? NULL : lp_cli_text(cli, "output", NULL);
    const char *tensor = is_dry_run ? NULL : lp_cli_text(cli, "tensor", NULL);
    const char *format = lp_cli_text(cli, "format", "text");
    const bool shows_order = !is_dry_run && lp_cli_flag(cli, "push-order", false);
    explainer x = {.cli = cli, .job = &job};
    lp_cli_rates_default(&x.rates);
    if (!is_dry_run && lp_cli_flag(cli, "world", false))
        return lp_cli_explain_world(cli);
    if (!is_dry_run) {
        x.by = lp_cli_text(cli, "by", lp_cli_flag(cli, "families", false) ? "family" : NULL);
        if (!lp_cli_integer(cli, "top", FAMILIES_DEFAULT, 1, INT64_MAX, &x.families))
            return LP_EXIT_USAGE;
        if (strcmp(format, tensor == NULL ? "svg" : "json") == 0)
            return lp_cli_usage(cli, "--tensor NAME goes with --format=text or svg, and svg with --tensor NAME");
        const int code = lp_cli_rates_read(&x.rates, cli);
        if (code != 0)
            return code;
    }
    const bool needs_checkpoint = is_dry_run && lp_cli_text(cli, "checkpoint", NULL) != NULL;
    int exit_code = path == NULL ? 0 : lp_cli_open_output(cli, path, lp_cli_flag(cli, "force", false));
    if (exit_code != 0)
        return exit_code;
    exit_code = lp_cli_job_open(&job, cli, needs_checkpoint, "all");
    if (exit_code == 0 && shows_order)
        exit_code = lp_cli_explain_order(&job, strcmp(format, "json") == 0);
    else if (exit_code == 0)
        exit_code =
            tensor != NULL ? lp_cli_explain_tensor(&job, tensor) : explain_ranks(&x, strcmp(format, "json") == 0);
    lp_cli_job_close(&job);
    return exit_code != 0 ? exit_code : lp_cli_close_output(cli);
}
