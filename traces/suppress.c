/* SPDX-License-Identifier: Apache-2.0 */
/* Suppressions: the text form, and what they silence. */
#include "traces/suppress.h"
#include "traces/findings_private.h"
#include "traces/glob.h"
#include "traces/text_lines.h"

void lp_suppressions_init(lp_suppressions *s, const lp_alloc *alloc)
{
    *s = (lp_suppressions){.count = 0};
    lp_arena_init(&s->arena, alloc);
}

void lp_suppressions_free(lp_suppressions *s)
{
    lp_release(s->arena.alloc, s->item);
    lp_arena_free(&s->arena);
}

/* ---- the text form ---- */

/* The next word of the line: up to a blank, or in double quotes. NULL when a quote does not end. */
static char *next_word(lp_suppressions *s, lp_lines *l, bool *failed)
{
    lp_lines_skip_blanks(l);
    const char *q = l->at;
    const bool is_quoted = q < l->stop && *q == '"';
    const char *start = q += is_quoted;
    char *word = lp_arena_get(&s->arena, (size_t)(l->stop - q) + 1);
    size_t n = 0;
    *failed = word == NULL;
    if (word == NULL)
        return NULL;
    for (; q < l->stop && (is_quoted ? *q != '"' : !lp_is_blank(*q)); q++) {
        if (is_quoted && *q == '\\' && l->stop - q > 1 && (q[1] == '"' || q[1] == '\\'))
            q++;
        word[n++] = *q;
    }
    word[n] = '\0';
    if (is_quoted && q == l->stop)
        return NULL;
    l->at = q + is_quoted;
    return is_quoted || q > start ? word : NULL;
}

static lp_status read_line(lp_suppressions *s, lp_lines *l, lp_error *err)
{
    bool failed;
    const char *id = next_word(s, l, &failed);
    if (failed)
        return lp_fail_memory(err);
    if (id == NULL)
        return lp_lines_wrong(l, "a quote does not end", NULL, err);
    const lp_rule *rule = lp_rule_find(id);
    if (rule == NULL)
        return lp_lines_wrong(l, "there is no rule", id, err);
    const char *glob = next_word(s, l, &failed);
    if (failed)
        return lp_fail_memory(err);
    if (glob == NULL)
        return lp_lines_wrong(l, "RULE GLOB REASON is wanted, and the glob is missing or its quote does not end", NULL,
                              err);
    lp_lines_skip_blanks(l);
    if (l->at == l->stop)
        return lp_lines_wrong(l, "the reason is missing: say why this is accepted", NULL, err);
    const char *reason = lp_arena_text(&s->arena, l->at, (size_t)(l->stop - l->at));
    if (reason == NULL)
        return lp_fail_memory(err);
    if (strcmp(reason, LP_SUPPRESS_TODO) == 0)
        return lp_lines_wrong(l, "the reason is still to be written in place of", LP_SUPPRESS_TODO, err);
    if (s->count == LP_SUPPRESSIONS_MAX)
        return lp_fail_at(err, LP_E_LIMIT, l->path, -1, "'%s' has more than %d suppressions", l->path,
                          LP_SUPPRESSIONS_MAX);
    if (!lp_grow(s->arena.alloc, (void **)&s->item, &s->capacity, s->count + 1, sizeof *s->item))
        return lp_fail_memory(err);
    s->item[s->count++] = (lp_suppression){.rule = rule, .glob = glob, .reason = reason, .line = l->line};
    return LP_OK;
}

lp_status lp_suppressions_parse(lp_suppressions *s, const char *text, int64_t bytes, const char *path, lp_error *err)
{
    lp_lines l = lp_lines_of(text, bytes, path);
    bool is_one;
    LP_TRY(lp_lines_next(&l, &is_one, err));
    while (is_one) {
        LP_TRY(read_line(s, &l, err));
        LP_TRY(lp_lines_next(&l, &is_one, err));
    }
    return LP_OK;
}

void lp_suppression_text(lp_text *out, const char *rule, const char *glob, const char *reason)
{
    const bool needs_quotes = glob[0] == '\0' || glob[0] == '"' || strpbrk(glob, " \t\r") != NULL;
    lp_text_format(out, "%s ", rule);
    if (!needs_quotes) {
        lp_text_add(out, glob, strlen(glob));
    } else {
        lp_text_add(out, "\"", 1);
        for (const char *p = glob; *p != '\0'; p++) {
            if (*p == '"' || *p == '\\')
                lp_text_add(out, "\\", 1);
            lp_text_add(out, p, 1);
        }
        lp_text_add(out, "\"", 1);
    }
    lp_text_format(out, " %s\n", reason != NULL ? reason : LP_SUPPRESS_TODO);
}

/* ---- what they silence ---- */

/* The first suppression of the rule that matches; all that match are marked as used. */
static const lp_suppression *match(lp_suppressions *s, const lp_rule *rule, const char *tensor)
{
    const lp_suppression *first = NULL;
    for (int64_t i = 0; i < s->count; i++) {
        lp_suppression *x = &s->item[i];
        if (x->rule != rule || !lp_glob_match(x->glob, tensor))
            continue;
        x->is_used = true;
        first = first != NULL ? first : x;
    }
    return first;
}

/* What the members of a finding come to: one that nothing matches leaves it open. */
typedef struct lp_verdict {
    bool is_open;
    const char *reason; /* the first in order of those that matched */
} lp_verdict;

static void judge(lp_suppressions *s, const lp_rule *rule, const char *tensor, lp_verdict *v)
{
    const lp_suppression *x = match(s, rule, tensor);
    v->is_open = v->is_open || x == NULL;
    if (x != NULL && (v->reason == NULL || strcmp(x->reason, v->reason) < 0))
        v->reason = x->reason;
}

lp_status lp_findings_suppress(lp_findings *f, lp_suppressions *s, lp_error *err)
{
    lp_verdict *verdict = lp_allocate_zero(f->alloc, (size_t)f->count * sizeof *verdict);
    int64_t *at = lp_allocate_zero(f->alloc, (size_t)f->count * sizeof *at);
    lp_status status = LP_OK;
    if (verdict == NULL || at == NULL) {
        status = lp_fail_memory(err);
        goto free_lists;
    }
    /* Members carry the number that their group had before it was sorted; the witness is not among them. */
    for (int64_t i = 0; i < f->count; i++) {
        at[f->item[i].born] = i;
        judge(s, f->item[i].finding.rule, f->item[i].finding.tensor, &verdict[i]);
    }
    for (int64_t i = 0; i < f->member_size; i++) {
        if (f->member[i] == 0)
            continue;
        const int64_t group = at[(f->member[i] >> 32) - 1];
        judge(s, f->item[group].finding.rule, f->names.text[(uint32_t)f->member[i]], &verdict[group]);
    }
    for (int64_t i = 0; status == LP_OK && i < f->count; i++) {
        if (verdict[i].is_open || verdict[i].reason == NULL)
            continue;
        f->item[i].finding.suppressed = lp_arena_text(&f->arena, verdict[i].reason, strlen(verdict[i].reason));
        if (f->item[i].finding.suppressed == NULL)
            status = lp_fail_memory(err);
    }
    if (status == LP_OK)
        status = lp_findings_arrange(f, err);

free_lists:
    lp_release(f->alloc, at);
    lp_release(f->alloc, verdict);
    return status;
}
