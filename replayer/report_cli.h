/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan report`: one HTML page. What its parts share. Part of the program. */
#ifndef LOADPLAN_REPORT_CLI_H
#define LOADPLAN_REPORT_CLI_H

#include "replayer/replayer.h"
#include "replayer/report.h"
#include "traces/cli.h"

/* Bounds of a page, so that a trace of a million records is still a page: a row has its strip and its sources, a table
 * its lines. What is left out is counted on the page. */
enum { REPORT_ROWS = 200, REPORT_LINES = 200, REPORT_RANKS = 256, REPORT_SEGMENTS = 30000 };

typedef struct lp_report_side {
    const char *path;
    lp_trace *trace;
    lp_report_rows rows;
    lp_explanation *cost; /* per scope */
} lp_report_side;

typedef struct lp_report_page {
    FILE *out;
    lp_report_side now, base; /* base.trace is NULL where there is none */
    lp_findings *check, *diff;
    int64_t looks;    /* work that is left for strips */
    int64_t segments; /* rectangles that are left */
} lp_report_page;

/* Text of any origin: control characters written out, markup escaped. */
void lp_report_text(FILE *out, const char *text);
/* The same with a break after each dot, so that long names wrap on a phone. */
void lp_report_name(FILE *out, const char *name);

/* report_page_cli.c: the whole page. */
lp_status lp_report_write(lp_report_page *page, lp_error *err);
/* report_map_cli.c: rows of destinations with their strips. */
lp_status lp_report_write_map(lp_report_page *page, lp_error *err);
/* One strip as an inline or a whole SVG; `id` tells the strips of a page apart. */
void lp_report_write_strip(FILE *out, const lp_strip *strip, const char *name, bool is_alone, int64_t *segments);
/* Its sources, as a list. */
void lp_report_write_legend(FILE *out, const lp_trace *trace, const lp_strip *strip);
/* report_tables_cli.c: findings, families, fallbacks, ranks. */
void lp_report_write_findings(const lp_report_page *page, const lp_findings *findings);
lp_status lp_report_write_families(const lp_report_page *page, lp_error *err);
lp_status lp_report_write_fallbacks(const lp_report_page *page, lp_error *err);
void lp_report_write_ranks(const lp_report_page *page);

int lp_cli_report(lp_cli *cli);

/* The page's style, and colours of source families: report_style.h. */
extern const char lp_report_css[];

#endif
