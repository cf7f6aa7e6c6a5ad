/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as text: the report, its short forms, and the lines that would suppress what was found. */
#include "traces/findings_cli.h"

#include "traces/family.h"

#include <stdlib.h>

static int by_family(const void *pa, const void *pb)
{
    const findings_place *a = pa, *b = pb;
    if (a->family != b->family)
        return a->family < b->family ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

findings_place *findings_arrange(const findings_run *run, bool all, int64_t *count)
{
    const lp_findings *f = run->findings;
    const int64_t families = lp_findings_families(f);
    int64_t *place = lp_allocate(NULL, (size_t)families * sizeof *place); /* of a family among those shown; -1: none */
    findings_place *list = lp_allocate(NULL, (size_t)lp_findings_count(f) * sizeof *list);
    int64_t places = 0;
    *count = 0;
    for (int64_t i = 0; place != NULL && i < families; i++)
        place[i] = -1;
    for (int64_t i = 0; place != NULL && list != NULL && i < lp_findings_count(f); i++) {
        if (!all && !findings_is_shown(run, lp_findings_at(f, i)))
            continue;
        const int64_t family = lp_findings_family(f, i);
        if (place[family] < 0)
            place[family] = places++;
        list[(*count)++] = (findings_place){place[family], i};
    }
    if (place == NULL) {
        lp_release(NULL, list);
        list = NULL;
    }
    lp_release(NULL, place);
    if (list != NULL)
        qsort(list, (size_t)*count, sizeof *list, by_family);
    return list;
}

static const lp_finding *at(const findings_run *run, const findings_place *place)
{
    return lp_findings_at(run->findings, place->index);
}

/* ---- the report ---- */

static void print_finding(const lp_cli *cli, const lp_finding *x)
{
    static const char *const colour[] = {"", "\x1b[33m", "\x1b[31m"};
    const bool is_bright = cli->color && x->level > LP_ALLOW && x->suppressed == NULL;
    fprintf(cli->out, "  %s%s %s%s: %s", is_bright ? colour[x->level] : "",
            x->suppressed != NULL ? "suppressed" : findings_level_name(x->level), x->rule->id,
            is_bright ? "\x1b[0m" : "", x->text);
    const bool placed = x->file[0] != '\0' && strstr(x->text, x->file) == NULL;
    if (x->rank >= 0)
        fprintf(cli->out, " (rank %d", (int)x->rank);
    if (placed)
        fprintf(cli->out, "%s%s:%d", x->rank >= 0 ? ", " : " (", lp_cli_clean(x->file), (int)x->line);
    fputs(x->rank >= 0 || placed ? ")\n" : "\n", cli->out);
    if (x->suppressed != NULL)
        fprintf(cli->out, "  reason: %s\n", lp_cli_clean(x->suppressed));
    else if (x->hint[0] != '\0')
        fprintf(cli->out, "  hint: %s\n", x->hint);
}

/* One heading a family, none where the first line has named the only one. */
bool findings_print_text(const findings_run *run)
{
    FILE *out = run->cli->out;
    int64_t count;
    findings_place *list = findings_arrange(run, false, &count);
    if (list == NULL)
        return false;
    fprintf(out, "%s%s\n", run->title, lp_findings_summary(run->findings));
    const bool is_one = count > 0 && list[0].family == list[count - 1].family;
    const bool named = is_one && strstr(lp_findings_summary(run->findings), at(run, &list[0])->family) != NULL;
    for (int64_t i = 0; i < count; i++) {
        const lp_finding *x = at(run, &list[i]);
        if (!named && (i == 0 || list[i].family != list[i - 1].family)) {
            char number[32];
            fprintf(out, "%s (%s %s)\n", lp_cli_clean(x->family), lp_format_count(number, x->members),
                    x->members == 1 ? "tensor" : "tensors");
        }
        print_finding(run->cli, x);
    }
    lp_release(NULL, list);
    return true;
}

/* ---- short forms ---- */

enum { FAMILY_WIDTH_MAX = 60 };

bool findings_print_stat(const findings_run *run)
{
    FILE *out = run->cli->out;
    int64_t count;
    char number[32];
    int width = 0;
    findings_place *list = findings_arrange(run, false, &count);
    if (list == NULL)
        return false;
    for (int64_t i = 0; i < count; i++) {
        const int n = (int)strnlen(lp_cli_clean(at(run, &list[i])->family), FAMILY_WIDTH_MAX);
        width = n > width ? n : width;
    }
    fprintf(out, "%s%s\n", run->title, lp_findings_summary(run->findings));
    for (int64_t i = 0; i < count;) {
        const int64_t family = list[i].family;
        int64_t members = 0;
        for (int64_t k = i; k < count && list[k].family == family; k++)
            members = at(run, &list[k])->members > members ? at(run, &list[k])->members : members;
        fprintf(out, " %-*s | %9s ", width, lp_cli_clean(at(run, &list[i])->family), lp_format_count(number, members));
        for (int64_t k = i; i < count && list[i].family == family; i++) {
            const lp_finding *x = at(run, &list[i]);
            const char sign = x->suppressed != NULL ? '~' : x->level == LP_DENY ? '!' : x->level == LP_WARN ? '?' : '.';
            if (i == k || at(run, &list[i - 1])->rule != x->rule)
                fprintf(out, " %c%s", sign, x->rule->id);
        }
        fputc('\n', out);
    }
    lp_release(NULL, list);
    return true;
}

static void print_name(const lp_cli *cli, const char *name)
{
    if (lp_cli_flag(cli, "null", false))
        fprintf(cli->out, "%s%c", name, '\0');
    else
        fprintf(cli->out, "%s\n", lp_cli_clean(name));
}

bool findings_print_numstat(const findings_run *run)
{
    for (int64_t i = 0; i < lp_findings_count(run->findings); i++) {
        const lp_finding *x = lp_findings_at(run->findings, i);
        if (!findings_is_shown(run, x))
            continue;
        fprintf(run->cli->out, "%lld\t%s\t%s\t", (long long)x->members,
                x->suppressed != NULL ? "suppressed" : findings_level_name(x->level), x->rule->id);
        print_name(run->cli, x->family);
    }
    return true;
}

bool findings_print_names(const findings_run *run)
{
    int64_t count;
    findings_place *list = findings_arrange(run, false, &count);
    if (list == NULL)
        return false;
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || list[i].family != list[i - 1].family)
            print_name(run->cli, at(run, &list[i])->family);
    lp_release(NULL, list);
    return true;
}

