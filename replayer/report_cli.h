/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan report`: one HTML page. What its parts share. Part of the program. */
#ifndef LOADPLAN_REPORT_CLI_H
#define LOADPLAN_REPORT_CLI_H

#include "replayer/replayer.h"
#include "replayer/report.h"
#include "traces/cli.h"

/* Bounds of a page, so that a trace of a million records is still a page: a row has its strip and its sources, a table
 * its lines. What is left out is counted on the page. */
enum { REPORT_WIDTH = 1024, REPORT_COLOURS = 16 }; /* units along a strip; of the style */
enum { REPORT_ROWS = 200, REPORT_LINES = 200, REPORT_RANKS = 256, REPORT_SEGMENTS = 30000 };

typedef struct lp_report_side {
    const char *path;
    lp_trace *trace;
    lp_report_rows rows;
    lp_explanation *cost; /* per scope, of the first `costs` */
    int32_t costs;
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
/* report_strip_cli.c: the rectangles of a strip, REPORT_WIDTH by LP_STRIP_UNITS; of one source's mark, 28 by 10; the
 * patterns that both name, once a document. */
void lp_report_write_bins(FILE *out, const lp_strip *strip, int64_t *segments);
void lp_report_write_chip(FILE *out, const lp_strip *strip, int source);
void lp_report_write_patterns(FILE *out);
bool lp_report_is_shown(const lp_strip *strip, int source); /* it writes, or has bytes in the strip */
const char *lp_report_kind(lp_strip_kind kind);
/* report_svg_cli.c: one strip as a document. */
void lp_report_write_svg(FILE *out, const lp_trace *trace, const lp_strip *strip, const lp_destination *dest);
/* report_tables_cli.c: findings, families, fallbacks, ranks. */
void lp_report_write_findings(const lp_report_page *page, const lp_findings *findings);
lp_status lp_report_write_families(const lp_report_page *page, lp_error *err);
lp_status lp_report_write_fallbacks(const lp_report_page *page, lp_error *err);
void lp_report_write_ranks(const lp_report_page *page);

int lp_cli_report(lp_cli *cli);

/* report_style_cli.c: the page's style, and the colours of source families, which pictures share. */
extern const char lp_report_css[], lp_report_colours[];

#endif
