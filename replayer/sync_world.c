/* SPDX-License-Identifier: Apache-2.0 */
/* What every rank of a trace needs and holds, and what a sliced sync makes of it. */
#include "replayer/sync_world.h"

#include "replayer/sync_schedule.h"
#include "replayer/sync_source.h"

lp_status lp_gather_ranges(const lp_plan *plan, uint32_t name, lp_ranges *out, lp_error *err)
{
    const uint32_t entry = plan->entry_of[name];
    if (entry == LP_NONE)
        return LP_OK;
    const lp_entry *e = &plan->entry[entry];
    for (uint32_t i = e->first_step; i < e->first_step + e->step_count; i++)
        if (lp_gather_holds(plan, &plan->step[i]))
            LP_TRY(lp_ranges_add_map(out, plan->step[i].map, plan->step[i].src_off, err));
    return LP_OK;
}

/* ---- bytes of one rank ---- */

typedef struct collector {
    lp_pieces *out;
    uint32_t name;
    lp_status status;
    lp_error *err;
} collector;

static int add_range(void *context, int64_t lo, int64_t hi)
{
    collector *c = context;
    c->status = lp_pieces_add_range(c->out, c->name, lo, hi, c->err);
    return c->status != LP_OK;
}

static lp_status collect_reads(const lp_plan *plan, collector *c, lp_error *err)
{
    LP_TRY(lp_plan_reads(plan, c->name, add_range, c, err));
    return c->status;
}

static lp_status collect_held(const lp_plan *plan, collector *c, lp_error *err)
{
    lp_ranges r;
    lp_ranges_init(&r, plan->platform.alloc);
    lp_status status = lp_gather_ranges(plan, c->name, &r, err);
    lp_ranges_normalise(&r);
    for (int64_t i = 0; i < r.count && status == LP_OK; i++)
        status = lp_pieces_add_range(c->out, c->name, r.item[i].lo, r.item[i].hi, err);
    lp_ranges_free(&r);
    return status;
}

static lp_status collect_rank(lp_pieces *out, const lp_trace *trace, int32_t index, bool holds,
                              const lp_platform *platform, lp_error *err)
{
    const lp_scope *scope = lp_trace_scope_at(trace, index);
    lp_destinations *memory = NULL;
    lp_plan *plan = NULL;
    int64_t count = 0;
    lp_status status = lp_destinations_allocate(&memory, trace, scope, true, platform, err);
    const lp_destination_memory *list = status == LP_OK ? lp_destinations_list(memory, &count) : NULL;
    const lp_bind_options o = {.platform = platform, .threads = 1};
    if (status == LP_OK)
        status = lp_bind(&plan, trace, scope, list, count, &o, err);
    const lp_checkpoint *catalogue = lp_trace_checkpoint(trace);
    for (uint32_t i = 0; i < lp_checkpoint_count(catalogue) && status == LP_OK; i++) {
        collector c = {.out = out, .name = i, .err = err};
        if (lp_plan_use(plan, i) == LP_USE_LOADED)
            status = holds ? collect_held(plan, &c, err) : collect_reads(plan, &c, err);
    }
    lp_plan_close(plan);
    lp_destinations_free(memory);
    return status;
}

lp_status lp_world_bytes_make(lp_world_bytes *out, const lp_trace *trace, bool holds, const lp_platform *platform,
                              lp_error *err)
{
    const lp_platform p = lp_platform_resolve(platform);
    const int32_t ranks = lp_trace_scope_count(trace);
    *out = (lp_world_bytes){.alloc = p.alloc, .catalogue = lp_trace_checkpoint(trace), .ranks = ranks};
    out->rank = lp_allocate_zero(p.alloc, ((size_t)ranks + 1) * sizeof *out->rank);
    if (out->rank == NULL)
        return lp_fail_memory(err);
    lp_status status = LP_OK;
    for (int32_t i = 0; i < ranks && status == LP_OK; i++) {
        lp_pieces_init(&out->rank[i], p.alloc);
        status = collect_rank(&out->rank[i], trace, i, holds, &p, err);
    }
    if (status != LP_OK)
        lp_world_bytes_free(out);
    return status;
}

void lp_world_bytes_free(lp_world_bytes *w)
{
    for (int32_t i = 0; w->rank != NULL && i < w->ranks; i++)
        lp_pieces_free(&w->rank[i]);
    lp_release(w->alloc, w->rank);
    w->rank = NULL;
    w->ranks = 0;
}

const lp_piece *lp_world_pieces(const lp_world_bytes *w, int32_t rank, uint32_t name, int64_t *cursor, int64_t *count)
{
    const lp_pieces *p = &w->rank[rank];
    while (*cursor < p->count && p->piece[*cursor].name < name)
        ++*cursor;
    const int64_t first = *cursor;
    while (*cursor < p->count && p->piece[*cursor].name == name)
        ++*cursor;
    *count = *cursor - first;
    return *count == 0 ? NULL : p->piece + first;
}

lp_status lp_world_ranges(const lp_world_bytes *w, int32_t rank, uint32_t name, int64_t *cursor, lp_ranges *out,
                          lp_error *err)
{
    int64_t count;
    const lp_piece *p = lp_world_pieces(w, rank, name, cursor, &count);
    for (int64_t i = 0; i < count; i++)
        LP_TRY(lp_piece_ranges(&p[i], out, err));
    lp_ranges_normalise(out);
    return LP_OK;
}

