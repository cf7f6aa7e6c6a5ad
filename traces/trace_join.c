/* SPDX-License-Identifier: Apache-2.0 */
/* One trace of several: the ranks of traces that one loader recorded one by one, as it must where each rank is a
 * process. */
#include "traces/trace_private.h"

static bool same_settings(const char *a, const char *b)
{
    for (;;) {
        size_t na = 0, nb = 0;
        const char *x = lp_next_setting(&a, &na), *y = lp_next_setting(&b, &nb);
        if (x == NULL || y == NULL)
            return x == y;
        if (na != nb || memcmp(x, y, na) != 0)
            return false;
    }
}

static lp_status expect_alike(const lp_trace *first, const lp_trace *part, lp_error *err)
{
    const lp_trace_header *a = lp_trace_header_of(first), *b = lp_trace_header_of(part);
    const struct {
        const char *what, *a, *b;
    } text[] = {{"loader", a->loader, b->loader},
                {"loader version", a->loader_version, b->loader_version},
                {"target", a->target, b->target}};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        if (strcmp(text[i].a, text[i].b) != 0)
            return lp_fail(err, LP_E_MISMATCH, "%s '%.100s' is not '%.100s', as in the first trace", text[i].what,
                           text[i].b, text[i].a);
    if (!same_settings(a->configuration, b->configuration))
        return lp_fail(err, LP_E_MISMATCH, "the configuration is not that of the first trace");
    if (a->layout.pp != b->layout.pp || a->layout.dp != b->layout.dp || a->layout.tp != b->layout.tp ||
        a->layout.expert_parallel != b->layout.expert_parallel)
        return lp_fail(err, LP_E_MISMATCH, "pp %d, dp %d, tp %d%s is not pp %d, dp %d, tp %d%s, as in the first trace",
                       b->layout.pp, b->layout.dp, b->layout.tp, b->layout.expert_parallel ? ", whole experts" : "",
                       a->layout.pp, a->layout.dp, a->layout.tp, a->layout.expert_parallel ? ", whole experts" : "");
    return lp_trace_match(first, lp_trace_checkpoint(part), err);
}

/* A family is its own family, so the line of one trace can stand for its names. */
static lp_status add_declines(lp_trace *t, const lp_trace *part, lp_arena *arena, lp_error *err)
{
    const char *configuration = lp_trace_header_of(part)->configuration, *line;
    size_t bytes;
    while ((line = lp_next_decline(&configuration, &bytes)) != NULL) {
        const char *family = lp_arena_text(arena, line, bytes);
        if (family == NULL)
            return lp_fail_memory(err);
        LP_TRY(lp_trace_decline(t, family, err));
    }
    return LP_OK;
}

/* Where the loader did what the rows say: *number holds, for each index of the part, that of the joined trace. */
static lp_status add_provenance(lp_trace *t, const lp_trace *part, lp_arena *arena, const uint32_t **number,
                                lp_error *err)
{
    uint32_t count = 0;
    while (lp_trace_provenance(part, count) != NULL)
        count++;
    uint32_t *numbers = lp_arena_get(arena, count * sizeof *numbers);
    if (numbers == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < count; i++)
        LP_TRY(lp_trace_add_provenance(t, lp_trace_provenance(part, i), &numbers[i], err));
    *number = numbers;
    return LP_OK;
}

static uint32_t renumber(const uint32_t *number, uint32_t provenance)
{
    return provenance == LP_NONE ? LP_NONE : number[provenance];
}

static lp_status add_scope(lp_trace *t, const lp_rows *from, const uint32_t *number, lp_arena *arena, lp_error *err)
{
    lp_rows rows = *from;
    lp_record *record = lp_arena_copy(arena, from->record, from->nrecord * sizeof *record);
    lp_derive *derive = lp_arena_copy(arena, from->derive, from->nderive * sizeof *derive);
    lp_refusal *refusal = lp_arena_copy(arena, from->refusal, from->nrefusal * sizeof *refusal);
    if (record == NULL || derive == NULL || refusal == NULL)
        return lp_fail_memory(err);
    for (uint32_t i = 0; i < rows.nrecord; i++)
        record[i].provenance = renumber(number, record[i].provenance);
    for (uint32_t i = 0; i < rows.nderive; i++)
        derive[i].provenance = renumber(number, derive[i].provenance);
    for (uint32_t i = 0; i < rows.nrefusal; i++)
        refusal[i].provenance = renumber(number, refusal[i].provenance);
    rows.record = record;
    rows.derive = derive;
    rows.refusal = refusal;
    return lp_trace_add_rows(t, &rows, err);
}

static lp_status add_part(lp_trace *t, const lp_trace *const *all, int32_t at, lp_arena *arena, lp_error *err)
{
    const lp_trace *part = all[at];
    const uint32_t *number = NULL;
    LP_TRY(add_declines(t, part, arena, err));
    LP_TRY(add_provenance(t, part, arena, &number, err));
    for (int32_t s = 0; s < lp_trace_scope_count(part); s++) {
        const int32_t rank = lp_scope_rank(lp_trace_scope_at(part, s));
        const lp_rows *rows;
        for (int32_t earlier = 0; earlier < at; earlier++)
            if (lp_trace_scope_find(all[earlier], rank) >= 0)
                return lp_fail(err, LP_E_MISMATCH, "rank %d is in an earlier trace already", rank);
        LP_TRY(lp_trace_rows(part, s, &rows, err));
        LP_TRY(add_scope(t, rows, number, arena, err));
    }
    return LP_OK;
}

lp_status lp_trace_join(lp_trace **out, const lp_trace *const *part, int32_t count, int32_t *culprit,
                        const lp_platform *platform, lp_error *err)
{
    int32_t at = 0;
    lp_trace *t = NULL;
    lp_arena arena;
    if (count < 1)
        return lp_fail(err, LP_E_ARGUMENT, "there is no trace to join");
    lp_arena_init(&arena, lp_platform_resolve(platform).alloc);
    lp_status status = lp_trace_new(&t, lp_trace_checkpoint(part[0]), lp_trace_header_of(part[0]), platform, err);
    while (status == LP_OK && at < count) {
        status = expect_alike(part[0], part[at], err);
        if (status == LP_OK)
            status = add_part(t, part, at, &arena, err);
        if (status == LP_OK)
            at++;
        lp_arena_free(&arena); /* the trace has copies */
    }
    if (status == LP_OK)
        status = lp_trace_seal(t, err);
    if (status == LP_OK) {
        *out = t;
        return LP_OK;
    }
    if (culprit != NULL)
        *culprit = at < count ? at : -1;
    lp_trace_close(t);
    return status;
}
