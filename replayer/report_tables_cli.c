/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a report: findings, families of checkpoint names, fallbacks, and what each rank carries. */
#include "replayer/report_cli.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- findings ---- */

static const char *level_text(lp_level level)
{
    return level == LP_DENY ? "deny" : level == LP_WARN ? "warn" : "allow";
}

/* Whether the text of a finding, which has a file, names the loader's line itself. */
static bool names_place(const lp_finding *x)
{
    char line[16];
    const int digits = snprintf(line, sizeof line, ":%" PRId32, x->line);
    const size_t bytes = strlen(x->file);
    for (const char *at = strstr(x->text, x->file); at != NULL; at = strstr(at + 1, x->file))
        if (strncmp(at + bytes, line, (size_t)digits) == 0 && strchr("0123456789", at[bytes + (size_t)digits]) == NULL)
            return true;
    return false;
}

void lp_report_write_findings(const lp_report_page *page, const lp_findings *f)
{
    static const char sign[] = ".?!";
    FILE *out = page->out;
    const int64_t count = lp_findings_count(f);
    char number[32];
    if (count == 0)
        return;
    fputs("<div class=\"scroll\"><table class=\"cards\"><thead><tr><th>level</th><th>rule</th><th>family</th><th "
          "class=\"n\">tensors</th>"
          "<th>what</th></tr></thead><tbody>\n",
          out);
    for (int64_t i = 0; i < count && i < REPORT_LINES; i++) {
        const lp_finding *x = lp_findings_at(f, i);
        fprintf(out, "<tr><td class=\"level %s\">%c %s</td><td><code>%s</code></td><td class=\"name\">",
                level_text(x->level), sign[x->level], level_text(x->level), x->rule->id);
        lp_report_name(out, x->family);
        fprintf(out, "</td><td class=\"n\">%s<span class=\"unit\"> %s</span></td><td class=\"what\">",
                lp_format_count(number, x->members), x->members == 1 ? "tensor" : "tensors");
        lp_report_name(out, x->text);
        if (x->file[0] != '\0' && !names_place(x)) {
            fputs(" <code class=\"path\">", out);
            lp_report_text(out, x->file);
            fprintf(out, ":%" PRId32 "</code>", x->line);
        }
        if (x->hint[0] != '\0') {
            fputs("<br><span class=\"soft\">hint: ", out);
            lp_report_text(out, x->hint);
            fputs("</span>", out);
        }
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (count > REPORT_LINES)
        fprintf(out, "<p class=\"soft\">%s more findings are not shown.</p>\n",
                lp_format_count(number, count - REPORT_LINES));
}

/* ---- families of names ---- */

typedef struct family_sum {
    const char *family;
    int64_t names, bytes, read, records, refused;
    uint32_t kinds;
} family_sum;

static int by_bytes(const void *pa, const void *pb)
{
    const family_sum *a = pa, *b = pb;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return strcmp(a->family, b->family);
}

static void sum_scope(const lp_report_rows *r, int32_t scope, family_sum *sum)
{
    const lp_rows *rows = r->scope[scope].rows;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        const lp_record *x = &rows->record[i];
        if (x->name == LP_NAME_BEGIN)
            continue;
        family_sum *f = &sum[r->name_family[x->name]];
        f->records++;
        f->read += x->map->dst_bytes;
        f->kinds |= 1u << x->kind;
    }
    for (uint32_t i = 0; i < rows->nderive; i++)
        for (uint32_t k = 0; k < rows->derive[i].ninput; k++)
            if (rows->derive[i].input[k].staged)
                sum[r->name_family[rows->derive[i].input[k].index]].kinds |= 1u << LP_STRIP_DERIVE;
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        sum[r->name_family[rows->refusal[i].name]].kinds |= 1u << LP_STRIP_FALLBACK;
        sum[r->name_family[rows->refusal[i].name]].refused++;
    }
}

static void print_kinds(FILE *out, uint32_t kinds)
{
    static const char *const words[] = {"", "copy", "cast", "replicate", "fill", "derive", "fallback"};
    bool is_first = true;
    for (unsigned k = LP_STRIP_COPY; k <= LP_STRIP_FALLBACK; k++)
        if ((kinds & 1u << k) != 0) {
            fprintf(out, "%s%s", is_first ? "" : ", ", words[k]);
            is_first = false;
        }
    if (is_first)
        fputs("<span class=\"warn\">not loaded</span>", out);
}

