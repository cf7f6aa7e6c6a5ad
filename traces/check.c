/* SPDX-License-Identifier: Apache-2.0 */
/* check: proves or refutes the contract of docs/check.md, scope by scope. */
#include "traces/check_private.h"

const char *lp_check_name(const lp_checker *c, uint32_t name)
{
    return name == LP_NAME_BEGIN ? "begin" : lp_checkpoint_at(c->checkpoint, name)->name;
}

lp_note lp_check_note(const lp_checker *c, lp_rule_number rule, const char *tensor, const char *what)
{
    return (lp_note){.rule = rule, .tensor = tensor, .what = what, .rank = c->rank, .byte_lo = -1, .byte_hi = -1};
}

void lp_check_place(const lp_checker *c, lp_note *note, uint32_t provenance)
{
    const lp_provenance *p = lp_trace_provenance(c->t, provenance);
    if (p == NULL)
        return;
    note->file = p->file;
    note->line = p->line;
}

static void mark_used(lp_checker *c)
{
    const lp_rows *rows = c->rows;
    for (uint32_t i = 0; i < rows->nrecord; i++)
        if (rows->record[i].name != LP_NAME_BEGIN) {
            c->used[rows->record[i].name] |= LP_USED;
            lp_check_read(c, rows->record[i].name, rows->record[i].map, rows->record[i].src_off);
        }
    for (uint32_t i = 0; i < rows->nderive; i++)
        for (uint32_t k = 0; k < rows->derive[i].ninput; k++)
            if (rows->derive[i].input[k].staged) {
                c->used[rows->derive[i].input[k].index] |= LP_USED;
                lp_check_read(c, rows->derive[i].input[k].index, rows->derive[i].input[k].map, 0);
            }
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        c->used[rows->refusal[i].name] |= LP_USED | LP_USED_REFUSED;
}

static lp_status check_scope(lp_checker *c, int32_t index, lp_error *err)
{
    LP_TRY(lp_trace_rows(c->t, index, &c->rows, err));
    c->rank = lp_scope_rank(&c->rows->scope);
    c->tally.scopes++;
    c->tally.derives += c->rows->nderive;
    mark_used(c);
    c->derive_meets_record = lp_allocate_zero(c->alloc, c->rows->nderive * sizeof *c->derive_meets_record);
    if (c->derive_meets_record == NULL)
        return lp_fail_memory(err);
    lp_status status = lp_check_cover(c, err);
    if (status == LP_OK)
        status = lp_check_derives(c, err);
    if (status == LP_OK)
        status = lp_check_loader(c, err);
    lp_release(c->alloc, c->derive_meets_record);
    return status;
}

lp_status lp_check_only(lp_findings **out, const lp_trace *t, const lp_checkpoint *checkpoint,
                        const lp_tensor_choice *choice, lp_error *err)
{
    lp_checker c = {.t = t, .checkpoint = lp_trace_checkpoint(t), .alloc = t->platform.alloc};
    lp_status status = LP_OK;
    *out = NULL;
    c.used = lp_allocate_zero(c.alloc, (size_t)lp_checkpoint_count(c.checkpoint));
    if (c.used == NULL)
        return lp_fail_memory(err);
    LP_TRY_GOTO(lp_findings_new(&c.findings, c.alloc, err), free_state);
    LP_TRY_GOTO(lp_findings_only(c.findings, t, choice, err), free_state);
    LP_TRY_GOTO(lp_cover_memo_new(&c.memo, c.alloc, err), free_state);
    for (int32_t i = 0; i < lp_trace_scope_count(t); i++)
        LP_TRY_GOTO(check_scope(&c, i, err), free_state);
    LP_TRY_GOTO(lp_check_names(&c, checkpoint, err), free_state);
    LP_TRY_GOTO(lp_check_reads(&c, err), free_state);
    LP_TRY_GOTO(lp_findings_seal(c.findings, &c.tally, err), free_state);
    *out = c.findings;
    c.findings = NULL;

free_state:
    lp_findings_free(c.findings);
    lp_cover_memo_free(c.memo);
    lp_release(c.alloc, c.used);
    lp_release(c.alloc, c.read);
    return status;
}

lp_status lp_check_against(lp_findings **out, const lp_trace *t, const lp_checkpoint *checkpoint, lp_error *err)
{
    return lp_check_only(out, t, checkpoint, &(lp_tensor_choice){0}, err);
}

lp_status lp_check(lp_findings **out, const lp_trace *t, lp_error *err)
{
    return lp_check_against(out, t, NULL, err);
}
