/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts that move between slots and ranks: what memory holds afterwards is what a cold start by the new map loads,
 * byte for byte, whatever the maps, the staging and the forms of the destinations are.
 */
#include "failing_memory.h"
#include "rebalance_testing.h"

static void test_moved_experts_are_those_of_a_cold_start(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++)
        check_chain(seed, NULL, NULL);
}

/* ---- a device that is host memory ---- */

typedef struct fake {
    int calls, fail_at, open;
} fake;

static int step(fake *f)
{
    return ++f->calls == f->fail_at ? 7 : 0;
}

static const char *fake_text(void *context, int code)
{
    (void)context;
    return code == 7 ? "a made-up failure" : "?";
}

static int fake_enter(void *context)
{
    return step(context);
}

static int fake_allocate(void *context, int64_t bytes, void **out)
{
    fake *f = context;
    const int code = step(f);
    if (code == 0) {
        *out = malloc((size_t)bytes);
        f->open++;
    }
    return code;
}

static void fake_release(void *context, void *memory)
{
    ((fake *)context)->open -= memory != NULL;
    free(memory);
}

static int fake_fetch(void *context, void *host, const void *device, int64_t bytes)
{
    memcpy(host, device, (size_t)bytes);
    return step(context);
}

static int fake_store(void *context, void *device, const void *host, int64_t bytes)
{
    memcpy(device, host, (size_t)bytes);
    return step(context);
}

static int fake_lane_open(void *context, void **lane)
{
    *lane = context;
    return step(context);
}

static void fake_lane_close(void *context, void *lane)
{
    (void)context;
    (void)lane;
}

static int fake_lane_wait(void *context, void *lane)
{
    (void)lane;
    return step(context);
}

static int fake_move(void *context, void *lane, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                     int64_t bytes, int64_t rows)
{
    assert_ptr_equal(lane, context);
    for (int64_t i = 0; i < rows; i++)
        memcpy((uint8_t *)to + i * to_pitch, (const uint8_t *)from + i * from_pitch, (size_t)bytes);
    return step(context);
}

static lp_expert_device fake_device(fake *f)
{
    return (lp_expert_device){.table = {.context = f,
                                        .error_text = fake_text,
                                        .enter = fake_enter,
                                        .allocate = fake_allocate,
                                        .release = fake_release,
                                        .fetch = fake_fetch,
                                        .store = fake_store,
                                        .lane_open = fake_lane_open,
                                        .lane_close = fake_lane_close,
                                        .lane_wait = fake_lane_wait},
                              .move = fake_move};
}

static void test_experts_on_a_device(void **state)
{
    fake f = {.fail_at = 0};
    const lp_expert_device device = fake_device(&f);
    (void)state;
    for (uint64_t seed = 100; seed <= 130; seed++)
        check_chain(seed, &device, NULL);
    assert_true(f.calls > 1000);
    assert_int_equal(f.open, 0);
}

/* A call that fails leaves a plan that takes full loads only, and nothing behind. */
static void test_every_device_call_may_fail(void **state)
{
    fixture f;
    rank r;
    int32_t swapped[4] = {1, 0, 3, 2};
    const lp_expert_map to = {swapped, 4, 7};
    lp_status status = LP_E_DEVICE;
    (void)state;
    open_fixture(&f, 8, 1, 4);
    for (int n = 1; status != LP_OK; n++) {
        fake calls = {.fail_at = 0};
        const lp_expert_device device = fake_device(&calls);
        lp_rebalance *move = NULL;
        open_rank(&f, &r, 0, NULL);
        load(&f, r.plan, 0, LP_COLD);
        open_on_device(&f, &r, 0, NULL, &device);
        const int open = calls.open;
        calls.calls = 0;
        calls.fail_at = n;
        status = lp_rebalance_begin_with(&move, r.plan, &to, 100, &device, &f.err);
        const int64_t slices = status == LP_OK ? lp_rebalance_slices(move) : 0;
        bool wrote = false;
        for (int64_t i = 0; status == LP_OK && i < slices; i++) {
            status = lp_rebalance_gather(move, i, &f.err);
            if (status == LP_OK) {
                wrote = true;
                status = lp_rebalance_scatter(move, i, &f.err);
            }
        }
        if (status == LP_OK)
            status = lp_rebalance_finish(move, &f.err);
        assert_true(status == LP_OK || status == LP_E_DEVICE);
        lp_rebalance_close(move);
        assert_int_equal(calls.open, open);
        calls.fail_at = 0;
        const char *one[1] = {"router"};
        const lp_session_options part = {.mode = LP_DIRECT, .subset = one, .subset_count = 1};
        lp_session *s = NULL;
        assert_int_equal(lp_begin(&s, r.plan, &part, &f.err), status != LP_OK && wrote ? LP_E_POISONED : LP_OK);
        lp_session_close(s);
        close_rank(&r);
        assert_true(n < 10000);
    }
    close_fixture(&f);
}

