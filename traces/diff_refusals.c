/* SPDX-License-Identifier: Apache-2.0 */
/* diff, refusals: names that became fallbacks, and fallbacks that did not stay one. */
#include "traces/diff_private.h"

#include <stdio.h>

static lp_status note_refused(lp_differ *d, const lp_refusal *r, bool was_loaded, lp_error *err)
{
    char what[1024], place[600] = "";
    const char *name = lp_diff_name_text(d, 1, r->name);
    snprintf(what, sizeof what, "%s\n%s", r->operation, r->reason);
    lp_note note = lp_diff_note(d, was_loaded ? LP_RULE_COPY_BECAME_REFUSAL : LP_RULE_NEW_REFUSAL, name, what);
    note.map = r->map;
    lp_diff_place(d, &note, r->provenance);
    bool first;
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    if (note.file != NULL && note.file[0] != '\0')
        snprintf(place, sizeof place, " at %s:%d", note.file, (int)note.line);
    LP_TRY(lp_findings_text(d->findings, err, "%s (%s)%s: the name %s falls back to the engine on every load",
                            r->operation, r->reason, place, was_loaded ? "now" : "was not loaded and now"));
    return lp_findings_hint(d->findings, lp_refusal_hint(r->operation), err);
}

static lp_status note_relieved(lp_differ *d, const lp_refusal *r, bool is_loaded, lp_error *err)
{
    bool first;
    const char *name = lp_diff_name_text(d, 0, r->name);
    const lp_note note =
        lp_diff_note(d, is_loaded ? LP_RULE_REFUSAL_BECAME_COPY : LP_RULE_MAP_CHANGED, name, "fallback");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    return is_loaded
               ? lp_findings_text(d->findings, err, "'%s' was a fallback and is now loaded by the plan", name)
               : lp_findings_text(d->findings, err, "'%s' was a fallback and is now neither loaded nor refused", name);
}

lp_status lp_diff_refusals(lp_differ *d, lp_error *err)
{
    for (uint32_t i = 0; i < d->rows[1]->nrefusal; i++) {
        const lp_refusal *r = &d->rows[1]->refusal[i];
        const uint8_t state = d->state[d->name[1][r->name]];
        if (!(state & LP_DIFF_REFUSED))
            LP_TRY(note_refused(d, r, (state & LP_DIFF_LOADED) != 0, err));
    }
    for (uint32_t i = 0; i < d->rows[0]->nrefusal; i++) {
        const lp_refusal *r = &d->rows[0]->refusal[i];
        const uint8_t state = d->state[d->name[0][r->name]];
        if (!(state & LP_DIFF_REFUSED << 1))
            LP_TRY(note_relieved(d, r, (state & LP_DIFF_LOADED << 1) != 0, err));
    }
    return LP_OK;
}
