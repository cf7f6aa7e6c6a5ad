/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan info` of a trace: what it was recorded for, what each rank holds, and the identities. */
#include "traces/info_groups.h"

#include <sys/stat.h>

typedef struct counts {
    int64_t destinations, kind[5], derives, refusals; /* kind by lp_kind */
} counts;

typedef struct rank_row {
    lp_scope scope;
    counts count;
    char digest[65];
} rank_row;

typedef struct trace_facts {
    rank_row *rank;
    int32_t ranks;
    counts all;
    int64_t file_bytes;
    char set_digest[65], structure_key[65];
} trace_facts;

/* Expands one scope after the other, so that memory is that of the largest. */
static lp_status read_ranks(lp_trace *t, rank_row *row, counts *all, lp_error *err)
{
    const int32_t scopes = lp_trace_scope_count(t);
    for (int32_t s = 0; s < scopes; s++) {
        const lp_rows *rows;
        LP_TRY(lp_trace_rows(t, s, &rows, err));
        counts *c = &row[s].count;
        row[s].scope = rows->scope;
        c->destinations = rows->ndest;
        c->derives = rows->nderive;
        c->refusals = rows->nrefusal;
        for (uint32_t i = 0; i < rows->nrecord; i++)
            if (rows->record[i].kind >= LP_KIND_COPY && rows->record[i].kind <= LP_KIND_FILL)
                c->kind[rows->record[i].kind]++;
        lp_format_hex(row[s].digest, rows->digest, sizeof rows->digest);
        lp_trace_release_rows(t, s);
        all->destinations += c->destinations;
        all->derives += c->derives;
        all->refusals += c->refusals;
        for (int k = LP_KIND_COPY; k <= LP_KIND_FILL; k++)
            all->kind[k] += c->kind[k];
    }
    return LP_OK;
}

static lp_status read_facts(lp_trace *t, trace_facts *f, lp_error *err)
{
    uint8_t digest[32];
    f->ranks = lp_trace_scope_count(t);
    f->rank = lp_allocate_zero(NULL, (size_t)f->ranks * sizeof *f->rank);
    if (f->rank == NULL)
        return lp_fail_memory(err);
    LP_TRY(read_ranks(t, f->rank, &f->all, err));
    LP_TRY(lp_trace_set_digest(t, digest, err));
    lp_format_hex(f->set_digest, digest, sizeof digest);
    LP_TRY(lp_trace_structure_key(t, digest, err));
    lp_format_hex(f->structure_key, digest, sizeof digest);
    return LP_OK;
}

/* ---- text ---- */

static void print_configuration(FILE *out, const char *text)
{
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        char shown[512];
        lp_sanitise(shown, sizeof shown, line, length);
        fprintf(out, "  %-14s %s\n", line == text ? "configuration" : "", shown);
        line += length + (line[length] == '\n');
    }
}

static void print_ranks(FILE *out, const trace_facts *f)
{
    char n[7][32];
    fprintf(out, "  %5s %12s %11s %9s %10s %8s %8s %8s  %s\n", "rank", "destinations", "copies", "casts", "replicates",
            "fills", "derives", "refusals", "plan digest");
    for (int32_t i = 0; i < f->ranks; i++) {
        const counts *c = &f->rank[i].count;
        fprintf(out, "  %5d %12s %11s %9s %10s %8s %8s %8s  lp1:%s\n", (int)lp_scope_rank(&f->rank[i].scope),
                lp_format_count(n[0], c->destinations), lp_format_count(n[1], c->kind[LP_KIND_COPY]),
                lp_format_count(n[2], c->kind[LP_KIND_CAST]), lp_format_count(n[3], c->kind[LP_KIND_REPLICATE]),
                lp_format_count(n[4], c->kind[LP_KIND_FILL]), lp_format_count(n[5], c->derives),
                lp_format_count(n[6], c->refusals), f->rank[i].digest);
    }
}

static void print_text(lp_cli *cli, const lp_trace *t, const char *path, const trace_facts *f)
{
    const lp_trace_header *h = lp_trace_header_of(t);
    const lp_checkpoint *c = lp_trace_checkpoint(t);
    char bytes[32], copies[32];
    FILE *out = cli->out;
    fprintf(out, "%s: %s, %s, %s %s, %s, %s; %s\n", lp_cli_clean(path), lp_info_count(f->ranks, "rank"),
            lp_info_count(lp_checkpoint_count(c), "name"), lp_format_count(copies, f->all.kind[LP_KIND_COPY]),
            f->all.kind[LP_KIND_COPY] == 1 ? "copy" : "copies", lp_info_count(f->all.derives, "derive"),
            lp_info_count(f->all.refusals, "refusal"), lp_format_bytes(bytes, f->file_bytes));
    fprintf(out, "  %-14s %s %s\n", "loader", lp_cli_clean(h->loader), lp_cli_clean(h->loader_version));
    print_configuration(out, h->configuration);
    fprintf(out, "  %-14s %s\n", "target", h->target[0] != '\0' ? lp_cli_clean(h->target) : "any");
    fprintf(out, "  %-14s pp %d, dp %d, tp %d%s\n", "layout", h->layout.pp, h->layout.dp, h->layout.tp,
            h->layout.expert_parallel ? ", whole experts over dp x tp" : "");
    fprintf(out, "  %-14s %s, %s\n", "checkpoint", lp_info_count(lp_checkpoint_count(c), "tensor"),
            lp_format_bytes(bytes, lp_checkpoint_bytes(c)));
    fprintf(out, "  %-14s lp1:%s\n", "structure key", f->structure_key);
    fprintf(out, "  %-14s lp1:%s\n", "set digest", f->set_digest);
    print_ranks(out, f);
    if (lp_cli_flag(cli, "tensors", false))
        lp_info_print_tensors(cli, c);
}

/* ---- JSON ---- */

static json_t *digest_json(const char *hex)
{
    return json_sprintf("lp1:%s", hex);
}

static json_t *counts_json(const counts *c)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "destinations", (json_int_t)c->destinations, "copies",
                     (json_int_t)c->kind[LP_KIND_COPY], "casts", (json_int_t)c->kind[LP_KIND_CAST], "replicates",
                     (json_int_t)c->kind[LP_KIND_REPLICATE], "fills", (json_int_t)c->kind[LP_KIND_FILL], "derives",
                     (json_int_t)c->derives, "refusals", (json_int_t)c->refusals);
}

static json_t *ranks_json(const trace_facts *f)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < f->ranks; i++) {
        const lp_scope *s = &f->rank[i].scope;
        json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:i, s:o, s:o}", "rank", (int)lp_scope_rank(s),
                                              "pp_rank", (int)s->pp_rank, "dp_rank", (int)s->dp_rank, "tp_rank",
                                              (int)s->tp_rank, "counts", counts_json(&f->rank[i].count), "plan_digest",
                                              digest_json(f->rank[i].digest)));
    }
    return list;
}

static json_t *trace_json(lp_cli *cli, const lp_trace *t, const char *path, const trace_facts *f)
{
    const lp_trace_header *h = lp_trace_header_of(t);
    const lp_checkpoint *c = lp_trace_checkpoint(t);
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:{s:i, s:i, s:i, s:b}, s:o, s:o, s:o, s:o}", "format", 1,
        "kind", "trace", "path", lp_cli_clean(path), "size_bytes", (json_int_t)f->file_bytes, "tensors",
        (json_int_t)lp_checkpoint_count(c), "bytes", (json_int_t)lp_checkpoint_bytes(c), "loader", h->loader,
        "loader_version", h->loader_version, "configuration", h->configuration, "target", h->target, "layout", "pp",
        (int)h->layout.pp, "dp", (int)h->layout.dp, "tp", (int)h->layout.tp, "expert_parallel",
        (int)h->layout.expert_parallel, "counts", counts_json(&f->all), "ranks", ranks_json(f), "set_digest",
        digest_json(f->set_digest), "structure_key", digest_json(f->structure_key));
    if (lp_cli_flag(cli, "tensors", false))
        json_object_set_new(root, "catalogue", json_array()); /* written by the caller */
    return root;
}

static bool print_json(lp_cli *cli, const lp_trace *t, const char *path, const trace_facts *f)
{
    const lp_checkpoint *c = lp_trace_checkpoint(t);
    const lp_cli_list catalogue = {"catalogue", lp_checkpoint_count(c), lp_info_tensor_json, c};
    return lp_cli_json_lists(cli, trace_json(cli, t, path, f), &catalogue, lp_cli_flag(cli, "tensors", false));
}

int lp_info_trace(lp_cli *cli, const char *path)
{
    lp_trace *t = NULL;
    lp_error err;
    trace_facts facts = {0};
    struct stat st;
    int exit_code = LP_EXIT_DONE;
    if (lp_trace_open_with(&t, path, lp_cli_platform(cli), &err) != LP_OK || read_facts(t, &facts, &err) != LP_OK) {
        exit_code = lp_cli_fail(cli, &err);
        goto close;
    }
    if (stat(path, &st) == 0)
        facts.file_bytes = st.st_size;
    if (strcmp(lp_cli_text(cli, "format", "text"), "json") != 0)
        print_text(cli, t, path, &facts);
    else if (!print_json(cli, t, path, &facts))
        exit_code = LP_EXIT_ENVIRONMENT;
close:
    lp_release(NULL, facts.rank);
    lp_trace_close(t);
    return exit_code;
}
