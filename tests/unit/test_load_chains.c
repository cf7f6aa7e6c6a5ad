/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of whatever can happen to memory, in the host's and on a device: full loads in every mode, order and split,
 * subsets, dummy values, loads that are given up, that a failed allocation or a failed call of the device ends, new
 * plans of the same memory, cold starts by the pipeline, and loads of two plans side by side. After every load that
 * ends well memory is that of the model, which knows nothing of what happened before.
 */
#include "load_chains.h"

enum { CHAINS = 50, STEPS = 14 };

/* ---- steps ---- */

static lp_load_mode any_mode(world *w)
{
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    return modes[pick(w, 3)];
}

static void load_all(chain *c, bed *b)
{
    static const char *const name[] = {" cold", " direct", " layerwise"};
    turn r;
    lp_report report;
    all_names(c, &r, b, any_mode(&c->w));
    note(c, b, name[r.o.mode]);
    assert_ok(&c->w, lp_begin(&r.s, b->plan, &r.o, &c->w.err));
    assert_ok(&c->w, push_turn(c, &r));
    assert_ok(&c->w, lp_finish(r.s, &report, &c->w.err));
    lp_session_close(r.s);
    b->is_whole = true;
    note_loaded(c, &r, &report);
}

/* Where memory is whole a subset is refused for what it leaves out only, never for what happened before. */
static void load_some(chain *c, bed *b)
{
    turn r;
    lp_report report;
    some_names(c, &r, b, pick(&c->w, 2) == 0 ? LP_DIRECT : LP_LAYERWISE);
    note(c, b, " some");
    const lp_status status = lp_begin(&r.s, b->plan, &r.o, &c->w.err);
    if (status == LP_E_ARGUMENT || (status == LP_E_POISONED && !b->is_whole)) {
        note(c, b, "-refused");
        return;
    }
    assert_ok(&c->w, status);
    assert_ok(&c->w, push_turn(c, &r));
    assert_ok(&c->w, lp_finish(r.s, &report, &c->w.err));
    lp_session_close(r.s);
    b->is_whole = true; /* it was let in: nothing else can have been left half done */
    note_loaded(c, &r, &report);
}

static void give_up(chain *c, bed *b)
{
    turn r;
    all_names(c, &r, b, any_mode(&c->w));
    note(c, b, " given-up");
    assert_ok(&c->w, lp_begin(&r.s, b->plan, &r.o, &c->w.err));
    assert_ok(&c->w, push_turns(c, &r, 1, (int)pick(&c->w, 30)));
    if (pick(&c->w, 2) == 0)
        lp_abort(r.s, "enough");
    lp_session_close(r.s);
    note_broken(c, b);
}

/* An allocation or a call fails; what ends well nevertheless is a load like any other. */
static void load_with_a_fault(chain *c, bed *b)
{
    turn r;
    lp_report report;
    all_names(c, &r, b, any_mode(&c->w));
    note(c, b, " fault");
    if (b->on_device && pick(&c->w, 2) == 0)
        b->fake.fail_at = b->fake.calls + (int)pick(&c->w, 150);
    else
        b->memory.countdown = pick(&c->w, 60);
    lp_status status = lp_begin(&r.s, b->plan, &r.o, &c->w.err);
    const bool has_begun = status == LP_OK;
    if (status == LP_OK)
        status = push_turns(c, &r, 1, INT32_MAX);
    const bool has_pushed = status == LP_OK;
    if (status == LP_OK)
        status = lp_finish(r.s, &report, &c->w.err);
    b->memory.countdown = b->fake.fail_at = -1;
    if (has_begun)
        lp_session_close(r.s);
    if (status == LP_OK) {
        b->is_whole = true;
        note_loaded(c, &r, &report);
        return;
    }
    assert_true(status == LP_E_MEMORY || (status == LP_E_DEVICE && b->on_device));
    note_broken(c, b);
    b->is_known = b->is_known && !has_pushed; /* all may have been loaded, and only digests have failed */
}

/* The same bytes whatever was there before, on the host and on a device. */
static void load_dummy(chain *c, bed *b)
{
    lp_session *s;
    note(c, b, " dummy");
    assert_ok(&c->w, lp_begin(&s, b->plan, &(lp_session_options){.mode = LP_DUMMY, .stream = b->k.stream}, &c->w.err));
    assert_ok(&c->w, lp_finish(s, NULL, &c->w.err));
    lp_session_close(s);
    take_as_it_is(c, b);
    if (c->has_dummy) {
        assert_same_image(&c->w, &b->want, &c->dummy, c->done);
    } else {
        free_image(&c->w, &c->dummy);
        c->dummy = copy_image(&c->w, &b->want);
    }
    c->has_dummy = true;
    b->is_known = false;
    b->is_whole = true;
}

static void load_by_the_pipeline(chain *c, bed *b)
{
    host_device device;
    const lp_cold_device table = host_table(&device);
    const int set = (int)pick(&c->w, SETS);
    const lp_cold_options o = {.readers = (int32_t)(1 + pick(&c->w, 3)), .staging = (int64_t)64 << pick(&c->w, 8)};
    note(c, b, " pipeline");
    b->k.settle(b->k.context);
    assert_ok(&c->w, lp_cold_load(&table, b->plan, c->file[set], &o, NULL, &c->w.err));
    assert_int_equal(atomic_load(&device.blocks), 0);
    for (int i = 0; i < c->w.nsource; i++)
        b->now[i] = c->set[set].data[i];
    b->is_known = b->is_whole = true;
    check_loaded(c, b, true);
}

