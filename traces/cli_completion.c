/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shell completion, made from the command tables: commands, options, the choices of options and arguments, and for
 * --tensor the names in the trace that stands on the line.
 */
#include "traces/base.h"
#include "traces/cli_private.h"

/* What prints the tensors of a trace, one a line; $trace is the shell's variable. The names come from the file and may
 * say anything: no shell may expand them. */
#define TENSORS_OF_TRACE "SELECT DISTINCT name FROM v_destinations WHERE rank = (SELECT min(rank) FROM v_scopes)"
#define TENSORS          "loadplan query \"$trace\" --format=tsv '" TENSORS_OF_TRACE "' 2>/dev/null | tail -n +2"

static bool takes_tensor(const lp_option *o)
{
    return strcmp(o->name, "tensor") == 0;
}

static void print_choices(FILE *out, const char *choices)
{
    for (const char *p = choices; *p != '\0'; p++)
        fputc(*p == '|' ? ' ' : *p, out);
}

/* What the first argument can be, separated by blanks; nothing where it is a file. */
static void print_arguments(FILE *out, const lp_command *c, const lp_command *const *commands, int count)
{
    if (strcmp(c->arguments, "[COMMAND]") == 0) {
        for (int i = 0; i < count; i++)
            fprintf(out, "%s%s", i > 0 ? " " : "", commands[i]->name);
    } else if (strchr(c->arguments, '|') != NULL) {
        print_choices(out, c->arguments);
    }
}

static bool has_arguments(const lp_command *c)
{
    return strcmp(c->arguments, "[COMMAND]") == 0 || strchr(c->arguments, '|') != NULL;
}

/* ---- bash ---- */

static void bash_option_words(FILE *out, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++)
        fprintf(out, "%s--%s%s", i > 0 ? " " : "", options[i].name, options[i].value != NULL ? "=" : "");
}

static void bash_values(FILE *out, const char *verb, const lp_option *options, int count)
{
    for (int i = 0; i < count; i++) {
        if (options[i].choices == NULL)
            continue;
        fprintf(out, "    %s--%s) values=\"", verb, options[i].name);
        print_choices(out, options[i].choices);
        fputs("\" ;;\n", out);
    }
}

/* The words are split at '=' too, so a value follows either an option or a '='. */
static void bash(FILE *out, const lp_command *const *commands, int count)
{
    fputs("# bash completion for loadplan\n"
          "_loadplan_tensors() {\n"
          "    local trace=$1 start=${2//\\\\/} name\n"
          "    start=${start//\\'/\\'\\'}\n"
          "    while IFS= read -r name; do\n"
          "        printf -v name %q \"$name\"\n"
          "        COMPREPLY+=(\"$name\")\n"
          "    done < <(loadplan query \"$trace\" --format=tsv \"" TENSORS_OF_TRACE
          " AND instr(name, '$start') = 1\" 2>/dev/null | tail -n +2)\n"
          "}\n"
          "_loadplan() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} verb= trace= option= options= values= arguments= i\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == *.lpt ]] && trace=${COMP_WORDS[i]}\n"
          "        [[ ${COMP_WORDS[i]} == [-=]* || ${COMP_WORDS[i - 1]} == = || -n $verb ]] || verb=${COMP_WORDS[i]}\n"
          "    done\n"
          "    option=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    [[ $option == = ]] && option=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    [[ $word == = ]] && word=\n"
          "    case $verb in\n"
          "    '') arguments=\"",
          out);
    for (int i = 0; i < count; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", commands[i]->name);
    fputs("\" ;;\n", out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "    %s) options=\"", commands[i]->name);
        bash_option_words(out, commands[i]->options, commands[i]->option_count);
        fputs("\"", out);
        if (has_arguments(commands[i])) {
            fputs(" arguments=\"", out);
            print_arguments(out, commands[i], commands, count);
            fputs("\"", out);
        }
        fputs(" ;;\n", out);
    }
    fputs("    esac\n    options+=\" ", out);
    bash_option_words(out, lp_cli_global_options, lp_cli_global_option_count);
    fputs("\"\n    case $verb$option in\n", out);
    for (int i = 0; i < count; i++)
        bash_values(out, commands[i]->name, commands[i]->options, commands[i]->option_count);
    bash_values(out, "*", lp_cli_global_options, lp_cli_global_option_count);
    /* compgen -W would run what a name holds: it is for the words that stand here only. */
    fputs("    *--tensor) [[ -n $trace ]] && _loadplan_tensors \"$trace\" \"$word\"; return ;;\n"
          "    esac\n"
          "    if [[ -n $values ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$values\" -- \"$word\"))\n"
          "    elif [[ $word == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
          "        [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
          "    elif [[ -n $arguments ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$arguments\" -- \"$word\"))\n"
          "    else\n"
          "        compopt -o filenames\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "    fi\n"
          "}\n"
          "complete -F _loadplan loadplan\n",
          out);
}

