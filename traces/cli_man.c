/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages in the input language of scdoc(1), made from the command tables like everything else about a verb. */
#include "traces/base.h"
#include "traces/cli_private.h"

/* scdoc gives a meaning to these wherever they stand, and to more of them at the start of a line. */
static void print_line(FILE *out, const char *text, int length)
{
    for (int i = 0; i < length; i++) {
        if (strchr("\\*_`<>[]|#~^", text[i]) != NULL || (i == 0 && strchr("-.:;=+", text[i]) != NULL))
            fputc('\\', out);
        fputc(text[i], out);
    }
}

static void print_plain(FILE *out, const char *text)
{
    print_line(out, text, (int)strlen(text));
}

/* Paragraphs; lines that start with two blanks are shown as they are. */
static void print_details(FILE *out, const char *text)
{
    bool is_literal = false;
    while (*text != '\0') {
        const int length = (int)strcspn(text, "\n");
        const bool is_shown = strncmp(text, "  ", 2) == 0;
        if (is_shown != is_literal)
            fputs("```\n", out);
        is_literal = is_shown;
        if (is_shown)
            fprintf(out, "%.*s", length - 2, text + 2);
        else
            print_line(out, text, length);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
    fputs(is_literal ? "```\n" : "", out);
}

static void print_title(FILE *out, const char *name, int section)
{
    fprintf(out, "%s(%d) \"loadplan %s\" \"loadplan\"\n\n# NAME\n\n%s - ", name, section, lp_version(), name);
}

static void print_option_list(FILE *out, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        const lp_option *o = &options[i];
        if (o->letter != 0)
            fprintf(out, "*-%c*, ", o->letter);
        fprintf(out, "*--%s*", o->name);
        if (o->value != NULL) {
            fputs("=_", out);
            print_plain(out, o->value);
            fputc('_', out);
        }
        fputs("\n\t", out);
        print_plain(out, o->help);
        if (o->choices != NULL) {
            fputs(" (", out);
            for (const char *p = o->choices; *p != '\0'; p++) {
                if (*p == '|')
                    fputs(", ", out);
                else
                    fputc(*p, out);
            }
            fputc(')', out);
        }
        fputs("\n\n", out);
    }
}

static void print_see_also(FILE *out, const char *but, const lp_command *const *commands, int count)
{
    fputs("# SEE ALSO\n\n", out);
    if (but != NULL)
        fputs("*loadplan*(1), ", out);
    for (int i = 0; i < count; i++)
        if (but == NULL || strcmp(but, commands[i]->name) != 0)
            fprintf(out, "*loadplan-%s*(1), ", commands[i]->name);
    fputs("*loadplan-format*(5)", out);
    if (but == NULL) /* of the C interface */
        fputs(", *loadplan-trace*(3), *loadplan-recorder*(3), *loadplan-replayer*(3)", out);
    fputc('\n', out);
}

static void print_exit_codes(FILE *out)
{
    static const char *const meaning[][2] = {{"0", "done; no finding"},
                                             {"1", "the answer is no: a finding, a difference, an incomplete load"},
                                             {"2", "wrong usage"},
                                             {"3", "bad data: not a trace or checkpoint, damaged, or over a limit"},
                                             {"4", "environment: a file, memory, a device or a peer"},
                                             {"5", "stale: the trace is of another checkpoint or target"},
                                             {"70", "an internal error"}};
    fputs("# EXIT STATUS\n\n", out);
    for (size_t i = 0; i < sizeof meaning / sizeof meaning[0]; i++)
        fprintf(out, "*%s*\n\t%s\n\n", meaning[i][0], meaning[i][1]);
}

static void print_environment(FILE *out)
{
    fputs("# ENVIRONMENT\n\n"
          "*NO\\_COLOR*, *CLICOLOR\\_FORCE*, *TERM*\n\tdecide about colours where *--color* does not\n\n"
          "*LOADPLAN\\_LOG*, *LOADPLAN\\_THREADS*\n\tdefaults of *--log* and *--threads*\n\n"
          "*LOADPLAN\\_PROGRESS*\n\t_plain_ prints a line of progress every ten seconds, for logs\n\n",
          out);
}

void lp_cli_print_man(FILE *out, const lp_command *c, const lp_command *const *commands, int count)
{
    char name[80];
    if (c == NULL) {
        print_title(out, "loadplan", 1);
        fputs("record, prove, compare and replay what a weight loader does\n\n# SYNOPSIS\n\n"
              "*loadplan* _COMMAND_ \\[options\\] _ARGUMENTS_\n\n# DESCRIPTION\n\n"
              "Records what a loader of model weights does as a trace, a file that says which bytes of a checkpoint go "
              "where. Proves traces complete, compares them, and replays them.\n\n# COMMANDS\n\n",
              out);
        for (int i = 0; i < count; i++) {
            fprintf(out, "*loadplan-%s*(1)\n\t", commands[i]->name);
            print_plain(out, commands[i]->summary);
            fputs("\n\n", out);
        }
    } else {
        snprintf(name, sizeof name, "loadplan-%s", c->name);
        print_title(out, name, 1);
        print_plain(out, c->summary);
        fprintf(out, "\n\n# SYNOPSIS\n\n*loadplan %s*%s%s", c->name, c->option_count > 0 ? " \\[options\\]" : "",
                c->arguments[0] != '\0' ? " " : "");
        print_plain(out, c->arguments);
        fputs("\n\n", out);
        if (c->details != NULL && c->details[0] != '\0') {
            fputs("# DESCRIPTION\n\n", out);
            print_details(out, c->details);
            fputc('\n', out);
        }
    }
    fputs("# OPTIONS\n\n", out);
    if (c != NULL)
        print_option_list(out, c->options, c->option_count);
    print_option_list(out, lp_cli_global_options, lp_cli_global_option_count);
    print_exit_codes(out);
    print_environment(out);
    print_see_also(out, c == NULL ? NULL : c->name, commands, count);
}
