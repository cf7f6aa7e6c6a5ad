/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts and shell completion, both made from the command tables. */
#include "traces/base.h"
#include "traces/cli_private.h"

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
            fprintf(out, "  %s\n  %-28s %s\n", left, "", o->help);
        else
            fprintf(out, "  %-28s %s\n", left, o->help);
    }
}

void lp_cli_print_help(FILE *out, const lp_command *c)
{
    fprintf(out, "usage: loadplan %s%s%s%s\n\n%s\n", c->name, c->option_count > 0 ? " [options]" : "",
            c->arguments[0] != '\0' ? " " : "", c->arguments, c->summary);
    if (c->details != NULL && c->details[0] != '\0')
        fprintf(out, "\n%s\n", c->details);
    if (c->option_count > 0) {
        fputs("\noptions:\n", out);
        print_options(out, c->options, c->option_count);
    }
    fputs("\noptions of every command:\n", out);
    print_options(out, lp_cli_global_options, lp_cli_global_option_count);
}

static void print_option_words(FILE *out, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(out, " --%s%s", options[i].name, options[i].value != NULL ? "=" : "");
}

static void print_choices(FILE *out, const char *choices)
{
    for (const char *p = choices; *p != '\0'; p++)
        fputc(*p == '|' ? ' ' : *p, out);
}

static void bash(FILE *out, const lp_command *const *commands, int count)
{
    fputs("# bash completion for loadplan\n"
          "_loadplan() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} options= choices=\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        COMPREPLY=($(compgen -W \"",
          out);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", commands[i]->name);
    fputs("\" -- \"$word\"))\n        return\n    fi\n    case $verb in\n", out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "    %s) options=\"", commands[i]->name);
        print_option_words(out, commands[i]->options, commands[i]->option_count);
        print_option_words(out, lp_cli_global_options, lp_cli_global_option_count);
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n"
          "    if [[ $word == --* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
          "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
          "    else\n"
          "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
          "    fi\n"
          "}\n"
          "complete -o filenames -F _loadplan loadplan\n",
          out);
}

static void print_quoted(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'')
            fputs("'\\''", out);
        else if (*p == '[' || *p == ']' || *p == ':')
            fprintf(out, "\\%c", *p);
        else
            fputc(*p, out);
    }
}

static void zsh_options(FILE *out, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        fprintf(out, " '--%s%s[", options[i].name, options[i].value != NULL ? "=" : "");
        print_quoted(out, options[i].help);
        fputs("]", out);
        if (options[i].choices != NULL) {
            fprintf(out, ":%s:(", options[i].value);
            print_choices(out, options[i].choices);
            fputs(")", out);
        } else if (options[i].value != NULL) {
            fprintf(out, ":%s:_files", options[i].value);
        }
        fputs("'", out);
    }
}

static void zsh(FILE *out, const lp_command *const *commands, int count)
{
    fputs("#compdef loadplan\n_loadplan() {\n    local -a verbs\n    verbs=(", out);
    for (int i = 0; i < count; i++) {
        fprintf(out, " '%s:", commands[i]->name);
        print_quoted(out, commands[i]->summary);
        fputs("'", out);
    }
    fputs(")\n    if (( CURRENT == 2 )); then _describe command verbs; return; fi\n    shift words; (( CURRENT-- ))\n"
          "    case $words[1] in\n",
          out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "    %s) _arguments", commands[i]->name);
        zsh_options(out, commands[i]->options, commands[i]->option_count);
        zsh_options(out, lp_cli_global_options, lp_cli_global_option_count);
        fputs(" '*:file:_files' ;;\n", out);
    }
    fputs("    esac\n}\ncompdef _loadplan loadplan\n", out);
}

static void fish_options(FILE *out, const char *condition, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        fprintf(out, "complete -c loadplan%s -l %s", condition, options[i].name);
        if (options[i].letter != 0)
            fprintf(out, " -s %c", options[i].letter);
        if (options[i].choices != NULL) {
            fputs(" -x -a '", out);
            print_choices(out, options[i].choices);
            fputs("'", out);
        } else if (options[i].value != NULL) {
            fputs(" -r", out);
        }
        fputs(" -d '", out);
        print_quoted(out, options[i].help);
        fputs("'\n", out);
    }
}

static void fish(FILE *out, const lp_command *const *commands, int count)
{
    for (int i = 0; i < count; i++) {
        char condition[96];
        fprintf(out, "complete -c loadplan -n __fish_use_subcommand -a %s -d '", commands[i]->name);
        print_quoted(out, commands[i]->summary);
        fputs("'\n", out);
        snprintf(condition, sizeof condition, " -n '__fish_seen_subcommand_from %s'", commands[i]->name);
        fish_options(out, condition, commands[i]->options, commands[i]->option_count);
    }
    fish_options(out, "", lp_cli_global_options, lp_cli_global_option_count);
}

void lp_cli_print_completion(FILE *out, const char *shell, const lp_command *const *commands, int count)
{
    if (strcmp(shell, "bash") == 0)
        bash(out, commands, count);
    else if (strcmp(shell, "zsh") == 0)
        zsh(out, commands, count);
    else
        fish(out, commands, count);
}
