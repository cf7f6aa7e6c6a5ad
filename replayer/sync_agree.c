/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreement: every rank says what it has and wants, everybody sees all of it, and everybody comes to the same verdict
 * by itself. Nothing has moved until then.
 */
#include "replayer/sync_bits.h"
#include "replayer/sync_private.h"

#include "replayer/transport_wire.h"

#include <stdio.h>

enum { VERSION = 3, FIXED = 4 * 4 + 5 * 8 + 3 * 32 + LP_SYNC_GROUP };
enum { IS_SENDER = 1, TAKES_DELTA = 2, GIVES_CONTENT = 4 };

int64_t lp_bitmap_bytes(const lp_sync *s)
{
    return (lp_checkpoint_count(s->catalogue) + 7) / 8;
}

void lp_sync_forget(lp_sync *s)
{
    lp_release(s->alloc, s->fact);
    lp_release(s->alloc, s->facts_memory);
    lp_release(s->alloc, s->is_delta);
    lp_release(s->alloc, s->sum);
    s->fact = NULL;
    s->facts_memory = NULL;
    s->is_delta = NULL;
    s->sum = NULL;
}

/* ---- on the wire: fixed words, then a receiver's two sets of names ---- */

static lp_status put_fact(const lp_sync *s, const lp_fact *f, lp_text *out, lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    uint8_t row[FIXED] = {0};
    lp_wire_put_u32(row, VERSION);
    lp_wire_put_u32(row + 4, (f->is_sender ? IS_SENDER : 0u) | (f->takes_delta ? TAKES_DELTA : 0u) |
                                 (f->gives_content ? GIVES_CONTENT : 0u));
    lp_wire_put_u32(row + 8, (uint32_t)f->mode);
    lp_wire_put_u32(row + 12, (uint32_t)names);
    lp_wire_put_i64(row + 16, f->bucket);
    lp_wire_put_i64(row + 24, f->seen);
    lp_wire_put_i64(row + 32, f->wanted);
    lp_wire_put_i64(row + 40, f->held);
    memcpy(row + 48, f->lineage, 32);
    memcpy(row + 80, f->catalogue, 32);
    memcpy(row + 112, f->set, 32);
    memcpy(row + 144, f->group, LP_SYNC_GROUP);
    lp_wire_put_i64(row + 144 + LP_SYNC_GROUP, (int64_t)f->share_key);
    lp_text_add(out, (const char *)row, sizeof row);
    if (!f->is_sender) {
        lp_bits_put(f->used, names, out);
        lp_bits_put(f->whole, names, out);
    }
    return out->failed ? lp_fail_memory(err) : LP_OK;
}

/* map: room for both sets of a receiver. Of another catalogue they are not looked at. */
static lp_status get_fact(const lp_sync *s, int32_t rank, const lp_block *block, uint8_t *map, lp_fact *f,
                          lp_error *err)
{
    const int64_t names = lp_checkpoint_count(s->catalogue);
    const uint8_t *row = block->data;
    int64_t at = FIXED;
    if (block->bytes < FIXED || lp_wire_get_u32(row) != VERSION)
        return lp_fail(err, LP_E_VERSION, "%s speaks another version of the protocol",
                       s->transport.name(s->transport.context, rank));
    const uint32_t flags = lp_wire_get_u32(row + 4);
    *f = (lp_fact){.is_sender = (flags & IS_SENDER) != 0,
                   .takes_delta = (flags & TAKES_DELTA) != 0,
                   .gives_content = (flags & GIVES_CONTENT) != 0,
                   .share_key = (uint64_t)lp_wire_get_i64(row + 144 + LP_SYNC_GROUP),
                   .mode = (lp_sync_mode)lp_wire_get_u32(row + 8),
                   .bucket = lp_wire_get_i64(row + 16),
                   .seen = lp_wire_get_i64(row + 24),
                   .wanted = lp_wire_get_i64(row + 32),
                   .held = lp_wire_get_i64(row + 40)};
    memcpy(f->lineage, row + 48, 32);
    memcpy(f->catalogue, row + 80, 32);
    memcpy(f->set, row + 112, 32);
    memcpy(f->group, row + 144, LP_SYNC_GROUP);
    f->group[LP_SYNC_GROUP - 1] = '\0';
    if (f->is_sender != (rank < s->round.senders))
        return lp_fail(err, LP_E_CORRUPT, "rank %d is no %s", rank, f->is_sender ? "sender" : "receiver");
    if (f->is_sender || lp_wire_get_u32(row + 12) != (uint32_t)names)
        return LP_OK;
    LP_TRY(lp_bits_get(row, block->bytes, &at, map, names, err));
    LP_TRY(lp_bits_get(row, block->bytes, &at, map + lp_bitmap_bytes(s), names, err));
    if (at != block->bytes)
        return lp_fail(err, LP_E_CORRUPT, "rank %d says more than it should", rank);
    f->used = map;
    f->whole = map + lp_bitmap_bytes(s);
    return LP_OK;
}

