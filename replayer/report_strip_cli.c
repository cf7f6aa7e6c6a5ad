/* SPDX-License-Identifier: Apache-2.0 */
/* How a strip is drawn: colours by source, patterns by kind, the same on a page and in a picture. */
#include "replayer/report_cli.h"

const char *lp_report_kind(lp_strip_kind kind)
{
    static const char *const words[] = {"no element, or written by nothing",
                                        "copy",
                                        "cast",
                                        "replicate",
                                        "fill",
                                        "derive",
                                        "fallback",
                                        "more than is shown here"};
    return words[kind];
}

/* The pattern that is laid over the colour; "" for none. */
static const char *pattern_of(lp_strip_kind kind)
{
    static const char *const ids[] = {"", "", "cast", "replicate", "fill", "derive", "fallback", ""};
    return ids[kind];
}

static void print_rect(FILE *out, const lp_strip *s, int code, int x, int y, int w, int h)
{
    const lp_strip_source *source = &s->source[code / 2];
    char fill[24];
    if (source->kind == LP_STRIP_NOTHING)
        snprintf(fill, sizeof fill, "none");
    else if (source->kind == LP_STRIP_FILL)
        snprintf(fill, sizeof fill, "fill");
    else
        snprintf(fill, sizeof fill, "g%d%s", (source->colour + REPORT_COLOURS - 1) % REPORT_COLOURS,
                 code % 2 != 0 ? " h" : "");
    fprintf(out, "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", fill, x, y, w, h);
    if (pattern_of(source->kind)[0] != '\0')
        fprintf(out, "<rect fill=\"url(#p-%s)\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>",
                pattern_of(source->kind), x, y, w, h);
}

/* Equal neighbours are one rectangle. */
void lp_report_write_bins(FILE *out, const lp_strip *s, int64_t *segments)
{
    for (int32_t b = 0; b<s->bins && * segments> 0;) {
        int32_t end = b + 1;
        while (end < s->bins && memcmp(s->bin[b].units, s->bin[end].units, sizeof s->bin[b].units) == 0)
            end++;
        int y = 0;
        for (int c = 0; c < LP_STRIP_CODES; c++) {
            const int h = s->bin[b].units[c];
            if (h == 0)
                continue;
            print_rect(out, s, c, b * REPORT_WIDTH / s->bins, y,
                       end * REPORT_WIDTH / s->bins - b * REPORT_WIDTH / s->bins, h);
            y += h;
            --*segments;
        }
        b = end;
    }
}

void lp_report_write_chip(FILE *out, const lp_strip *s, int source)
{
    print_rect(out, s, 2 * source, 0, 0, 28, 10);
}

bool lp_report_is_shown(const lp_strip *s, int source)
{
    bool is_seen = s->source[source].records > 0;
    for (int32_t b = 0; b < s->bins; b++)
        is_seen = is_seen || s->bin[b].units[2 * source] + s->bin[b].units[2 * source + 1] > 0;
    return is_seen;
}

/* What strips lay over colours; drawn once, named by every strip of the page. */
void lp_report_write_patterns(FILE *out)
{
    fputs("<svg width=\"0\" height=\"0\" aria-hidden=\"true\" style=\"position:absolute\"><defs>"
          "<pattern id=\"p-cast\" width=\"12\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
          "<path class=\"over\" d=\"M0 8L12 0\" stroke-width=\"1.2\"/></pattern>"
          "<pattern id=\"p-derive\" width=\"12\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
          "<path class=\"over\" d=\"M0 0L12 8\" stroke-width=\"1.2\"/></pattern>"
          "<pattern id=\"p-fallback\" width=\"12\" height=\"8\" patternUnits=\"userSpaceOnUse\">"
          "<path class=\"over\" d=\"M0 0L12 8M0 8L12 0\" stroke-width=\"1.2\"/></pattern>"
          "<pattern id=\"p-fill\" width=\"8\" height=\"4\" patternUnits=\"userSpaceOnUse\">"
          "<path class=\"over\" d=\"M2 2H5\" stroke-width=\"1.5\"/></pattern>"
          "<pattern id=\"p-replicate\" width=\"12\" height=\"5\" patternUnits=\"userSpaceOnUse\">"
          "<path class=\"over\" d=\"M0 2H12\" stroke-width=\".9\"/></pattern></defs></svg>\n",
          out);
}
