/* SPDX-License-Identifier: Apache-2.0 */
/* Options: getopt_long under the command's table, so that parser, help and completion are one thing. What a command
 * asks of them afterwards: cli_values.c. */
#include "traces/base.h"
#include "traces/cli_private.h"

#include <getopt.h>
#include <limits.h>
#include <stdlib.h>

const lp_option lp_cli_global_options[] = {
    {"help", 'h', NULL, NULL, "explain a command; -h: its options only"},
    {"version", 'V', NULL, NULL, "show the version"},
    {"quiet", 'q', NULL, NULL, "no warnings and no summary; twice: no errors either"},
    {"verbose", 'v', NULL, NULL, "say what is done and why; twice: more"},
    {"color", 0, "WHEN", "auto|always|never", "colours (default auto: a terminal, without NO_COLOR)"},
    {"progress", 0, NULL, NULL, "show progress even when stderr is not a terminal; --no-progress never"},
    {"log", 0, "LEVEL", "error|warning|info|debug", "what the library logs to stderr (default warning)"},
};
const int lp_cli_global_option_count = sizeof lp_cli_global_options / sizeof lp_cli_global_options[0];

enum { CODE_GLOBAL = 1000, CODE_GLOBAL_NO = 1100, CODE_OWN = 2000, CODE_OWN_NO = 2100 };

static bool chosen(const char *choices, const char *text)
{
    const size_t length = strlen(text);
    for (const char *p = choices; p != NULL; p = strchr(p, '|')) {
        p += *p == '|';
        const size_t n = strcspn(p, "|");
        if (n == length && memcmp(p, text, n) == 0)
            return true;
    }
    return false;
}

/* `value` is "" where the option has none. */
static int take_global(lp_cli *cli, int index, bool negated, const char *value)
{
    lp_cli_state *s = cli->state;
    const lp_option *o = &lp_cli_global_options[index];
    if (o->choices != NULL && !chosen(o->choices, value))
        return lp_cli_usage(cli, "--%s takes one of %s, not '%s'", o->name, o->choices, lp_cli_clean(value));
    if (strcmp(o->name, "help") == 0)
        s->help = true;
    else if (strcmp(o->name, "version") == 0)
        s->version = true;
    else if (strcmp(o->name, "quiet") == 0)
        cli->quiet = negated ? 0 : cli->quiet + 1;
    else if (strcmp(o->name, "verbose") == 0)
        cli->verbose = negated ? 0 : cli->verbose + 1;
    else if (strcmp(o->name, "progress") == 0)
        s->progress = negated ? 0 : 1;
    else if (strcmp(o->name, "color") == 0) {
        s->color_always = strcmp(value, "always") == 0;
        s->color_never = strcmp(value, "never") == 0;
    } else if (strcmp(o->name, "log") == 0) {
        s->log_level = value[0] == 'e'   ? LP_LOG_ERROR
                       : value[0] == 'w' ? LP_LOG_WARNING
                       : value[0] == 'i' ? LP_LOG_INFO
                                         : LP_LOG_DEBUG;
    }
    return 0;
}

/* Options whose value is a list ("ID=LEVEL,...") may be given several times: they add up. */
static bool is_list(const lp_option *o)
{
    const size_t n = strlen(o->value);
    return n > 4 && strcmp(o->value + n - 4, ",...") == 0;
}

static int add_to_list(lp_cli_state *s, int index, const char *value)
{
    char *whole = lp_cli_format("%s,%s", s->value[index], value);
    if (whole == NULL)
        return LP_EXIT_ENVIRONMENT;
    free(s->list[index]);
    s->value[index] = s->list[index] = whole;
    return 0;
}

void lp_cli_forget(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    for (int i = 0; i < LP_CLI_OPTIONS_MAX; i++) {
        free(s->list[i]);
        s->list[i] = NULL;
    }
}

/* Values that are used as they are given; others are judged where they are parsed. */
static bool is_taken_as_it_is(const lp_option *o)
{
    return chosen("BASE|DIR|FILE|GLOB|NAME|PATH|PLACE|SOCKET|TEXT|TRACE", o->value);
}

