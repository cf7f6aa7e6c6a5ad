/* SPDX-License-Identifier: Apache-2.0 */
/* diff: what changed in meaning between two traces. Scopes whose plan digests are equal are equal; the others are
 * compared row by row under common numbers. */
#include "traces/diff_private.h"

#include <inttypes.h>

lp_note lp_diff_note(const lp_differ *d, lp_rule_number rule, const char *tensor, const char *what)
{
    return (lp_note){.rule = rule, .tensor = tensor, .what = what, .rank = d->rank, .byte_lo = -1, .byte_hi = -1};
}

void lp_diff_place(const lp_differ *d, lp_note *note, uint32_t provenance)
{
    const lp_provenance *p = lp_trace_provenance(d->t[1], provenance);
    if (p == NULL)
        return;
    note->file = p->file;
    note->line = p->line;
}

/* ---- the pair of scopes at hand ---- */

static void note_states(lp_differ *d)
{
    memset(d->state, 0, d->names);
    for (int side = 0; side < 2; side++) {
        memset(d->read[side], 0, d->names * sizeof *d->read[side]);
        memset(d->staged[side], 0, d->names * sizeof *d->staged[side]);
        const lp_rows *rows = d->rows[side];
        for (uint32_t i = 0; i < rows->nrecord; i++)
            if (rows->record[i].name != LP_NAME_BEGIN)
                d->state[d->name[side][rows->record[i].name]] |= (uint8_t)(LP_DIFF_LOADED << side);
        for (uint32_t i = 0; i < rows->nderive; i++)
            for (uint32_t k = 0; k < rows->derive[i].ninput; k++)
                if (rows->derive[i].input[k].staged)
                    d->state[d->name[side][rows->derive[i].input[k].index]] |= (uint8_t)(LP_DIFF_LOADED << side);
        for (uint32_t i = 0; i < rows->nrefusal; i++)
            d->state[d->name[side][rows->refusal[i].name]] |= (uint8_t)(LP_DIFF_REFUSED << side);
    }
}

static lp_status note_more(lp_differ *d, lp_rule_number rule, int64_t index, int64_t more, const char *what,
                           lp_error *err)
{
    bool first;
    const char *name = lp_diff_name_text(d, 1, (uint32_t)index);
    const lp_note note = lp_diff_note(d, rule, name, "");
    LP_TRY(lp_findings_note(d->findings, &note, &first, err));
    return first ? lp_findings_text(d->findings, err, "%" PRId64 " more bytes of '%s' are %s", more, name, what)
                 : LP_OK;
}

/* Names that both checkpoints have and the engine did not load by itself before. */
static lp_status compare_costs(lp_differ *d, lp_error *err)
{
    for (int64_t i = 0; i < lp_checkpoint_count(d->checkpoint[1]); i++) {
        const uint32_t n = d->name[1][i];
        if (d->state[n] & LP_DIFF_REFUSED)
            continue;
        if (d->read[1][n] > d->read[0][n])
            LP_TRY(note_more(d, LP_RULE_MORE_BYTES_READ, i, d->read[1][n] - d->read[0][n], "read", err));
        if (d->staged[1][n] > d->staged[0][n])
            LP_TRY(note_more(d, LP_RULE_MORE_BYTES_STAGED, i, d->staged[1][n] - d->staged[0][n], "staged for derives",
                             err));
    }
    return LP_OK;
}

static void free_scope(lp_differ *d)
{
    for (int side = 0; side < 2; side++) {
        lp_release(d->alloc, d->dest[side]);
        lp_release(d->alloc, d->dest_at[side]);
        d->dest[side] = d->dest_at[side] = NULL;
    }
}