lp_status lp_report_write_families(const lp_report_page *page, lp_error *err)
{
    FILE *out = page->out;
    const lp_report_rows *r = &page->now.rows;
    const lp_checkpoint *c = lp_trace_checkpoint(page->now.trace);
    family_sum *sum = lp_allocate_zero(NULL, (size_t)r->family.count * sizeof *sum);
    if (sum == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < r->family.count; i++)
        sum[i].family = r->family.text[i];
    for (int64_t i = 0; i < lp_checkpoint_count(c); i++) {
        sum[r->name_family[i]].names++;
        sum[r->name_family[i]].bytes += lp_checkpoint_at(c, i)->bytes;
    }
    for (int32_t s = 0; s < r->scope_count; s++)
        sum_scope(r, s, sum);
    if (r->family.count > 1)
        qsort(sum, (size_t)r->family.count, sizeof *sum, by_bytes);
    fputs("<h2 id=\"families\">Families of the checkpoint</h2>\n<div class=\"scroll\"><table "
          "class=\"cards\"><thead><tr><th>family</th>"
          "<th class=\"n\">names</th><th class=\"n\">bytes</th><th class=\"n\">written, all ranks</th>"
          "<th>how</th></tr></thead><tbody>\n",
          out);
    int64_t shown = 0, told = 0;
    char a[32], b[32], w[32];
    for (int64_t i = 0; i < r->family.count; i++) {
        if (sum[i].names == 0) /* a family of destinations only */
            continue;
        told++;
        if (shown == REPORT_LINES)
            continue;
        shown++;
        fputs("<tr><td class=\"name\">", out);
        lp_report_name(out, sum[i].family);
        fprintf(out,
                "</td><td class=\"n\">%s<span class=\"unit\"> %s</span></td><td class=\"n\">%s</td>"
                "<td class=\"n\"><span class=\"unit\">written </span>%s</td><td>",
                lp_format_count(a, sum[i].names), sum[i].names == 1 ? "name" : "names",
                lp_format_bytes(b, sum[i].bytes), lp_format_bytes(w, sum[i].read));
        print_kinds(out, sum[i].kinds);
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (told > shown)
        fprintf(out, "<p class=\"soft\">%s more families are not shown; the largest are.</p>\n",
                lp_format_count(a, told - shown));
    lp_release(NULL, sum);
    return LP_OK;
}

/* ---- fallbacks ---- */

typedef struct fallback {
    const char *family, *operation, *reason, *file;
    int32_t line;
    int64_t names;
} fallback;

static int by_text(const void *pa, const void *pb)
{
    const fallback *a = pa, *b = pb;
    int order = strcmp(a->family, b->family);
    order = order != 0 ? order : strcmp(a->operation, b->operation);
    order = order != 0 ? order : strcmp(a->reason, b->reason);
    order = order != 0 ? order : strcmp(a->file, b->file);
    return order != 0 ? order : (a->line > b->line) - (a->line < b->line);
}

lp_status lp_report_write_fallbacks(const lp_report_page *page, lp_error *err)
{
    FILE *out = page->out;
    const lp_report_rows *r = &page->now.rows;
    fallback *list = NULL;
    int64_t count = 0, capacity = 0;
    char number[32];
    for (int32_t s = 0; s < r->scope_count; s++)
        for (uint32_t i = 0; i < r->scope[s].rows->nrefusal; i++) {
            const lp_refusal *x = &r->scope[s].rows->refusal[i];
            const lp_provenance *p = lp_trace_provenance(page->now.trace, x->provenance);
            if (!lp_grow(NULL, (void **)&list, &capacity, count + 1, sizeof *list)) {
                lp_release(NULL, list);
                return lp_fail_memory(err);
            }
            list[count++] = (fallback){.family = r->family.text[r->name_family[x->name]],
                                       .operation = x->operation,
                                       .reason = x->reason,
                                       .file = p != NULL ? p->file : "",
                                       .line = p != NULL ? p->line : 0};
        }
    fputs("<h2 id=\"fallbacks\">Fallbacks: what the engine has to load itself</h2>\n", out);
    if (count == 0) {
        fputs("<p class=\"fine\">none: the plan loads every name that the loader took up</p>\n", out);
        return LP_OK;
    }
    qsort(list, (size_t)count, sizeof *list, by_text);
    fputs("<div class=\"scroll\"><table class=\"cards\"><thead><tr><th>family</th><th class=\"n\">names, all "
          "ranks</th><th>refused "
          "operation</th><th>loader</th></tr></thead><tbody>\n",
          out);
    int64_t shown = 0;
    for (int64_t i = 0; i < count && shown < REPORT_LINES; shown++) {
        const fallback *x = &list[i];
        int64_t same = 0;
        while (i < count && by_text(x, &list[i]) == 0) {
            i++;
            same++;
        }
        fputs("<tr><td class=\"name\">", out);
        lp_report_name(out, x->family);
        fprintf(out, "</td><td class=\"n\">%s<span class=\"unit\"> %s</span></td><td class=\"what\">",
                lp_format_count(number, same), same == 1 ? "name" : "names");
        lp_report_text(out, x->operation);
        fputs(": ", out);
        lp_report_text(out, x->reason);
        fputs("</td><td class=\"name\">", out);
        if (x->file[0] != '\0') {
            lp_report_text(out, x->file);
            fprintf(out, ":%" PRId32, x->line);
        }
        fputs("</td></tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (shown == REPORT_LINES)
        fputs("<p class=\"soft\">Where there are more, they are not shown.</p>\n", out);
    lp_release(NULL, list);
    return LP_OK;
}

/* ---- ranks ---- */

static void print_bar(FILE *out, const char *class, int64_t value, int64_t most)
{
    fprintf(out, "<span class=\"%s\" style=\"width:%.1f%%\"></span>", class,
            most > 0 ? 100.0 * (double)value / (double)most : 0.0);
}

/* A number under its heading; on a phone, where rows are cards, behind its own word. */
static void print_cell(FILE *out, const char *word, const char *number)
{
    fprintf(out, "<td class=\"n\"><span class=\"unit\">%s </span>%s</td>", word, number);
}

void lp_report_write_ranks(const lp_report_page *page)
{
    FILE *out = page->out;
    const lp_trace *t = page->now.trace, *old = page->base.trace;
    const int32_t count = page->now.costs, all = lp_trace_scope_count(t);
    int64_t most = 0, least = INT64_MAX;
    char text[32], other_text[32];
    for (int32_t i = 0; i < count; i++) {
        most = page->now.cost[i].bytes_read > most ? page->now.cost[i].bytes_read : most;
        least = page->now.cost[i].bytes_read < least ? page->now.cost[i].bytes_read : least;
    }
    int64_t scale = most;
    for (int32_t i = 0; i < page->base.costs; i++)
        scale = page->base.cost[i].bytes_read > scale ? page->base.cost[i].bytes_read : scale;
    fputs("<h2 id=\"ranks\">Balance of the ranks</h2>\n", out);
    if (count > 1)
        fprintf(out, "<p>The busiest of these ranks reads %s, the idlest %s%s.</p>\n", lp_format_bytes(text, most),
                lp_format_bytes(other_text, least), most == least ? ": they are even" : "");
    fprintf(out,
            "<div class=\"scroll\"><table class=\"cards\"><thead><tr><th>rank</th><th class=\"wide\">reads%s</th><th "
            "class=\"n\">reads"
            "</th><th class=\"n\">writes</th><th class=\"n\">stages</th><th class=\"n\">derives</th><th class=\"n\">"
            "fallbacks</th></tr></thead><tbody>\n",
            old != NULL ? " (thin: the base)" : "");
    for (int32_t i = 0; i < count; i++) {
        const lp_explanation *e = &page->now.cost[i];
        const int32_t rank = lp_scope_rank(lp_trace_scope_at(t, i));
        const int32_t other = old != NULL ? lp_trace_scope_find(old, rank) : -1;
        fprintf(out, "<tr><td><span class=\"unit\">rank </span>%" PRId32 "</td><td class=\"wide\">", rank);
        print_bar(out, "bar", e->bytes_read, scale);
        if (other >= 0 && other < page->base.costs)
            print_bar(out, "bar old", page->base.cost[other].bytes_read, scale);
        fputs("</td>", out);
        print_cell(out, "reads", lp_format_bytes(text, e->bytes_read));
        print_cell(out, "writes", lp_format_bytes(text, e->bytes_written));
        print_cell(out, "stages", lp_format_bytes(text, e->bytes_staged));
        print_cell(out, "derives", lp_format_count(text, e->derives));
        print_cell(out, "fallbacks", lp_format_count(text, e->fallbacks));
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    if (all > count)
        fprintf(out, "<p class=\"soft\">%" PRId32 " more ranks are not shown.</p>\n", all - count);
}