/* `value` is "" where the option has none. */
static int take_own(lp_cli *cli, int index, bool negated, const char *value)
{
    lp_cli_state *s = cli->state;
    const lp_option *o = &cli->command->options[index];
    if (o->value == NULL) {
        s->value[index] = negated ? "0" : "1";
        return 0;
    }
    if (o->choices != NULL && !chosen(o->choices, value))
        return lp_cli_usage(cli, "--%s takes one of %s, not '%s'", o->name, o->choices, lp_cli_clean(value));
    if (value[0] == '\0' && is_taken_as_it_is(o)) /* a variable of a script that was not set */
        return lp_cli_usage(cli, "--%s needs a value, not ''", o->name);
    if (strcmp(value, "-") == 0 && strcmp(o->name, "output") == 0) /* elsewhere a name for standard output */
        return lp_cli_usage(cli, "--output takes a name, not '-': a file called that is './-'");
    if (s->value[index] != NULL && is_list(o))
        return add_to_list(s, index, value);
    s->value[index] = value;
    return 0;
}

/* Room for every option, its --no- form, and the end mark. */
typedef struct table {
    struct option option[2 * (LP_CLI_OPTIONS_MAX + 8) + 1];
    char negated[LP_CLI_OPTIONS_MAX + 8][40];
    char letters[3 * (LP_CLI_OPTIONS_MAX + 8) + 5];
    int options, negations, letter_count;
} table;

static void add_options(table *t, const lp_option *options, int count, int code, int code_no)
{
    for (int i = 0; i < count; i++) {
        const lp_option *o = &options[i];
        const int argument = o->value != NULL ? required_argument : no_argument;
        t->option[t->options++] = (struct option){o->name, argument, NULL, code + i};
        if (o->value == NULL) {
            char *name = t->negated[t->negations++];
            snprintf(name, sizeof t->negated[0], "no-%s", o->name);
            t->option[t->options++] = (struct option){name, no_argument, NULL, code_no + i};
        }
        if (o->letter != 0) {
            t->letters[t->letter_count++] = o->letter;
            if (o->value != NULL)
                t->letters[t->letter_count++] = ':';
            if (o->letter == 'j') { /* zstd's -T0 means the same */
                t->letters[t->letter_count++] = 'T';
                t->letters[t->letter_count++] = ':';
            }
        }
    }
}

static int letter_index(const lp_option *options, int count, int letter)
{
    for (int i = 0; i < count; i++)
        if (options[i].letter != 0 && options[i].letter == letter)
            return i;
    return -1;
}

static const table *suggestion_table;

static const char *table_name(int index)
{
    return suggestion_table->option[index].name;
}

static int wrong_option(lp_cli *cli, const table *t, int code, char **argv)
{
    if (code == ':') {
        if (optopt > 0 && optopt <= UCHAR_MAX)
            return lp_cli_usage(cli, "option '-%c' needs a value", optopt);
        return lp_cli_usage(cli, "option '%s' needs a value", lp_cli_clean(argv[optind - 1]));
    }
    if (optopt != 0 && optopt <= UCHAR_MAX) /* a letter, or a byte above ASCII as a negative number */
        return lp_cli_usage(cli, "unknown option '-%s'", lp_cli_clean((char[]){(char)optopt, '\0'}));
    const char *word = argv[optind - 1];
    suggestion_table = t;
    char plain[64];
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(word, "="), word);
    const char *near = lp_cli_nearest(plain + strspn(plain, "-"), table_name, t->options);
    if (near != NULL)
        return lp_cli_usage(cli, "unknown option '%s'; did you mean '--%s'?", lp_cli_clean(word), near);
    return lp_cli_usage(cli, "unknown option '%s'", lp_cli_clean(word));
}

static int parse(lp_cli *cli, table *t, const lp_option *own, int own_count, int argc, char **argv)
{
    optind = 0; /* a full reset in glibc */
    opterr = 0;
    for (;;) {
        const int code = getopt_long(argc, argv, t->letters, t->option, NULL);
        if (code < 0)
            return 0;
        const char *value = optarg != NULL ? optarg : "";
        int exit_code;
        int index;
        if (code == '?' || code == ':')
            exit_code = wrong_option(cli, t, code, argv);
        else if (code >= CODE_OWN_NO)
            exit_code = take_own(cli, code - CODE_OWN_NO, true, "");
        else if (code >= CODE_OWN)
            exit_code = take_own(cli, code - CODE_OWN, false, value);
        else if (code >= CODE_GLOBAL_NO)
            exit_code = take_global(cli, code - CODE_GLOBAL_NO, true, "");
        else if (code >= CODE_GLOBAL)
            exit_code = take_global(cli, code - CODE_GLOBAL, false, value);
        else if ((index = letter_index(own, own_count, code == 'T' ? 'j' : code)) >= 0)
            exit_code = take_own(cli, index, false, value);
        else
            exit_code =
                take_global(cli, letter_index(lp_cli_global_options, lp_cli_global_option_count, code), false, value);
        if (exit_code != 0)
            return exit_code;
        if (code == 'h' || code == CODE_GLOBAL) /* -h or --help: the last one counts */
            ((lp_cli_state *)cli->state)->is_brief = code == 'h';
    }
}

