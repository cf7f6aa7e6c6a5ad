/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that move between ranks: the slices of lp_rebalance over a transport. All ranks say what they get, so each
 * knows what it has to give; a slice is scattered when every rank has gathered and exchanged it. */
#include "replayer/sync_private.h"

#include "replayer/transport_wire.h"

enum { HEAD = 56, MOVE = 12 };

typedef struct exchange {
    lp_sync *s;
    lp_rebalance *r;
    const lp_expert_move *mine;
    int64_t mine_count;
    int32_t *rank_of;     /* world rank by expert rank */
    lp_expert_move *give; /* what others get from here: from_rank is the world rank that gets it */
    int64_t give_count, give_capacity;
    lp_transfer *transfer;
    int32_t expert_rank;
} exchange;

/* What has to be equal on all ranks, then the own expert rank and moves. */
static lp_status say(const exchange *x, const lp_expert_map *to, lp_text *out, lp_error *err)
{
    uint8_t head[HEAD];
    lp_sha256 h;
    memset(head, 0, sizeof head);
    lp_sha256_begin(&h);
    for (int64_t i = 0; i < to->count; i++)
        lp_sha256_i64(&h, to->logical[i]);
    if (!lp_sha256_end(&h, head))
        return lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
    lp_wire_put_i64(head + 32, to->epoch);
    lp_wire_put_i64(head + 40, lp_rebalance_slices(x->r));
    lp_wire_put_i64(head + 48, x->expert_rank);
    lp_text_add(out, (const char *)head, sizeof head);
    for (int64_t i = 0; i < x->mine_count; i++) {
        uint8_t row[MOVE];
        lp_wire_put_u32(row, (uint32_t)x->mine[i].from_rank);
        lp_wire_put_u32(row + 4, (uint32_t)x->mine[i].from_slot);
        lp_wire_put_u32(row + 8, (uint32_t)x->mine[i].to_slot);
        lp_text_add(out, (const char *)row, sizeof row);
    }
    return out->failed ? lp_fail_memory(err) : LP_OK;
}

/* The moves of rank `other` that take from here. */
static lp_status hear(exchange *x, int32_t other, const lp_block *block, lp_error *err)
{
    const uint8_t *data = block->data;
    for (int64_t off = HEAD; off + MOVE <= block->bytes; off += MOVE) {
        if ((int32_t)lp_wire_get_u32(data + off) != x->expert_rank || other == x->s->round.rank)
            continue;
        void *items = x->give;
        if (!lp_grow(x->s->alloc, &items, &x->give_capacity, x->give_count + 1, sizeof *x->give))
            return lp_fail_memory(err);
        x->give = items;
        x->give[x->give_count++] =
            (lp_expert_move){.from_rank = other, .from_slot = (int32_t)lp_wire_get_u32(data + off + 4)};
    }
    return LP_OK;
}

static lp_status tell_moves(exchange *x, const lp_expert_map *to, lp_error *err)
{
    lp_sync *s = x->s;
    const lp_block *all = NULL;
    lp_text mine;
    lp_text_init(&mine, s->alloc);
    lp_status status = say(x, to, &mine, err);
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, mine.data, mine.bytes, &all, err);
    lp_text_free(&mine);
    for (int32_t i = 0; i < s->round.world && status == LP_OK; i++) {
        if (all[i].bytes < HEAD || memcmp(all[i].data, all[0].data, 48) != 0)
            return lp_fail(err, LP_E_MISMATCH, "%s has another map of experts, or other staging, than the first rank",
                           s->transport.name(s->transport.context, i));
        const int64_t rank = lp_wire_get_i64((const uint8_t *)all[i].data + 48);
        if (rank < 0 || rank >= s->round.world || x->rank_of[rank] >= 0)
            return lp_fail(err, LP_E_UNSUPPORTED, "experts move between ranks of one expert parallel group");
        x->rank_of[rank] = i;
        status = hear(x, i, &all[i], err);
    }
    return status;
}

