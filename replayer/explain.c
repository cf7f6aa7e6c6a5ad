/* SPDX-License-Identifier: Apache-2.0 */
/* What a load costs: the scope is bound to meta tensors, and the plan that comes out is counted. */
#include "replayer/explain.h"
#include "replayer/push_order.h"
#include "replayer/source_ranges.h"

lp_status lp_explain_bind(const lp_trace *trace, int32_t scope_index, lp_plan **plan, lp_error *err)
{
    lp_destinations *d;
    int64_t count;
    if (scope_index < 0 || scope_index >= lp_trace_scope_count(trace))
        return lp_fail(err, LP_E_ARGUMENT, "there is no scope %d", scope_index);
    const lp_scope *scope = lp_trace_scope_at(trace, scope_index);
    LP_TRY(lp_destinations_allocate(&d, trace, scope, true, NULL, err));
    const lp_destination_memory *memory = lp_destinations_list(d, &count);
    const lp_status status = lp_bind(plan, trace, scope, memory, count, NULL, err);
    lp_destinations_free(d);
    return status;
}

/* ---- what is read ---- */

lp_status lp_count_reads(const lp_plan *plan, const lp_entry *e, lp_reads_memo *m, int64_t *bytes, int64_t *ranges,
                         lp_error *err)
{
    const lp_map *only = NULL;
    int reading = 0;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (plan->step[i].kind != LP_KIND_FILL && plan->step[i].map->nbox > 0) {
            only = plan->step[i].map;
            reading++;
        }
    *bytes = *ranges = 0;
    if (reading == 0)
        return LP_OK;
    const size_t at = ((uintptr_t)only >> 4) % LP_READS_MEMO;
    if (reading == 1 && m->slot[at].map == only) {
        *bytes = m->slot[at].bytes;
        *ranges = m->slot[at].ranges;
        return LP_OK;
    }
    lp_ranges list;
    lp_ranges_init(&list, plan->platform.alloc);
    const lp_status status = lp_plan_entry_ranges(plan, e, &list, err);
    *bytes = list.bytes;
    *ranges = list.count;
    lp_ranges_free(&list);
    if (status == LP_OK && reading == 1) {
        m->slot[at].map = only;
        m->slot[at].bytes = *bytes;
        m->slot[at].ranges = *ranges;
    }
    return status;
}

int64_t lp_count_written(const lp_plan *plan, const lp_entry *e)
{
    int64_t bytes = 0;
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        bytes += plan->step[i].dest == LP_NONE ? 0 : plan->step[i].map->dst_bytes;
    return bytes;
}

/* ---- the whole scope ---- */

static lp_status count_entries(const lp_plan *plan, lp_explanation *out, lp_error *err)
{
    lp_reads_memo m = {.slot = {{NULL, 0, 0}}};
    for (uint32_t i = 0; i < plan->entry_count; i++) {
        const lp_entry *e = &plan->entry[i];
        int64_t bytes, ranges;
        LP_TRY(lp_count_reads(plan, e, &m, &bytes, &ranges, err));
        out->bytes_read += bytes;
        out->ranges_read += ranges;
        out->names_read += bytes > 0;
        out->bytes_written += lp_count_written(plan, e);
        out->fallbacks += e->use == LP_USE_FALLBACK;
    }
    out->names_unused = lp_checkpoint_count(plan->catalogue) - plan->entry_count;
    return LP_OK;
}

static void count_records(const lp_plan *plan, lp_explanation *out)
{
    const lp_rows *rows = plan->rows;
    out->records = rows->nrecord;
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        out->fills += rows->record[i].kind == LP_KIND_FILL;
        out->casts += rows->record[i].kind == LP_KIND_CAST;
        out->replicates += rows->record[i].kind == LP_KIND_REPLICATE;
        out->order_dependent += rows->record[i].seq != 0;
    }
    out->derives = rows->nderive;
    for (uint32_t d = 0; d < rows->nderive; d++) {
        bool is_own = false;
        for (uint32_t n = 0; n < rows->derive[d].nnode; n++)
            is_own = is_own || lp_op_is_own((lp_op)rows->derive[d].node[n].op);
        out->derives_own += is_own;
        out->bytes_written += rows->derive[d].map == NULL ? 0 : rows->derive[d].map->dst_bytes;
    }
    for (int64_t i = 0; i < plan->fill_count; i++)
        out->bytes_written += plan->fill[i].map->dst_bytes;
}

static lp_status count_tensors(const lp_plan *plan, lp_explanation *out, lp_error *err)
{
    const lp_rows *rows = plan->rows;
    bool *is_written = lp_allocate_zero(plan->platform.alloc, rows->ndest + 1);
    if (is_written == NULL)
        return lp_fail_memory(err);
    for (int64_t i = 0; i < plan->step_count; i++)
        if (plan->step[i].dest != LP_NONE)
            is_written[plan->step[i].dest] = true;
    for (int64_t i = 0; i < plan->fill_count; i++)
        is_written[plan->fill[i].dest] = true;
    for (uint32_t d = 0; d < rows->nderive; d++)
        if (rows->derive[d].dest != LP_NONE)
            is_written[rows->derive[d].dest] = true;
    for (uint32_t i = 0; i < rows->ndest; i++)
        out->tensors_written += is_written[i];
    lp_release(plan->platform.alloc, is_written);
    for (uint32_t i = 0; i < plan->storage_count; i++)
        out->bytes_storage += plan->storage[i].bytes;
    for (uint32_t i = 0; i < plan->stage_count; i++)
        out->bytes_staged += plan->stage[i].bytes;
    for (uint32_t g = 0; g < plan->group_count; g++) {
        out->groups += plan->group[g].bytes > 0;
        if (plan->group[g].bytes > out->bytes_layerwise)
            out->bytes_layerwise = plan->group[g].bytes;
    }
    return LP_OK;
}

lp_status lp_explain(lp_explanation *out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    lp_plan *plan;
    lp_explanation sum = {.bytes_read = 0};
    LP_TRY(lp_explain_bind(trace, scope_index, &plan, err));
    lp_status status = count_entries(plan, &sum, err);
    if (status == LP_OK) {
        count_records(plan, &sum);
        status = count_tensors(plan, &sum, err);
    }
    lp_plan_close(plan);
    if (status == LP_OK)
        *out = sum;
    return status;
}

lp_status lp_push_order_make(lp_push_order **out, const lp_trace *trace, int32_t scope_index, lp_error *err)
{
    lp_plan *plan;
    LP_TRY(lp_explain_bind(trace, scope_index, &plan, err));
    const lp_status status = lp_push_order_of(out, plan, err); /* its names are the trace's */
    lp_plan_close(plan);
    return status;
}
