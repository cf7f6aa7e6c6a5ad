/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing the provenance tables: which line of the loader made a row. They stand outside every digest, and a file from
 * which they were removed opens all the same. Rows are sorted by content, so their numbers do not depend on the order
 * of recording.
 */
#include "traces/trace_file.h"

#include "traces/row_codec.h"

#include <stdlib.h>

typedef struct entry {
    const lp_provenance *row;
    uint32_t index;
} entry;

static int compare(const entry *a, const entry *b)
{
    int order = strcmp(a->row->file, b->row->file);
    if (order == 0)
        order = (a->row->line > b->row->line) - (a->row->line < b->row->line);
    if (order == 0)
        order = strcmp(a->row->chain, b->row->chain);
    return order != 0 ? order : (a->row->flags > b->row->flags) - (a->row->flags < b->row->flags);
}

static int compare_void(const void *a, const void *b)
{
    return compare(a, b);
}

static void mark(bool *used, int64_t count, uint32_t index, bool *any)
{
    if (index < count)
        used[index] = *any = true;
}

static lp_status mark_used(const lp_trace *t, int64_t count, bool *used, bool *any, lp_error *err)
{
    for (int32_t s = 0; s < t->scope_count; s++) {
        const lp_rows *rows;
        LP_TRY(lp_trace_rows(t, s, &rows, err));
        for (uint32_t i = 0; i < rows->nrecord; i++)
            mark(used, count, rows->record[i].provenance, any);
        for (uint32_t i = 0; i < rows->nderive; i++)
            mark(used, count, rows->derive[i].provenance, any);
        for (uint32_t i = 0; i < rows->nrefusal; i++)
            mark(used, count, rows->refusal[i].provenance, any);
    }
    return LP_OK;
}

/* Numbers of the provenance rows that rows of the trace use, in order of content: (*number)[index] for each index of
 * the trace, LP_NONE where unused. The caller releases *number. */
static lp_status number_used(const lp_trace *t, uint32_t **number, int64_t *used_count, lp_error *err)
{
    lp_status status;
    const lp_alloc *alloc = t->platform.alloc;
    const int64_t count = t->shared->provenance.count;
    bool any = false, *used = lp_allocate_zero(alloc, (size_t)count + 1);
    entry *sorted = lp_allocate(alloc, ((size_t)count + 1) * sizeof *sorted);
    uint32_t *out = lp_allocate(alloc, ((size_t)count + 1) * sizeof *out);
    int64_t kept = 0;
    if (used == NULL || sorted == NULL || out == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    LP_TRY_GOTO(mark_used(t, count, used, &any, err), release);
    memset(out, 0xff, ((size_t)count + 1) * sizeof *out);
    for (int64_t i = 0; any && i < count; i++)
        if (used[i])
            sorted[kept++] = (entry){.row = lp_trace_provenance(t, (uint32_t)i), .index = (uint32_t)i};
    qsort(sorted, (size_t)kept, sizeof *sorted, compare_void);
    for (int64_t i = 0; i < kept; i++)
        out[sorted[i].index] = (uint32_t)i;
    *number = out;
    *used_count = kept;
    out = NULL;
release:
    lp_release(alloc, used);
    lp_release(alloc, sorted);
    lp_release(alloc, out);
    return status;
}

static void push(lp_column *c, const uint32_t *number, int64_t count, uint32_t index, bool *any)
{
    const bool known = index < count && number[index] != LP_NONE;
    *any = *any || known;
    lp_column_push(c, known ? (int64_t)number[index] : -1);
}

static lp_status write_rows(lp_file_writer *w, int32_t scope, const uint32_t *number, lp_column *column, lp_error *err)
{
    const int64_t count = w->trace->shared->provenance.count;
    const lp_rows *rows;
    bool any = false;
    LP_TRY(lp_trace_rows(w->trace, scope, &rows, err));
    for (uint32_t i = 0; i < rows->nrecord; i++)
        push(column, number, count, rows->record[i].provenance, &any);
    lp_column_flush(column, &w->raw);
    for (uint32_t i = 0; i < rows->nderive; i++)
        push(column, number, count, rows->derive[i].provenance, &any);
    lp_column_flush(column, &w->raw);
    for (uint32_t i = 0; i < rows->nrefusal; i++)
        push(column, number, count, rows->refusal[i].provenance, &any);
    lp_column_flush(column, &w->raw);
    LP_TRY(lp_file_compress(w, err));
    if (!any)
        return LP_OK;
    return lp_file_insert(w, "provenance_rows", err, "ib", (int64_t)scope, (const void *)w->frame.data, w->frame.bytes);
}

lp_status lp_file_write_provenance(lp_file_writer *w, lp_error *err)
{
    lp_status status;
    const lp_trace *t = w->trace;
    uint32_t *number = NULL, *by_number = NULL;
    int64_t count = 0;
    lp_column column = {.alloc = w->alloc};
    LP_TRY(number_used(t, &number, &count, err));
    by_number = lp_allocate(w->alloc, ((size_t)count + 1) * sizeof *by_number);
    if (by_number == NULL) {
        status = lp_fail_memory(err);
        goto release;
    }
    status = LP_OK;
    for (int64_t i = 0; i < t->shared->provenance.count; i++)
        if (number[i] != LP_NONE)
            by_number[number[i]] = (uint32_t)i;
    for (int64_t n = 0; n < count; n++) {
        const lp_provenance *p = lp_trace_provenance(t, by_number[n]);
        LP_TRY_GOTO(
            lp_file_insert(w, "provenance", err, "ititi", n, p->file, (int64_t)p->line, p->chain, (int64_t)p->flags),
            release);
    }
    for (int32_t s = 0; count > 0 && s < t->scope_count; s++)
        LP_TRY_GOTO(write_rows(w, s, number, &column, err), release);
release:
    lp_release(w->alloc, column.value);
    lp_release(w->alloc, by_number);
    lp_release(w->alloc, number);
    return status;
}
