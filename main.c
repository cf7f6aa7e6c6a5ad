/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The front door: joins the rooms' command tables, finds the verb, and answers help, completion and version from the
 * same tables. Everything a verb does lives in its room.
 */
#include "traces/base.h"
#include "traces/bench_cli.h"
#include "traces/cli_private.h"

#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <zstd.h>

enum { COMMANDS_MAX = 64 };

static const lp_command *all[COMMANDS_MAX];
static int all_count;

static int run_help(lp_cli *cli);
static int run_completion(lp_cli *cli);

static const lp_option completion_options[] = {
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},
    {"force", 'f', NULL, NULL, "replace an existing output"},
};

static const lp_option help_options[] = {
    {"format", 0, "FORMAT", "text|scdoc|names", "text (default), the manual page for scdoc, or the names of commands"},
};

static const lp_command own_commands[] = {
    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .summary = "print a shell completion script",
     .details = "For bash:  loadplan completion bash > /etc/bash_completion.d/loadplan",
     .options = completion_options,
     .option_count = 2,
     .least = 1,
     .most = 1,
     .run = run_completion},
    {.name = "help",
     .arguments = "[COMMAND]",
     .summary = "explain a command, or list them",
     .details = "",
     .options = help_options,
     .option_count = 1,
     .least = 0,
     .most = 1,
     .run = run_help},
};

/* In the order of the report. */
static const lp_bench_table *const benches[] = {&lp_recorder_benches, &lp_trace_benches, &lp_replayer_benches,
                                                &lp_kernel_benches};

static void add(const lp_command *command)
{
    if (all_count == COMMANDS_MAX)
        abort();
    all[all_count++] = command;
}

static void join(const lp_command *commands, int count)
{
    for (int i = 0; i < count; i++)
        add(&commands[i]);
}

static int by_name(const void *a, const void *b)
{
    const lp_command *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static const lp_command *find(const char *name)
{
    for (int i = 0; i < all_count; i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

static const char *name_at(int index)
{
    return all[index]->name;
}

static int unknown_command(lp_cli *cli, const char *word)
{
    const char *near = lp_cli_nearest(word, name_at, all_count);
    if (near != NULL)
        return lp_cli_usage(cli, "unknown command '%s'; did you mean '%s'?", lp_cli_clean(word), near);
    return lp_cli_usage(cli, "unknown command '%s'", lp_cli_clean(word));
}

static void print_overview(FILE *out)
{
    fputs("usage: loadplan COMMAND [options] ARGUMENTS\n\n"
          "Records what a weight loader does as a trace, proves and compares traces, and replays them.\n\ncommands:\n",
          out);
    for (int i = 0; i < all_count; i++)
        fprintf(out, "  %-12s %s\n", all[i]->name, all[i]->summary);
    fputs("\nloadplan help COMMAND explains one of them.\n"
          "exit codes: 0 done, 1 the answer is no, 2 usage, 3 bad data, 4 environment, 5 stale trace, 70 internal "
          "error\n",
          out);
}

static int run_help(lp_cli *cli)
{
    const char *format = lp_cli_text(cli, "format", "text");
    const lp_command *command = NULL;
    if (cli->argument_count > 0 && (command = find(cli->argument[0])) == NULL)
        return unknown_command(cli, cli->argument[0]);
    if (strcmp(format, "scdoc") == 0)
        lp_cli_print_man(cli->out, command, all, all_count);
    else if (strcmp(format, "names") == 0)
        for (int i = 0; i < all_count; i++)
            fprintf(cli->out, "%s\n", all[i]->name);
    else if (command == NULL)
        print_overview(cli->out);
    else
        lp_cli_print_help(cli->out, command, false);
    return lp_cli_close_output(cli);
}

static int run_completion(lp_cli *cli)
{
    const char *shell = cli->argument[0];
    if (strcmp(shell, "bash") != 0 && strcmp(shell, "zsh") != 0 && strcmp(shell, "fish") != 0)
        return lp_cli_usage(cli, "completion knows bash, zsh and fish, not '%s'", lp_cli_clean(shell));
    const char *path = lp_cli_text(cli, "output", NULL);
    if (path != NULL) {
        const int exit_code = lp_cli_open_output(cli, path, lp_cli_flag(cli, "force", false));
        if (exit_code != 0)
            return exit_code;
    }
    lp_cli_print_completion(cli->out, shell, all, all_count);
    return lp_cli_close_output(cli);
}

static int print_version(lp_cli *cli)
{
    if (cli->quiet > 0)
        printf("%s\n", lp_version());
    else
        printf("loadplan %s (SQLite %s, zstd %s, trace format 1)\n", lp_version(), sqlite3_libversion(),
               ZSTD_versionString());
    return lp_cli_close_output(cli);
}

static int run(lp_cli *cli, int argc, char **argv)
{
    lp_cli_state *state = cli->state;
    int verb;
    int exit_code = lp_cli_parse_global(cli, argc, argv, &verb);
    lp_cli_settle(cli);
    if (exit_code != 0)
        return exit_code;
    if (state->version)
        return print_version(cli);
    if (verb >= argc) {
        if (state->help) {
            print_overview(stdout);
            return lp_cli_close_output(cli);
        }
        return lp_cli_usage(cli, "no command given");
    }
    const lp_command *command = find(argv[verb]);
    if (command == NULL)
        return unknown_command(cli, argv[verb]);
    cli->command = command;
    exit_code = lp_cli_parse(cli, argc - verb, argv + verb);
    lp_cli_settle(cli);
    if (exit_code != 0)
        return exit_code;
    if (state->version)
        return print_version(cli);
    if (state->help) {
        lp_cli_print_help(stdout, command, state->is_brief);
        return lp_cli_close_output(cli);
    }
    exit_code = command->run(cli);
    if (exit_code == LP_EXIT_DONE || exit_code == LP_EXIT_NO)
        lp_cli_warn_unasked(cli);
    return exit_code;
}

/* The next file that is opened would get the number of a stream that the caller closed, and with it all that is printed
 * there. These are open the wrong way round, so that using them fails as it would have. */
static void open_closed_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int main(int argc, char **argv)
{
    open_closed_streams();
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is a failed write, cleaned up and told like a full disk */
    for (int i = 0; i < lp_trace_command_count; i++)
        add(lp_trace_commands[i]);
    join(lp_layout_commands, lp_layout_command_count);
    join(lp_recorder_commands, lp_recorder_command_count);
    join(lp_replayer_commands, lp_replayer_command_count);
    join(lp_sync_commands, lp_sync_command_count);
    add(&lp_bench_command);
    lp_bench_join(benches, sizeof benches / sizeof benches[0]);
    join(own_commands, sizeof own_commands / sizeof own_commands[0]);
    qsort(all, (size_t)all_count, sizeof all[0], by_name);

    lp_cli_state state = {.progress = -1, .log_level = LP_LOG_WARNING};
    lp_cli cli = {.out = stdout, .state = &state};
    const int exit_code = run(&cli, argc, argv);
    lp_cli_progress_end(&cli);
    lp_cli_abandon_output(&cli);
    lp_cli_forget(&cli);
    return exit_code;
}
