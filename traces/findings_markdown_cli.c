/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as Markdown, appended to the summary page of a workflow run. */
#include "traces/findings_cli.h"

#include <errno.h>
#include <stdlib.h>

enum { ROWS_MAX = 200 }; /* a summary page is cut at 1 MiB, without a word */

/* Text inside a table cell: nothing of it is markup. */
static void print_cell(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++) {
        if (strchr("\\`*_[]<>#|~&$:@", *p) != NULL)
            fprintf(out, "&#%d;", (unsigned char)*p);
        else
            fputc((unsigned char)*p < 0x20 ? ' ' : *p, out);
    }
}

static void print_row(const findings_run *run, FILE *out, const lp_finding *x)
{
    fprintf(out, "| %s | %s | ", findings_level_name(x->level), x->rule->id);
    print_cell(out, lp_cli_clean(x->family));
    fprintf(out, " | %lld | ", (long long)x->members);
    print_cell(out, x->text);
    if (x->hint[0] != '\0') {
        fputs("<br>hint: ", out);
        print_cell(out, x->hint);
    }
    fputs(" | ", out);
    if (x->file[0] != '\0') {
        print_cell(out, lp_cli_clean(lp_cli_settings_relative(&run->settings, x->file)));
        if (x->line > 0)
            fprintf(out, ":%d", (int)x->line);
    }
    fputs(" |\n", out);
}

int findings_append_markdown(const findings_run *run, const char *path)
{
    lp_error err;
    int64_t shown = 0, told = 0;
    FILE *out = fopen(path, "ab");
    if (out == NULL) {
        lp_fail_errno(&err, errno, "open", path);
        return lp_cli_fail(run->cli, &err);
    }
    fprintf(out, "### loadplan %s\n\n", run->cli->command->name);
    print_cell(out, run->title);
    print_cell(out, lp_findings_summary(run->findings));
    fputs("\n\n", out);
    for (int64_t i = 0; i < lp_findings_count(run->findings); i++) {
        const lp_finding *x = lp_findings_at(run->findings, i);
        if (x->suppressed != NULL || !findings_is_shown(run, x))
            continue;
        if (told++ == 0)
            fputs("| level | rule | family | tensors | what | where |\n|---|---|---|---:|---|---|\n", out);
        if (shown < ROWS_MAX) {
            print_row(run, out, x);
            shown++;
        }
    }
    if (told > shown)
        fprintf(out, "\n%lld more findings are not shown.\n", (long long)(told - shown));
    if (told > 0)
        fputc('\n', out);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        lp_fail_errno(&err, errno, "write", path);
        return lp_cli_fail(run->cli, &err);
    }
    return 0;
}