/* ---- lines that would suppress it ---- */

/* Bytes of the character at `text`, as far as they are there. */
static size_t character_bytes(const char *text)
{
    const unsigned char lead = (unsigned char)*text;
    const size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const size_t left = strlen(text);
    return bytes < left ? bytes : left;
}

/* A glob of the family that `tensor` is of: '*' for each index, and an escape before what a glob would not take as it
 * is, such as a '*' in a name; bytes that a line of text should not hold become '?'. NULL: out of memory. */
static const char *glob_of(lp_text *glob, const char *tensor)
{
    for (const char *p = tensor; *p != '\0';) {
        char shown[32];
        const size_t bytes = character_bytes(p);
        if (strchr("*?\\", *p) != NULL) {
            lp_text_format(glob, "\\%c", *p);
            p++;
        } else if (lp_sanitise(shown, sizeof shown, p, bytes) == bytes) {
            lp_text_add(glob, p, bytes);
            p += bytes;
        } else {
            lp_text_add(glob, "?", 1);
            p++;
        }
    }
    if (glob->bytes == 0)
        lp_text_add(glob, "*", 1);
    if (glob->failed)
        return NULL;
    lp_family_template(glob->data, glob->data,
                       (size_t)glob->bytes + 1); /* never longer, written behind what it reads */
    return glob->data;
}

bool findings_print_suppress(const findings_run *run)
{
    bool ok = true;
    for (int64_t i = 0; ok && i < lp_findings_count(run->findings); i++) {
        const lp_finding *x = lp_findings_at(run->findings, i), *last = lp_findings_at(run->findings, i - 1);
        lp_text glob, line;
        if (x->suppressed != NULL || !findings_is_shown(run, x) ||
            (last != NULL && last->rule == x->rule && strcmp(last->family, x->family) == 0))
            continue;
        lp_text_init(&glob, NULL);
        lp_text_init(&line, NULL);
        const char *pattern = glob_of(&glob, x->tensor);
        if (pattern != NULL)
            lp_suppression_text(&line, x->rule->id, pattern, NULL);
        ok = pattern != NULL && !line.failed;
        if (ok) {
            fprintf(run->cli->out, "# %s\n", x->text);
            fputs(line.data, run->cli->out);
        }
        lp_text_free(&glob);
        lp_text_free(&line);
    }
    return ok;
}