/* All messages of one slice, at once. Those of a pair of ranks are in the order of the moves of the one that gets. */
static lp_status exchange_slice(exchange *x, int64_t slice, uint8_t *buffer, lp_error *err)
{
    const lp_transport *t = &x->s->transport;
    const int64_t bytes = lp_rebalance_slice_bytes(x->r, slice);
    int64_t count = 0, ticket = 0;
    for (int64_t i = 0; i < x->give_count; i++) {
        uint8_t *at = buffer + i * bytes;
        LP_TRY(lp_rebalance_outgoing(x->r, slice, x->give[i].from_slot, at, err));
        x->transfer[count++] =
            (lp_transfer){.peer = x->give[i].from_rank, .is_send = true, .is_host = true, .data = at, .bytes = bytes};
    }
    for (int64_t i = 0; i < x->mine_count; i++)
        if (x->mine[i].from_rank != x->expert_rank)
            x->transfer[count++] = (lp_transfer){.peer = x->rank_of[x->mine[i].from_rank],
                                                 .is_host = true,
                                                 .data = lp_rebalance_incoming(x->r, i),
                                                 .bytes = bytes};
    LP_TRY(t->start(t->context, x->transfer, count, &ticket, err));
    return t->wait(t->context, ticket, err);
}

static lp_status barrier(const lp_sync *s, lp_error *err)
{
    const lp_block *all = NULL;
    return s->transport.gather(s->transport.context, NULL, 0, &all, err);
}

static lp_status move_all(exchange *x, lp_error *err)
{
    lp_sync *s = x->s;
    int64_t most = 0;
    for (int64_t i = 0; i < lp_rebalance_slices(x->r); i++)
        most = lp_rebalance_slice_bytes(x->r, i) > most ? lp_rebalance_slice_bytes(x->r, i) : most;
    uint8_t *buffer = lp_allocate(s->alloc, (size_t)(most * x->give_count) + 1);
    x->transfer = lp_allocate(s->alloc, (size_t)(x->give_count + x->mine_count + 1) * sizeof *x->transfer);
    lp_status status = buffer == NULL || x->transfer == NULL ? lp_fail_memory(err) : LP_OK;
    for (int64_t i = 0; i < lp_rebalance_slices(x->r) && status == LP_OK; i++) {
        status = lp_rebalance_gather(x->r, i, err);
        if (status == LP_OK)
            status = exchange_slice(x, i, buffer, err);
        if (status == LP_OK)
            status = barrier(s, err);
        if (status == LP_OK)
            status = lp_rebalance_scatter(x->r, i, err);
        lp_sync_alive(s);
    }
    lp_release(s->alloc, buffer);
    return status == LP_OK ? lp_rebalance_finish(x->r, err) : status;
}

static lp_status rebalance(exchange *x, lp_plan *plan, const lp_expert_map *to, int64_t staging, lp_error *err)
{
    lp_sync *s = x->s;
    lp_fact mine = {.is_sender = true, .mode = LP_SYNC_PACKED, .bucket = s->options.bucket};
    LP_TRY(lp_sync_agree(s, &mine, err));
    x->rank_of = lp_allocate(s->alloc, (size_t)s->round.world * sizeof *x->rank_of);
    if (x->rank_of == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < s->round.world; i++)
        x->rank_of[i] = -1;
    x->expert_rank = lp_scope_experts_rank(&plan->rows->scope);
    LP_TRY(lp_rebalance_begin(&x->r, plan, to, staging, NULL, err));
    x->mine = lp_rebalance_moves(x->r, &x->mine_count);
    LP_TRY(tell_moves(x, to, err));
    for (int64_t i = 0; i < x->mine_count; i++)
        if (x->mine[i].from_rank < 0 || x->mine[i].from_rank >= s->round.world)
            return lp_fail(err, LP_E_INTERNAL, "an expert comes from rank %d of %d", x->mine[i].from_rank,
                           s->round.world);
    LP_TRY(move_all(x, err));
    const lp_status status = barrier(s, err);
    if (status != LP_OK)
        plan->is_all_dirty = true; /* moved here, but not everywhere */
    return status;
}

lp_status lp_sync_rebalance(lp_sync *s, lp_plan *plan, const lp_expert_map *to, int64_t staging, lp_error *err)
{
    exchange x = {.s = s};
    lp_error own = {.code = LP_OK};
    err = err == NULL ? &own : err;
    if (!s->options.is_sender || plan->trace != s->trace)
        return lp_fail(err, LP_E_MISUSE, "experts move in a sync of senders over the plan's trace");
    if (plan->side != NULL)
        return lp_fail(err, LP_E_UNSUPPORTED, "experts in the memory of a device are exchanged by the caller");
    const lp_status status = rebalance(&x, plan, to, staging, err);
    if (status != LP_OK && status != LP_E_PEER && !s->is_mismatch)
        s->transport.fail(s->transport.context, err->text);
    lp_rebalance_close(x.r);
    lp_release(s->alloc, x.rank_of);
    lp_release(s->alloc, x.give);
    lp_release(s->alloc, x.transfer);
    return status;
}