static lp_status exchange(lp_sync *s, const lp_fact *mine, lp_error *err)
{
    const int64_t map = 2 * lp_bitmap_bytes(s), receivers = s->round.world - s->round.senders;
    const lp_block *all = NULL;
    int64_t bytes;
    lp_text row;
    lp_text_init(&row, s->alloc);
    lp_status status = put_fact(s, mine, &row, err);
    if (status == LP_OK)
        status = s->transport.gather(s->transport.context, row.data, row.bytes, &all, err);
    lp_text_free(&row);
    LP_TRY(status);
    s->fact = lp_allocate_zero(s->alloc, (size_t)s->round.world * sizeof *s->fact);
    s->is_delta = lp_allocate_zero(s->alloc, (size_t)s->round.world * sizeof *s->is_delta);
    s->facts_memory = lp_mul(map, receivers, &bytes) ? lp_allocate(s->alloc, (size_t)bytes + 1) : NULL;
    if (s->fact == NULL || s->is_delta == NULL || s->facts_memory == NULL)
        return lp_fail_memory(err);
    for (int32_t i = 0; i < s->round.world; i++) {
        const int32_t receiver = i < s->round.senders ? 0 : i - s->round.senders;
        LP_TRY(get_fact(s, i, &all[i], s->facts_memory + map * receiver, &s->fact[i], err));
    }
    return LP_OK;
}

/* ---- the verdict: from the facts alone, so that all ranks reach the same ---- */

static lp_status differ(lp_sync *s, int32_t rank, int32_t from, const char *what, lp_error *err)
{
    char name[128];
    snprintf(name, sizeof name, "%s", s->transport.name(s->transport.context, rank));
    s->is_mismatch = true;
    return lp_fail_at(err, LP_E_MISMATCH, name, -1, "%s has %s than %s", name, what,
                      s->transport.name(s->transport.context, from));
}

static lp_status compare_facts(lp_sync *s, lp_error *err)
{
    const lp_fact *f = s->fact;
    int32_t first = 0; /* of the group */
    for (int32_t i = 1; i < s->round.world; i++) {
        if (memcmp(f[i].catalogue, f[0].catalogue, 32) != 0)
            return differ(s, i, 0, "a trace of another checkpoint", err);
        if (f[i].is_sender != f[first].is_sender || strcmp(f[i].group, f[first].group) != 0)
            first = i;
        if (memcmp(f[i].set, f[first].set, 32) != 0)
            return differ(s, i, first, "another trace", err);
        if (f[i].is_sender && f[i].mode != f[0].mode)
            return differ(s, i, 0, "another mode", err);
        if (f[i].is_sender && f[i].bucket != f[0].bucket)
            return differ(s, i, 0, "another bucket size", err);
        if (!f[i].is_sender && f[i].used == NULL)
            return differ(s, i, 0, "a damaged list of names", err);
    }
    s->mode = f[0].mode;
    s->bucket = f[0].bucket;
    if (s->mode < LP_SYNC_PACKED || s->mode > LP_SYNC_DELTA || s->bucket < LP_SYNC_BUCKET_LEAST) {
        s->is_mismatch = true;
        return lp_fail(err, LP_E_MISMATCH, "the senders have mode %d and buckets of %lld bytes", (int)s->mode,
                       (long long)s->bucket);
    }
    return LP_OK;
}

