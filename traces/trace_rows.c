/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of opened traces: expanded at first use, validated, and compared with the stored plan digest. */
#include "traces/trace_private.h"

#include <inttypes.h>

/* ---- opened traces ---- */

lp_status lp_trace_add_stored_scope(lp_trace *t, const lp_scope *scope, const uint8_t digest[32], lp_error *err)
{
    lp_scope at = *scope;
    const lp_scope *layout = &t->header.layout;
    LP_TRY(lp_scope_normalise(&at, err));
    if (at.pp != layout->pp || at.dp != layout->dp || at.tp != layout->tp ||
        at.expert_parallel != layout->expert_parallel)
        return lp_fail(err, LP_E_CORRUPT, "scope %" PRId32 " has other sizes than the trace", t->scope_count);
    if (t->scope_count > 0 && lp_scope_rank(&t->scope[t->scope_count - 1].scope) >= lp_scope_rank(&at))
        return lp_fail(err, LP_E_CORRUPT, "scope %" PRId32 " is not in the order of ranks", t->scope_count);
    if (t->scope_count >= LP_SCOPES_MAX)
        return lp_fail(err, LP_E_HOSTILE, "more than %d scopes in one trace", LP_SCOPES_MAX);
    if (!lp_grow(t->platform.alloc, (void **)&t->scope, &t->scope_capacity, t->scope_count + 1, sizeof *t->scope))
        return lp_fail_memory(err);
    lp_scope_entry *entry = &t->scope[t->scope_count++];
    *entry = (lp_scope_entry){.scope = at};
    memcpy(entry->digest, digest, sizeof entry->digest);
    lp_arena_init(&entry->arena, t->platform.alloc);
    return LP_OK;
}

void lp_trace_end_stored(lp_trace *t, const lp_rows_source *source)
{
    t->source = *source;
    t->sealed = true;
}

/* ---- validation ---- */

static lp_status destinations_check(const lp_rows *rows, lp_error *err)
{
    for (uint32_t d = 0; d < rows->ndest; d++) {
        LP_TRY(lp_destination_check(&rows->dest[d], LP_E_CORRUPT, err));
        if (d > 0 && strcmp(rows->dest[d - 1].name, rows->dest[d].name) >= 0)
            return lp_fail_at(err, LP_E_CORRUPT, rows->dest[d].name, -1,
                              "destination '%s' is not in the order of names", rows->dest[d].name);
    }
    return LP_OK;
}

static bool are_in_order(const lp_record *a, const lp_record *b)
{
    if (a->name != b->name)
        return a->name < b->name;
    if (a->dest != b->dest)
        return a->dest < b->dest;
    return a->dst_off < b->dst_off;
}

static lp_status records_check(const lp_trace *t, const lp_rows *rows, lp_error *err)
{
    for (uint32_t i = 0; i < rows->nrecord; i++) {
        lp_look_ahead(t->checkpoint, rows->record, rows->nrecord, i);
        LP_TRY(lp_record_check(t, rows, &rows->record[i], LP_E_CORRUPT, err));
        if (i > 0 && !are_in_order(&rows->record[i - 1], &rows->record[i]))
            return lp_fail(err, LP_E_CORRUPT, "record %" PRIu32 " is not in canonical order", i);
    }
    return LP_OK;
}

static lp_status derives_check(const lp_trace *t, const lp_rows *rows, lp_error *err)
{
    uint8_t last[32], digest[32];
    for (uint32_t i = 0; i < rows->nderive; i++) {
        const lp_derive *derive = &rows->derive[i];
        LP_TRY(lp_derive_check(t, rows, derive, LP_E_CORRUPT, err));
        LP_TRY(lp_derive_digest(t, rows, derive, digest, err));
        if (i > 0 && (derive[-1].dest > derive->dest ||
                      (derive[-1].dest == derive->dest && memcmp(last, digest, sizeof digest) >= 0)))
            return lp_fail(err, LP_E_CORRUPT, "derive %" PRIu32 " is not in canonical order", i);
        memcpy(last, digest, sizeof last);
    }
    return LP_OK;
}

static lp_status refusals_check(const lp_trace *t, const lp_rows *rows, lp_error *err)
{
    for (uint32_t i = 0; i < rows->nrefusal; i++) {
        LP_TRY(lp_refusal_check(t, rows, &rows->refusal[i], LP_E_CORRUPT, err));
        if (i > 0 && lp_refusal_compare(&rows->refusal[i - 1], &rows->refusal[i]) >= 0)
            return lp_fail(err, LP_E_CORRUPT, "refusal %" PRIu32 " is not in canonical order", i);
    }
    return LP_OK;
}

lp_status lp_rows_check(const lp_trace *t, const lp_rows *rows, lp_error *err)
{
    LP_TRY(destinations_check(rows, err));
    LP_TRY(records_check(t, rows, err));
    LP_TRY(derives_check(t, rows, err));
    return refusals_check(t, rows, err);
}

/* ---- access ---- */

void lp_scope_entry_release(lp_scope_entry *entry)
{
    lp_arena_free(&entry->arena);
    entry->rows = (lp_rows){0};
    entry->has_rows = false;
}

static lp_status expand(const lp_trace *t, int32_t index, lp_scope_entry *entry, lp_error *err)
{
    lp_rows *rows = &entry->rows;
    *rows = (lp_rows){0};
    lp_status status = t->source.expand(t->source.context, t, index, rows, &entry->arena, err);
    rows->scope = entry->scope;
    if (status == LP_OK)
        status = lp_rows_check(t, rows, err);
    if (status == LP_OK)
        status = lp_plan_digest(t, rows, rows->digest, err);
    if (status == LP_OK && memcmp(rows->digest, entry->digest, sizeof entry->digest) != 0)
        status = lp_fail(err, LP_E_CORRUPT, "the rows of rank %" PRId32 " do not have the plan digest that is stored",
                         lp_scope_rank(&entry->scope));
    if (status != LP_OK) {
        if (t->source.path != NULL)
            lp_error_of_file(err, t->source.path);
        lp_scope_entry_release(entry);
    } else {
        entry->has_rows = true;
    }
    return status;
}

lp_status lp_trace_rows(const lp_trace *t, int32_t scope_index, const lp_rows **out, lp_error *err)
{
    if (!t->sealed)
        return lp_fail(err, LP_E_MISUSE, "the trace is not sealed yet");
    if (scope_index < 0 || scope_index >= t->scope_count)
        return lp_fail(err, LP_E_ARGUMENT, "the trace has no scope %" PRId32, scope_index);
    lp_scope_entry *entry = &t->scope[scope_index];
    if (!entry->has_rows)
        LP_TRY(expand(t, scope_index, entry, err));
    *out = &entry->rows;
    return LP_OK;
}

lp_status lp_trace_release_rows(lp_trace *t, int32_t scope_index)
{
    if (scope_index < 0 || scope_index >= t->scope_count)
        return LP_E_ARGUMENT;
    if (t->source.expand != NULL) /* a built trace has its rows nowhere else */
        lp_scope_entry_release(&t->scope[scope_index]);
    return LP_OK;
}
