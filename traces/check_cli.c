/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan check`: is the plan complete, free of conflicts, and what did the loader do that a plan cannot. */
#include "traces/base.h"
#include "traces/findings_cli.h"
#include "traces/trace_commands.h"

static int run_check(lp_cli *cli)
{
    const char *path = cli->argument[0], *other = lp_cli_text(cli, "checkpoint", NULL);
    lp_trace *t = NULL;
    lp_checkpoint *checkpoint = NULL;
    lp_findings *f = NULL;
    lp_error err;
    lp_text title;
    findings_run run;
    lp_text_init(&title, NULL);
    int code = findings_open(&run, cli);
    if (code != 0)
        goto close_all;
    if (lp_trace_open_with(&t, path, lp_cli_platform(cli), &err) != LP_OK ||
        (other != NULL && lp_checkpoint_open_with(&checkpoint, other, lp_cli_platform(cli), &err) != LP_OK) ||
        lp_check_only(&f, t, checkpoint, &run.choice, &err) != LP_OK) {
        code = lp_cli_fail(cli, &err);
        goto close_all;
    }
    lp_text_format(&title, "%s: ", lp_cli_clean(path));
    code = findings_report(&run, f, title.failed ? "" : title.data, NULL, path);

close_all:
    findings_close(&run);
    lp_text_free(&title);
    lp_checkpoint_close(checkpoint);
    lp_trace_close(t);
    return code;
}

static const lp_option options[] = {
    {"checkpoint", 0, "PATH", NULL, "also compare the names that the trace reads with this checkpoint"},
    FINDINGS_OPTIONS,
};

const lp_command lp_check_command = {
    .name = "check",
    .arguments = "TRACE",
    .summary = "prove that every destination byte is written exactly once, in any order",
    .details =
        "Proves for every rank that the logical bytes of every destination have exactly one writer, that\n"
        "derives can run and run again, and lists what the loader did that a plan cannot repeat. The\n"
        "first line is the verdict; then one paragraph a family, worst first, with a witness: tensor,\n"
        "bytes, loader file and line. Under -v also what is allowed.\n\n"
        "Levels come from --rule, else from 'rule.ID = LEVEL' lines of the settings. A finding whose tensors\n"
        "are all matched by lines of the suppression file is accepted; --format=suppress prints such lines.\n\n"
        "Rules that deny: dest_uncovered, dest_overlap, dest_alias, derive_cycle, derive_not_idempotent,\n"
        "name_not_in_checkpoint, shape_mismatch, undecided; rules that warn: non_view_op, order_dependent,\n"
        "implicit_cast, checkpoint_name_unused, checkpoint_bytes_unused, materialises. docs/check.md explains each.\n\n"
        "Exit code 1: a finding at or above --fail-on. 3: TRACE is not a sound trace.\n\n"
        "Example:  loadplan check v4.lpt --rule order_dependent=deny,materialises=allow",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
    .least = 1,
    .most = 1,
    .run = run_check,
};
