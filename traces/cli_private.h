/* SPDX-License-Identifier: Apache-2.0 */
/* The command-line machinery that only main.c and the cli_*.c files share. */
#ifndef LOADPLAN_CLI_PRIVATE_H
#define LOADPLAN_CLI_PRIVATE_H

#include "traces/cli.h"

enum { LP_CLI_OPTIONS_MAX = 48 };

typedef struct lp_cli_state {
    const char *value[LP_CLI_OPTIONS_MAX]; /* by place in the command's table; flags hold "1" or "0"; NULL: not given */
    bool asked[LP_CLI_OPTIONS_MAX];        /* the command has looked at it */
    char *list[LP_CLI_OPTIONS_MAX];        /* what a list that was given several times adds up to, else NULL */
    int log_level;
    int progress; /* 1 asked for, 0 forbidden, -1 automatic */
    bool color_always, color_never;
    bool help, version;
    bool is_brief; /* the help is that of -h */
    lp_platform platform;
    FILE *file; /* of -o */
    char *path, *partial;
    int64_t started_ns, drawn_ns; /* of the progress line */
    bool drawn;
} lp_cli_state;

/* Options that every command takes, before or after the verb. */
extern const lp_option lp_cli_global_options[];
extern const int lp_cli_global_option_count;

/* Takes global options from argv[1..] up to the verb; *verb is its index, or argc. Returns 0 or an exit code. */
int lp_cli_parse_global(lp_cli *cli, int argc, char **argv, int *verb);

/* Parses argv[1..] (argv[0] is the verb) by the command's table. Returns 0 or an exit code. */
int lp_cli_parse(lp_cli *cli, int argc, char **argv);

/* Warns of options that were given and that the command, now done, never looked at. */
void lp_cli_warn_unasked(lp_cli *cli);

/* Frees what the parser allocated. */
void lp_cli_forget(lp_cli *cli);

/* Decides on colours once all options are known. */
void lp_cli_settle(lp_cli *cli);

/* The closest of `count` names to `word`, or NULL when none is near. */
const char *lp_cli_nearest(const char *word, const char *(*name_at)(int index), int count);

/* Removes the half-written file of a command that failed; nothing when there is none. */
void lp_cli_abandon_output(lp_cli *cli);

/* Brief: usage and the command's own options only. */
void lp_cli_print_help(FILE *out, const lp_command *command, bool is_brief);
/* The manual page of a command (NULL: of the program) for scdoc. */
void lp_cli_print_man(FILE *out, const lp_command *command, const lp_command *const *commands, int count);
void lp_cli_print_completion(FILE *out, const char *shell, const lp_command *const *commands, int count);

#endif
