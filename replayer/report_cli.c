/* SPDX-License-Identifier: Apache-2.0 */
/* `loadplan report`: opens one trace or two, judges them, and writes the page. */
#include "replayer/report_cli.h"

static const int64_t LOOKS = INT64_C(1) << 28;

/* What a load costs is counted of the ranks that the page has room for; the rows of all scopes stay expanded. */
static lp_status open_side(lp_report_side *side, lp_cli *cli, const char *path, lp_error *err)
{
    side->path = path;
    LP_TRY(lp_trace_open_with(&side->trace, path, lp_cli_platform(cli), err));
    LP_TRY(lp_report_rows_make(&side->rows, side->trace, NULL, err));
    side->cost = lp_allocate_zero(NULL, (size_t)side->rows.scope_count * sizeof *side->cost);
    if (side->cost == NULL)
        return lp_fail_memory(err);
    side->costs = side->rows.scope_count < REPORT_RANKS ? side->rows.scope_count : REPORT_RANKS;
    for (int32_t i = 0; i < side->costs; i++)
        LP_TRY(lp_explain(&side->cost[i], side->trace, i, err));
    return LP_OK;
}

static void close_side(lp_report_side *side)
{
    lp_release(NULL, side->cost);
    lp_report_rows_free(&side->rows);
    lp_trace_close(side->trace);
}

static lp_status judge(lp_report_page *page, lp_error *err)
{
    LP_TRY(lp_check(&page->check, page->now.trace, err));
    if (page->base.trace == NULL)
        return LP_OK;
    LP_TRY(lp_diff(&page->diff, page->base.trace, page->now.trace, err));
    return lp_report_rows_compare(&page->now.rows, &page->base.rows, err);
}

int lp_cli_report(lp_cli *cli)
{
    lp_error err;
    lp_report_page page = {.looks = LOOKS, .segments = REPORT_SEGMENTS};
    const char *output = lp_cli_text(cli, "output", NULL), *base = lp_cli_text(cli, "against", NULL);
    if (output == NULL)
        return lp_cli_usage(cli, "a report is a page for a browser: name it with -o FILE");
    int code = 0;
    lp_status status = open_side(&page.now, cli, cli->argument[0], &err);
    if (status == LP_OK && base != NULL)
        status = open_side(&page.base, cli, base, &err);
    if (status == LP_OK)
        status = judge(&page, &err);
    if (status == LP_OK)
        code = lp_cli_open_output(cli, output, lp_cli_flag(cli, "force", false));
    if (status == LP_OK && code == 0) {
        page.out = cli->out;
        status = lp_report_write(&page, &err);
    }
    if (status != LP_OK)
        code = lp_cli_fail(cli, &err);
    else if (code == 0)
        code = lp_cli_close_output(cli);
    lp_findings_free(page.check);
    lp_findings_free(page.diff);
    close_side(&page.now);
    close_side(&page.base);
    return code;
}
