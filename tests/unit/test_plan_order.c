/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes of several names to the same bytes: the last one wins by every byte, however elements of casts and fills, and
 * destinations that are tied, lie over each other, and whatever arrives last. What has no order is not bound.
 */
#include "random_worlds.h"
#include "tied_worlds.h"

#include "replayer/plan.h"

#include <time.h>
#include <unistd.h>

enum { WORLDS = 300 };

static void push_in_any_order(world *w, lp_plan *plan, const payload *p, lp_load_mode mode)
{
    piece list[200];
    lp_session *s;
    const int count = cut_pieces(w, list, 200, pick(w, 2) == 0);
    assert_ok(w, lp_begin(&s, plan, &(lp_session_options){.mode = mode}, &w->err));
    for (int i = 0; i < count; i++)
        assert_ok(w, lp_push_range(s, w->source[list[i].source].name, list[i].lo, p->data[list[i].source] + list[i].lo,
                                   list[i].hi - list[i].lo, &w->err));
    assert_ok(w, lp_finish(s, NULL, &w->err));
    lp_session_close(s);
}

/* The trace as a file gives it back. */
static void through_a_file(world *w)
{
    char path[64];
    lp_trace *again;
    snprintf(path, sizeof path, "/tmp/loadplan-order-%ld.lpt", (long)getpid());
    assert_ok(w, lp_trace_save(w->trace, path, false, &w->err));
    assert_ok(w, lp_trace_open(&again, path, &w->err));
    assert_int_equal(unlink(path), 0);
    lp_trace_close(w->trace);
    w->trace = again;
}

static void test_the_last_write_wins_by_every_byte(void **state)
{
    (void)state;
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    print_message("seed %llu\n", (unsigned long long)first);
    int ordered = 0, apart = 0;
    for (uint64_t n = 0; n < WORLDS; n++) {
        static const lp_load_mode modes[] = {LP_DIRECT, LP_LAYERWISE, LP_COLD};
        world w;
        failing_seed = first + n;
        random_storage(&w, failing_seed);
        if (n % 16 == 0)
            through_a_file(&w);
        payload a = make_payload(&w), b = make_payload(&w);
        image live = new_image(&w), want = new_image(&w);
        lp_plan *plan = bind_image(&w, &live, NULL);
        apart += plan->job_count > 0; /* the trace has no derives */
        for (uint32_t i = 0; i < lp_plan_rows(plan)->nrecord; i++)
            ordered += lp_plan_rows(plan)->record[i].seq != 0;
        memset(live.data[0], 0x5a, TIED_BYTES);
        push_in_any_order(&w, plan, &a, LP_COLD);
        model_load(&w, &a, &want);
        assert_same_image(&w, &live, &want, "cold start with A");
        model_load(&w, &b, &want);
        for (int m = 0; m < 3; m++) {
            push_in_any_order(&w, plan, &b, modes[m]);
            assert_same_image(&w, &live, &want, "A to B, or B again");
        }
        lp_plan_close(plan);
        free_image(&w, &live);
        free_image(&w, &want);
        free_payload(&w, &a);
        free_payload(&w, &b);
        free_world(&w);
    }
    print_message("%d ordered records, casts taken apart in %d of %d worlds\n", ordered, apart, WORLDS);
    assert_true(ordered > WORLDS);
    assert_true(apart > WORLDS / 20);
}

/* ---- every allocation may fail ---- */

static void test_running_out_of_memory_is_said(void **state)
{
    (void)state;
    world w;
    memset(&w, 0, sizeof w);
    const int half = add_source(&w, "half", LP_BF16, 2, 5), bytes = add_source(&w, "bytes", LP_U8, 1, 6);
    const int to = add_view(&w, "f32", LP_F32, 5, 0), over = add_view(&w, "u8", LP_U8, TIED_BYTES, 0);
    add_copy(&w, half, to, 0, 2, 0);
    w.call[w.ncall++] =
        (call){.source = bytes, .trigger = bytes, .dest = over, .dst_at = {0, 5}, .size = {1, 6}, .src_step = {6, 1}};
    build_world(&w, NULL);
    image live = new_image(&w);
    lp_destination_memory memory[DESTS_MAX];
    describe_image(&w, &live, memory);
    int64_t failed = 0;
    for (int64_t n = 0;; n++) {
        failing_once f = {.countdown = n};
        const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_once_resize, .exact = true};
        const lp_platform platform = {.alloc = &alloc};
        lp_plan *plan = NULL;
        const lp_bind_options options = {.platform = &platform, .threads = 1};
        const lp_status status = lp_bind(&plan, w.trace, NULL, memory, w.ndest, &options, &w.err);
        failed += f.failed;
        if (status == LP_OK) /* also where a test of one derive against the others had too little */
            assert_int_equal(plan->job_count, 1);
        else
            assert_int_equal(status, LP_E_MEMORY);
        lp_plan_close(plan);
        if (f.failed == 0)
            break;
    }
    assert_true(failed > 10);
    free_image(&w, &live);
    free_world(&w);
}

