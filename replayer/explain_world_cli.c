/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan explain --world`: what all ranks of a trace together read on a cold start, and what a sync moves. */
#include "replayer/explain_cli.h"
#include "replayer/sync_world.h"

#include <inttypes.h>
#include <stdlib.h>

/* Names of a family that are read in one way. */
typedef struct family_line {
    int64_t names, needed, once;
    const char *text;
} family_line;

typedef struct world_view {
    lp_cli *cli;
    lp_trace *trace, *trainer;
    lp_world_bytes needs;
    lp_cold_world cold;
    lp_world_costs sync;
    lp_strings families; /* "S" or "O", then the family */
    family_line *line;
    int64_t lines, capacity;
} world_view;

static int by_bytes(const void *a, const void *b)
{
    const family_line *x = a, *y = b;
    return x->once != y->once ? (x->once > y->once ? -1 : 1) : strcmp(x->text, y->text);
}

static lp_status group_names(world_view *v, lp_error *err)
{
    for (int64_t i = 0; i < lp_checkpoint_count(v->needs.catalogue); i++) {
        char key[520];
        if (v->cold.needed[i] == 0)
            continue;
        key[0] = v->cold.is_shared[i] ? 'S' : 'O';
        lp_family_template(lp_checkpoint_at(v->needs.catalogue, i)->name, key + 1, sizeof key - 1);
        const int64_t index = lp_strings_add(&v->families, key, strlen(key));
        void *items = v->line;
        if (index < 0 || !lp_grow(NULL, &items, &v->capacity, index + 1, sizeof *v->line))
            return lp_fail_memory(err);
        v->line = items;
        if (index == v->lines)
            v->line[v->lines++] = (family_line){.text = v->families.text[index]};
        v->line[index].names++;
        v->line[index].needed += v->cold.needed[i];
        v->line[index].once += v->cold.once[i];
    }
    if (v->lines > 0)
        qsort(v->line, (size_t)v->lines, sizeof *v->line, by_bytes);
    return LP_OK;
}

static void print_text(const world_view *v, int64_t top)
{
    FILE *out = v->cli->out;
    const lp_cold_costs *c = &v->cold.costs;
    char a[32], b[32], d[32], e[32];
    fprintf(out, "%s: %d ranks together\n", lp_cli_clean(v->cli->argument[0]), v->needs.ranks);
    fprintf(out, "  %-10s %s, %s of it once: read %s, %.3f of that\n", "cold start",
            lp_format_bytes(a, c->bytes_needed), lp_format_bytes(b, c->bytes_union), lp_format_bytes(d, c->bytes_read),
            c->bytes_union > 0 ? (double)c->bytes_read / (double)c->bytes_union : 1.0);
    fprintf(out, "  %-10s %s names by the ranks that need them, %s\n", "own",
            lp_format_count(a, c->names - c->names_shared), lp_format_bytes(b, c->bytes_own));
    fprintf(out, "  %-10s %s names read once and exchanged, %s; %s arrive\n", "shared",
            lp_format_count(a, c->names_shared), lp_format_bytes(b, c->bytes_shared),
            lp_format_bytes(d, c->bytes_exchanged));
    fprintf(out, "  %-10s %s to each rank, from %d sender%s\n", "packed", lp_format_bytes(a, v->sync.bytes_packed),
            v->sync.senders, v->sync.senders == 1 ? "" : "s");
    fprintf(out, "  %-10s %s to all ranks, %s at most to one; a sender gives %s to %s\n", "sliced",
            lp_format_bytes(a, v->sync.bytes_sliced), lp_format_bytes(b, v->sync.most_received),
            lp_format_bytes(d, v->sync.least_sent), lp_format_bytes(e, v->sync.most_sent));
    fprintf(out, "  %-58s %9s %11s %11s  %s\n", "family", "names", "needed", "once", "read");
    for (int64_t i = 0; i < v->lines && i < top; i++)
        fprintf(out, "  %-58s %9s %11s %11s  %s\n", lp_cli_clean(v->line[i].text + 1),
                lp_format_count(a, v->line[i].names), lp_format_bytes(b, v->line[i].needed),
                lp_format_bytes(d, v->line[i].once), v->line[i].text[0] == 'S' ? "shared" : "own");
    if (v->lines > top)
        fprintf(out, "  ... and %" PRId64 " more families\n", v->lines - top);
}

static bool print_json(const world_view *v)
{
    const lp_cold_costs *c = &v->cold.costs;
    const lp_world_costs *s = &v->sync;
    json_t *families = json_array();
    for (int64_t i = 0; i < v->lines; i++)
        json_array_append_new(families,
                              json_pack("{s:s, s:s, s:I, s:I, s:I}", "family", v->line[i].text + 1, "read",
                                        v->line[i].text[0] == 'S' ? "shared" : "own", "names",
                                        (json_int_t)v->line[i].names, "bytes_needed", (json_int_t)v->line[i].needed,
                                        "bytes_union", (json_int_t)v->line[i].once));
    json_t *cold = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "names", (json_int_t)c->names,
                             "names_shared", (json_int_t)c->names_shared, "bytes_needed", (json_int_t)c->bytes_needed,
                             "bytes_union", (json_int_t)c->bytes_union, "bytes_own", (json_int_t)c->bytes_own,
                             "bytes_shared", (json_int_t)c->bytes_shared, "bytes_read", (json_int_t)c->bytes_read,
                             "bytes_exchanged", (json_int_t)c->bytes_exchanged, "families", families);
    json_t *sync = json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "senders", s->senders, "receivers",
                             s->receivers, "bytes_needed", (json_int_t)s->bytes_needed, "bytes_sliced",
                             (json_int_t)s->bytes_sliced, "bytes_packed", (json_int_t)s->bytes_packed, "most_sent",
                             (json_int_t)s->most_sent, "least_sent", (json_int_t)s->least_sent, "most_received",
                             (json_int_t)s->most_received, "pieces", (json_int_t)s->pieces);
    return lp_cli_json(v->cli, json_pack("{s:i, s:s, s:s, s:o, s:o}", "format", 1, "command", "explain --world",
                                         "trace", lp_cli_clean(v->cli->argument[0]), "cold_start", cold, "sync", sync));
}

static lp_status look(world_view *v, const lp_cold_rates *rates, int64_t senders, lp_error *err)
{
    const char *trainer = lp_cli_text(v->cli, "trainer", NULL);
    const lp_platform *platform = lp_cli_platform(v->cli);
    LP_TRY(lp_trace_open_with(&v->trace, v->cli->argument[0], platform, err));
    if (trainer != NULL)
        LP_TRY(lp_trace_open_with(&v->trainer, trainer, platform, err));
    LP_TRY(lp_world_bytes_make(&v->needs, v->trace, false, platform, err));
    LP_TRY(lp_cold_world_make(&v->cold, &v->needs, -1, INT64_MAX / 4, rates, err));
    LP_TRY(lp_explain_sync(&v->sync, v->trace, v->trainer, (int32_t)senders, platform, err));
    return group_names(v, err);
}

int lp_cli_explain_world(lp_cli *cli)
{
    world_view v = {.cli = cli};
    lp_cli_rates r;
    int64_t senders = 1, top = 10;
    lp_error err;
    lp_cli_rates_default(&r);
    int exit_code = lp_cli_rates_read(&r, cli);
    if (exit_code != 0)
        return exit_code;
    if (!lp_cli_integer(cli, "senders", 1, 1, 1 << 20, &senders) || !lp_cli_integer(cli, "top", 10, 1, INT64_MAX, &top))
        return LP_EXIT_USAGE;
    const bool is_json = strcmp(lp_cli_text(cli, "format", "text"), "json") == 0;
    const char *path = lp_cli_text(cli, "output", NULL);
    exit_code = path == NULL ? 0 : lp_cli_open_output(cli, path, lp_cli_flag(cli, "force", false));
    if (exit_code != 0)
        return exit_code;
    lp_strings_init(&v.families, NULL);
    const lp_cold_rates rates = {.storage = r.disk, .link = r.link, .message_ns = 20000};
    if (look(&v, &rates, senders, &err) != LP_OK)
        exit_code = lp_cli_fail(cli, &err);
    else if (is_json)
        exit_code = print_json(&v) ? 0 : LP_EXIT_ENVIRONMENT;
    else
        print_text(&v, top);
    lp_strings_free(&v.families);
    lp_release(NULL, v.line);
    lp_cold_world_free(&v.cold);
    lp_world_bytes_free(&v.needs);
    lp_trace_close(v.trainer);
    lp_trace_close(v.trace);
    return exit_code != 0 ? exit_code : lp_cli_close_output(cli);
}
