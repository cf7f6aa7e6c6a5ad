/* SPDX-License-Identifier: Apache-2.0 */
/* check, loader: what the loader did that the plan cannot repeat (refusals), and what it did that the plan does not
 * need (temporary copies, casts nobody asked for). The latter is in the provenance; without it, nothing is judged. */
#include "traces/check_private.h"

#include <stdio.h>

static lp_status note_refusal(lp_checker *c, const lp_refusal *r, lp_error *err)
{
    const char *name = lp_check_name(c, r->name);
    char what[1024];
    snprintf(what, sizeof what, "%s\n%s", r->operation, r->reason);
    lp_note note = lp_check_note(c, LP_RULE_NON_VIEW_OP, name, what);
    note.map = r->map;
    lp_check_place(c, &note, r->provenance);
    bool first;
    LP_TRY(lp_findings_note(c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    char place[600] = "";
    if (note.file != NULL && note.file[0] != '\0')
        snprintf(place, sizeof place, " at %s:%d", note.file, (int)note.line);
    LP_TRY(lp_findings_text(c->findings, err, "%s (%s)%s: '%s' falls back to the engine's loader on every load",
                            r->operation, r->reason, place, name));
    return lp_findings_hint(c->findings, lp_refusal_hint(r->operation), err);
}

static lp_status note_flag(lp_checker *c, lp_rule_number rule, uint32_t name, uint32_t provenance, const char *text,
                           lp_error *err)
{
    const char *tensor = lp_check_name(c, name);
    lp_note note = lp_check_note(c, rule, tensor, "");
    lp_check_place(c, &note, provenance);
    bool first;
    LP_TRY(lp_findings_note(c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    const lp_provenance *p = lp_trace_provenance(c->t, provenance);
    return p->chain[0] != '\0' ? lp_findings_text(c->findings, err, "'%s' %s: %s", tensor, text, p->chain)
                               : lp_findings_text(c->findings, err, "'%s' %s", tensor, text);
}

static lp_status check_provenance(lp_checker *c, uint32_t name, uint32_t provenance, lp_error *err)
{
    const lp_provenance *p = lp_trace_provenance(c->t, provenance);
    if (p == NULL)
        return LP_OK;
    if (p->flags & LP_PROV_IMPLICIT_CAST)
        LP_TRY(note_flag(c, LP_RULE_IMPLICIT_CAST, name, provenance, "is cast by the copy itself", err));
    if (p->flags & LP_PROV_MATERIALISES)
        LP_TRY(note_flag(c, LP_RULE_MATERIALISES, name, provenance, "goes through a temporary copy", err));
    return LP_OK;
}

lp_status lp_check_loader(lp_checker *c, lp_error *err)
{
    const lp_rows *rows = c->rows;
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        LP_TRY(note_refusal(c, &rows->refusal[i], err));
    for (uint32_t i = 0; i < rows->nrecord; i++)
        if (rows->record[i].provenance != LP_NONE && rows->record[i].name != LP_NAME_BEGIN)
            LP_TRY(check_provenance(c, rows->record[i].name, rows->record[i].provenance, err));
    for (uint32_t i = 0; i < rows->nderive; i++)
        if (rows->derive[i].provenance != LP_NONE)
            for (uint32_t k = 0; k < rows->derive[i].ninput; k++)
                if (rows->derive[i].input[k].staged)
                    LP_TRY(check_provenance(c, rows->derive[i].input[k].index, rows->derive[i].provenance, err));
    return LP_OK;
}
