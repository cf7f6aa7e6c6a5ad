/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of bind and of a session fails once: a clean error, nothing leaked, and what a session says about
 * itself afterwards is true. */
#include "random_worlds.h"

/* A whole load in small pieces; stops at the first failure. *poisoned tells whether a later push was refused. */
static lp_status try_load(world *w, image *live, const payload *p, lp_load_mode mode, const lp_platform *platform,
                          bool *was_poisoned)
{
    lp_destination_memory memory[DESTS_MAX];
    lp_plan *plan = NULL;
    lp_session *s = NULL;
    *was_poisoned = false;
    for (int i = 0; i < w->ndest; i++)
        memory[i] = (lp_destination_memory){.name = w->dest[i].name,
                                            .dtype = w->dest[i].dtype,
                                            .ndim = 2,
                                            .shape = w->dest[i].shape,
                                            .stride = w->dest[i].stride,
                                            .data = live->data[i]};
    lp_status status =
        lp_bind(&plan, w->trace, NULL, memory, w->ndest, &(lp_bind_options){.platform = platform}, &w->err);
    if (status == LP_OK)
        status = lp_begin(&s, plan, &(lp_session_options){.mode = mode, .digests = true}, &w->err);
    for (int i = w->nsource - 1; status == LP_OK && i >= 0; i--)
        for (int64_t lo = 0; status == LP_OK && lo < w->source[i].bytes; lo += 12) {
            const int64_t hi = lo + 12 < w->source[i].bytes ? lo + 12 : w->source[i].bytes;
            status = lp_push_range(s, w->source[i].name, lo, p->data[i] + lo, hi - lo, &w->err);
            if (status != LP_OK) { /* either as it was, or poisoned with the reason */
                lp_error second = {.code = LP_OK};
                const lp_status again = lp_push_range(s, w->source[i].name, lo, p->data[i] + lo, hi - lo, &second);
                *was_poisoned = again == LP_E_POISONED;
                if (*was_poisoned)
                    assert_non_null(strstr(second.text, w->err.text));
                else
                    status = again;
            }
        }
    if (status == LP_OK)
        status = lp_finish(s, NULL, &w->err);
    lp_session_close(s);
    lp_plan_close(plan);
    return status;
}

static void test_every_allocation_fails_once(void **state)
{
    (void)state;
    world w;
    rich_world(&w);
    payload p = make_payload(&w);
    image want = new_image(&w);
    model_load(&w, &p, &want);
    static const lp_load_mode modes[] = {LP_COLD, LP_DIRECT, LP_LAYERWISE};
    for (int m = 0; m < 3; m++) {
        int poisoned = 0, survived = 0, failed = 0;
        for (int64_t n = 0;; n++) {
            image live = new_image(&w);
            failing_once f = {.countdown = n};
            const lp_alloc alloc = {.size = sizeof alloc, .context = &f, .resize = failing_once_resize};
            const lp_platform platform = {.alloc = &alloc};
            bool was_poisoned;
            const lp_status status = try_load(&w, &live, &p, modes[m], &platform, &was_poisoned);
            if (status == LP_OK) /* the push was simply repeated, or nothing failed */
                assert_same_image(&w, &live, &want, "after a failed allocation");
            else
                assert_int_equal(status, LP_E_MEMORY);
            survived += status == LP_OK && f.failed > 0;
            failed += status != LP_OK;
            poisoned += was_poisoned;
            free_image(&w, &live);
            if (f.failed == 0)
                break;
        }
        print_message("mode %d: %d failed (%d of them poisoned), %d survived by pushing again\n", (int)modes[m], failed,
                      poisoned, survived);
        assert_true(failed > 20 && poisoned > 5 && survived > 0);
    }
    free_image(&w, &want);
    free_payload(&w, &p);
    free_world(&w);
}

/* ---- bind ---- */

static lp_status bind_with(world *w, image *live, void (*change)(lp_destination_memory *m), lp_error *err)
{
    lp_destination_memory memory[DESTS_MAX];
    lp_plan *plan = NULL;
    for (int i = 0; i < w->ndest; i++)
        memory[i] = (lp_destination_memory){.name = w->dest[i].name,
                                            .dtype = w->dest[i].dtype,
                                            .ndim = 2,
                                            .shape = w->dest[i].shape,
                                            .stride = w->dest[i].stride,
                                            .data = live->data[i],
                                            .storage = live->data[i],
                                            .storage_bytes = w->dest[i].storage_bytes};
    change(memory);
    const lp_status status = lp_bind(&plan, w->trace, NULL, memory, w->ndest, NULL, err);
    lp_plan_close(plan);
    return status;
}

