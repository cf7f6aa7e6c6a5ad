/* SPDX-License-Identifier: Apache-2.0 */
/* What `check` and `diff` share on the command line: options, levels, suppressions, the formats, the exit code. */
#ifndef LOADPLAN_FINDINGS_CLI_H
#define LOADPLAN_FINDINGS_CLI_H

#include "traces/cli_settings.h"
#include "traces/findings.h"
#include "traces/suppress.h"

/* clang-format off */
#define FINDINGS_OPTIONS                                                                                        \
    {"format", 0, "FORMAT", "text|json|ndjson|github|sarif|junit|suppress", "how to print (default text)"},     \
    {"tensor", 0, "GLOB", NULL, "tell only of tensors whose name matches"},                                     \
    {"ops", 0, "SET", NULL, "tell only of what these rows of each rank speak of, numbered as in dump: 0-99,7"}, \
    {"stat", 0, NULL, NULL, "one line a family: how many tensors, which rules"},                                \
    {"numstat", 0, NULL, NULL, "the same with tabs: tensors, level, rule, family"},                             \
    {"name-only", 0, NULL, NULL, "only the families that findings speak of"},                                   \
    {"null", 'z', NULL, NULL, "end lines of --numstat and --name-only with NUL, names as they are"},            \
    {"fail-on", 0, "LEVEL", "warn|deny|never", "findings that exit with 1 (default deny)"},                     \
    {"rule", 0, "ID=LEVEL,...", NULL, "another level for rules: allow, warn or deny"},                          \
    {"suppressions", 0, "FILE", NULL, "findings that were accepted: RULE GLOB REASON a line"},                  \
    LP_CLI_CONFIG_OPTION,                                                                                       \
    {"exit-zero", 0, NULL, NULL, "exit with 0 whatever is found"},                                              \
    {"summary-file", 0, "FILE", NULL, "also append the report as Markdown, as for $GITHUB_STEP_SUMMARY"},       \
    {"output", 'o', "FILE", NULL, "write there instead of standard output"},                                    \
    {"force", 'f', NULL, NULL, "replace an existing output"}
/* clang-format on */

typedef struct findings_run {
    lp_cli *cli;
    lp_cli_settings settings;
    lp_suppressions suppressions;
    char *suppressions_path; /* NULL: none */
    lp_number_set ops;
    lp_tensor_choice choice; /* of --tensor and --ops */
    /* once there are findings */
    lp_findings *findings;
    const char *title;        /* before the first line: "v4.lpt: " or "" */
    const char *base, *trace; /* as given; base is NULL for check */
    int verdict;              /* exit code that the findings ask for */
    int64_t denied, warned, allowed, suppressed;
} findings_run;

/* Reads options, settings and suppressions before anything else is opened. 0, or an exit code after a complaint. Close
 * in any case. */
int findings_open(findings_run *run, lp_cli *cli);
/* Applies levels and suppressions, prints, and returns the exit code. Owns `f` from now on. */
int findings_report(findings_run *run, lp_findings *f, const char *title, const char *base, const char *trace);
void findings_close(findings_run *run);

/* Whether a finding is shown to people: allowed and suppressed ones only under -v. */
bool findings_is_shown(const findings_run *run, const lp_finding *x);
const char *findings_level_name(lp_level level);
/* A whole name, sanitised; memory of malloc, or NULL. lp_cli_clean cuts long ones. */
char *findings_clean(const char *name);
json_t *findings_clean_json(const char *name); /* the same as JSON; a new reference */

/* The formats, one file each. False: out of memory or the output failed. */
bool findings_print_text(const findings_run *run);
bool findings_print_stat(const findings_run *run);
bool findings_print_numstat(const findings_run *run);
bool findings_print_names(const findings_run *run);
bool findings_print_suppress(const findings_run *run);
bool findings_print_json(const findings_run *run);
bool findings_print_ndjson(const findings_run *run);
bool findings_print_github(const findings_run *run);
bool findings_print_sarif(const findings_run *run);
bool findings_print_junit(const findings_run *run);
/* findings_markdown_cli.c: appends to a file. Complains; 0 or an exit code. */
int findings_append_markdown(const findings_run *run, const char *path);

/* A finding in the order of print: families as they first appear, so that the worst comes first. */
typedef struct findings_place {
    int64_t family, index;
} findings_place;
/* The findings by family, all or the shown ones; NULL when out of memory. */
findings_place *findings_arrange(const findings_run *run, bool all, int64_t *count);

#endif
