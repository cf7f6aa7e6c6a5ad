/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules of whole worlds, up to 1,024 ranks, without moving a byte: every needed byte once, no other byte, from a
 * rank that holds it, and the load spread over the senders. Byte by byte against sets. */
#include "sync_testing.h"
#include "failing_memory.h"

#include "replayer/sync_schedule.h"
#include "replayer/sync_world.h"

typedef struct layout {
    int dp, tp;
    bool ep;
} layout;

/* Bits of one name's bytes: who needs it, who holds it. */
static void mark(uint8_t *map, const lp_ranges *r, int value)
{
    for (int64_t i = 0; i < r->count; i++)
        memset(map + r->item[i].lo, value, (size_t)(r->item[i].hi - r->item[i].lo));
}

static void ranges_of(const lp_world_bytes *w, int32_t rank, uint32_t name, lp_ranges *out)
{
    int64_t cursor = 0;
    lp_ranges_init(out, NULL);
    assert_ok(lp_world_ranges(w, rank, name, &cursor, out, ERR));
}

/* What receiver `receiver` asks of all senders is exactly what it needs, of senders that hold it. */
static void check_requests(const lp_world_bytes *needs, const lp_world_bytes *held, const lp_requests *r,
                           int32_t receiver)
{
    static uint8_t need[65536], hold[65536];
    for (uint32_t name = 0; name < lp_checkpoint_count(needs->catalogue); name++) {
        const int64_t bytes = lp_checkpoint_at(needs->catalogue, name)->bytes;
        lp_ranges ranges;
        assert_true(bytes <= (int64_t)sizeof need);
        memset(need, 0, sizeof need);
        ranges_of(needs, receiver, name, &ranges);
        mark(need, &ranges, 1);
        lp_ranges_free(&ranges);
        for (int32_t s = 0; s < r->senders; s++) {
            bool is_asked = false;
            for (int64_t i = 0; i < r->list[s].count; i++)
                is_asked = is_asked || r->list[s].piece[i].name == name;
            if (!is_asked)
                continue;
            memset(hold, held == NULL, sizeof hold);
            if (held != NULL) {
                ranges_of(held, s, name, &ranges);
                mark(hold, &ranges, 1);
                lp_ranges_free(&ranges);
            }
            for (int64_t i = 0; i < r->list[s].count; i++) {
                const lp_piece *p = &r->list[s].piece[i];
                for (int64_t k = 0; p->name == name && k < p->count; k++)
                    for (int64_t b = p->lo + k * p->stride; b < p->lo + k * p->stride + p->run; b++) {
                        if (need[b] != 1 || !hold[b])
                            fail_msg("receiver %d asks sender %d for byte %lld of name %u: needed %d, held %d",
                                     receiver, s, (long long)b, name, need[b], hold[b]);
                        need[b] = 2;
                    }
            }
        }
        for (int64_t b = 0; b < bytes; b++)
            if (need[b] == 1)
                fail_msg("receiver %d does not ask for byte %lld of name %u", receiver, (long long)b, name);
    }
}

