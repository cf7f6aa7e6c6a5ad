/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan record`: a trace from a checkpoint's headers and a built-in loader. */
#include "recorder/recorder.h"
#include "traces/base.h"
#include "traces/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { CONFIG_BYTES_MAX = 16 << 20, RANKS_MAX = 65536 };

/* What the options say, and what is opened for them. */
typedef struct recording {
    lp_loader_options options;
    lp_checkpoint *checkpoint;
    lp_trace *base;
    lp_trace *trace;
    char *config;
    int32_t *ranks;
    const char *output;
} recording;

/* ---- options ---- */

static bool read_size(lp_cli *cli, const char *name, int32_t *size)
{
    int64_t value;
    if (!lp_cli_integer(cli, name, 1, 1, RANKS_MAX, &value))
        return false;
    *size = (int32_t)value;
    return true;
}

/* --ep N asks for expert parallelism over all N = dp x tp ranks; dp follows where it is not given. 0 or an exit code.
 */
static int read_layout(lp_cli *cli, lp_scope *at)
{
    int32_t ep;
    if (!read_size(cli, "tp", &at->tp) || !read_size(cli, "dp", &at->dp) || !read_size(cli, "ep", &ep))
        return LP_EXIT_USAGE;
    at->pp = 1;
    at->expert_parallel = lp_cli_text(cli, "ep", NULL) != NULL;
    if (at->expert_parallel && lp_cli_text(cli, "dp", NULL) == NULL) {
        if (ep % at->tp != 0)
            return lp_cli_usage(cli, "--ep %d is not a multiple of --tp %d", ep, at->tp);
        at->dp = ep / at->tp;
    }
    if (at->expert_parallel && (int64_t)at->dp * at->tp != ep)
        return lp_cli_usage(cli, "--ep %d is not --dp %d times --tp %d", ep, at->dp, at->tp);
    if ((int64_t)at->dp * at->tp > RANKS_MAX)
        return lp_cli_usage(cli, "--dp %d times --tp %d is more than %d ranks", at->dp, at->tp, RANKS_MAX);
    return 0;
}

static lp_rest read_rest(const lp_cli *cli)
{
    const char *text = lp_cli_text(cli, "rest", "error");
    return strcmp(text, "copy") == 0 ? LP_REST_COPY : strcmp(text, "decline") == 0 ? LP_REST_DECLINE : LP_REST_ERROR;
}

static void show_progress(void *context, int64_t done, int64_t total)
{
    lp_cli_progress(context, "record", done, total, false);
}

static int read_options(lp_cli *cli, recording *r)
{
    lp_loader_options *o = &r->options;
    int64_t slots;
    if (lp_cli_text(cli, "checkpoint", NULL) == NULL)
        return lp_cli_usage(cli, "record needs --checkpoint");
    r->output = lp_cli_text(cli, "output", NULL);
    if (r->output == NULL)
        return lp_cli_usage(cli, "record needs -o FILE");
    const int code = read_layout(cli, &o->layout);
    if (code != 0)
        return code;
    if (!lp_cli_integer(cli, "slots", 0, 1, INT32_MAX, &slots) ||
        !lp_cli_ranks(cli, "rank", "all", lp_scope_world(&o->layout), &r->ranks, &o->rank_count))
        return LP_EXIT_USAGE;
    o->slots = (int32_t)slots;
    o->ranks = r->ranks;
    o->loader = lp_cli_text(cli, "loader", "auto");
    o->rest = read_rest(cli);
    o->target = lp_cli_text(cli, "target", NULL);
    o->progress = show_progress;
    o->progress_context = cli;
    o->platform = lp_cli_platform(cli);
    return 0;
}

/* ---- recording ---- */

static lp_status open_inputs(lp_cli *cli, recording *r, lp_error *err)
{
    const lp_platform *platform = lp_cli_platform(cli);
    const char *path = lp_cli_text(cli, "checkpoint", NULL), *config = lp_cli_text(cli, "config", NULL);
    LP_TRY(lp_checkpoint_open_with(&r->checkpoint, path, platform, err));
    /* What has neither a folder nor a bundle's config.json is a trace, which says what its model's configuration was.
     */
    if (lp_checkpoint_folder(r->checkpoint)[0] == '\0' && lp_checkpoint_config(r->checkpoint) == NULL)
        LP_TRY(lp_trace_open_with(&r->base, path, platform, err));
    r->options.base = r->base;
    if (config != NULL)
        LP_TRY(lp_read_file(platform, config, CONFIG_BYTES_MAX, &r->config, &r->options.config_bytes, err));
    r->options.config = r->config;
    return LP_OK;
}

typedef struct totals {
    int64_t copies, casts, fills, derives, refusals;
} totals;

static lp_status count_rows(const lp_trace *t, totals *out, lp_error *err)
{
    for (int32_t s = 0; s < lp_trace_scope_count(t); s++) {
        const lp_rows *rows;
        LP_TRY(lp_trace_rows(t, s, &rows, err));
        for (uint32_t i = 0; i < rows->nrecord; i++) {
            const lp_kind kind = (lp_kind)rows->record[i].kind;
            *(kind == LP_KIND_CAST ? &out->casts : kind == LP_KIND_FILL ? &out->fills : &out->copies) += 1;
        }
        out->derives += rows->nderive;
        out->refusals += rows->nrefusal;
    }
    return LP_OK;
}

/* ", 12 casts", or nothing. */
static const char *optional_count(char *buffer, size_t bytes, int64_t count, const char *what)
{
    char number[32];
    buffer[0] = '\0';
    if (count > 0)
        snprintf(buffer, bytes, ", %s %s%s", lp_format_count(number, count), what, count == 1 ? "" : "s");
    return buffer;
}

static lp_status summarise(lp_cli *cli, const recording *r, lp_error *err)
{
    totals n = {0};
    uint8_t digest[32];
    char hex[65], names[32], copies[32], derives[32], refusals[32], size[32], casts[64], fills[64];
    LP_TRY(count_rows(r->trace, &n, err));
    LP_TRY(lp_trace_set_digest(r->trace, digest, err));
    lp_format_hex(hex, digest, sizeof digest);
    struct stat st;
    const bool known = stat(r->output, &st) == 0;
    lp_cli_summary(
        cli, "%s: %d rank%s, %s names, %s copies%s%s, %s derives, %s refusals; %s; set digest lp1:%s",
        lp_cli_clean(r->output), lp_trace_scope_count(r->trace), lp_trace_scope_count(r->trace) == 1 ? "" : "s",
        lp_format_count(names, lp_checkpoint_count(r->checkpoint)), lp_format_count(copies, n.copies),
        optional_count(casts, sizeof casts, n.casts, "cast"), optional_count(fills, sizeof fills, n.fills, "fill"),
        lp_format_count(derives, n.derives), lp_format_count(refusals, n.refusals),
        known ? lp_format_bytes(size, st.st_size) : "size unknown", hex);
    return LP_OK;
}

static lp_status record_and_save(lp_cli *cli, recording *r, lp_error *err)
{
    LP_TRY(open_inputs(cli, r, err));
    LP_TRY(lp_load_checkpoint(&r->trace, r->checkpoint, &r->options, err));
    lp_cli_progress_end(cli);
    LP_TRY(lp_trace_save(r->trace, r->output, lp_cli_flag(cli, "force", false), err));
    return summarise(cli, r, err);
}

static int run_record(lp_cli *cli)
{
    recording r = {0};
    lp_error err = {0};
    int code = read_options(cli, &r);
    if (code == 0 && record_and_save(cli, &r, &err) != LP_OK)
        code = lp_cli_fail(cli, &err);
    lp_trace_close(r.trace);
    lp_trace_close(r.base);
    lp_checkpoint_close(r.checkpoint);
    lp_release(NULL, r.config);
    free(r.ranks);
    return code;
}

static const lp_option record_options[] = {
    {"checkpoint", 0, "PATH", NULL, "safetensors file, index, folder, or an old trace (its catalogue)"},
    {"loader", 0, "NAME", "auto|bert|dense|falcon|gpt2|mamba|megamoe|megamoe-sm90|moe|neox",
     "built-in loader; auto chooses by config.json"},
    {"config", 0, "FILE", NULL, "the model's config.json; default: the one beside the checkpoint"},
    {"tp", 0, "N", NULL, "tensor-parallel ranks (1)"},
    {"dp", 0, "N", NULL, "data-parallel ranks (1, or what --ep needs)"},
    {"ep", 0, "N", NULL, "split experts over all N = dp x tp ranks; default: split each by tp"},
    {"rank", 0, "LIST", NULL, "global ranks to record: 3, 0-7, 0,2,5 or all (all)"},
    {"rest", 0, "WHAT", "error|copy|decline", "names that no rule takes (error)"},
    {"slots", 0, "N", NULL, "expert slots on a rank (experts / N of --ep)"},
    {"target", 0, "ARCH", NULL, "what the layouts are meant for, such as sm90; part of the structure key"},
    {"output", 'o', "FILE", NULL, "the trace to write"},
    {"force", 'f', NULL, NULL, "replace an existing trace"},
};

const lp_command lp_recorder_commands[] = {
    {.name = "record",
     .arguments = "--checkpoint PATH -o TRACE",
     .summary = "record what a loader does with a checkpoint",
     .details =
         "Reads the headers of a checkpoint, no payload, and writes a trace: which bytes of each tensor go where,\n"
         "on every rank. The last line says what is in it; `loadplan check` judges it.\n\n"
         "  loadplan record --checkpoint ./ckpt --loader megamoe --ep 8 -o v4.lpt\n\n"
         "Exit codes: 0 recorded; 2 wrong options; 3 the checkpoint is bad, or no rule takes one of its names;\n"
         "4 a file cannot be read or written.",
     .options = record_options,
     .option_count = sizeof record_options / sizeof *record_options,
     .least = 0,
     .most = 0,
     .run = run_record},
};
const int lp_recorder_command_count = sizeof lp_recorder_commands / sizeof *lp_recorder_commands;
