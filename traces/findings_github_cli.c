/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings as GitHub workflow commands: annotations on the loader's lines. A step shows about ten of a kind and drops
 * the rest without a word, so the worst nine are printed and one annotation more says how many there are.
 */
#include "traces/findings_cli.h"

enum { DETAILS_MAX = 9 };

/* Data of a command: percent and line ends are escaped; in properties colon and comma too. */
static void print_escaped(FILE *out, const char *text, bool is_property)
{
    for (const char *p = text; *p != '\0'; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c == '%' || c < 0x20 || (is_property && (c == ':' || c == ',')))
            fprintf(out, "%%%02X", c);
        else
            fputc(c, out);
    }
}

static const char *command_of(lp_level level)
{
    return level == LP_DENY ? "error" : level == LP_WARN ? "warning" : "notice";
}

static void print_annotation(const findings_run *run, const lp_finding *x)
{
    FILE *out = run->cli->out;
    fprintf(out, "::%s ", command_of(x->level));
    if (x->file[0] != '\0') {
        fputs("file=", out);
        print_escaped(out, lp_cli_clean(lp_cli_settings_relative(&run->settings, x->file)), true);
        if (x->line > 0)
            fprintf(out, ",line=%d", (int)x->line);
        fputc(',', out);
    }
    fputs("title=", out);
    print_escaped(out, x->rule->id, true);
    fputs("::", out);
    print_escaped(out, lp_cli_clean(x->family), false);
    fputs(": ", out);
    print_escaped(out, x->text, false);
    if (x->hint[0] != '\0') {
        fputs("%0Ahint: ", out);
        print_escaped(out, x->hint, false);
    }
    fputc('\n', out);
}

bool findings_print_github(const findings_run *run)
{
    FILE *out = run->cli->out;
    int64_t shown = 0, told = 0;
    for (int64_t i = 0; i < lp_findings_count(run->findings); i++) {
        const lp_finding *x = lp_findings_at(run->findings, i);
        if (x->suppressed != NULL || !findings_is_shown(run, x))
            continue;
        told++;
        if (shown < DETAILS_MAX) {
            print_annotation(run, x);
            shown++;
        }
    }
    fprintf(out, "::%s title=loadplan %s::", command_of(lp_findings_worst(run->findings)), run->cli->command->name);
    print_escaped(out, run->title, false);
    print_escaped(out, lp_findings_summary(run->findings), false);
    if (told > shown)
        fprintf(out, " (%lld more)", (long long)(told - shown));
    fputc('\n', out);
    return true;
}
