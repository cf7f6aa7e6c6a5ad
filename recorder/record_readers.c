/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions that read destinations. A derive runs when a load is complete, so it finds what is there last: before
 * bytes are written again, the expressions that read them are made to read what had been copied there. What cannot be
 * said so is lost: the derives that need it go, and their names are refused.
 */
#include "recorder/record_private.h"

void rec_note_reader(lp_recorder *r, uint32_t node)
{
    const rec_value *v = &r->value[node];
    if (v->node.op != LP_OP_INPUT || v->staged)
        return;
    if (r->reader_count >= LP_NONE ||
        !lp_grow(r->platform.alloc, (void **)&r->reader, &r->reader_capacity, r->reader_count + 1, sizeof *r->reader)) {
        rec_no_memory(r);
        return;
    }
    r->reader[r->reader_count] = (rec_reader){.node = node, .next = r->dest[v->index].first_reader};
    r->dest[v->index].first_reader = (uint32_t)r->reader_count++;
}

/* The derives that need a lost node go; what they would have written is for the fallback of their names. */
static lp_status drop_derives_of(const char *file, int line, lp_recorder *r, uint32_t node, const lp_error *why,
                                 lp_error *err)
{
    const char *reason = lp_name(r, "%s", why->text);
    for (int64_t d = 0; d < r->derive_count; d++) {
        bool needs;
        if (r->derive[d].dropped)
            continue;
        LP_TRY(rec_expression_has(r, r->derive[d].root, node, &needs, err));
        if (!needs)
            continue;
        const lp_tensor value = {.recorder = r, .base = r->derive[d].root, .kind = LP_TENSOR_VALUE};
        lp_tensor dst = rec_invalid(r);
        const uint32_t dest = r->derive[d].dest;
        r->derive[d].dropped = true;
        for (uint32_t i = dest != LP_NONE ? r->dest[dest].last_write : LP_NONE; i != LP_NONE;
             i = r->write[i].previous) {
            if (r->write[i].kind == REC_DERIVE && r->write[i].name == (uint32_t)d)
                r->write[i].kind = REC_DROPPED;
        }
        if (dest != LP_NONE)
            dst = (lp_tensor){.recorder = r, .base = dest, .kind = LP_TENSOR_DEST, .view = r->dest[dest].view};
        rec_refuse_tensor(file, line, value, dst, "derive", reason);
    }
    return LP_OK;
}

/* One reader of bytes that are about to be written. */
static lp_status leave(const char *file, int line, lp_recorder *r, uint32_t node, uint32_t dest, const lp_map *out,
                       lp_error *err)
{
    bool overwritten = true;
    lp_error why = {0};
    const lp_status status =
        r->value[node].reads_last ? LP_OK : rec_resolve_input(r, node, dest, out, &overwritten, &why);
    if (status == LP_E_MEMORY) {
        *err = why;
        return status;
    }
    if (status == LP_OK)
        return LP_OK;
    r->value[node].is_lost = true;
    return drop_derives_of(file, line, r, node, &why, err);
}

lp_status rec_leave_readers(const char *file, int line, lp_recorder *r, uint32_t dest, const lp_map *out, int64_t shift,
                            lp_error *err)
{
    uint32_t at = r->dest[dest].first_reader;
    const lp_map *moved = NULL;
    if (at == LP_NONE)
        return LP_OK;
    if (out != NULL)
        LP_TRY(lp_map_shift(&moved, out, 0, shift, r->platform.alloc, err));
    r->dest[dest].first_reader = LP_NONE;
    lp_status status = LP_OK;
    while (at != LP_NONE && status == LP_OK) {
        const rec_reader reader = r->reader[at];
        const rec_value *v = &r->value[reader.node];
        if (v->node.op == LP_OP_INPUT && !v->staged && v->index == dest) /* not resolved meanwhile */
            status = leave(file, line, r, reader.node, dest, moved, err);
        v = &r->value[reader.node];
        if (v->node.op == LP_OP_INPUT && !v->staged && !v->is_lost) { /* still, or another destination */
            r->reader[at].next = r->dest[v->index].first_reader;
            r->dest[v->index].first_reader = at;
        }
        at = reader.next;
    }
    lp_map_free(moved, r->platform.alloc);
    return status;
}