/* ---- no order ---- */

/* Two names over each other through tied destinations, as a file may have them: without an order. */
static lp_status bind_without_order(world *w, uint32_t first_seq, uint32_t second_seq)
{
    const lp_rows *rows;
    assert_ok(w, lp_trace_rows(w->trace, 0, &rows, &w->err));
    for (uint32_t i = 0; i < rows->nrecord; i++)
        ((lp_record *)(uintptr_t)rows->record)[i].seq = i == 0 ? first_seq : second_seq;
    image live = new_image(w);
    lp_destination_memory memory[DESTS_MAX];
    describe_image(w, &live, memory);
    lp_plan *plan = NULL;
    const lp_status status = lp_bind(&plan, w->trace, NULL, memory, w->ndest, NULL, &w->err);
    lp_plan_close(plan);
    free_image(w, &live);
    return status;
}

static void two_writers(world *w, const char *one, const char *other)
{
    memset(w, 0, sizeof *w);
    const int a = add_source(w, one, LP_F32, 1, 5),
              b = strcmp(one, other) == 0 ? a : add_source(w, other, LP_F32, 1, 5);
    const int to = add_view(w, "f32", LP_F32, 5, 0), tied = add_view(w, "tied", LP_F32, 5, 8);
    add_copy(w, a, to, 0, 1, 0);
    add_copy(w, b, tied, 0, 1, 0);
    build_world(w, NULL);
}

static void test_two_writers_without_an_order_are_not_bound(void **state)
{
    (void)state;
    static const uint32_t seq[][2] = {{0, 0}, {0, 1}, {1, 0}, {3, 3}};
    world w;
    for (int k = 0; k < 4; k++) {
        two_writers(&w, "a", "b");
        assert_int_equal(bind_without_order(&w, seq[k][0], seq[k][1]), LP_E_UNSUPPORTED);
        assert_string_equal(w.err.text,
                            "'a' and 'b' both write bytes [8, 20) of 'f32', and the trace has no order for them");
        free_world(&w);
    }
    two_writers(&w, "a", "b");
    assert_ok(&w, bind_without_order(&w, 1, 2));
    free_world(&w);
}

/* One name that writes bytes twice, from two places; check says so too. */
static void test_one_name_twice_without_an_order_is_not_bound(void **state)
{
    (void)state;
    world w;
    two_writers(&w, "a", "a");
    assert_int_equal(bind_without_order(&w, 0, 0), LP_E_UNSUPPORTED);
    assert_string_equal(w.err.text,
                        "'a' and 'a' both write bytes [8, 20) of 'f32', and the trace has no order for them");
    lp_findings *found = NULL;
    assert_ok(&w, lp_check(&found, w.trace, &w.err));
    bool is_said = false;
    for (int64_t i = 0; i < lp_findings_count(found); i++)
        is_said = is_said || strcmp(lp_findings_at(found, i)->rule->id, "dest_overlap") == 0;
    assert_true(is_said);
    lp_findings_free(found);
    free_world(&w);
    two_writers(&w, "a", "a");
    assert_ok(&w, bind_without_order(&w, 1, 2));
    free_world(&w);
}

/* Tied weights: one name writes the same bytes through both. */
static void test_tied_weights_need_no_order(void **state)
{
    (void)state;
    world w;
    memset(&w, 0, sizeof w);
    const int a = add_source(&w, "a", LP_F32, 2, 5);
    add_copy(&w, a, add_view(&w, "f32", LP_F32, 5, 0), 0, 2, 0);
    add_copy(&w, a, add_view(&w, "tied", LP_F32, 5, 0), 0, 2, 0);
    build_world(&w, NULL);
    assert_ok(&w, bind_without_order(&w, 0, 0));
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_write_wins_by_every_byte),
        cmocka_unit_test(test_running_out_of_memory_is_said),
        cmocka_unit_test(test_two_writers_without_an_order_are_not_bound),
        cmocka_unit_test(test_one_name_twice_without_an_order_is_not_bound),
        cmocka_unit_test(test_tied_weights_need_no_order),
    };
    return cmocka_run_group_tests_name("plan_order", tests, NULL, NULL);
}
