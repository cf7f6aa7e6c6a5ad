/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a cold start share the reading. Names whose bytes no two ranks need are read by the rank that needs
 * them. Of the others, each byte is read once by one rank and sent to those that need it, unless reading again is
 * cheaper.
 *
 * Every rank computes all of this from the trace, so there is nothing to agree on but the trace.
 */
#include "replayer/sync_cold_maker.h"

static lp_status allocate(lp_cold_world *c, lp_cold_maker *m, lp_error *err)
{
    const size_t ranks = (size_t)c->ranks + 1;
    c->out = lp_allocate_zero(c->alloc, ranks * sizeof *c->out);
    c->in = lp_allocate_zero(c->alloc, ranks * sizeof *c->in);
    c->chunks = lp_allocate_zero(c->alloc, ranks * sizeof *c->chunks);
    const size_t names = (size_t)lp_checkpoint_count(m->needs->catalogue) + 1;
    c->is_shared = lp_allocate_zero(c->alloc, names);
    c->needed = lp_allocate_zero(c->alloc, names * sizeof *c->needed);
    c->once = lp_allocate_zero(c->alloc, names * sizeof *c->once);
    m->range = lp_allocate_zero(c->alloc, ranks * sizeof *m->range);
    m->part = lp_allocate_zero(c->alloc, ranks * sizeof *m->part);
    m->class_of = lp_allocate_zero(c->alloc, ranks * sizeof *m->class_of);
    m->members = lp_allocate_zero(c->alloc, ranks * sizeof *m->members);
    m->cursor = lp_allocate_zero(c->alloc, ranks * sizeof *m->cursor);
    if (c->out == NULL || c->in == NULL || c->chunks == NULL || c->is_shared == NULL || c->needed == NULL ||
        c->once == NULL || m->range == NULL || m->part == NULL || m->class_of == NULL || m->members == NULL ||
        m->cursor == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < c->ranks; i++) {
        lp_pieces_init(&c->out[i], c->alloc);
        lp_pieces_init(&c->in[i], c->alloc);
        lp_ranges_init(&m->range[i], c->alloc);
        lp_pieces_init(&m->part[i], c->alloc);
    }
    return LP_OK;
}

lp_status lp_cold_world_make(lp_cold_world *out, const lp_world_bytes *needs, int32_t rank, int64_t bucket,
                             const lp_cold_rates *rates, lp_error *err)
{
    static const lp_cold_rates usual = {.storage = 2000000000, .link = 50000000000, .message_ns = 20000};
    lp_cold_maker m = {.needs = needs, .out = out, .bucket = bucket};
    *out = (lp_cold_world){.alloc = needs->alloc, .rank = rank, .ranks = needs->ranks};
    lp_pieces_init(&out->read, needs->alloc);
    lp_status status = allocate(out, &m, err);
    if (status == LP_OK)
        status = lp_cold_choose(&m, rates == NULL ? &usual : rates, err);
    if (status == LP_OK)
        status = lp_cold_deal_out(&m, err);
    for (int32_t i = 0; m.range != NULL && i < needs->ranks; i++)
        lp_ranges_free(&m.range[i]);
    for (int32_t i = 0; m.part != NULL && i < needs->ranks; i++)
        lp_pieces_free(&m.part[i]);
    lp_release(needs->alloc, m.range);
    lp_release(needs->alloc, m.part);
    lp_release(needs->alloc, m.class_of);
    lp_release(needs->alloc, m.members);
    lp_release(needs->alloc, m.cursor);
    if (status != LP_OK)
        lp_cold_world_free(out);
    return status;
}

void lp_cold_world_free(lp_cold_world *c)
{
    for (int32_t i = 0; i < c->ranks; i++) {
        if (c->out != NULL)
            lp_pieces_free(&c->out[i]);
        if (c->in != NULL)
            lp_pieces_free(&c->in[i]);
    }
    lp_pieces_free(&c->read);
    lp_release(c->alloc, c->out);
    lp_release(c->alloc, c->in);
    lp_release(c->alloc, c->chunks);
    lp_release(c->alloc, c->is_shared);
    lp_release(c->alloc, c->needed);
    lp_release(c->alloc, c->once);
    *c = (lp_cold_world){.alloc = c->alloc};
}

lp_status lp_explain_cold(lp_cold_costs *out, const lp_trace *trace, const lp_cold_rates *rates,
                          const lp_platform *platform, lp_error *err)
{
    lp_world_bytes needs;
    lp_cold_world world;
    LP_TRY(lp_world_bytes_make(&needs, trace, false, platform, err));
    const lp_status status = lp_cold_world_make(&world, &needs, -1, INT64_MAX / 4, rates, err);
    if (status == LP_OK) {
        *out = world.costs;
        lp_cold_world_free(&world);
    }
    lp_world_bytes_free(&needs);
    return status;
}