static lp_status diff_scope(lp_differ *d, int32_t base, int32_t changed, lp_error *err)
{
    lp_status status;
    LP_TRY(lp_trace_rows(d->t[0], base, &d->rows[0], err));
    LP_TRY(lp_trace_rows(d->t[1], changed, &d->rows[1], err));
    d->rank = lp_scope_rank(&d->rows[0]->scope);
    d->tally.scopes++;
    if (memcmp(d->rows[0]->digest, d->rows[1]->digest, sizeof d->rows[0]->digest) == 0)
        return LP_OK;
    d->tally.changed_scopes++;
    LP_TRY_GOTO(lp_diff_align_dests(d, err), free_scope);
    note_states(d);
    LP_TRY_GOTO(lp_diff_dests(d, err), free_scope);
    LP_TRY_GOTO(lp_diff_refusals(d, err), free_scope);
    LP_TRY_GOTO(lp_diff_records(d, err), free_scope);
    LP_TRY_GOTO(lp_diff_derives(d, err), free_scope);
    LP_TRY_GOTO(compare_costs(d, err), free_scope);

free_scope:
    free_scope(d);
    return status;
}

static lp_status lone_scope(lp_differ *d, int side, int32_t index, lp_error *err)
{
    const lp_rows *rows;
    LP_TRY(lp_trace_rows(d->t[side], index, &rows, err));
    d->rank = lp_scope_rank(&rows->scope);
    d->tally.changed_scopes++;
    return lp_diff_lone_scope(d, side, rows, err);
}

/* ---- whole traces ---- */

static bool scope_digests_equal(const lp_differ *d, int32_t a, int32_t b)
{
    return memcmp(d->t[0]->scope[a].digest, d->t[1]->scope[b].digest, sizeof d->t[0]->scope[a].digest) == 0;
}

/* Both lists rise by rank. Stored digests settle what is equal; a stored digest that lies shows when a trace is opened
 * for use, and `check` recomputes all of them. */
static lp_status diff_scopes(lp_differ *d, lp_error *err)
{
    const int32_t n[2] = {d->t[0]->scope_count, d->t[1]->scope_count};
    bool aligned = false;
    for (int32_t i = 0, j = 0; i < n[0] || j < n[1];) {
        const int32_t a = i < n[0] ? lp_scope_rank(&d->t[0]->scope[i].scope) : INT32_MAX;
        const int32_t b = j < n[1] ? lp_scope_rank(&d->t[1]->scope[j].scope) : INT32_MAX;
        if (a < b) {
            LP_TRY(lone_scope(d, 0, i++, err));
        } else if (b < a) {
            LP_TRY(lone_scope(d, 1, j++, err));
        } else {
            if (scope_digests_equal(d, i, j)) {
                d->tally.scopes++;
            } else {
                if (!aligned)
                    LP_TRY(lp_diff_align_names(d, err));
                aligned = true;
                LP_TRY(diff_scope(d, i, j, err));
            }
            i++;
            j++;
        }
    }
    return LP_OK;
}

lp_status lp_diff_only(lp_findings **out, const lp_trace *base, const lp_trace *changed, const lp_tensor_choice *choice,
                       lp_error *err)
{
    lp_differ d = {.t = {base, changed},
                   .alloc = changed->platform.alloc,
                   .runs_left = LP_DIFF_RUNS_MAX,
                   .tally = {.of_diff = true, .was = base->header.layout, .is = changed->header.layout}};
    lp_status status;
    *out = NULL;
    if (!base->sealed || !changed->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is not sealed yet");
    d.checkpoint[0] = lp_trace_checkpoint(base);
    d.checkpoint[1] = lp_trace_checkpoint(changed);
    LP_TRY_GOTO(lp_findings_new(&d.findings, d.alloc, err), free_state);
    LP_TRY_GOTO(lp_findings_only(d.findings, changed, choice, err), free_state);
    LP_TRY_GOTO(diff_scopes(&d, err), free_state);
    LP_TRY_GOTO(lp_findings_seal(d.findings, &d.tally, err), free_state);
    *out = d.findings;
    d.findings = NULL;

free_state:
    lp_findings_free(d.findings);
    for (int side = 0; side < 2; side++) {
        lp_release(d.alloc, d.name[side]);
        lp_release(d.alloc, d.read[side]);
        lp_release(d.alloc, d.staged[side]);
    }
    lp_release(d.alloc, d.state);
    lp_release(d.alloc, (void *)d.equal);
    return status;
}

lp_status lp_diff(lp_findings **out, const lp_trace *base, const lp_trace *changed, lp_error *err)
{
    return lp_diff_only(out, base, changed, &(lp_tensor_choice){0}, err);
}