/* A plan knows nothing of what another left half done. */
static void bind_again(chain *c, bed *b)
{
    note(c, b, " bound");
    lp_plan_close(b->plan);
    b->is_known = b->is_known && b->is_whole;
    bind_bed(c, b);
}

static void load_both(chain *c)
{
    turn r[BEDS];
    note(c, &c->bed[0], " both");
    for (int i = 0; i < BEDS; i++) {
        all_names(c, &r[i], &c->bed[i], any_mode(&c->w));
        assert_ok(&c->w, lp_begin(&r[i].s, r[i].b->plan, &r[i].o, &c->w.err));
    }
    assert_ok(&c->w, push_turns(c, r, BEDS, INT32_MAX));
    for (int i = BEDS - 1; i >= 0; i--) {
        lp_report report;
        assert_ok(&c->w, lp_finish(r[i].s, &report, &c->w.err));
        lp_session_close(r[i].s);
        r[i].b->is_whole = true;
        note_loaded(c, &r[i], &report);
    }
}

static void take_step(chain *c)
{
    bed *b = &c->bed[pick(&c->w, BEDS)];
    switch (pick(&c->w, 10)) {
    case 0:
        load_by_the_pipeline(c, b);
        break;
    case 1:
        load_dummy(c, b);
        break;
    case 2:
        give_up(c, b);
        break;
    case 3:
    case 4:
        load_with_a_fault(c, b);
        break;
    case 5:
        bind_again(c, b);
        break;
    case 6:
        load_both(c);
        break;
    case 7:
    case 8:
        if (b->is_known) {
            load_some(c, b);
            break;
        }
        /* fall through */
    default:
        load_all(c, b);
    }
}

static void test_any_chain_of_loads(void **state)
{
    const uint64_t first = random_first_seed((uint64_t)time(NULL) * 1000);
    (void)state;
    print_message("seed %llu\n", (unsigned long long)first);
    for (uint64_t n = 0; n < random_cases(CHAINS); n++) {
        chain *c = malloc(sizeof *c);
        assert_non_null(c);
        open_chain(c, first + n, random_world);
        for (int i = 0; i < STEPS; i++)
            take_step(c);
        close_chain(c);
        free(c);
    }
}

/* ---- what such chains have found ---- */

/* Two names, and a destination of constants only, from which something is derived. */
static void constant_world(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    for (int i = 0; i < 2; i++) {
        const char *const name[] = {"layers.0.a", "layers.0.b"};
        const int from = add_source(w, name[i], LP_F32, 2, 4);
        add_copy(w, from, add_dest(w, name[i], LP_F32, 2, 4, 0, "layers.0"), 0, 2, 0);
    }
    const int filled = add_dest(w, "layers.0.filled", LP_F32, 1, 4, 0, "layers.0");
    add_fill(w, -1, filled, 0, 1, 0x40200000); /* 2.5 */
    const int most = add_dest(w, "layers.0.max", LP_F32, 1, 1, 0, "layers.0");
    w->derive[w->nderive++] = (derive){DERIVE_MAX, most, filled, -1};
    build_world(w, NULL);
}

static void break_off(chain *c, const bed *b, lp_load_mode mode, int names)
{
    lp_session *s;
    assert_ok(&c->w, lp_begin(&s, b->plan, &(lp_session_options){.mode = mode}, &c->w.err));
    for (int i = 0; i < names; i++)
        push_whole(&c->w, s, &c->set[0], i);
    lp_session_close(s);
}

/* All names together are no subset: a cold start that was given up has wiped what is derived from constants, too. */
static void test_a_subset_of_everything(void **state)
{
    static const char *const all[] = {"layers.0.b", "layers.0.a"};
    static const lp_load_mode modes[] = {LP_DIRECT, LP_LAYERWISE};
    (void)state;
    for (int n = 0; n < 2 * BEDS; n++) {
        chain c;
        lp_session *s;
        open_chain(&c, 4, constant_world);
        bed *b = &c.bed[n % 2];
        break_off(&c, b, LP_COLD, 0);
        const lp_session_options o = {.mode = modes[n / 2], .subset = all, .subset_count = 2};
        for (int round = 0; round < 2; round++) {
            assert_ok(&c.w, lp_begin(&s, b->plan, &o, &c.w.err));
            push_all(&c.w, s, &c.set[1 + round]);
            assert_ok(&c.w, lp_finish(s, NULL, &c.w.err));
            lp_session_close(s);
            memcpy(b->now, c.set[1 + round].data, sizeof b->now);
            check_loaded(&c, b, true);
            assert_true(model_value(&c.w, &b->want, 3, 0) == 2.5f);
        }
        close_chain(&c);
    }
}

/* Whatever writes all of memory anew makes it whole, however many names were half loaded before. */
static void test_what_makes_memory_whole(void **state)
{
    static const char *const one = "layers.0.b";
    static void (*const load[])(chain *, bed *) = {load_dummy, load_by_the_pipeline, load_all};
    const lp_session_options part = {.mode = LP_DIRECT, .subset = &one, .subset_count = 1};
    (void)state;
    for (int n = 0; n < 3 * BEDS; n++) {
        chain c;
        lp_session *s;
        open_chain(&c, 4, constant_world);
        bed *b = &c.bed[n % 2];
        break_off(&c, b, LP_DIRECT, 1);
        assert_int_equal(lp_begin(&s, b->plan, &part, &c.w.err), LP_E_POISONED);
        take_as_it_is(&c, b);
        load[n / 2](&c, b);
        assert_ok(&c.w, lp_begin(&s, b->plan, &part, &c.w.err));
        lp_session_close(s);
        close_chain(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_chain_of_loads),
        cmocka_unit_test(test_a_subset_of_everything),
        cmocka_unit_test(test_what_makes_memory_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
