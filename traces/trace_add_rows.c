/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's way into the builder: a scope whose rows are already what they should be, such as those of a text. */
#include "traces/trace_build.h"

static lp_status add_record(lp_trace *t, const lp_record *record, lp_error *err)
{
    lp_scope_build *b = t->build;
    lp_record r = *record;
    int64_t src_off, dst_off;
    LP_TRY(lp_map_pool_add(&t->shared->maps, record->map, &r.map, &src_off, &dst_off, err));
    if (!lp_add(r.src_off, src_off, &r.src_off) || !lp_add(r.dst_off, dst_off, &r.dst_off))
        return lp_fail(err, LP_E_CORRUPT, "the offsets of a record overflow");
    LP_TRY(lp_record_normalise(&r, err));
    const lp_rows rows = lp_build_rows(b);
    LP_TRY(lp_record_check(t, &rows, &r, LP_E_CORRUPT, err));
    if (!lp_grow(t->platform.alloc, (void **)&b->record, &b->record_capacity, b->nrecord + 1, sizeof *b->record))
        return lp_fail_memory(err);
    b->record[b->nrecord++] = r;
    return LP_OK;
}

static lp_status add_all(lp_trace *t, const lp_rows *rows, lp_error *err)
{
    for (uint32_t i = 0; i < rows->ndest; i++)
        LP_TRY(lp_trace_add_destination(t, &rows->dest[i], NULL, err));
    for (uint32_t i = 0; i < rows->nrecord; i++)
        LP_TRY(add_record(t, &rows->record[i], err));
    for (uint32_t i = 0; i < rows->nderive; i++)
        LP_TRY(lp_trace_add_derive(t, &rows->derive[i], err));
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        LP_TRY(lp_trace_add_refusal(t, &rows->refusal[i], err));
    LP_TRY(lp_build_finish(t, err));
    return lp_rows_check(t, &t->scope[t->scope_count - 1].rows, err);
}

lp_status lp_trace_add_rows(lp_trace *t, const lp_rows *rows, lp_error *err)
{
    LP_TRY(lp_trace_begin_scope(t, &rows->scope, err));
    const lp_status status = add_all(t, rows, err);
    if (status != LP_OK)
        t->failed = true;
    return status;
}
