/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan dump`, `undump` and `query`: a trace as text, back again, and under SQL. */
#include "traces/dump_filter.h"
#include "traces/query_print.h"
#include "traces/trace_commands.h"
#include "traces/trace_undump.h"
#include "traces/trace_dump.h"

#include <inttypes.h>
#include <limits.h>

enum { QUERY_STEPS = 2000000 }; /* thousands of instructions */

/* Opens the output of -o where it is given. 0, or an exit code. */
static int open_output(lp_cli *cli)
{
    const char *path = lp_cli_text(cli, "output", NULL);
    return path == NULL ? 0 : lp_cli_open_output(cli, path, lp_cli_flag(cli, "force", false));
}

/* A failed write has ended the printing, and is told as what it is where the output is closed. */
static int end_output(lp_cli *cli, lp_status status, const lp_error *err)
{
    return status == LP_OK || ferror(cli->out) ? lp_cli_close_output(cli) : lp_cli_fail(cli, err);
}

/* ---- dump ---- */

static int write_chunk(void *context, const char *text, size_t bytes)
{
    const lp_cli *cli = context;
    return fwrite(text, 1, bytes, cli->out) == bytes ? 0 : 1;
}

static int run_dump(lp_cli *cli)
{
    lp_error err;
    lp_trace *t = NULL;
    if (lp_trace_open_with(&t, cli->argument[0], lp_cli_platform(cli), &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    const bool provenance = lp_cli_flag(cli, "provenance", true);
    const char *ops = lp_cli_text(cli, "ops", NULL);
    lp_number_set rows = {.alloc = NULL};
    lp_dump_filter filter = {.tensor = lp_cli_text(cli, "tensor", NULL), .write = write_chunk, .context = cli};
    const bool is_part = filter.tensor != NULL || ops != NULL;
    int exit_code = 0;
    lp_text_init(&filter.line, NULL);
    filter.rows = ops != NULL ? &rows : NULL;
    if (ops != NULL && lp_number_set_parse(&rows, ops, NULL, &err) != LP_OK)
        exit_code = lp_cli_fail(cli, &err);
    if (exit_code == 0)
        exit_code = open_output(cli);
    if (exit_code == 0)
        exit_code = end_output(cli,
                               lp_trace_dump_with(t, provenance, is_part ? lp_dump_filter_write : write_chunk,
                                                  is_part ? (void *)&filter : cli, &err),
                               &err);
    lp_text_free(&filter.line);
    lp_number_set_free(&rows);
    lp_trace_close(t);
    return exit_code;
}

static const lp_option dump_options[] = {
    {"tensor", 0, "GLOB", NULL, "only rows of tensors whose name matches, checkpoint's or engine's; for reading"},
    {"ops", 0, "SET", NULL, "only these rows of each rank, counted from 0: 4, 0-100/2, 3,7-9 or @FILE; for reading"},
    {"provenance", 0, NULL, NULL, "say which line of the loader made each row (default; --no-provenance: leave out)"},
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

const lp_command lp_dump_command = {
    .name = "dump",
    .arguments = "TRACE",
    .summary = "print a trace as text, one row a line",
    .details = "The text holds everything that the trace holds; 'loadplan undump' makes the trace again, with the same "
               "digests. Rows are sorted, so that the texts of two traces differ where the traces do.\n\n"
               "To see changes of traces in git:\n"
               "  echo '*.lpt diff=loadplan' >> .gitattributes\n"
               "  git config diff.loadplan.textconv 'loadplan dump --no-provenance'\n\n"
               "Example:  loadplan dump v4.lpt -o v4.lpt.txt",
    .options = dump_options,
    .option_count = sizeof dump_options / sizeof dump_options[0],
    .least = 1,
    .most = 1,
    .run = run_dump,
};

/* ---- undump ---- */

static int run_undump(lp_cli *cli)
{
    static const int64_t limit = INT64_C(1) << 34;
    const lp_platform *platform = lp_cli_platform(cli);
    const char *path = cli->argument[0], *output = lp_cli_text(cli, "output", NULL);
    lp_error err;
    lp_trace *t = NULL;
    char *text = NULL;
    int64_t bytes = 0;
    if (output == NULL)
        return lp_cli_usage(cli, "a trace is a binary file: name it with -o FILE");
    if (lp_read_judged(platform, path, limit, lp_undump_judge, &text, &bytes, &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    int exit_code = LP_EXIT_DONE;
    if (lp_trace_undump(&t, text, (size_t)bytes, platform, &err) != LP_OK) {
        exit_code = lp_cli_fail_about(cli, path, &err); /* the library sees only the text */
    } else if (lp_trace_save(t, output, lp_cli_flag(cli, "force", false), &err) != LP_OK) {
        exit_code = lp_cli_fail(cli, &err);
    } else {
        char names[32];
        lp_cli_summary(cli, "%s: %" PRId32 " %s, %s names", lp_cli_clean(output), lp_trace_scope_count(t),
                       lp_trace_scope_count(t) == 1 ? "rank" : "ranks",
                       lp_format_count(names, lp_checkpoint_count(lp_trace_checkpoint(t))));
    }
    lp_trace_close(t);
    lp_release(platform->alloc, text);
    return exit_code;
}

static const lp_option undump_options[] = {
    {"output", 'o', "FILE", NULL, "the trace to write"},
    {"force", 'f', NULL, NULL, "replace an existing trace"},
};

const lp_command lp_undump_command = {
    .name = "undump",
    .arguments = "TEXT -o TRACE",
    .summary = "make a trace from the text that dump printed",
    .details = "Every digest is computed anew from the lines, so an edited text is a legal trace with other digests. "
               "A text that says something illegal is refused with exit code 3 and the number of the line.\n\n"
               "A trace of an older format version is brought to the newest by dump and undump.\n\n"
               "Example:  loadplan undump v4.lpt.txt -o v4.lpt",
    .options = undump_options,
    .option_count = sizeof undump_options / sizeof undump_options[0],
    .least = 1,
    .most = 1,
    .run = run_undump,
};

/* ---- query ---- */

static int run_query(lp_cli *cli)
{
    lp_error err;
    lp_trace *t = NULL;
    const char *format = lp_cli_text(cli, "format", "text");
    if (lp_trace_open_with(&t, cli->argument[0], lp_cli_platform(cli), &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    int exit_code = open_output(cli);
    if (exit_code == 0) {
        lp_row_printer printer = {.out = cli->out,
                                  .format = strcmp(format, "json") == 0  ? LP_PRINT_JSON
                                            : strcmp(format, "tsv") == 0 ? LP_PRINT_TSV
                                                                         : LP_PRINT_TEXT};
        lp_status status = lp_trace_query_with(t, cli->argument[1], QUERY_STEPS, lp_print_row, &printer, &err);
        if (!lp_print_end(&printer) && status == LP_OK)
            status = lp_fail_memory(&err);
        exit_code = end_output(cli, status, &err);
    }
    lp_trace_close(t);
    return exit_code;
}

static const lp_option query_options[] = {
    {"format", 0, "FORMAT", "text|json|tsv", "how to print (default text)"},
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

const lp_command lp_query_command = {
    .name = "query",
    .arguments = "TRACE SQL",
    .summary = "run a SELECT over the rows of a trace",
    .details =
        "Tables: v_names, v_scopes, v_destinations, v_records, v_derives, v_refusals; loadplan-format(5) lists their "
        "columns, which are stable. 'rank = N' reads one rank only. Nothing can be changed, and no other file "
        "is read.\n\n"
        "JSON is {\"format\":1,\"columns\":[...],\"rows\":[[...],...]}.\n\n"
        "Example:  loadplan query v4.lpt \"SELECT kind, count(*), sum(bytes) FROM v_records WHERE rank = 3 GROUP BY "
        "kind\"",
    .options = query_options,
    .option_count = sizeof query_options / sizeof query_options[0],
    .least = 2,
    .most = 2,
    .run = run_query,
};
