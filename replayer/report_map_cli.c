/* SPDX-License-Identifier: Apache-2.0 */
/* The map of a report: one row for destinations that are filled alike, with a strip of their bytes and its sources. */
#include "replayer/report_cli.h"

#include <inttypes.h>

static void print_svg(FILE *out, const lp_strip *s, const char *name, int64_t *segments)
{
    char bytes[32];
    fprintf(out, "<svg class=\"strip\" role=\"img\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\"><title>",
            REPORT_WIDTH, LP_STRIP_UNITS);
    lp_report_text(out, name);
    fprintf(out, ": %s, from the first byte to the last:", lp_format_bytes(bytes, s->bytes));
    for (int32_t i = 1; i < s->sources; i++) {
        fprintf(out, "%s %s ", i > 1 ? "," : "", lp_report_kind(s->source[i].kind));
        lp_report_text(out, s->source[i].family);
    }
    fputs("</title>", out);
    lp_report_write_bins(out, s, segments);
    fputs("</svg>\n", out);
}

/* ---- the sources of a strip ---- */

static void print_place(FILE *out, const lp_provenance *p)
{
    if (p == NULL || p->file[0] == '\0')
        return;
    fputs(" <span class=\"soft\">at <code>", out);
    lp_report_text(out, p->file);
    fprintf(out, ":%" PRId32 "</code></span>", p->line);
}

static void print_legend(FILE *out, const lp_trace *trace, const lp_strip *s)
{
    char number[32], bytes[32];
    fputs("<ul class=\"key\">\n", out);
    for (int32_t i = 0; i < s->sources; i++) {
        const lp_strip_source *source = &s->source[i];
        if (!lp_report_is_shown(s, i))
            continue;
        fputs("<li><svg class=\"chip\" aria-hidden=\"true\" viewBox=\"0 0 28 10\">", out);
        lp_report_write_chip(out, s, i);
        fprintf(out, "</svg>%s", lp_report_kind(source->kind));
        if (source->note[0] != '\0') {
            fputs(" (", out);
            lp_report_text(out, source->note);
            fputc(')', out);
        }
        if (source->family[0] != '\0') {
            fputs(source->kind == LP_STRIP_FILL ? " with <span class=\"name\">" : " of <span class=\"name\">", out);
            lp_report_name(out, source->family);
            fputs("</span>", out);
        }
        if (source->records > 0)
            fprintf(out, " <span class=\"soft\">%s %s, %s</span>", lp_format_count(number, source->records),
                    source->records == 1 ? "time" : "times", lp_format_bytes(bytes, source->bytes));
        print_place(out, lp_trace_provenance(trace, source->provenance));
        fputs("</li>\n", out);
    }
    fputs("</ul>\n", out);
}

/* ---- rows ---- */

static void print_shape(FILE *out, const lp_destination *d)
{
    fprintf(out, "%s [", lp_dtype_name(d->dtype));
    for (int32_t i = 0; i < d->ndim; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", d->shape[i]);
    fputc(']', out);
}

static void print_strip(lp_report_page *page, const lp_report_side *side, const lp_strip *strip, const char *name)
{
    char bytes[32];
    if (strip->bins == 0) {
        fputs("<p class=\"soft\">no bytes</p>\n", page->out);
        return;
    }
    print_svg(page->out, strip, name, &page->segments);
    fprintf(page->out, "<div class=\"ends\"><span>byte 0</span><span>%s</span></div>\n",
            lp_format_bytes(bytes, strip->bytes));
    print_legend(page->out, side->trace, strip);
}

static lp_status print_row(lp_report_page *page, const lp_report_row *row, lp_error *err)
{
    FILE *out = page->out;
    char a[32], b[32], c[32];
    const int32_t rank = lp_scope_rank(&page->now.rows.scope[row->scope].rows->scope);
    fprintf(out, "<section class=\"row%s\"><h3 class=\"name\">", row->changed > 0 ? " changed" : "");
    lp_report_name(out, row->family);
    fputs("</h3>\n<p>", out);
    print_shape(out, row->dest);
    if (row->dest->layout[0] != '\0') {
        fputs(", layout <code>", out);
        lp_report_text(out, row->dest->layout);
        fprintf(out, "</code> version %" PRId32, row->dest->layout_version);
    }
    fprintf(out, ", %s %s on %s %s, %s each", lp_format_count(a, row->members),
            row->members == 1 ? "tensor" : "tensors", lp_format_count(b, row->ranks),
            row->ranks == 1 ? "rank" : "ranks", lp_format_bytes(c, row->bytes));
    if (strcmp(row->dest->storage, row->dest->name) != 0) {
        fputs(", in the memory of <span class=\"name\">", out);
        lp_report_name(out, row->dest->storage);
        fputs("</span>", out);
    }
    if ((row->dest->flags & LP_DEST_NO_LOADER) != 0)
        fputs(", which no loader writes", out);
    if (row->changed > 0)
        fprintf(out, "; <span class=\"warn\">! %s changed</span>", lp_format_count(a, row->changed));
    fputs("</p>\n<p class=\"soft\">shown: <span class=\"name\">", out);
    lp_report_name(out, row->dest->name);
    fprintf(out, "</span> of rank %" PRId32 "</p>\n", rank);
    lp_strip strip, old;
    LP_TRY(lp_report_strip(&strip, &page->now.rows, row->scope, row->index, &page->looks, err));
    print_strip(page, &page->now, &strip, row->dest->name);
    int32_t scope;
    uint32_t index;
    if (row->changed > 0) {
        fputs("<p class=\"soft\">in the base:</p>\n", out);
        if (lp_report_rows_find(&page->base.rows, rank, row->dest->name, &scope, &index)) {
            LP_TRY(lp_report_strip(&old, &page->base.rows, scope, index, &page->looks, err));
            lp_report_strip_recolour(&old, &strip);
            print_strip(page, &page->base, &old, row->dest->name);
        } else {
            fputs("<p class=\"soft\">this rank has no tensor of this name</p>\n", out);
        }
    }
    fputs("</section>\n", out);
    return LP_OK;
}

/* Changed rows come first: they are what a comparison is about. */
lp_status lp_report_write_map(lp_report_page *page, lp_error *err)
{
    const lp_report_rows *rows = &page->now.rows;
    int64_t shown = 0;
    char number[32];
    fputs(
        "<h2 id=\"map\">Destinations, and where their bytes come from</h2>\n<p class=\"soft\">A row stands for tensors "
        "whose names differ only in indices and that are filled alike; the strip runs from the first byte of one of "
        "them to its last. Light and dark take turns from source to source.</p>\n",
        page->out);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < rows->count; i++) {
            if ((rows->item[i].changed > 0) == (pass == 1))
                continue;
            if (shown == REPORT_ROWS || page->segments <= 0)
                break;
            LP_TRY(print_row(page, &rows->item[i], err));
            shown++;
        }
    if (shown < rows->count)
        fprintf(page->out, "<p class=\"soft\">%s more rows are not shown; the largest are.</p>\n",
                lp_format_count(number, rows->count - shown));
    return LP_OK;
}
