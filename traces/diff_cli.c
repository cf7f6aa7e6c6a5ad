/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan diff`: what changed in meaning from one trace to another. */
#include "traces/base.h"
#include "traces/findings_cli.h"
#include "traces/trace_commands.h"

static int run_diff(lp_cli *cli)
{
    const char *against = lp_cli_text(cli, "against", NULL);
    lp_trace *base = NULL, *changed = NULL;
    lp_findings *f = NULL;
    lp_error err;
    findings_run run;
    if ((against != NULL) == (cli->argument_count == 2))
        return lp_cli_usage(cli, against != NULL ? "diff takes one trace beside --against"
                                                 : "diff wants two traces, BASE and NEW");
    const char *old_path = against != NULL ? against : cli->argument[0];
    const char *new_path = cli->argument[cli->argument_count - 1];
    int code = findings_open(&run, cli);
    if (code != 0)
        goto close_all;
    if (lp_trace_open_with(&base, old_path, lp_cli_platform(cli), &err) != LP_OK ||
        lp_trace_open_with(&changed, new_path, lp_cli_platform(cli), &err) != LP_OK ||
        lp_diff_only(&f, base, changed, &run.choice, &err) != LP_OK)
        code = lp_cli_fail(cli, &err);
    else
        code = findings_report(&run, f, "", old_path, new_path);

close_all:
    findings_close(&run);
    lp_trace_close(base);
    lp_trace_close(changed);
    return code;
}

static const lp_option options[] = {
    {"against", 0, "BASE", NULL, "the base, instead of a first argument"},
    FINDINGS_OPTIONS,
};

const lp_command lp_diff_command = {
    .name = "diff",
    .arguments = "BASE NEW",
    .summary = "tell what changed in meaning between two traces",
    .details = "Compares what two traces do, not how they are stored: other source bytes in the same place, a\n"
               "cast in place of a copy, other post-load processing, destinations that moved, names that became\n"
               "fallbacks. The first line sums up; then one paragraph a family, worst first. Levels are those of\n"
               "NEW: --rule, else the settings file of the repository, which is that of NEW in a pull request.\n"
               "Traces whose plan digests are equal are equal. Under -v also what is allowed, such as\n"
               "renamed families.\n\n"
               "Rules that deny: copy_became_refusal, new_refusal, map_changed, kind_changed, derive_changed,\n"
               "dest_type_changed, layout_changed, dest_moved, dest_vanished, new_order_dependence; rules that warn:\n"
               "dest_added, more_bytes_read, more_bytes_staged; allowed: fill_added, family_renamed,\n"
               "refusal_became_copy. docs/diff.md explains each.\n\n"
               "Exit code 1: a finding at or above --fail-on. 3: a file is not a sound trace.\n\n"
               "Example:  loadplan diff main.lpt pr.lpt --format=json",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .least = 1,
    .most = 2,
    .run = run_diff,
};
