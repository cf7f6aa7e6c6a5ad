/* SPDX-License-Identifier: Apache-2.0 */
/* Findings at the end: their order, and the first line of the report. */
#include "traces/findings_private.h"

#include <inttypes.h>
#include <stdlib.h>

static int compare_groups(const void *pa, const void *pb)
{
    const lp_finding_group *a = pa, *b = pb;
    if ((a->finding.suppressed != NULL) != (b->finding.suppressed != NULL))
        return a->finding.suppressed != NULL ? 1 : -1;
    if (a->finding.level != b->finding.level)
        return a->finding.level > b->finding.level ? -1 : 1;
    if (a->number != b->number)
        return a->number < b->number ? -1 : 1;
    int order = lp_family_compare(a->finding.family, b->finding.family);
    if (order == 0)
        order = strcmp(a->finding.file, b->finding.file);
    if (order == 0)
        order = (a->finding.line > b->finding.line) - (a->finding.line < b->finding.line);
    return order != 0 ? order : strcmp(a->what, b->what);
}

/* Suppressed findings stand at the end; the others are what the first line speaks of. */
static int64_t counting(const lp_findings *f)
{
    int64_t n = f->count;
    while (n > 0 && f->item[n - 1].finding.suppressed != NULL)
        n--;
    return n;
}