static void check_world(layout from, layout to, bool exactly)
{
    lp_checkpoint *c = make_model();
    lp_trace *trainer = record_ranks(c, from.dp, from.tp, from.ep, true),
             *server = record_layout(c, to.dp, to.tp, to.ep);
    lp_world_bytes needs, held;
    lp_holdings *h = NULL;
    lp_world_costs costs;
    const int32_t senders = from.dp * from.tp, receivers = to.dp * to.tp;
    assert_ok(lp_world_bytes_make(&needs, server, false, NULL, ERR));
    assert_ok(lp_world_bytes_make(&held, trainer, true, NULL, ERR));
    assert_ok(lp_holdings_new(&h, lp_trace_checkpoint(server), senders, NULL, ERR));
    for (int32_t i = 0; i < senders; i++) {
        int64_t cursor = 0;
        for (uint32_t name = 0; name < lp_checkpoint_count(held.catalogue); name++) {
            int64_t count;
            const lp_piece *p = lp_world_pieces(&held, i, name, &cursor, &count);
            assert_ok(lp_holdings_add(h, i, name, p, count, ERR));
        }
    }
    for (int32_t i = 0; i < receivers; i += exactly ? 1 : 97) {
        lp_requests r;
        int64_t cursor = 0;
        assert_ok(lp_requests_init(&r, i, senders, NULL, ERR));
        for (uint32_t name = 0; name < lp_checkpoint_count(needs.catalogue); name++) {
            int64_t count;
            const lp_piece *p = lp_world_pieces(&needs, i, name, &cursor, &count);
            if (count > 0)
                assert_ok(lp_requests_add(&r, h, name, p, count, ERR));
        }
        check_requests(&needs, &held, &r, i);
        lp_requests_free(&r);
    }
    assert_ok(lp_explain_sync(&costs, server, trainer, 0, NULL, ERR));
    assert_int_equal(costs.bytes_sliced, costs.bytes_needed);
    assert_int_equal(costs.senders, senders);
    assert_int_equal(costs.receivers, receivers);
    print_message("%4d -> %4d ranks: %lld bytes, by one sender %lld to %lld\n", senders, receivers,
                  (long long)costs.bytes_sliced, (long long)costs.least_sent, (long long)costs.most_sent);
    /* Names are small here, so a sender is at most a few tensors off the mean. */
    const int64_t mean = costs.bytes_sliced / senders;
    if (from.dp > 1 && receivers >= senders)
        assert_true(costs.most_sent <= 2 * mean + 65536);
    lp_holdings_free(h);
    lp_world_bytes_free(&needs);
    lp_world_bytes_free(&held);
    lp_trace_close(trainer);
    lp_trace_close(server);
    lp_checkpoint_close(c);
}

static void worlds_of_2_and_8(void **state)
{
    (void)state;
    check_world((layout){1, 2, false}, (layout){1, 4, false}, true);
    check_world((layout){1, 4, false}, (layout){1, 2, false}, true);
    check_world((layout){1, 2, true}, (layout){4, 2, true}, true);
    check_world((layout){8, 1, true}, (layout){2, 1, true}, true);
    check_world((layout){4, 2, false}, (layout){1, 8, false}, true);
    check_world((layout){1, 1, false}, (layout){1, 1, false}, true);
}

static void a_world_of_64(void **state)
{
    (void)state;
    check_world((layout){16, 4, false}, (layout){8, 8, false}, true);
}

static void a_world_of_1024(void **state)
{
    (void)state;
    check_world((layout){128, 8, false}, (layout){256, 4, false}, false);
}

/* ---- cold starts ---- */

