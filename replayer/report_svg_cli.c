/* SPDX-License-Identifier: Apache-2.0 */
/* One strip as a picture of its own, for documents: title, strip, a line for each source. Light and dark like a page.
 */
#include "replayer/report_cli.h"

#include <inttypes.h>

enum { WIDTH = 760, MARGIN = 12, LINE = 20, STRIP_Y = 34, STRIP_HEIGHT = 36 };

static const char css[] =
    "text{font:13px ui-monospace,monospace;fill:#1b1f24}.t{font-weight:600}.s{fill:#57606a}"
    ".edge{fill:none;stroke:#8c959f}.none{fill:#fff}.fill{fill:#999}.h{opacity:.62}.over{stroke:#0b0d10}"
    "@media (prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9aa6b2}.none{fill:#0f1318}.over{stroke:#e6edf3}}";

/* What fits on a line; the title of a picture holds the whole name. */
static void print_cut(FILE *out, const char *text)
{
    char cut[80];
    if (lp_sanitise(cut, sizeof cut, text, strlen(text)) >= sizeof cut)
        memcpy(cut + sizeof cut - 4, "...", 4);
    lp_report_text(out, cut);
}

static void print_source(FILE *out, const lp_trace *trace, const lp_strip *s, int number, int y)
{
    const lp_strip_source *source = &s->source[number];
    const lp_provenance *p = lp_trace_provenance(trace, source->provenance);
    char bytes[32];
    fprintf(out, "<svg x=\"%d\" y=\"%d\" width=\"28\" height=\"10\" viewBox=\"0 0 28 10\">", MARGIN, y - 9);
    lp_report_write_chip(out, s, number);
    fprintf(out, "</svg><text x=\"%d\" y=\"%d\">%s", MARGIN + 38, y, lp_report_kind(source->kind));
    if (source->family[0] != '\0') {
        fputs(" of ", out);
        print_cut(out, source->family);
    }
    fputs("</text>", out);
    if (source->records > 0) {
        fprintf(out, "<text class=\"s\" x=\"%d\" y=\"%d\">%" PRId64 " %s, %s", MARGIN + 38, y + LINE - 3,
                source->records, source->records == 1 ? "time" : "times", lp_format_bytes(bytes, source->bytes));
        if (p != NULL && p->file[0] != '\0') {
            fputs(", at ", out);
            print_cut(out, p->file);
            fprintf(out, ":%" PRId32, p->line);
        }
        fputs("</text>", out);
    }
    fputc('\n', out);
}

void lp_report_write_svg(FILE *out, const lp_trace *trace, const lp_strip *s, const lp_destination *d)
{
    char bytes[32];
    int lines = 0;
    int64_t segments = REPORT_SEGMENTS;
    for (int i = 0; i < s->sources; i++)
        lines += 2 * lp_report_is_shown(s, i);
    const int height = STRIP_Y + STRIP_HEIGHT + 2 * LINE + lines * LINE;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<title>",
            WIDTH, height, WIDTH, height);
    lp_report_text(out, d->name);
    fprintf(out, "</title>\n<style>%s%s</style>\n", css, lp_report_colours);
    lp_report_write_patterns(out);
    fprintf(out, "<text class=\"t\" x=\"%d\" y=\"22\">", MARGIN);
    print_cut(out, d->name);
    fprintf(out, "<tspan class=\"s\"> %s [", lp_dtype_name(d->dtype));
    for (int32_t i = 0; i < d->ndim; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? ", " : "", d->shape[i]);
    fprintf(out, "]</tspan></text>\n<svg x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" ", MARGIN,
            STRIP_Y, WIDTH - 2 * MARGIN, STRIP_HEIGHT, REPORT_WIDTH, LP_STRIP_UNITS);
    fputs("preserveAspectRatio=\"none\">", out);
    lp_report_write_bins(out, s, &segments);
    fprintf(out, "</svg>\n<rect class=\"edge\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", MARGIN, STRIP_Y,
            WIDTH - 2 * MARGIN, STRIP_HEIGHT);
    int y = STRIP_Y + STRIP_HEIGHT + LINE - 4;
    fprintf(out,
            "<text class=\"s\" x=\"%d\" y=\"%d\">byte 0</text><text class=\"s\" x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">%s</text>\n",
            MARGIN, y, WIDTH - MARGIN, y, lp_format_bytes(bytes, s->bytes));
    y += LINE + 4;
    for (int i = 0; i < s->sources; i++) {
        if (!lp_report_is_shown(s, i))
            continue;
        print_source(out, trace, s, i, y);
        y += 2 * LINE;
    }
    fputs("</svg>\n", out);
}
