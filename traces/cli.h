/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands of every room share: options, output, errors, progress. Part of the program, not of the library.
 *
 * A command is one row of a table: name, options, help and a function. The front door (main.c) parses by the row, so
 * the parser, `help VERB` and shell completion cannot disagree. Commands print data to cli->out and everything else
 * through the functions below, to stderr.
 */
#ifndef LOADPLAN_CLI_H
#define LOADPLAN_CLI_H

#include "traces/trace.h"

#include <jansson.h>
#include <stdio.h>

/* Exit codes; their meaning never depends on a flag. */
enum {
    LP_EXIT_DONE = 0,
    LP_EXIT_NO = 1, /* the question was answered "no": a finding, a divergence, an incomplete load */
    LP_EXIT_USAGE = 2,
    LP_EXIT_DATA = 3,
    LP_EXIT_ENVIRONMENT = 4,
    LP_EXIT_STALE = 5,
    LP_EXIT_BUG = 70
};

typedef struct lp_option {
    const char *name;    /* long name, without dashes; flags also get --no-NAME */
    char letter;         /* 0: none. Only -h -V -q -v -o -f -j -z -T exist */
    const char *value;   /* name of the value in help ("FILE"); NULL for a flag */
    const char *choices; /* "text|json", for completion and the error of a wrong value; NULL: anything */
    const char *help;    /* one line */
} lp_option;

typedef struct lp_cli lp_cli;

typedef struct lp_command {
    const char *name;
    const char *arguments; /* "TRACE", "BASE NEW" */
    const char *summary;   /* one line, lower case, no full stop */
    const char *details;   /* paragraphs of `help VERB`: what the output is, what exit codes mean, an example */
    const lp_option *options;
    int option_count;
    int least, most;         /* positional arguments; most < 0: any number */
    int (*run)(lp_cli *cli); /* exit code */
} lp_command;

struct lp_cli {
    const lp_command *command;
    int argument_count;
    char **argument;
    FILE *out;         /* stdout, or the file of -o */
    int quiet;         /* -q, -qq */
    int verbose;       /* -v, -vv */
    bool color;        /* for out */
    bool color_errors; /* for stderr */
    void *state;       /* lp_cli_state, cli_private.h */
};

/* Option values. `name` must be in the command's table. */
const char *lp_cli_text(const lp_cli *cli, const char *name, const char *fallback);
bool lp_cli_flag(const lp_cli *cli, const char *name, bool fallback);
/* Numbers: complain and return false when the text is not a number in [least, most]. */
bool lp_cli_integer(lp_cli *cli, const char *name, int64_t fallback, int64_t least, int64_t most, int64_t *value);
bool lp_cli_bytes(lp_cli *cli, const char *name, int64_t fallback,
                  int64_t *value); /* K, KiB, M, MiB, G, GiB, K = KiB */
/* "3", "all", "0-7", "0,2,5-6" into a sorted list of ranks below `world`; allocated with malloc. */
bool lp_cli_ranks(lp_cli *cli, const char *name, const char *fallback, int32_t world, int32_t **ranks, int32_t *count);

/* Where -o goes: opens cli->out for commands that print data to a file. The file appears whole at lp_cli_close_output.
 */
int lp_cli_open_output(lp_cli *cli, const char *path, bool overwrite);
int lp_cli_close_output(lp_cli *cli);

/* "loadplan: error: ..." with hint, and the exit code of the status. */
int lp_cli_fail(lp_cli *cli, const lp_error *err);
/* The same of an error that does not name its file, with "'PATH': " before the text. */
int lp_cli_fail_about(lp_cli *cli, const char *path, const lp_error *err);
/* Two lines: what is wrong, and where help is. Returns LP_EXIT_USAGE. */
int lp_cli_usage(lp_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lp_cli_warn(lp_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3))); /* not under -q */
void lp_cli_note(lp_cli *cli, const char *format, ...) __attribute__((format(printf, 2, 3))); /* only under -v */
void lp_cli_summary(lp_cli *cli, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* stderr, not under -q */

/* What a static analyser of one file must know of two of them (see base.h). */
#ifdef LOADPLAN_ANALYSE
#define lp_cli_fail(cli, err)             ((void)lp_cli_fail(cli, err), LP_EXIT_ENVIRONMENT)
#define lp_cli_fail_about(cli, path, err) ((void)lp_cli_fail_about(cli, path, err), LP_EXIT_ENVIRONMENT)
#define lp_cli_usage(cli, ...)            ((void)lp_cli_usage(cli, __VA_ARGS__), LP_EXIT_USAGE)
#endif

/* Sanitised copy of a name for printing; a static ring of 8 buffers, for use inside one printf. */
const char *lp_cli_clean(const char *name);

/* A text in memory of malloc, such as a path; NULL when out of memory. */
char *lp_cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints `c` as an entity when it means something in XML and HTML, in text and in attributes; else returns false. */
bool lp_cli_print_entity(FILE *out, char c);

/* JSON in ASCII: a terminal obeys nothing in it. `flags` are jansson's; false: out of memory, or the write failed. */
bool lp_cli_dump_json(FILE *out, const json_t *value, size_t flags);

/* A list inside an object that may have any number of elements: `at` makes them one by one, with a reference for the
 * caller, or NULL where there is no memory. In the object an empty list stands for it, the only one with this key. */
typedef struct lp_cli_list {
    const char *key;
    int64_t count;
    json_t *(*at)(const void *context, int64_t index);
    const void *context;
} lp_cli_list;

/* Prints an object with the elements of its lists, which stand in it in this order, and a newline. */
bool lp_cli_dump_lists(FILE *out, const json_t *root, const lp_cli_list *list, int lists);

/* JSON to cli->out: prints, drops the reference, returns false (after complaining) where there is no memory. A write
 * that fails is told by lp_cli_close_output. */
bool lp_cli_json(lp_cli *cli, json_t *value);
bool lp_cli_json_lists(lp_cli *cli, json_t *root, const lp_cli_list *list, int lists);

/* Progress on stderr: only on a terminal in the foreground, after 2 s, six times a second, erased at the end. */
void lp_cli_progress(lp_cli *cli, const char *title, int64_t done, int64_t total, bool is_bytes);
void lp_cli_progress_end(lp_cli *cli);

/* A platform whose log goes to stderr by -v and --log. */
const lp_platform *lp_cli_platform(lp_cli *cli);

/* The tables of the rooms; main.c joins them. That of traces is spread over several files. */
extern const lp_command *const lp_trace_commands[];
extern const lp_command lp_layout_commands[], lp_recorder_commands[], lp_replayer_commands[], lp_sync_commands[];
extern const int lp_trace_command_count, lp_layout_command_count, lp_recorder_command_count, lp_replayer_command_count;
extern const int lp_sync_command_count;

#endif