static const char *plural(int64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

static int64_t members_with(const lp_findings *f, uint8_t fate)
{
    int64_t n = 0;
    for (int64_t i = 0; i < f->names.count; i++)
        n += (f->fate[i] & fate) != 0;
    return n;
}

/* Distinct families among the findings that are worse, or better; -1 when out of memory. */
static int64_t families_of(const lp_findings *f, bool worse)
{
    const int64_t judged = counting(f);
    int64_t count = 0;
    bool *seen = lp_allocate_zero(f->alloc, (size_t)f->names.count * sizeof *seen);
    if (seen == NULL)
        return -1;
    for (int64_t i = 0; i < judged; i++) {
        const lp_finding_group *g = &f->item[i];
        const bool counts = worse ? g->finding.level > LP_ALLOW : g->number == LP_RULE_REFUSAL_BECAME_COPY;
        count += counts && !seen[g->family];
        seen[g->family] |= counts;
    }
    lp_release(f->alloc, seen);
    return count;
}

/* What was not looked at may be anything. */
static char *nothing_selected(lp_findings *f)
{
    char glob[256];
    if (f->has_only_names)
        return lp_arena_format(&f->arena, "nothing to tell of what the chosen rows speak of");
    lp_sanitise(glob, sizeof glob, f->only, strlen(f->only));
    return lp_arena_format(&f->arena, "nothing to tell of tensors that match '%s'", glob);
}

static char *check_summary(lp_findings *f)
{
    const int64_t judged = counting(f);
    int64_t denied = 0, warned = 0;
    char derives[32];
    for (int64_t i = 0; i < judged; i++) {
        denied += f->item[i].finding.level == LP_DENY;
        warned += f->item[i].finding.level == LP_WARN;
    }
    if (denied == 0 && warned == 0 && f->count > 0) /* allowed or suppressed, but there */
        return lp_arena_format(&f->arena, "nothing denied, nothing to warn of");
    if (denied == 0 && warned == 0 && (f->only != NULL || f->has_only_names))
        return nothing_selected(f);
    if (denied == 0 && warned == 0)
        return lp_arena_format(&f->arena,
                               "ok: every destination byte written exactly once, in any order and any split; %s "
                               "%s, 0 fallbacks",
                               lp_format_count(derives, f->tally.derives),
                               plural(f->tally.derives, "derive", "derives"));
    const lp_finding *worst = &f->item[0].finding;
    char count[32], family[512];
    lp_sanitise(family, sizeof family, worst->family, strlen(worst->family));
    return lp_arena_format(&f->arena, "%" PRId64 " denied, %" PRId64 " %s: %s in %s (%s %s)%s", denied, warned,
                           plural(warned, "warning", "warnings"), worst->rule->id, family,
                           lp_format_count(count, worst->members), plural(worst->members, "tensor", "tensors"),
                           denied + warned > 1 ? ", ..." : "");
}

static char *diff_summary(lp_findings *f)
{
    const int64_t worse = families_of(f, true), better = families_of(f, false);
    if (worse < 0 || better < 0)
        return NULL;
    if (f->count == 0 && (f->only != NULL || f->has_only_names) && f->tally.changed_scopes > 0)
        return nothing_selected(f);
    if (counting(f) == 0) {
        if (f->count > 0)
            return lp_arena_format(&f->arena, "no change that was not accepted");
        if (f->tally.changed_scopes > 0)
            return lp_arena_format(&f->arena, "no change in meaning: same bytes, other form");
        return lp_arena_format(&f->arena, "no change: %" PRId64 " %s with equal plan digests", f->tally.scopes,
                               plural(f->tally.scopes, "rank", "ranks"));
    }
    const lp_finding *first = &f->item[0].finding;
    char a[32], b[32], c[32], d[32], family[512];
    char *head = lp_arena_format(&f->arena, "%s %s worse, %s better", lp_format_count(a, worse),
                                 plural(worse, "family", "families"), lp_format_count(b, better));
    if (head == NULL)
        return NULL;
    if (worse == 1 && better == 0) {
        lp_sanitise(family, sizeof family, first->family, strlen(first->family));
        return lp_arena_format(&f->arena, "%s: %s (%s %s)", head, family, lp_format_count(a, first->members),
                               plural(first->members, "tensor", "tensors"));
    }
    const int64_t changed = members_with(f, LP_FATE_CHANGED), refused = members_with(f, LP_FATE_REFUSED);
    head = lp_arena_format(&f->arena, "%s: %s %s changed, %s added, %s removed", head, lp_format_count(a, changed),
                           plural(changed, "tensor", "tensors"), lp_format_count(b, members_with(f, LP_FATE_ADDED)),
                           lp_format_count(c, members_with(f, LP_FATE_REMOVED)));
    if (head != NULL && refused > 0)
        head = lp_arena_format(
            &f->arena, "%s; %s", head,
            refused == 1 ? "1 copy became a refusal"
                         : lp_arena_format(&f->arena, "%s copies became refusals", lp_format_count(d, refused)));
    return head;
}

/* Another layout moves no byte of a rank by itself, but then two recordings have no set digest in common. */
static const char *with_layouts(lp_findings *f, const char *summary)
{
    const lp_scope *a = &f->tally.was, *b = &f->tally.is;
    if (a->pp == b->pp && a->dp == b->dp && a->tp == b->tp && a->expert_parallel == b->expert_parallel)
        return summary;
    return lp_arena_format(&f->arena, "%s; parallel layout pp=%d dp=%d tp=%d ep=%d, was pp=%d dp=%d tp=%d ep=%d",
                           summary, (int)b->pp, (int)b->dp, (int)b->tp, b->expert_parallel, (int)a->pp, (int)a->dp,
                           (int)a->tp, a->expert_parallel);
}

lp_status lp_findings_arrange(lp_findings *f, lp_error *err)
{
    if (f->count > 1)
        qsort(f->item, (size_t)f->count, sizeof *f->item, compare_groups);
    const char *summary = f->tally.of_diff ? diff_summary(f) : check_summary(f);
    const int64_t suppressed = f->count - counting(f);
    if (summary != NULL)
        summary = with_layouts(f, summary);
    if (summary != NULL && suppressed > 0)
        summary = lp_arena_format(&f->arena, "%s; %" PRId64 " %s suppressed", summary, suppressed,
                                  plural(suppressed, "finding", "findings"));
    if (summary == NULL)
        return lp_fail_memory(err);
    f->summary = summary;
    return LP_OK;
}

lp_status lp_findings_seal(lp_findings *f, const lp_tally *tally, lp_error *err)
{
    f->tally = *tally;
    return lp_findings_arrange(f, err);
}

lp_status lp_findings_set_level(lp_findings *f, const lp_rule *rule, lp_level level, lp_error *err)
{
    for (int64_t i = 0; i < f->count; i++)
        if (f->item[i].finding.rule == rule)
            f->item[i].finding.level = level;
    return lp_findings_arrange(f, err);
}
