/* SPDX-License-Identifier: Apache-2.0 */
/* What `check` and `diff` share on the command line: options, levels, text and JSON, the exit code. */
#ifndef LOADPLAN_FINDINGS_CLI_H
#define LOADPLAN_FINDINGS_CLI_H

#include "traces/cli.h"
#include "traces/findings.h"

/* clang-format off */
#define FINDINGS_OPTIONS                                                                          \
    {"format", 0, "FORMAT", "text|json|github", "how to print (default text)"},                   \
    {"fail-on", 0, "LEVEL", "warn|deny|never", "findings that exit with 1 (default deny)"},       \
    {"rule", 0, "ID=LEVEL,...", NULL, "another level for rules: allow, warn or deny"},            \
    {"exit-zero", 0, NULL, NULL, "exit with 0 whatever is found"},                                \
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},                      \
    {"force", 'f', NULL, NULL, "replace an existing output"}
/* clang-format on */

/* Checks the options before anything is opened. 0, or LP_EXIT_USAGE after a complaint. */
int findings_check_options(lp_cli *cli);

/* Applies --rule, prints, frees `f`, and returns the exit code. `title` goes before the first line ("v4.lpt: " or ""),
 * `base` is NULL for check. */
int findings_report(lp_cli *cli, lp_findings *f, const char *title, const char *base, const char *trace);

/* findings_github_cli.c: annotations of a workflow run. */
void findings_print_github(lp_cli *cli, const lp_findings *f, const char *title);

#endif
