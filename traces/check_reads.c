/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check, sources: bytes of a checkpoint tensor that some rank loads a part of and no rank loads whole, and that lie
 * beyond what any rank reads: a loader that takes the same part on every rank leaves the others' parts behind, though
 * every destination byte is written. A record, or a staged input, counts from its first byte to its last one. Judged
 * only where there are several ranks, and the trace has all of them.
 */
#include "traces/check_private.h"

#include <inttypes.h>
#include <stdlib.h>

void lp_check_read(lp_checker *c, uint32_t name, const lp_map *map, int64_t off)
{
    if (map->nbox == 0 || map->src_elem == 0 || (c->used[name] & LP_USED_WHOLE) != 0)
        return;
    const int64_t lo = off + map->src_lo, hi = off + map->src_hi;
    if (lo == 0 && hi == lp_checkpoint_at(c->checkpoint, name)->bytes)
        c->used[name] |= LP_USED_WHOLE;
    else if (lp_grow(c->alloc, (void **)&c->read, &c->read_capacity, c->reads + 1, sizeof *c->read))
        c->read[c->reads++] = (lp_read){.name = name, .lo = lo, .hi = hi};
    else
        c->is_out_of_memory = true;
}

static int by_name_and_place(const void *pa, const void *pb)
{
    const lp_read *a = pa, *b = pb;
    if (a->name != b->name)
        return a->name < b->name ? -1 : 1;
    return a->lo != b->lo ? (a->lo < b->lo ? -1 : 1) : (a->hi > b->hi) - (a->hi < b->hi);
}

static lp_status note_unread(lp_checker *c, uint32_t name, int64_t lo, int64_t hi, lp_error *err)
{
    bool first;
    const char *tensor = lp_check_name(c, name);
    const lp_note note = lp_check_note(c, LP_RULE_CHECKPOINT_BYTES_UNUSED, tensor, "");
    LP_TRY(lp_findings_note(c->findings, &note, &first, err));
    if (!first)
        return LP_OK;
    LP_TRY(lp_findings_text(c->findings, err, "no rank reads bytes [%" PRId64 ", %" PRId64 ") of '%s', others are read",
                            lo, hi, tensor));
    return lp_findings_hint(c->findings, "does each rank take its own part?", err);
}

/* The first gap among the reads [from, to) of one name, if there is one. */
static lp_status check_name_reads(lp_checker *c, int64_t from, int64_t to, lp_error *err)
{
    const uint32_t name = c->read[from].name;
    const int64_t bytes = lp_checkpoint_at(c->checkpoint, name)->bytes;
    int64_t end = 0;
    for (int64_t i = from; i < to; i++) {
        if (c->read[i].lo > end)
            return note_unread(c, name, end, c->read[i].lo, err);
        end = c->read[i].hi > end ? c->read[i].hi : end;
    }
    return end < bytes ? note_unread(c, name, end, bytes, err) : LP_OK;
}

lp_status lp_check_reads(lp_checker *c, lp_error *err)
{
    const lp_scope *layout = &lp_trace_header_of(c->t)->layout;
    c->rank = -1;
    if (c->is_out_of_memory)
        return lp_fail_memory(err);
    const int64_t ranks = (int64_t)layout->pp * layout->dp * layout->tp;
    if (c->reads == 0 || ranks < 2 || lp_trace_scope_count(c->t) != ranks)
        return LP_OK;
    qsort(c->read, (size_t)c->reads, sizeof *c->read, by_name_and_place);
    for (int64_t i = 0, end; i < c->reads; i = end) {
        for (end = i + 1; end < c->reads && c->read[end].name == c->read[i].name;)
            end++;
        if ((c->used[c->read[i].name] & (LP_USED_WHOLE | LP_USED_REFUSED)) == 0)
            LP_TRY(check_name_reads(c, i, end, err));
    }
    return LP_OK;
}