static void test_moves_stay_near_and_spread(void **state)
{
    /* Ranks of two slots. Expert 0 is on ranks 0 and 1, so ranks 2 and 3 take it from different ones. */
    static const int32_t from[8] = {0, 1, 0, 3, 4, 5, 6, 7}, to[8] = {1, 0, 3, 1, 0, 5, 0, 6};
    const lp_expert_map a = {from, 8, 0}, b = {to, 8, 1};
    lp_expert_move m[2];
    int64_t count;
    lp_error err;
    (void)state;
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 2, 0, NULL, &err), LP_OK);
    assert_int_equal(count, 2);
    assert_true(m[0].from_rank == 0 && m[0].from_slot == 1 && m[0].to_slot == 0);
    assert_true(m[1].from_rank == 0 && m[1].from_slot == 0 && m[1].to_slot == 1);
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 2, 1, NULL, &err), LP_OK);
    assert_int_equal(count, 2);
    assert_true(m[0].from_rank == 1 && m[0].from_slot == 1 && m[1].from_rank == 0 && m[1].from_slot == 1);
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 2, 2, NULL, &err), LP_OK);
    assert_true(count == 1 && m[0].from_rank == 0 && m[0].to_slot == 0); /* 5 stays */
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 2, 3, NULL, &err), LP_OK);
    assert_true(count == 2 && m[0].from_rank == 1 && m[1].from_rank == 3 && m[1].from_slot == 0);
    /* 2 is nowhere. */
    static const int32_t lost[8] = {2, 1, 0, 3, 4, 5, 6, 7};
    assert_int_equal(lp_expert_moves(m, &count, &a, &(lp_expert_map){lost, 8, 2}, 2, 0, NULL, &err), LP_E_INCOMPLETE);
    assert_string_equal(err.text, "expert 2 is in no slot: it has to be loaded");
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 3, 0, NULL, &err), LP_E_ARGUMENT);
    assert_int_equal(lp_expert_moves(m, &count, &a, &b, 2, 4, NULL, &err), LP_E_ARGUMENT);
}

static void test_stale_plans_are_refused(void **state)
{
    fixture f;
    rank r;
    lp_plan *other;
    lp_session *s;
    int64_t count;
    int32_t swapped[4] = {1, 0, 3, 2};
    const lp_expert_map to = {swapped, 4, 7};
    (void)state;
    open_fixture(&f, 5, 1, 4);
    open_rank(&f, &r, 0, NULL);
    const lp_destination_memory *list = lp_destinations_list(r.memory, &count);
    const lp_bind_options o = {.threads = 1, .experts_epoch_now = &r.epoch_now};
    assert_ok(&f, lp_bind(&other, f.trace, NULL, list, count, &o, &f.err));
    load(&f, r.plan, 0, LP_COLD);
    load(&f, other, 1, LP_DIRECT);
    const lp_handle handle = lp_plan_handle(r.plan, "fused");
    assert_ok(&f, lp_plan_move_experts(r.plan, &to, 0, NULL, &f.err));
    assert_int_equal(lp_plan_handle(r.plan, "fused"), handle);
    const lp_load_mode modes[2] = {LP_DIRECT, LP_LAYERWISE};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(lp_begin(&s, other, &(lp_session_options){.mode = modes[i]}, &f.err), LP_E_STALE);
        assert_string_equal(f.err.text, "the plan is of expert map 0, the weights lie by map 7");
    }
    lp_rebalance *move;
    assert_int_equal(lp_rebalance_begin(&move, other, &to, 0, NULL, &f.err), LP_E_STALE);
    load(&f, r.plan, 1, LP_DIRECT);
    load(&f, other, 0, LP_COLD); /* loads anew by its own map */
    assert_int_equal(r.epoch_now, 0);
    assert_int_equal(lp_begin(&s, r.plan, &(lp_session_options){.mode = LP_DIRECT}, &f.err), LP_E_STALE);
    lp_plan_close(other);
    close_rank(&r);
    close_fixture(&f);
}

