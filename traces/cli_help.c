/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts, made from the command tables. */
#include "traces/base.h"
#include "traces/cli_private.h"

enum { HELP_WIDTH = 100, HELP_COLUMN = 31 };

/* Prints the words of a line from column `at` on, broken where it would pass HELP_WIDTH; what follows a break is set in
 * by `indent`. Returns the column after it. */
static int print_words(FILE *out, const char *text, int bytes, int at, int indent)
{
    for (int i = 0; i < bytes;) {
        i += (int)strspn(text + i, " ");
        const int word = (int)strcspn(text + i, " \n");
        if (at > indent && at + 1 + word > HELP_WIDTH)
            at = fprintf(out, "\n%*s", indent, "") - 1;
        else if (at > indent)
            at += fprintf(out, " ");
        at += fprintf(out, "%.*s", word, text + i);
        i += word;
    }
    return at;
}

/* Paragraphs are filled; lines that start with two blanks are shown as they are. */
static void print_details(FILE *out, const char *text)
{
    int at = 0;
    while (*text != '\0') {
        const int bytes = (int)strcspn(text, "\n");
        const bool is_shown = bytes == 0 || strncmp(text, "  ", 2) == 0;
        if (is_shown)
            fprintf(out, "%s%.*s\n", at > 0 ? "\n" : "", bytes, text);
        at = is_shown ? 0 : print_words(out, text, bytes, at, 0);
        text += bytes + (text[bytes] == '\n');
    }
    fputs(at > 0 ? "\n" : "", out);
}

static void print_options(FILE *out, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        const lp_option *o = &options[i];
        char left[80], letter[8] = "    ";
        if (o->letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        const char *value = o->choices != NULL ? o->choices : o->value;
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, value != NULL ? "=" : "",
                 value != NULL ? value : "");
        if (strlen(left) > 28)
            fprintf(out, "  %s\n%*s", left, HELP_COLUMN, "");
        else
            fprintf(out, "  %-28s ", left);
        print_words(out, o->help, (int)strlen(o->help), HELP_COLUMN, HELP_COLUMN);
        fputc('\n', out);
    }
}

void lp_cli_print_help(FILE *out, const lp_command *c, bool is_brief)
{
    fprintf(out, "usage: loadplan %s%s%s%s\n\n%s\n", c->name, c->option_count > 0 ? " [options]" : "",
            c->arguments[0] != '\0' ? " " : "", c->arguments, c->summary);
    if (!is_brief && c->details != NULL && c->details[0] != '\0') {
        fputc('\n', out);
        print_details(out, c->details);
    }
    if (c->option_count > 0) {
        fputs("\noptions:\n", out);
        print_options(out, c->options, c->option_count);
    }
    if (is_brief) {
        fprintf(out, "\n'loadplan help %s' says more.\n", c->name);
        return;
    }
    fputs("\noptions of every command:\n", out);
    print_options(out, lp_cli_global_options, lp_cli_global_option_count);
}