/* Every needed byte of a shared name arrives once, from the rank that reads it, and is in what that rank read. */
static void check_cold(layout at, int64_t bucket)
{
    lp_checkpoint *c = make_model();
    lp_trace *t = record_layout(c, at.dp, at.tp, at.ep);
    const int32_t ranks = at.dp * at.tp;
    lp_world_bytes needs;
    lp_cold_world *w = calloc((size_t)ranks, sizeof *w);
    static uint8_t count[65536];
    int64_t read = 0;
    assert_non_null(w);
    assert_ok(lp_world_bytes_make(&needs, t, false, NULL, ERR));
    for (int32_t i = 0; i < ranks; i++) {
        assert_ok(lp_cold_world_make(&w[i], &needs, i, bucket, NULL, ERR));
        assert_memory_equal(&w[i].costs, &w[0].costs, sizeof w[0].costs);
        read += w[i].read.bytes;
    }
    assert_int_equal(read, w[0].costs.bytes_shared);
    assert_true(w[0].costs.bytes_read <= w[0].costs.bytes_union + w[0].costs.bytes_union / 20);
    for (int32_t i = 0; i < ranks; i++)
        for (int32_t j = 0; j < ranks; j++) {
            const lp_pieces *out = &w[i].out[j], *in = &w[j].in[i];
            assert_int_equal(out->count, in->count);
            assert_int_equal(out->frame_count, in->frame_count);
            for (int64_t k = 0; k < out->count; k++)
                assert_true(out->piece[k].name == in->piece[k].name && out->piece[k].lo == in->piece[k].lo &&
                            out->piece[k].run == in->piece[k].run && out->piece[k].stride == in->piece[k].stride &&
                            out->piece[k].count == in->piece[k].count);
            for (int64_t k = 0; k < out->frame_count; k++) {
                assert_int_equal(out->frame[k].bytes, in->frame[k].bytes);
                assert_true(out->frame[k].bytes <= bucket);
            }
        }
    for (int32_t j = 0; j < ranks; j++)
        for (uint32_t name = 0; name < lp_checkpoint_count(c); name++) {
            lp_ranges need;
            ranges_of(&needs, j, name, &need);
            memset(count, 0, sizeof count);
            for (int32_t i = 0; i < ranks; i++)
                for (int64_t k = 0; k < w[j].in[i].count; k++) {
                    const lp_piece *p = &w[j].in[i].piece[k];
                    for (int64_t n = 0; p->name == name && n < p->count; n++)
                        for (int64_t b = 0; b < p->run; b++)
                            count[p->lo + n * p->stride + b]++;
                }
            for (int64_t k = 0; k < need.count; k++)
                for (int64_t b = need.item[k].lo; b < need.item[k].hi; b++)
                    if (count[b]-- != (w[0].is_shared[name] ? 1 : 0))
                        fail_msg("rank %d: byte %lld of name %u", j, (long long)b, name);
            for (int64_t b = 0; w[0].is_shared[name] && b < lp_checkpoint_at(c, name)->bytes; b++)
                assert_int_equal(count[b], 0);
            lp_ranges_free(&need);
        }
    for (int32_t i = 0; i < ranks; i++)
        lp_cold_world_free(&w[i]);
    free(w);
    lp_world_bytes_free(&needs);
    lp_trace_close(t);
    lp_checkpoint_close(c);
}

static void cold_starts_read_each_byte_once(void **state)
{
    (void)state;
    check_cold((layout){1, 1, false}, 4096);
    check_cold((layout){1, 4, false}, 512);
    check_cold((layout){2, 2, true}, 4096);
    check_cold((layout){4, 2, false}, 1 << 20);
    check_cold((layout){8, 8, false}, 1024);
}

typedef struct memory_case {
    const lp_trace *trace;
    lp_platform platform;
} memory_case;

static lp_status plan_cold(void *context, lp_error *err)
{
    const memory_case *c = context;
    lp_world_bytes needs;
    LP_TRY(lp_world_bytes_make(&needs, c->trace, false, &c->platform, err));
    lp_status status = LP_OK;
    for (int32_t rank = -1; rank < 4 && status == LP_OK; rank++) {
        lp_cold_world w;
        status = lp_cold_world_make(&w, &needs, rank, 512, NULL, err);
        if (status == LP_OK)
            lp_cold_world_free(&w);
    }
    lp_world_bytes_free(&needs);
    return status;
}

static void cold_starts_without_memory_end_clean(void **state)
{
    failing_alloc f = {0};
    const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_resize, .exact = true};
    lp_checkpoint *checkpoint = make_model();
    lp_trace *t = record_layout(checkpoint, 1, 4, false);
    memory_case c = {.trace = t, .platform = {.alloc = &alloc}};
    (void)state;
    assert_true(fail_every_allocation(&f, plan_cold, &c) > 30);
    lp_trace_close(t);
    lp_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worlds_of_2_and_8),
        cmocka_unit_test(a_world_of_64),
        cmocka_unit_test(a_world_of_1024),
        cmocka_unit_test(cold_starts_read_each_byte_once),
        cmocka_unit_test(cold_starts_without_memory_end_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