/* ---- a sliced sync ---- */

static lp_status fill_holdings(lp_holdings *h, const lp_world_bytes *held, int32_t senders, lp_error *err)
{
    if (held == NULL) {
        for (int32_t i = 0; i < senders; i++)
            LP_TRY(lp_holdings_add_all(h, i, err));
        return LP_OK;
    }
    for (int32_t i = 0; i < held->ranks; i++) {
        int64_t cursor = 0;
        for (uint32_t name = 0; name < lp_checkpoint_count(held->catalogue); name++) {
            int64_t count;
            const lp_piece *p = lp_world_pieces(held, i, name, &cursor, &count);
            LP_TRY(lp_holdings_add(h, i, name, p, count, err));
        }
    }
    return LP_OK;
}

/* Asks for one receiver. Names without bytes cost nothing. */
static lp_status ask_for(lp_requests *r, lp_holdings *h, const lp_world_bytes *needs, int32_t receiver, lp_error *err)
{
    int64_t cursor = 0;
    for (uint32_t name = 0; name < lp_checkpoint_count(needs->catalogue); name++) {
        int64_t count;
        const lp_piece *p = lp_world_pieces(needs, receiver, name, &cursor, &count);
        if (count > 0)
            LP_TRY(lp_requests_add(r, h, name, p, count, err));
    }
    return LP_OK;
}

static lp_status add_receiver(lp_world_costs *out, int64_t *sent, lp_holdings *h, const lp_world_bytes *needs,
                              int32_t receiver, lp_error *err)
{
    lp_requests r;
    lp_status status = lp_requests_init(&r, receiver, out->senders, needs->alloc, err);
    if (status == LP_OK)
        status = ask_for(&r, h, needs, receiver, err);
    for (int32_t i = 0; i < out->senders && status == LP_OK; i++) {
        sent[i] += r.list[i].bytes;
        out->bytes_sliced += r.list[i].bytes;
        out->pieces += r.list[i].count;
    }
    lp_requests_free(&r);
    const int64_t needed = needs->rank[receiver].bytes;
    out->bytes_needed += needed;
    out->most_received = needed > out->most_received ? needed : out->most_received;
    return status;
}

/* Whole tensors that some rank reads. */
static int64_t packed_bytes(const lp_world_bytes *needs, bool *used)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < needs->ranks; i++)
        for (int64_t k = 0; k < needs->rank[i].count; k++)
            used[needs->rank[i].piece[k].name] = true;
    for (int64_t i = 0; i < lp_checkpoint_count(needs->catalogue); i++)
        bytes += used[i] ? lp_checkpoint_at(needs->catalogue, i)->bytes : 0;
    return bytes;
}

static lp_status sum_up(lp_world_costs *out, const lp_world_bytes *needs, const lp_world_bytes *held, lp_error *err)
{
    const lp_alloc *alloc = needs->alloc;
    lp_holdings *h = NULL;
    int64_t *sent = lp_allocate_zero(alloc, (size_t)out->senders * sizeof *sent);
    bool *used = lp_allocate_zero(alloc, (size_t)lp_checkpoint_count(needs->catalogue) + 1);
    lp_status status = sent == NULL || used == NULL ? lp_fail_memory(err) : LP_OK;
    if (status == LP_OK)
        status = lp_holdings_new(&h, needs->catalogue, out->senders, alloc, err);
    if (status == LP_OK)
        status = fill_holdings(h, held, out->senders, err);
    for (int32_t i = 0; i < needs->ranks && status == LP_OK; i++)
        status = add_receiver(out, sent, h, needs, i, err);
    if (status == LP_OK) {
        out->bytes_packed = packed_bytes(needs, used);
        out->most_sent = out->least_sent = sent[0];
        for (int32_t i = 1; i < out->senders; i++) {
            out->most_sent = sent[i] > out->most_sent ? sent[i] : out->most_sent;
            out->least_sent = sent[i] < out->least_sent ? sent[i] : out->least_sent;
        }
    }
    lp_holdings_free(h);
    lp_release(alloc, sent);
    lp_release(alloc, used);
    return status;
}

lp_status lp_explain_sync(lp_world_costs *out, const lp_trace *server, const lp_trace *trainer, int32_t senders,
                          const lp_platform *platform, lp_error *err)
{
    lp_world_bytes needs = {.rank = NULL}, held = {.rank = NULL};
    *out = (lp_world_costs){.senders = trainer != NULL ? lp_trace_scope_count(trainer) : senders,
                            .receivers = lp_trace_scope_count(server)};
    if (out->senders < 1)
        return lp_fail(err, LP_E_ARGUMENT, "a sync of %d senders", out->senders);
    lp_status status = lp_world_bytes_make(&needs, server, false, platform, err);
    if (status == LP_OK && trainer != NULL)
        status = lp_world_bytes_make(&held, trainer, true, platform, err);
    if (status == LP_OK)
        status = sum_up(out, &needs, trainer != NULL ? &held : NULL, err);
    lp_world_bytes_free(&needs);
    lp_world_bytes_free(&held);
    return status;
}