static const int64_t other_shape[2] = {2, 8}, other_stride[2] = {24, 4};

static void change_name(lp_destination_memory *m)
{
    m[0].name = "layers.0.other";
}
static void change_dtype(lp_destination_memory *m)
{
    m[0].dtype = LP_BF16;
}
static void change_shape(lp_destination_memory *m)
{
    m[0].shape = other_shape;
}
static void change_stride(lp_destination_memory *m)
{
    m[0].stride = other_stride;
}
static void change_offset(lp_destination_memory *m)
{
    m[0].data = (char *)m[0].data + 4;
}
static void change_storage_bytes(lp_destination_memory *m)
{
    m[0].storage_bytes = 16;
}
static void change_memory(lp_destination_memory *m)
{
    m[0].data = m[0].storage = NULL;
}
static void change_twice(lp_destination_memory *m)
{
    m[1] = m[0];
}
static void change_share(lp_destination_memory *m)
{
    m[1].data = m[1].storage = (char *)m[0].storage + 8;
}
static void change_layout(lp_destination_memory *m)
{
    m[0].layout = "nvfp4_l1_scale";
    m[0].layout_version = 2;
}
static void change_several(lp_destination_memory *m)
{
    m[0].dtype = LP_BF16;
    m[1].shape = other_shape;
    m[2].data = (char *)m[2].data + 4;
}

static void test_every_mismatch_is_named(void **state)
{
    (void)state;
    world w;
    rich_world(&w);
    image live = new_image(&w);
    static const struct {
        void (*change)(lp_destination_memory *m);
        const char *text;
    } cases[] = {
        {change_name, "'layers.0.other' is not a destination of the trace (and 1 more)"},
        {change_dtype, "'layers.0.one' is BF16 [4, 4], the plan needs F32 [4, 4]"},
        {change_shape, "'layers.0.one' is F32 [2, 8], the plan needs F32 [4, 4]"},
        {change_stride, "'layers.0.one' has byte strides [24, 4], the plan needs [20, 4]"},
        {change_offset, "'layers.0.one' lies at byte 4 of its storage, the plan needs 0"},
        {change_storage_bytes, "'layers.0.one' has a storage of 16 bytes, the plan needs 80"},
        {change_memory, "'layers.0.one' has no memory"},
        {change_twice, "'layers.0.one' is given twice (and 1 more)"},
        {change_share, "the storages 'layers.0.one' and 'layers.1.two' share memory"},
        {change_layout, "'layers.0.one' has layout 'nvfp4_l1_scale' version 2, the plan needs '' version 0"},
        {change_several, "'layers.0.one' is BF16 [4, 4], the plan needs F32 [4, 4] (and 2 more)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lp_error err = {.code = LP_OK};
        assert_int_equal(bind_with(&w, &live, cases[i].change, &err), LP_E_MISMATCH);
        assert_string_equal(err.text, cases[i].text);
    }
    lp_error err = {.code = LP_OK};
    assert_int_equal(bind_with(&w, &live, change_several, &err), LP_E_MISMATCH);
    assert_string_equal(err.hint, "also 'layers.1.two', 'layers.1.three'");
    lp_plan *plan = NULL;
    assert_int_equal(lp_bind(&plan, w.trace, &(lp_scope){.tp = 2, .tp_rank = 1}, NULL, 0, NULL, &err),
                     LP_E_UNKNOWN_NAME);
    assert_int_equal(lp_bind(&plan, w.trace, &(lp_scope){.tp = 2}, NULL, 0, NULL, &err), LP_E_MISMATCH);
    assert_string_equal(err.text, "rank 0 is of another layout: pp 1 dp 1 tp 2, the trace has pp 1 dp 1 tp 1");
    assert_int_equal(lp_bind(&plan, w.trace, NULL, NULL, 0, NULL, &err), LP_E_MISMATCH);
    free_image(&w, &live);
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation_fails_once),
        cmocka_unit_test(test_every_mismatch_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
