/* SPDX-License-Identifier: Apache-2.0 */
/* The page of a report, from its head to its end. It holds no script, loads nothing, and says so to the browser. */
#include "replayer/report_cli.h"

#include <stdlib.h>

static void print_escaped(FILE *out, const char *text, bool breaks)
{
    const size_t bytes = strlen(text), room = 4 * bytes + 1;
    char *clean = malloc(room);
    if (clean == NULL)
        return;
    lp_sanitise(clean, room, text, bytes);
    for (const char *p = clean; *p != '\0'; p++) {
        if (!lp_cli_print_entity(out, *p))
            fputc(*p, out);
        if (breaks && *p == '.' && p[1] != '\0')
            fputs("<wbr>", out);
    }
    free(clean);
}

void lp_report_text(FILE *out, const char *text)
{
    print_escaped(out, text, false);
}

void lp_report_name(FILE *out, const char *name)
{
    print_escaped(out, name, true);
}

static void print_fact(FILE *out, const char *what, const char *value)
{
    fprintf(out, "<div><dt>%s</dt><dd>%s</dd></div>", what, value);
}

static lp_status print_facts(const lp_report_page *page, lp_error *err)
{
    FILE *out = page->out;
    const lp_trace *t = page->now.trace;
    const lp_trace_header *header = lp_trace_header_of(t);
    char text[80];
    uint8_t digest[32];
    int64_t records = 0, derives = 0, refusals = 0, dests = 0;
    for (int32_t s = 0; s < page->now.rows.scope_count; s++) {
        const lp_rows *rows = page->now.rows.scope[s].rows;
        records += rows->nrecord;
        derives += rows->nderive;
        refusals += rows->nrefusal;
        dests += rows->ndest;
    }
    LP_TRY(lp_trace_set_digest(t, digest, err));
    fputs("<dl>", out);
    print_fact(out, "ranks", lp_format_count(text, lp_trace_scope_count(t)));
    print_fact(out, "checkpoint names", lp_format_count(text, lp_checkpoint_count(lp_trace_checkpoint(t))));
    print_fact(out, "checkpoint bytes", lp_format_bytes(text, lp_checkpoint_bytes(lp_trace_checkpoint(t))));
    print_fact(out, "destinations", lp_format_count(text, dests));
    print_fact(out, "records", lp_format_count(text, records));
    print_fact(out, "derives", lp_format_count(text, derives));
    print_fact(out, "fallbacks", lp_format_count(text, refusals));
    fputs("<div><dt>loader</dt><dd>", out);
    lp_report_text(out, header->loader[0] != '\0' ? header->loader : "unknown");
    fputs("</dd></div></dl>\n<p class=\"soft\">set digest <code>", out);
    lp_format_hex(text, digest, sizeof digest);
    fprintf(out, "lp1:%s</code></p>\n", text);
    return LP_OK;
}

static void print_verdict(FILE *out, const lp_findings *f)
{
    const lp_level worst = lp_findings_worst(f);
    fprintf(out, "<p class=\"%s\">%s ",
            worst == LP_DENY   ? "deny"
            : worst == LP_WARN ? "warn"
                               : "fine",
            worst == LP_DENY   ? "!"
            : worst == LP_WARN ? "?"
                               : "+");
    lp_report_text(out, lp_findings_summary(f));
    fputs("</p>\n", out);
}

lp_status lp_report_write(lp_report_page *page, lp_error *err)
{
    FILE *out = page->out;
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>loadplan report: ",
          out);
    lp_report_text(out, page->now.path);
    fprintf(out, "</title>\n<style>\n%s%s</style></head>\n<body>\n", lp_report_css, lp_report_colours);
    lp_report_write_patterns(out);
    fputs("<h1>loadplan report</h1>\n<p class=\"name\">", out);
    lp_report_text(out, page->now.path);
    if (page->base.trace != NULL) {
        fputs(" <span class=\"soft\">against</span> ", out);
        lp_report_text(out, page->base.path);
    }
    fputs("</p>\n<nav aria-label=\"sections\">", out);
    if (page->diff != NULL)
        fputs("<a href=\"#difference\">Difference</a>", out);
    fputs("<a href=\"#findings\">Findings</a><a href=\"#map\">Destinations</a><a href=\"#families\">Families</a>"
          "<a href=\"#fallbacks\">Fallbacks</a><a href=\"#ranks\">Ranks</a></nav>\n<main>\n",
          out);
    LP_TRY(print_facts(page, err));
    if (page->diff != NULL) {
        fputs("<h2 id=\"difference\">Difference</h2>\n", out);
        print_verdict(out, page->diff);
        lp_report_write_findings(page, page->diff);
    }
    fputs("<h2 id=\"findings\">Findings</h2>\n", out);
    print_verdict(out, page->check);
    lp_report_write_findings(page, page->check);
    LP_TRY(lp_report_write_map(page, err));
    LP_TRY(lp_report_write_families(page, err));
    LP_TRY(lp_report_write_fallbacks(page, err));
    lp_report_write_ranks(page);
    fprintf(out, "</main>\n<p class=\"soft\">loadplan %s</p>\n</body></html>\n", lp_version());
    return LP_OK;
}
