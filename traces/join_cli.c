/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan join`: one trace of all ranks from traces of single ones. */
#include "traces/base.h"
#include "traces/trace_commands.h"

#include <inttypes.h>

static int save(lp_cli *cli, const lp_trace *t, const char *output)
{
    lp_error err;
    char names[32];
    const int32_t ranks = lp_trace_scope_count(t), world = lp_scope_world(&lp_trace_header_of(t)->layout);
    if (lp_trace_save(t, output, lp_cli_flag(cli, "force", false), &err) != LP_OK)
        return lp_cli_fail(cli, &err);
    lp_cli_summary(cli, "%s: %" PRId32 " of %" PRId32 " %s, %s names", lp_cli_clean(output), ranks, world,
                   world == 1 ? "rank" : "ranks", lp_format_count(names, lp_checkpoint_count(lp_trace_checkpoint(t))));
    return LP_EXIT_DONE;
}

static int run_join(lp_cli *cli)
{
    const lp_platform *platform = lp_cli_platform(cli);
    const char *output = lp_cli_text(cli, "output", NULL);
    const int count = cli->argument_count;
    lp_error err;
    lp_trace *joined = NULL;
    int32_t culprit = -1;
    int exit_code = 0;
    if (output == NULL)
        return lp_cli_usage(cli, "a trace is a binary file: name it with -o FILE");
    lp_trace **part = lp_allocate_zero(platform->alloc, (size_t)count * sizeof(lp_trace *));
    if (part == NULL) {
        (void)lp_fail_memory(&err);
        return lp_cli_fail(cli, &err);
    }
    for (int i = 0; i < count && exit_code == 0; i++)
        if (lp_trace_open_with(&part[i], cli->argument[i], platform, &err) != LP_OK)
            exit_code = lp_cli_fail(cli, &err);
    if (exit_code == 0) {
        if (lp_trace_join(&joined, (const lp_trace *const *)part, count, &culprit, platform, &err) == LP_OK)
            exit_code = save(cli, joined, output);
        else
            exit_code = culprit >= 0 ? lp_cli_fail_about(cli, cli->argument[culprit], &err) : lp_cli_fail(cli, &err);
    }
    lp_trace_close(joined);
    for (int i = 0; i < count; i++)
        lp_trace_close(part[i]);
    lp_release(platform->alloc, part);
    return exit_code;
}

static const lp_option join_options[] = {
    {"output", 'o', "FILE", NULL, "the trace to write"},
    {"force", 'f', NULL, NULL, "replace an existing trace"},
};

const lp_command lp_join_command = {
    .name = "join",
    .arguments = "TRACE... -o TRACE",
    .summary = "make one trace of several that hold other ranks",
    .details =
        "For loaders that are recorded in one process a rank. The traces must come from the same loader, "
        "configuration, layout and checkpoint, and each rank may be in one of them only; else nothing is written "
        "and the exit code is 3, or 5 where the checkpoint differs. Every rank keeps its plan digest, and the set "
        "digest is that of one recording of all ranks.\n\n"
        "Example:  loadplan join rank-*.lpt -o all.lpt",
    .options = join_options,
    .option_count = sizeof join_options / sizeof join_options[0],
    .least = 1,
    .most = -1,
    .run = run_join,
};