/* ---- zsh ---- */

/* Between single quotes, in a text where brackets and colons have a meaning. */
static void zsh_quoted(FILE *out, const char *text)
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
        zsh_quoted(out, options[i].help);
        fputs("]", out);
        if (options[i].choices != NULL) {
            fprintf(out, ":%s:(", options[i].value);
            print_choices(out, options[i].choices);
            fputs(")", out);
        } else if (options[i].value != NULL) {
            fputc(':', out);
            zsh_quoted(out, options[i].value);
            fputs(takes_tensor(&options[i]) ? ":_loadplan_tensors" : ":_files", out);
        }
        fputs("'", out);
    }
}

static void zsh(FILE *out, const lp_command *const *commands, int count)
{
    fputs("#compdef loadplan\n"
          "_loadplan_tensors() {\n"
          "    local trace=${${(M)words:#*.lpt}[-1]}\n"
          "    [[ -n $trace ]] && compadd -- ${(f)\"$(" TENSORS ")\"}\n"
          "}\n"
          "_loadplan() {\n    local -a verbs\n    verbs=(",
          out);
    for (int i = 0; i < count; i++) {
        fprintf(out, " '%s:", commands[i]->name);
        zsh_quoted(out, commands[i]->summary);
        fputs("'", out);
    }
    fputs(")\n"
          "    while (( CURRENT > 2 )) && [[ $words[2] == -* ]]; do words[2]=(); (( CURRENT-- )); done\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then _describe command verbs; return; fi\n"
          "    shift words; (( CURRENT-- ))\n"
          "    case $words[1] in\n",
          out);
    for (int i = 0; i < count; i++) {
        fprintf(out, "    %s) _arguments", commands[i]->name);
        zsh_options(out, commands[i]->options, commands[i]->option_count);
        zsh_options(out, lp_cli_global_options, lp_cli_global_option_count);
        if (has_arguments(commands[i])) {
            fputs(" '1:argument:(", out);
            print_arguments(out, commands[i], commands, count);
            fputs(")' ;;\n", out);
        } else {
            fputs(" '*:file:_files' ;;\n", out);
        }
    }
    fputs("    *) _arguments", out);
    zsh_options(out, lp_cli_global_options, lp_cli_global_option_count);
    /* Found by compinit the file is the function's first call; read by `source` it is not. */
    fputs(" ;;\n    esac\n}\n"
          "if [[ $funcstack[1] == _loadplan ]]; then _loadplan \"$@\"; else compdef _loadplan loadplan; fi\n",
          out);
}

/* ---- fish ---- */

static void fish_quoted(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'' || *p == '\\')
            fputc('\\', out);
        fputc(*p, out);
    }
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
        } else if (takes_tensor(&options[i])) {
            fputs(" -x -a '(__loadplan_tensors)'", out);
        } else if (options[i].value != NULL) {
            fputs(" -r", out);
        }
        fputs(" -d '", out);
        fish_quoted(out, options[i].help);
        fputs("'\n", out);
    }
}

static void fish(FILE *out, const lp_command *const *commands, int count)
{
    fputs("function __loadplan_tensors\n"
          "    set -l traces (string match -- '*.lpt' (commandline -opc))\n"
          "    set -l trace $traces[-1]\n"
          "    test -n \"$trace\"; and " TENSORS "\n"
          "end\n",
          out);
    for (int i = 0; i < count; i++) {
        char condition[96];
        fprintf(out, "complete -c loadplan -n __fish_use_subcommand -f -a %s -d '", commands[i]->name);
        fish_quoted(out, commands[i]->summary);
        fputs("'\n", out);
        snprintf(condition, sizeof condition, " -n '__fish_seen_subcommand_from %s'", commands[i]->name);
        fish_options(out, condition, commands[i]->options, commands[i]->option_count);
        if (has_arguments(commands[i])) {
            fprintf(out, "complete -c loadplan%s -f -a '", condition);
            print_arguments(out, commands[i], commands, count);
            fputs("'\n", out);
        }
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