/* LOADPLAN_LOG stands for a --log before all others. */
static int log_of_environment(lp_cli *cli)
{
    const char *level = getenv("LOADPLAN_LOG");
    int index = 0;
    while (strcmp(lp_cli_global_options[index].name, "log") != 0)
        index++;
    if (level == NULL || level[0] == '\0')
        return 0;
    if (!chosen(lp_cli_global_options[index].choices, level))
        return lp_cli_usage(cli, "LOADPLAN_LOG takes one of %s, not '%s'", lp_cli_global_options[index].choices,
                            lp_cli_clean(level));
    return take_global(cli, index, false, level);
}

/* LOADPLAN_THREADS stands for a --threads that was not given. */
static void threads_of_environment(lp_cli *cli)
{
    lp_cli_state *s = cli->state;
    const char *threads = getenv("LOADPLAN_THREADS");
    for (int i = 0; threads != NULL && threads[0] != '\0' && i < cli->command->option_count; i++)
        if (s->value[i] == NULL && strcmp(cli->command->options[i].name, "threads") == 0) {
            s->value[i] = threads;
            s->asked[i] = true; /* it is meant for whatever has threads */
        }
}

int lp_cli_parse_global(lp_cli *cli, int argc, char **argv, int *verb)
{
    const int environment = log_of_environment(cli);
    if (environment != 0)
        return environment;
    table t = {0};
    t.letters[t.letter_count++] = '+'; /* stop at the verb */
    t.letters[t.letter_count++] = ':';
    add_options(&t, lp_cli_global_options, lp_cli_global_option_count, CODE_GLOBAL, CODE_GLOBAL_NO);
    const int exit_code = parse(cli, &t, NULL, 0, argc, argv);
    *verb = optind;
    return exit_code;
}

int lp_cli_parse(lp_cli *cli, int argc, char **argv)
{
    const lp_command *c = cli->command;
    if (c->option_count > LP_CLI_OPTIONS_MAX)
        abort(); /* the table in the code is too long */
    table t = {0};
    t.letters[t.letter_count++] = ':';
    add_options(&t, c->options, c->option_count, CODE_OWN, CODE_OWN_NO);
    add_options(&t, lp_cli_global_options, lp_cli_global_option_count, CODE_GLOBAL, CODE_GLOBAL_NO);
    const int exit_code = parse(cli, &t, c->options, c->option_count, argc, argv);
    if (exit_code != 0)
        return exit_code;
    threads_of_environment(cli);
    cli->argument = argv + optind;
    cli->argument_count = argc - optind;
    const lp_cli_state *s = cli->state;
    if (s->help)
        return 0;
    if (cli->argument_count < c->least)
        return lp_cli_usage(cli, "'%s' needs %s", c->name, c->arguments);
    if (c->most >= 0 && cli->argument_count > c->most)
        return lp_cli_usage(cli, "'%s' takes %s; '%s' is too much", c->name,
                            c->most == 0 ? "no arguments" : c->arguments, lp_cli_clean(cli->argument[c->most]));
    return 0;
}

/* Levenshtein distance of short words. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    const int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
    int row[LONGEST + 1];
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const int shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[m];
}

const char *lp_cli_nearest(const char *word, const char *(*name_at)(int index), int count)
{
    const char *best = NULL;
    int best_distance = strlen(word) < 4 ? 2 : 3;
    for (int i = 0; i < count; i++) {
        const int d = distance(word, name_at(i));
        if (d < best_distance) {
            best = name_at(i);
            best_distance = d;
        }
    }
    return best;
}