static void test_what_is_refused_moves_nothing(void **state)
{
    fixture f;
    rank r[2];
    lp_rebalance *move;
    lp_session *s;
    int32_t across[8] = {4, 1, 2, 3, 0, 5, 6, 7}, outside[8] = {0, 1, 2, 3, 4, 5, 6, 9};
    const lp_expert_map to = {across, 8, 1}, bad = {outside, 8, 1}, small = {across, 4, 1};
    (void)state;
    open_fixture(&f, 6, 2, 4);
    for (int k = 0; k < 2; k++) {
        open_rank(&f, &r[k], k, NULL);
        load(&f, r[k].plan, 0, LP_COLD);
    }
    assert_int_equal(lp_plan_move_experts(r[0].plan, &to, 0, NULL, &f.err), LP_E_UNSUPPORTED);
    assert_string_equal(f.err.text, "expert 4 comes from rank 1: move slice by slice");
    assert_int_equal(lp_plan_move_experts(r[0].plan, &bad, 0, NULL, &f.err), LP_E_ARGUMENT);
    assert_int_equal(lp_plan_move_experts(r[0].plan, &small, 0, NULL, &f.err), LP_E_ARGUMENT);
    assert_int_equal(lp_plan_move_experts(r[0].plan, &to, 3, NULL, &f.err), LP_E_LIMIT);
    assert_ok(&f, lp_begin(&s, r[0].plan, &(lp_session_options){.mode = LP_DIRECT}, &f.err));
    assert_int_equal(lp_rebalance_begin(&move, r[0].plan, &to, 0, NULL, &f.err), LP_E_MISUSE);
    lp_session_close(s);
    load(&f, r[0].plan, 1, LP_DIRECT); /* nothing is poisoned, and the plan is the old one */

    /* Out of order; and given up half way, which only a full load repairs. */
    assert_ok(&f, lp_rebalance_begin(&move, r[0].plan, &to, 64, NULL, &f.err));
    assert_true(lp_rebalance_slices(move) > 1);
    assert_int_equal(lp_begin(&s, r[0].plan, NULL, &f.err), LP_E_MISUSE);
    assert_int_equal(lp_rebalance_scatter(move, 0, &f.err), LP_E_MISUSE);
    assert_int_equal(lp_rebalance_gather(move, 1, &f.err), LP_E_MISUSE);
    assert_int_equal(lp_rebalance_finish(move, &f.err), LP_E_MISUSE);
    assert_ok(&f, lp_rebalance_gather(move, 0, &f.err));
    assert_ok(&f, lp_rebalance_scatter(move, 0, &f.err));
    lp_rebalance_close(move);
    const char *one[1] = {"router"};
    const lp_session_options part = {.mode = LP_DIRECT, .subset = one, .subset_count = 1};
    assert_int_equal(lp_begin(&s, r[0].plan, &part, &f.err), LP_E_POISONED);
    assert_int_equal(lp_rebalance_begin(&move, r[0].plan, &to, 0, NULL, &f.err), LP_E_POISONED);
    load(&f, r[0].plan, 0, LP_DIRECT);
    assert_ok(&f, lp_begin(&s, r[0].plan, &part, &f.err));
    lp_session_close(s);
    for (int k = 0; k < 2; k++)
        close_rank(&r[k]);
    close_fixture(&f);
}

static void test_every_allocation_may_fail(void **state)
{
    fixture f;
    rank r;
    int32_t swapped[4] = {1, 0, 2, 2};
    const lp_expert_map to = {swapped, 4, 7};
    int64_t count;
    lp_status status = LP_E_MEMORY;
    (void)state;
    open_fixture(&f, 7, 1, 4);
    open_rank(&f, &r, 0, NULL);
    const lp_destination_memory *list = lp_destinations_list(r.memory, &count);
    for (int n = 0; status != LP_OK; n++) {
        scarce_alloc budget = {.left = 1 << 30};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &budget, .resize = scarce_resize};
        const lp_platform platform = {.alloc = &alloc};
        lp_plan *plan;
        assert_ok(&f, lp_bind(&plan, f.trace, NULL, list, count,
                              &(lp_bind_options){.threads = 1, .platform = &platform}, &f.err));
        load(&f, plan, 0, LP_COLD);
        budget.left = n;
        status = lp_plan_move_experts(plan, &to, 0, NULL, &f.err);
        assert_true(status == LP_OK || status == LP_E_MEMORY);
        budget.left = 1 << 30;
        load(&f, plan, 1, LP_DIRECT); /* whatever happened, a full load is taken */
        lp_plan_close(plan);
        assert_true(n < 500);
    }
    close_rank(&r);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moved_experts_are_those_of_a_cold_start),
        cmocka_unit_test(test_experts_on_a_device),
        cmocka_unit_test(test_every_device_call_may_fail),
        cmocka_unit_test(test_moves_stay_near_and_spread),
        cmocka_unit_test(test_stale_plans_are_refused),
        cmocka_unit_test(test_what_is_refused_moves_nothing),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