static lp_status choose_epoch(lp_sync *s, lp_error *err)
{
    int64_t seen = 0, wanted = 0;
    int32_t seen_by = 0, wanted_by = 0;
    for (int32_t i = 0; i < s->round.world; i++) {
        if (s->fact[i].seen > seen) {
            seen = s->fact[i].seen;
            seen_by = i;
        }
        if (s->fact[i].wanted != 0 && wanted != 0 && s->fact[i].wanted != wanted)
            return differ(s, i, wanted_by, "another epoch in mind", err);
        if (s->fact[i].wanted != 0) {
            wanted = s->fact[i].wanted;
            wanted_by = i;
        }
    }
    s->seen = seen > s->seen ? seen : s->seen;
    if (wanted != 0 && wanted <= seen) {
        char name[128];
        snprintf(name, sizeof name, "%s", s->transport.name(s->transport.context, wanted_by));
        s->is_mismatch = true;
        return lp_fail(err, LP_E_MISMATCH, "%s asks for epoch %lld, but %s has seen epoch %lld", name,
                       (long long)wanted, s->transport.name(s->transport.context, seen_by), (long long)seen);
    }
    if (seen == INT64_MAX) {
        s->is_mismatch = true;
        return lp_fail(err, LP_E_LIMIT, "there is no epoch after %lld", (long long)seen);
    }
    s->epoch = wanted != 0 ? wanted : seen + 1;
    s->seen = s->epoch;
    return LP_OK;
}

/* A receiver gets changes only if it holds exactly what every sender's shadow is a copy of. */
static void choose_deltas(lp_sync *s)
{
    const lp_fact *f = s->fact;
    if (s->mode != LP_SYNC_DELTA)
        return;
    for (int32_t i = s->round.senders; i < s->round.world; i++) {
        bool is_delta = f[i].takes_delta && f[i].held > 0;
        for (int32_t k = 0; k < s->round.senders; k++)
            is_delta = is_delta && f[k].held == f[i].held && memcmp(f[k].lineage, f[i].lineage, 32) == 0;
        s->is_delta[i] = is_delta;
    }
}

/* Everything that frames must belong to. */
static lp_status seal(lp_sync *s, lp_error *err)
{
    lp_sha256 h;
    lp_sha256_begin(&h);
    lp_sha256_text(&h, "loadplan sync 1");
    lp_sha256_i64(&h, s->epoch);
    lp_sha256_i64(&h, (int64_t)s->mode);
    lp_sha256_i64(&h, s->bucket);
    lp_sha256_i64(&h, s->round.senders);
    lp_sha256_i64(&h, s->round.world);
    lp_sha256_add(&h, s->fact[0].catalogue, 32);
    for (int32_t i = 0; i < s->round.world; i++)
        lp_sha256_add(&h, s->fact[i].set, 32);
    return lp_sha256_end(&h, s->agreement) ? LP_OK : lp_fail(err, LP_E_INTERNAL, "SHA-256 failed");
}

lp_status lp_sync_agree(lp_sync *s, lp_fact *mine, lp_error *err)
{
    lp_sync_forget(s);
    s->is_mismatch = false;
    s->report = (lp_sync_report){.epoch = 0};
    memset(s->content, 0, sizeof s->content);
    LP_TRY(s->transport.join(s->transport.context, &s->round, err));
    s->begin_ns = lp_clock_ns();
    mine->seen = s->seen;
    mine->held = s->held;
    mine->share_key = s->share_key;
    memcpy(mine->lineage, s->lineage, 32);
    memcpy(mine->catalogue, s->catalogue_digest, 32);
    memcpy(mine->set, s->set, 32);
    memcpy(mine->group, s->group, sizeof mine->group);
    LP_TRY(exchange(s, mine, err));
    LP_TRY(compare_facts(s, err));
    LP_TRY(choose_epoch(s, err));
    choose_deltas(s);
    LP_TRY(seal(s, err));
    s->report.epoch = s->epoch;
    s->report.mode = s->mode;
    return LP_OK;
}
